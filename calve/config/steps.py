"""Steps: what happens to the columns of a record on the way to the table, in the order of calve.yaml (docs/steps.md).

Only values; `glue_jobs.transform` runs them. Paths are names with dots. They go through lists and values of maps: `items.price`
is the price of every item.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, is_dataclass, replace
from typing import Any, Literal

from calve.names import RECORD_KEY
from calve.schema.columns import Json

Value = str | int | bool
"""The types of a column by which records are routed."""


@dataclass(frozen=True, slots=True)
class Route:
    """The records of a shared topic that belong to this table: those with one of `values` in a column.

    others: what happens to records whose value no table names, or null; exactly one of the tables does not leave them out.
    named: the values of all these tables; not needed with `leave_out`.
    """

    column: str
    values: tuple[Value, ...]
    named: tuple[Value, ...]
    others: Literal["leave_out", "keep", "reject"]
    kind: Literal["route"] = "route"


@dataclass(frozen=True, slots=True)
class Flatten:
    """Structs become columns, named by their path with `separator` instead of dots.

    explode: path of a list; each item becomes a row. maps: path of a map -> its keys that become columns; the map keeps the
    others.
    """

    separator: str = "_"
    explode: str | None = None
    maps: dict[str, tuple[str, ...]] = field(default_factory=dict)
    kind: Literal["flatten"] = "flatten"


@dataclass(frozen=True, slots=True)
class Leaf:
    """A column that `flatten` makes from a path of structs: the value, a map's value of `key`, or the map `without` keys.
    shown: the field's name in messages.
    """

    name: str
    path: tuple[str, ...]
    shown: str
    key: str | None = None
    without: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Filter:
    """Only records for which the condition, a Spark SQL expression, is true become rows."""

    condition: str
    kind: Literal["filter"] = "filter"


@dataclass(frozen=True, slots=True)
class Sql:
    """One `SELECT ... FROM source [WHERE ...]` of Spark SQL, computed per record."""

    query: str
    kind: Literal["sql"] = "sql"


@dataclass(frozen=True, slots=True)
class Lookup:
    """Columns of another table's row with the same key. on, columns: column of the record -> column of the other table."""

    table: str
    on: dict[str, str]
    columns: dict[str, str]
    missing: Literal["null", "reject"] = "null"
    kind: Literal["lookup"] = "lookup"

    def full_name(self, database: str) -> str:
        """The other table with its database; by default this table's."""
        return self.table if "." in self.table else f"{database}.{self.table}"


@dataclass(frozen=True, slots=True)
class Rule:
    """How a value is masked. `argument`: of `partial` the number of characters to keep, or `domain`; of `generalise` `year`,
    `month` or the width of a range.
    """

    how: Literal["drop", "null", "hash", "partial", "generalise", "keep"]
    argument: str | int | None = None


@dataclass(frozen=True, slots=True)
class Mask:
    """Masking of a record. fields: by path. tags: by a tag of the schema; `fields` take precedence.

    key, headers: what happens to `_kafka.key` and to header values, which may hold the same data in the clear.
    masking_key: the id of the key that makes all tokens; None: the key of the record's time.
    """

    fields: dict[str, Rule] = field(default_factory=dict)
    tags: dict[str, Rule] = field(default_factory=dict)
    key: Literal["hash", "null", "keep"] = "hash"
    headers: Literal["hash", "null", "keep"] = "null"
    masking_key: str | None = None
    kind: Literal["mask"] = "mask"

    @property
    def masks(self) -> bool:
        """False if all rules are `keep`: the fields were reviewed, and nothing is masked."""
        rules = (*self.fields.values(), *self.tags.values())
        return {self.key, self.headers, *(each.how for each in rules)} != {"keep"}


UNMET = "expectation_unmet"
"""The reject reason of a record that does not meet an expectation."""


@dataclass(frozen=True, slots=True)
class Expect:
    """A condition of Spark SQL for every record, behind all other steps. Records that do not meet it are dead letters or dropped.

    at_least: the share of records that must meet it within `calve.rounds.expectations.WITHIN_S`; None: any. If fewer do, the job
    says so, or with `suspends` does not commit.
    """

    condition: str
    drop: bool = False
    at_least: float | None = None
    suspends: bool = False
    kind: Literal["expect"] = "expect"


Step = Route | Flatten | Filter | Sql | Lookup | Mask | Expect


def place(steps: Sequence[Step], number: int) -> str:
    """A step's place in calve.yaml. A route is beside the list of steps and before it, expectations are behind it."""
    step = steps[number]
    match step:
        case Route():
            return step.kind
        case Expect():
            return f"expect[{sum(isinstance(each, Expect) for each in steps[:number])}]"
    return f"steps[{number - isinstance(steps[0], Route)}].{step.kind}"


def ways_to(path: str) -> list[str]:
    """The paths of a field and of the fields that contain it, from the column on."""
    names = path.split(".")
    return [".".join(names[:length]) for length in range(1, len(names) + 1)]


def names_behind(steps: Iterable[Step], path: str) -> set[str]:
    """The possible names of a field after these steps: its path, or the columns that `flatten` makes of it."""
    return {path, *(path.replace(".", each.separator) for each in steps if isinstance(each, Flatten))}


def is_masked(steps: Iterable[Step], path: str, tags: Iterable[str] = ()) -> bool:
    """Whether `mask` has a rule for a field: by its path, a containing field's path, or a tag. `keep` is a rule too."""
    before: list[Step] = []
    for each in steps:
        if isinstance(each, Mask):
            named = {name for rule in each.fields for name in names_behind(before, rule)}
            by_path = any(names_behind(before, way) & named for way in ways_to(path))
            return by_path or not each.tags.keys().isdisjoint(tags)
        before.append(each)
    return False


def masked_columns(steps: Sequence[Step], tags: Mapping[str, Sequence[str]]) -> set[str]:
    """The possible names, after the steps, of the fields with a rule of `mask`."""
    ruled = {path for each in steps if isinstance(each, Mask) for path in each.fields}
    ruled |= {path for path, found in tags.items() if is_masked(steps, path, found)}
    return {name for path in ruled for name in names_behind(steps, path)}


def tokens_by(steps: Iterable[Step], tags: Mapping[str, Iterable[str]]) -> dict[str, str | None]:
    """The fields that become tokens, as `plain`, with the masking key that makes them all; None: several make them.

    A tag never chooses one key: a producer may give it to a field whose values are in the table already.
    """
    found: dict[str, str | None] = {}
    for step in (each for each in steps if isinstance(each, Mask)):
        hashing = {tag for tag, rule in step.tags.items() if rule.how == "hash"}
        tagged = {path for path, own in tags.items() if not hashing.isdisjoint(own)}
        found |= {plain(path): None for path in tagged - step.fields.keys()}
        hashed = [path for path, rule in step.fields.items() if rule.how == "hash"]
        received = [RECORD_KEY] if step.key == "hash" else []
        found |= {plain(path): step.masking_key for path in (*hashed, *received)}
    return found


def plain(path: str) -> str:
    """A path without dots and the separators that `flatten` puts in their place."""
    return path.replace(".", "").replace("_", "")


NOTE = "steps"
LOOKED_UP = "lookup:"
"""Prefix of a table, `database.table`, in a round's note of the snapshot that its lookups read."""


def noted(steps: Sequence[Step], records: Json, tags: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """The value of `NOTE` in a round: a digest of the steps and of the names, types and tags of their input; empty if none."""
    if not steps:
        return {}
    described = (
        [
            # The order of tags decides; that of other mappings does not.
            [each.kind, _without_defaults(each)]
            + (list(each.tags) if isinstance(each, Mask) and len(each.tags) > 1 else [])
            for each in map(_rule_alone, steps)
        ],
        _names(records),
        {p: list(t) for p, t in tags.items()},
    )
    return {NOTE: hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()[:16]}


def _rule_alone(step: Step) -> Step:
    """A step without what changes the fate of no record."""
    return replace(step, at_least=None, suspends=False) if isinstance(step, Expect) else step


def _without_defaults(value: Any) -> Any:
    """A value without what is as it is by default: a setting that a release adds changes no digest."""
    if isinstance(value, Mapping):
        return {name: _without_defaults(each) for name, each in value.items()}
    if not is_dataclass(value):
        return value
    own = {each.name: getattr(value, each.name) for each in fields(value)}
    by_default = {
        each.name: each.default if each.default_factory is MISSING else each.default_factory()
        for each in fields(value)
    }
    return {name: _without_defaults(each) for name, each in own.items() if each != by_default[name]}


def _names(kind: Json) -> Json:
    if isinstance(kind, str):
        return kind
    match kind["type"]:
        case "struct":
            return {each["name"]: _names(each["type"]) for each in kind["fields"]}
        case "list":
            return [_names(kind["element"])]
    return [_names(kind["key"]), _names(kind["value"])]
