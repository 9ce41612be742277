"""Steps: what becomes of the columns of a record on its way to the table, in the order of calve.yaml (docs/steps.md).

Values alone; `glue_jobs.transform` runs them. Paths are names with dots between them; they go through lists and values of maps
as if these were what they hold: `items.price` is the price of every item.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from typing import Any, Literal

from calve.schema.columns import Json

Value = str | int | bool
"""What a column may hold by which records are routed."""


@dataclass(frozen=True, slots=True)
class Route:
    """Of a topic that several tables share, the records that are the table's: those with one of `values` in a column.

    others: what becomes of records whose value no table names, null among them; of all tables just one does not leave them out.
    named: what all these tables name; with `leave_out` nothing, since who leaves all others out need not know it.
    """

    column: str
    values: tuple[Value, ...]
    named: tuple[Value, ...]
    others: Literal["leave_out", "keep", "reject"]
    kind: Literal["route"] = "route"


@dataclass(frozen=True, slots=True)
class Flatten:
    """Structs become columns, named by their path with `separator` for the dots.

    explode: path of a list, of whose items each makes a row. maps: path of a map -> its keys that become columns; the map keeps
    the others.
    """

    separator: str = "_"
    explode: str | None = None
    maps: dict[str, tuple[str, ...]] = field(default_factory=dict)
    kind: Literal["flatten"] = "flatten"


@dataclass(frozen=True, slots=True)
class Leaf:
    """A column that `flatten` makes of what is at a path of structs: as it is, of a map the value of `key`, or the map `without`
    keys. shown: the field as messages call it.
    """

    name: str
    path: tuple[str, ...]
    shown: str
    key: str | None = None
    without: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Filter:
    """Records for which the condition, a Spark SQL expression, is not true make no row."""

    condition: str
    kind: Literal["filter"] = "filter"


@dataclass(frozen=True, slots=True)
class Sql:
    """One `SELECT ... FROM source [WHERE ...]` of Spark SQL, computed for each record alone."""

    query: str
    kind: Literal["sql"] = "sql"


@dataclass(frozen=True, slots=True)
class Lookup:
    """Columns of another table of the lake, of its row that has the same key.

    on: column of the record -> column of the other table. columns: new column -> column of the other table.
    """

    table: str
    on: dict[str, str]
    columns: dict[str, str]
    missing: Literal["null", "reject"] = "null"
    kind: Literal["lookup"] = "lookup"

    def full_name(self, database: str) -> str:
        """The other table with its database: this one where the step names none."""
        return self.table if "." in self.table else f"{database}.{self.table}"


@dataclass(frozen=True, slots=True)
class Rule:
    """How a value is masked. `argument`: of `partial` the characters that stay, or `domain`; of `generalise` `year`, `month` or
    the width of a band.
    """

    how: Literal["drop", "null", "hash", "partial", "generalise", "keep"]
    argument: str | int | None = None


@dataclass(frozen=True, slots=True)
class Mask:
    """Personal data of a record. fields: by path. tags: by a tag that the schema gives a field; `fields` count first.

    key, headers: what becomes of `_kafka.key` and of the headers' values, which may hold the same data as they were received.
    """

    fields: dict[str, Rule] = field(default_factory=dict)
    tags: dict[str, Rule] = field(default_factory=dict)
    key: Literal["hash", "null", "keep"] = "hash"
    headers: Literal["hash", "null", "keep"] = "null"
    kind: Literal["mask"] = "mask"

    @property
    def masks(self) -> bool:
        """False where it only says `keep`: somebody has looked at these fields, and nothing is masked."""
        rules = (*self.fields.values(), *self.tags.values())
        return {self.key, self.headers, *(each.how for each in rules)} != {"keep"}


Step = Route | Flatten | Filter | Sql | Lookup | Mask


def ways_to(path: str) -> list[str]:
    """The paths of the fields that a field is in, from the column on, and its own."""
    names = path.split(".")
    return [".".join(names[:length]) for length in range(1, len(names) + 1)]


def names_behind(steps: Iterable[Step], path: str) -> set[str]:
    """What a field of the records may be called behind these steps: its path, or what `flatten` makes of it."""
    return {path, *(path.replace(".", each.separator) for each in steps if isinstance(each, Flatten))}


def is_masked(steps: Iterable[Step], path: str, tags: Iterable[str] = ()) -> bool:
    """Whether the step `mask` has a rule for a field of the records: by its path, by that of a field that it is in, or by a tag.

    `keep` is a rule, too.
    """
    before: list[Step] = []
    for each in steps:
        if isinstance(each, Mask):
            named = {name for rule in each.fields for name in names_behind(before, rule)}
            by_path = any(names_behind(before, way) & named for way in ways_to(path))
            return by_path or not each.tags.keys().isdisjoint(tags)
        before.append(each)
    return False


def masked_columns(steps: Sequence[Step], tags: Mapping[str, Sequence[str]]) -> set[str]:
    """What the fields that the step `mask` has a rule for may be called behind the steps."""
    ruled = {path for each in steps if isinstance(each, Mask) for path in each.fields}
    ruled |= {path for path, found in tags.items() if is_masked(steps, path, found)}
    return {name for path in ruled for name in names_behind(steps, path)}


def step(raw: dict[str, Any]) -> Step:
    """A step out of what `dataclasses.asdict` made of it."""
    match raw["kind"]:
        case "route":
            return Route(**(raw | {part: tuple(raw[part]) for part in ("values", "named")}))
        case "flatten":
            return Flatten(**(raw | {"maps": {path: tuple(keys) for path, keys in raw["maps"].items()}}))
        case "filter":
            return Filter(**raw)
        case "sql":
            return Sql(**raw)
        case "lookup":
            return Lookup(**raw)
    rules = {part: {name: Rule(**rule) for name, rule in raw[part].items()} for part in ("fields", "tags")}
    return Mask(**(raw | rules))


NOTE = "steps"
LOOKED_UP = "lookup:"
"""Stands before a table, `database.table`, where a round notes the snapshot of it that rows were looked up in."""


def noted(steps: Sequence[Step], records: Json, tags: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """What a round notes under `NOTE` of how its rows were made: a digest of the steps, and of the names, types and tags of what
    they were run on; nothing where there are no steps.
    """
    if not steps:
        return {}
    told = (
        [[each.kind, _told(each), *_order(each)] for each in steps],
        _names(records),
        {p: list(t) for p, t in tags.items()},
    )
    return {NOTE: hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:16]}


def _order(step: Step) -> list[str]:
    """Of several tags the first counts; in all other mappings the order says nothing."""
    return list(step.tags) if isinstance(step, Mask) and len(step.tags) > 1 else []


def _told(value: Any) -> Any:
    """A value without what is as it is by default: a setting that a release adds changes no digest."""
    if isinstance(value, Mapping):
        return {name: _told(each) for name, each in value.items()}
    if not is_dataclass(value):
        return value
    own = {each.name: getattr(value, each.name) for each in fields(value)}
    by_default = {
        each.name: each.default if each.default_factory is MISSING else each.default_factory()
        for each in fields(value)
    }
    return {name: _told(each) for name, each in own.items() if each != by_default[name]}


def _names(kind: Json) -> Json:
    if isinstance(kind, str):
        return kind
    match kind["type"]:
        case "struct":
            return {each["name"]: _names(each["type"]) for each in kind["fields"]}
        case "list":
            return [_names(kind["element"])]
    return [_names(kind["key"]), _names(kind["value"])]
