"""The columns of an aggregate table (ADR 20). They never change: each has the widest type of its kind from the creation on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import ClassVar

from calve.errors import Suspended
from calve.modes.measures import Term, Typed, parse, type_of, typed, widest
from calve.modes.mode import Mode, ModeName, plain_columns
from calve.names import SYSTEM_COLUMN
from calve.schema.columns import KAFKA, Json, field, struct
from calve.schema.evolution import column_at, data_columns, show
from calve.table.summary import TOTALS

WINDOW_START = "window_start"
OF_THE_LAST = "of the last record that changed the group"
EMPTY = ("key", "headers")
"""Fields of `_kafka` that are null in an aggregate row, because they belong to a single record."""


@dataclass(frozen=True, slots=True)
class Measure:
    """A column of an aggregate and its expression, as `calve.modes.measures` parses it."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Window:
    """Groups are also split by time: windows of `size_ms` of `column`, aligned to the epoch, in UTC."""

    column: str
    size_ms: int


@dataclass(frozen=True, slots=True)
class Aggregate(Mode):
    """The table holds one row per group of records. `by`: paths of the columns of the group."""

    kind: ClassVar[ModeName] = "aggregate"
    replaces_rows: ClassVar[bool] = True
    groups_rows: ClassVar[bool] = True
    cannot_forget: ClassVar[str | None] = "rows are totals: they do not say whose records they include"
    by: tuple[str, ...]
    measures: tuple[Measure, ...]
    window: Window | None = None

    @property
    def key(self) -> tuple[str, ...]:
        """The columns of a record that identify its group."""
        return (*self.by, self.window.column) if self.window else self.by

    def note(self, columns: Json) -> str:
        """The words of calve.yaml."""
        window = asdict(self.window) if self.window else None
        measures = {each.name: each.text for each in self.measures}
        return json.dumps({"mode": "aggregate", "by": self.by, "measures": measures, "window": window})

    @classmethod
    def of_note(cls, note: str) -> Aggregate:
        found = json.loads(note)
        measures = tuple(Measure(*each) for each in found["measures"].items())
        return cls(tuple(found["by"]), measures, Window(**found["window"]) if found["window"] else None)


@dataclass(frozen=True, slots=True)
class Total:
    """A measure's column and type. `of`: None if records are counted."""

    name: str
    term: Term
    of: Typed | None
    kind: str


def column_of(path: str) -> str:
    """The name of the column for a column of the records: `shop.id` becomes `shop_id`."""
    return path.replace(".", "_")


def groups_of(records: Json, aggregate: Aggregate) -> dict[str, str]:
    """The group columns with their types, in the order of `Aggregate.key`. Raises Suspended: `key_unusable`."""
    columns = with_kafka(records)
    if plain_columns(columns, aggregate.by, "aggregate.by") != aggregate.by:
        why = "only plain columns can identify a group, and one of these is a struct"
        fix = "in calve.yaml, name the fields of the struct in `by`"
        raise Suspended("key_unusable", why, fix=fix, at=("aggregate", "by"))
    groups = {column_of(path): widest(_type(columns, path)) for path in aggregate.by}
    if aggregate.window is None:
        return groups
    column = aggregate.window.column
    plain_columns(columns, (column,), "aggregate.window")
    if (kind := show(_type(columns, column))) != "timestamptz":
        why = f"{column} is a {kind}, and windows need a timestamp with a time zone"
        fix = "in calve.yaml, change the window; _kafka.timestamp is one"
        raise Suspended("key_unusable", why, fix=fix, at=("aggregate", "window"))
    return groups | {WINDOW_START: kind}


def totals_of(records: Json, aggregate: Aggregate) -> list[Total]:
    """The measures over records of these columns, without `_kafka`. Raises as `calve.modes.measures.typed`."""
    columns = with_kafka(records)
    found = []
    for measure in aggregate.measures:
        term = parse(measure.text)
        try:
            of = None if term.of is None else typed(term.of, columns)
            found.append(Total(measure.name, term, of, type_of(term, columns)))
        except Suspended as problem:
            problem.at = ("aggregate", "measures", measure.name)
            raise
    return found


def columns_of(records: Json, aggregate: Aggregate) -> Json:
    """The table's data columns for records with these columns. Raises as `groups_of` and `totals_of`."""
    groups = [field(name, kind) for name, kind in groups_of(records, aggregate).items()]
    totals = [field(each.name, each.kind, doc=str(each.term)) for each in totals_of(records, aggregate)]
    return struct(*groups, *totals)


def kafka_column() -> Json:
    fields = [
        each | {"doc": "null" if each["name"] in EMPTY else OF_THE_LAST} for each in KAFKA["type"]["fields"]
    ]
    return KAFKA | {"type": struct(*fields), "doc": f"facts {OF_THE_LAST}"}


def with_kafka(records: Json) -> Json:
    return struct(*(each for each in records["fields"] if each["name"] != SYSTEM_COLUMN), KAFKA)


def require_same_kind(table: str, properties: Mapping[str, str], aggregate: Aggregate | None) -> None:
    """Refuse to change a table from aggregate to records or back, whatever it holds. Raises Suspended: `mode_changed`."""
    born, wanted = TOTALS in properties, aggregate is not None
    if born == wanted:
        return
    kinds = {True: "totals of groups of records", False: "records"}
    raise Suspended(
        "mode_changed",
        f"table {table} was made for {kinds[born]}, and is to hold {kinds[wanted]}",
        fix="take back the change of `aggregate` in calve.yaml, drop the table, or name another one",
    )


def require_same_columns(table: str, held: Json, records: Json, aggregate: Aggregate) -> None:
    """Refuse records whose measures do not fit the table's columns. Raises Suspended: `measure_changed`, or as `columns_of`."""
    now, before = (
        {column["name"]: show(column["type"]) for column in each["fields"]}
        for each in (columns_of(records, aggregate), data_columns(held))
    )
    if now == before:
        return
    changed = next(name for name in (*now, *before) if now.get(name) != before.get(name))
    raise Suspended(
        "measure_changed",
        f"table {table} holds {changed} as {before.get(changed, 'nothing')}; by calve.yaml and the schemas of its records"
        f" it is {now.get(changed, 'nothing')} now",
        fix="take back the change, in calve.yaml or in the registry, or name another table",
        at=("aggregate",),
    )


def _type(columns: Json, path: str) -> Json:
    found = column_at(columns, path)
    assert found is not None  # noqa: S101 `plain_columns` has found it
    return found["type"]
