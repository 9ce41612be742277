"""Masking without the job's code: tokens by Python's `hmac`, once per value (docs/masking.md)."""

from __future__ import annotations

import hmac
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from calve.config.masking_keys import Key, hashing
from calve.config.steps import Mask, Rule
from calve.names import SYSTEM_COLUMN
from calve.schema.change_events import UNAVAILABLE
from cli.verify.columns import BYTES, TEXTS, has_changes, with_children

DOMAIN = re.compile(r"@([A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+)\Z")
Path = tuple[str, ...]
Rules = Mapping[Path, Rule]


@dataclass(slots=True)
class Tokens:
    """The keys, the current one first, and their tokens."""

    keys: Sequence[Key]
    _made: dict[tuple[int, bytes], str] = field(default_factory=dict)

    def numbers(self, timestamps: Any, masking_key: str | None) -> Any:
        """The index of the key for each record. Raises Suspended: as `hashing`."""
        if masking_key is not None:
            [found] = hashing(self.keys, masking_key)
            return np.full(len(timestamps), list(self.keys).index(found))
        since = np.array([each.since_us for each in self.keys])
        moments = timestamps.cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()).to_numpy()
        return np.maximum(np.searchsorted(since, moments, side="right") - 1, 0)

    def token(self, key: int, data: bytes) -> str:
        place = key, data
        if place not in self._made:
            found = self.keys[key]
            self._made[place] = f"{found.id}:{hmac.new(found.secret, data, 'sha256').hexdigest()}"
        return self._made[place]


def masked(
    rows: pa.RecordBatch, step: Mask, tokens: Tokens, tags: Mapping[str, tuple[str, ...]]
) -> pa.RecordBatch:
    """The rows without personal values. Of a field's several tags, the step's first one counts; rules for a path go before."""
    tagged = {path: [rule for tag, rule in step.tags.items() if tag in own][:1] for path, own in tags.items()}
    rules = {path: rule for path, first in tagged.items() for rule in first} | step.fields
    wanted = {tuple(path.split(".")): rule for path, rule in rules.items()}
    wanted[SYSTEM_COLUMN, "key"] = Rule(step.key)
    wanted[SYSTEM_COLUMN, "headers", "value"] = Rule(step.headers)
    wanted = {path: rule for path, rule in wanted.items() if rule.how != "keep"}
    kafka = rows.column(SYSTEM_COLUMN)
    keys = tokens.numbers(kafka.field("timestamp"), step.masking_key)
    leaf = _but_placeholders if has_changes(rows.schema) else _leaf
    made = pa.RecordBatch.from_struct_array(_masked(rows.to_struct_array(), wanted, keys, tokens, leaf))
    place = made.schema.get_field_index(SYSTEM_COLUMN)
    return made.set_column(place, SYSTEM_COLUMN, made.column(place).cast(kafka.type))


def _masked(values: Any, rules: Rules, keys: Any, tokens: Tokens, leaf: Callable[..., Any]) -> Any:
    """The values by the rules for their field and those inside; None: the field is dropped. keys: the index of each one's key."""
    rule = rules.get(())
    if rule is not None and rule.how in ("drop", "null"):
        return None if rule.how == "drop" else pa.nulls(len(values), values.type)
    if not rules:
        return values
    if not pa.types.is_nested(values.type):
        if rule is None:
            raise AssertionError(rules)
        return leaf(values, rule, keys, tokens)

    def change(name: str, child: Any, parents: Any) -> Any:
        inside = {path[1:]: each for path, each in rules.items() if path[:1] == (name,)} if name else rules
        return _masked(child, inside, keys[parents], tokens, leaf)

    return with_children(values, change)


def _leaf(values: Any, rule: Rule, keys: Any, tokens: Tokens) -> Any:
    if rule.how == "generalise":
        return _generalised(values, rule.argument)
    if rule.how == "partial":
        shown = _domain if rule.argument == "domain" else partial(_last, int(rule.argument or 0))
        return pa.array([None if each is None else shown(each) for each in _texts(values)], pa.string())
    clear = values.to_pylist() if values.type in BYTES else _texts(values)
    found = [each.encode() if isinstance(each, str) else each for each in clear]
    pairs = zip(keys.tolist(), found, strict=True)
    return pa.array([None if data is None else tokens.token(key, data) for key, data in pairs], pa.string())


def _but_placeholders(values: Any, rule: Rule, keys: Any, tokens: Tokens) -> Any:
    """The values of change events: what stands for a value that an update lacks is no personal data."""
    made = _leaf(values, rule, keys, tokens)
    if values.type not in (*TEXTS, *BYTES):
        return made
    clear = values.cast(pa.large_binary()).to_pylist()
    pairs = zip(clear, made.to_pylist(), strict=True)
    return pa.array(
        [UNAVAILABLE if each == UNAVAILABLE.encode() else done for each, done in pairs], made.type
    )


def _texts(values: Any) -> list[str | None]:
    """The one text of each value, as docs/masking.md defines it."""
    kind = values.type
    if not pa.types.is_timestamp(kind):
        return [None if each is None else _text(each) for each in values.to_pylist()]
    moments = np.datetime_as_string(values.cast(pa.int64()).fill_null(0).to_numpy().astype("M8[us]"))
    zone = "Z" if kind.tz else ""
    valid = values.is_valid().to_pylist()
    return [f"{each}{zone}" if there else None for each, there in zip(moments, valid, strict=True)]


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, Decimal):
        return str(value)
    text = format(value, "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


def _last(stays: int, text: str) -> str:
    stars = len(text) - stays if len(text) > stays else len(text)
    return "*" * stars + text[stars:]


def _domain(text: str) -> str:
    found = DOMAIN.search(text)
    return f"***@{found[1]}" if found else "***"


def _generalised(values: Any, to: str | int | None) -> Any:
    kind = values.type
    if isinstance(to, str):
        unit = "M8[Y]" if to == "year" else "M8[M]"
        size, step = (pa.int32(), "M8[D]") if pa.types.is_date(kind) else (pa.int64(), "M8[us]")
        numbers = values.cast(size).fill_null(0).to_numpy()
        first = numbers.astype("int64").astype(step).astype(unit).astype(step).astype("int64")
        return (
            pa.array(first, pa.int64(), mask=~values.is_valid().to_numpy(zero_copy_only=False))
            .cast(size)
            .cast(kind)
        )
    width = int(to or 1)
    if pa.types.is_floating(kind):
        bands = [None if each is None else _band(each, width) for each in values.to_pylist()]
        return pa.array(bands, pa.float64()).cast(kind)
    return pa.array(
        [None if each is None else math.floor(each) // width * width for each in values.to_pylist()], kind
    )


def _band(value: float, width: int) -> float | None:
    steps = value / float(width)
    if not abs(steps) < 2.0**63:
        return None
    return float(np.floor(steps)) * float(width)
