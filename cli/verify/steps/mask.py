"""Masking without the job's code: tokens by Python's `hmac`, once per value (docs/masking.md)."""

from __future__ import annotations

import hmac
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from calve.config.masking_keys import Key
from calve.config.steps import Mask, Rule
from calve.names import SYSTEM_COLUMN
from cli.verify.columns import ends, entries, is_bytes, is_list, lengths

DOMAIN = re.compile(r"@([A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+)\Z")
Path = tuple[str, ...]
Rules = Mapping[Path, Rule]


@dataclass(slots=True)
class Tokens:
    """The keys, the current one first, and their tokens."""

    keys: Sequence[Key]
    _made: dict[tuple[int, bytes], str] = field(default_factory=dict)

    def numbers(self, timestamps: Any) -> Any:
        """The index of the key for each record."""
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
    """The rows without personal values."""
    kafka = rows.column(SYSTEM_COLUMN)
    run = _Run(tokens, tokens.numbers(kafka.field("timestamp")))
    found, every = _rules(step, tags), np.arange(rows.num_rows)
    columns = {}
    for name, column in zip(rows.schema.names, rows.columns, strict=True):
        if name == SYSTEM_COLUMN:
            columns[name] = _record(column, step, run)
            continue
        made = run.field(column, _inside(found, name), every)
        if made is not None:
            columns[name] = made
    return pa.RecordBatch.from_arrays(list(columns.values()), list(columns))


def _rules(step: Mask, tags: Mapping[str, tuple[str, ...]]) -> dict[Path, Rule]:
    """Of a field's several tags, the step's first one counts; rules for a path go before."""
    tagged = {
        path: next((rule for tag, rule in step.tags.items() if tag in own), None)
        for path, own in tags.items()
    }
    rules = {path: rule for path, rule in tagged.items() if rule is not None} | step.fields
    return {tuple(path.split(".")): rule for path, rule in rules.items() if rule.how != "keep"}


def _inside(found: Rules, name: str) -> dict[Path, Rule]:
    return {path[1:]: rule for path, rule in found.items() if path[0] == name}


@dataclass(frozen=True, slots=True)
class _Run:
    """keys: the index of each row's key."""

    tokens: Tokens
    keys: Any

    def field(self, values: Any, found: Rules, owners: Any) -> Any:
        """Masked values of a field, `owners`: the row of each; None: the field is dropped."""
        rule = found.get(())
        if rule is not None and rule.how in ("drop", "null"):
            return None if rule.how == "drop" else pa.nulls(len(values), values.type)
        if not found:
            return values
        kind = values.type
        if pa.types.is_struct(kind):
            return self._struct(values, found, owners)
        if pa.types.is_map(kind) or is_list(kind):
            return self._items(values, found, owners)
        if rule is None:
            raise AssertionError(found)
        return self._leaf(values, rule, owners)

    def _struct(self, values: Any, found: Rules, owners: Any) -> Any:
        made = {
            each.name: self.field(child, _inside(found, each.name), owners)
            for each, child in zip(values.type, values.flatten(), strict=True)
        }
        left = {name: child for name, child in made.items() if child is not None}
        if not left:
            return None
        return pa.StructArray.from_arrays(list(left.values()), list(left), mask=values.is_null())

    def _items(self, values: Any, found: Rules, owners: Any) -> Any:
        is_map, nulls = pa.types.is_map(values.type), values.is_null()
        lists = entries(values) if is_map else values
        items, parents = pc.list_flatten(lists), pc.list_parent_indices(lists).to_numpy()
        made = self.field(items.flatten()[1] if is_map else items, found, owners[parents])
        if made is None:
            return None
        places = ends(lengths(lists))
        if is_map:
            kind = pa.map_(values.type.key_type, made.type)
            return pa.MapArray.from_arrays(places, items.flatten()[0], made, kind, mask=nulls)
        return pa.ListArray.from_arrays(places, made, mask=nulls)

    def _leaf(self, values: Any, rule: Rule, owners: Any) -> Any:
        if rule.how == "generalise":
            return _generalised(values, rule.argument)
        if rule.how == "partial":
            shown = partial(_domain) if rule.argument == "domain" else partial(_last, int(rule.argument or 0))
            return _mapped(_texts(values), lambda text, _: shown(text), owners)
        if is_bytes(values.type):
            return _mapped(values.to_pylist(), self._token, owners)
        return _mapped(_texts(values), lambda text, owner: self._token(text.encode(), owner), owners)

    def _token(self, data: bytes, owner: int) -> str:
        return self.tokens.token(int(self.keys[owner]), data)

    def received(self, values: Any, how: str, owners: Any) -> Any:
        """Bytes of the record: its key, or values of its headers."""
        if how == "null":
            return pa.nulls(len(values), values.type)
        made = _mapped(values.to_pylist(), self._token, owners)
        return pc.cast(made, pa.binary()).cast(values.type)


def _record(kafka: Any, step: Mask, run: _Run) -> Any:
    """`_kafka` with its key and the values of its headers masked."""
    children = dict(zip((each.name for each in kafka.type), kafka.flatten(), strict=True))
    if step.key != "keep":
        children["key"] = run.received(children["key"], step.key, np.arange(len(kafka)))
    if step.headers != "keep":
        children["headers"] = _headers(children["headers"], step.headers, run)
    return pa.StructArray.from_arrays(list(children.values()), list(children), mask=kafka.is_null())


def _headers(headers: Any, how: str, run: _Run) -> Any:
    items, parents = pc.list_flatten(headers), pc.list_parent_indices(headers).to_numpy()
    names, values = items.flatten()
    made = pa.StructArray.from_arrays([names, run.received(values, how, parents)], ["key", "value"])
    return pa.ListArray.from_arrays(ends(lengths(headers)), made, mask=headers.is_null()).cast(headers.type)


def _mapped(values: Sequence[Any], change: Callable[[Any, int], str], owners: Any) -> Any:
    return pa.array(
        (
            None if value is None else change(value, owner)
            for value, owner in zip(values, owners, strict=True)
        ),
        pa.string(),
    )


def _texts(values: Any) -> Sequence[str | None]:
    """The one text of each value, as docs/masking.md defines it."""
    kind = values.type
    if pa.types.is_boolean(kind):
        return [None if each is None else str(each).lower() for each in values.to_pylist()]
    if pa.types.is_decimal(kind):
        return [None if each is None else _digits(each) for each in values.to_pylist()]
    if pa.types.is_timestamp(kind):
        moments = np.datetime_as_string(values.cast(pa.int64()).fill_null(0).to_numpy().astype("M8[us]"))
        zone = "Z" if kind.tz else ""
        valid = values.is_valid().to_pylist()
        return [f"{each}{zone}" if there else None for each, there in zip(moments, valid, strict=True)]
    return [None if each is None else str(each) for each in values.to_pylist()]


def _digits(value: Decimal) -> str:
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
        return pc.if_else(
            values.is_valid(), pa.array(first, pa.int64()).cast(size).cast(kind), pa.scalar(None, kind)
        )
    width = int(to or 1)
    if pa.types.is_floating(kind):
        bands = [None if each is None else _band(each, width) for each in values.to_pylist()]
        return pa.array(bands, pa.float64()).cast(kind)
    found = [None if each is None else _floor(each) // width * width for each in values.to_pylist()]
    if pa.types.is_decimal(kind):
        return pa.array([None if each is None else Decimal(each) for each in found], kind)
    return pa.array(found, kind)


def _floor(value: int | Decimal) -> int:
    return value if isinstance(value, int) else int(value.to_integral_value(rounding="ROUND_FLOOR"))


def _band(value: float, width: int) -> float | None:
    steps = value / float(width)
    if not abs(steps) < 2.0**63:
        return None
    return float(np.floor(steps)) * float(width)
