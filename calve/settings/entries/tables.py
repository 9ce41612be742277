"""The entries of `tables`: modes, routes, outputs and maintenance of a table, and the options that `defaults` may set for all."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from calve.config.engine_choice import MODES
from calve.config.job import EngineChoice
from calve.config.maintenance import Maintenance
from calve.config.steps import Value, masked_columns
from calve.modes.aggregate import WINDOW_START, column_of
from calve.modes.measures import MeasureProblem, columns_in, parse
from calve.names import RECORD_KEY
from calve.settings import fields, notation
from calve.settings.document import at
from calve.settings.entries.sources import (
    KeySection,
    SourceSection,
    unknown_beside_inference,
    useless_beside_inference,
)
from calve.settings.entries.steps import ExpectSection, ParameterName, ParameterValue, WrittenStep
from calve.settings.fields import Section
from calve.settings.problems import Invalid, InvalidParts, KeyPath, Problem, near_miss


class UpsertSection(Section):
    """The table holds the newest record of each key; see docs/modes.md. Absent: every record is a row."""

    key: Annotated[fields.Columns, Field(min_length=1)] | None = None
    order_by: fields.Column | None = None


class ChangeDataSection(Section):
    """The table holds the rows of a database's table, by Debezium's events of its changes."""

    key: Annotated[fields.Columns, Field(min_length=1)] | None = None
    order_by: Annotated[list[fields.ColumnName], Field(min_length=1)] | None = None
    deletes: Literal["remove", "keep"] = "remove"

    def problems(self) -> Iterator[Problem]:
        if self.order_by and self.deletes != "keep":
            reason = "needs `deletes: keep`: a late change would restore a deleted row"
            yield Problem(("order_by",), reason, "add `deletes: keep`, or remove it")


class HistorySection(Section):
    """The table holds every version of each row, and when it was valid; see docs/modes.md."""

    key: Annotated[fields.Columns, Field(min_length=1)] | None = None
    order_by: fields.Column | None = None
    of: Literal["records", "change_data"] = "records"

    def problems(self) -> Iterator[Problem]:
        if self.order_by and self.of == "change_data":
            reason = "cannot be used with `of: change_data`: the time of the change orders the versions"
            yield Problem(("order_by",), reason, "remove it")


def _first(keep: str) -> str:
    if keep == "last":
        raise Invalid(
            "is `first`: a table of the last record of each key is one of upserts", "use `upsert` instead"
        )
    if keep != "first":
        raise Invalid(f'"{keep}" cannot be used', "use `first`")
    return keep


def _window(raw: Any) -> int | None:
    return None if raw == "unbounded" else notation.milliseconds(raw)


class DeduplicateSection(Section):
    """The table holds the first record of each key; see docs/modes.md. Absent: every record is a row."""

    key: Annotated[fields.Columns, Field(min_length=1)] | None = None
    keep: Annotated[str, AfterValidator(_first)] = "first"
    window: Annotated[
        int | None,
        BeforeValidator(_window, json_schema_input_type=Literal["unbounded"] | fields.Milliseconds),
    ] = None


def _measure(text: Any) -> str:
    """`sum(price * quantity)`, as `calve.modes.measures` writes it."""
    if not isinstance(text, str):
        raise Invalid("must be text", "write count(*), or sum, min or max of an expression")
    try:
        term = parse(text)
    except MeasureProblem as problem:
        raise Invalid(f'"{text}" is not a measure: {problem.message}') from None
    for path in columns_in(term.of) if term.of else ():
        notation.column(path)
    return str(term)


def _span(size_ms: int) -> int:
    if size_ms < 1000:
        raise Invalid("is less than a second", 'write it as "1h"')
    return size_ms


class WindowSection(Section):
    """Totals of spans of time: a group has a row for each in which it has records. Absent: one row."""

    column: fields.Column
    size: Annotated[fields.Milliseconds, AfterValidator(_span)]


class AggregateSection(Section):
    """The table holds totals of groups of records; see docs/modes.md. Absent: every record is a row."""

    by: Annotated[fields.Columns, Field(min_length=1)]
    measures: Annotated[
        dict[fields.ColumnName, Annotated[str, fields.from_text(_measure)]],
        Field(min_length=1),
    ]
    window: WindowSection | None = None

    def problems(self) -> Iterator[Problem]:
        named: list[tuple[KeyPath, str]] = [(("by",), column_of(each)) for each in self.by]
        named += [(("window",), WINDOW_START)] if self.window else []
        named += [(("measures", name), name) for name in self.measures]
        for place, (path, name) in enumerate(named):
            if name.lower() in (earlier.lower() for _, earlier in named[:place]):
                reason = f'"{name}" is the name of two columns of the table'
                yield Problem(path, reason, "give the measure another name")


BY_KEY = ("upsert", "change_data", "history")
"""Modes whose records replace rows."""
KINDS = {str: "text", int: "a whole number", bool: "true or false"}
LONG = range(-(2**63), 2**63)


def _listed(raw: Any) -> list[tuple[KeyPath, Any]]:
    """The values of a route, each with its path below the key."""
    return [((str(n),), each) for n, each in enumerate(raw)] if isinstance(raw, list) else [((), raw)]


def _values(raw: Any) -> tuple[Value, ...]:
    """One value of a route, or a list of them."""
    listed = _listed(raw)
    if not listed:
        raise Invalid("is empty", "name a value, or remove it and use `otherwise: true`")
    problems = []
    for path, value in listed:
        if value is None:
            fix = "remove it; the table with `otherwise: true` has records without a value"
            problems.append(Problem(path, "null cannot be named", fix))
        elif type(value) not in KINDS:
            fix = "use text, a whole number, true or false"
            problems.append(Problem(path, "is not a value of a route", fix))
        elif type(value) is int and value not in LONG:
            problems.append(
                Problem(path, f"{value} is too large for a whole number of a record", "remove it")
            )
    if problems:
        raise InvalidParts(problems)
    values = [each for _, each in listed]  # by their types too: in Python, 1 is True
    return tuple(notation.distinct(values, lambda each: (type(each), each), '"{value}" is named twice'))


class RouteSection(Section):
    """Which records of the topic are the table's, by a value that they hold; see docs/steps.md. Absent: all of them."""

    column: fields.FieldPath
    value: Annotated[
        tuple[Value, ...] | None, BeforeValidator(_values, json_schema_input_type=Value | list[Value])
    ] = None
    otherwise: bool = False

    def problems(self) -> Iterator[Problem]:
        if self.value is None and not self.otherwise:
            yield Problem((), "names no records", "add `value:`, or `otherwise: true`")
        if self.value is not None and self.otherwise:
            yield Problem(("otherwise",), "cannot be used together with `value`", "remove one of the two")


def route_problems(tables: Mapping[str, Any]) -> Iterator[Problem]:
    """Every problem between routes of tables that read the same records, of values as written."""
    together: dict[tuple[str, ...], dict[str, dict[str, Any]]] = {}
    for name, table in tables.items():
        if isinstance(at(table, "route"), dict):
            source = (table.get("topic"), at(table, "value", "subject"), at(table, "value", "message"))
            together.setdefault(tuple(map(repr, source)), {})[name] = table["route"]
    for routes in together.values():
        yield from _several_columns(routes)
        yield from _value_problems(routes)


def _several_columns(routes: Mapping[str, Mapping[str, Any]]) -> Iterator[Problem]:
    columns = [(name, each["column"]) for name, each in routes.items() if isinstance(each.get("column"), str)]
    for name, column in columns[1:]:
        table, first = columns[0]
        if column != first:
            reason = f'"{column}" is not "{first}", the column of table {table}'
            yield Problem(("tables", name, "route", "column"), reason, "route a topic by one column")
    others = [name for name, each in routes.items() if each.get("otherwise") is True]
    for name in others[1:]:
        reason = f"is already set for table {others[0]}, which reads the same records"
        yield Problem(("tables", name, "route", "otherwise"), reason, "name values instead")


def _value_problems(routes: Mapping[str, Mapping[str, Any]]) -> Iterator[Problem]:
    named = [
        (name, ("tables", name, "route", "value", *path), value)
        for name, route in routes.items()
        for path, value in _listed(route.get("value"))
        if type(value) in KINDS
    ]
    tables: dict[tuple[type, Value], str] = {}
    for name, path, value in named:
        table, _, first = named[0]
        shown = json.dumps(value, ensure_ascii=False)
        if type(value) is not type(first):
            kind, other = (
                KINDS[type(value)],
                f"{json.dumps(first, ensure_ascii=False)} of table {table} is {KINDS[type(first)]}",
            )
            fix = "write all values in the type of the column, text in quotes"
            yield Problem(path, f"{shown} is {kind}, and {other}", fix)
        earlier = tables.setdefault((type(value), value), name)
        if earlier != name:
            yield Problem(path, f"{shown} is named by table {earlier}, too", "remove one of the two")


class RowRetentionSection(Section):
    """Rows are deleted once a time in them is old enough: the day after it at the latest."""

    column: fields.FieldPath
    keep: fields.Duration


class MaintenanceOptions(Section):
    """How tables are kept fast and small; see docs/maintenance.md."""

    file_size: fields.Size | None = None
    snapshots: fields.Duration | None = None
    snapshots_at_least: Annotated[int, Field(ge=1)] | None = None
    snapshots_at_most: Annotated[int, Field(ge=2)] | None = None
    dead_letters: fields.Duration | None = None

    def problems(self) -> Iterator[Problem]:
        least = self.snapshots_at_least or Maintenance().snapshots_at_least
        most = self.snapshots_at_most or Maintenance().snapshots_at_most
        if least > most:
            fix = "raise `snapshots_at_most`, or lower this"
            yield Problem(("snapshots_at_least",), f"is more than the {most} that stay at most", fix)


class MaintenanceSection(MaintenanceOptions):
    """How this table is kept fast and small: what it does not set is that of `defaults`."""

    rows: RowRetentionSection | None = None


class AnnounceSection(Section):
    """What the events of the table's commits say beside the usual; see docs/announcements.md."""

    count_by: fields.ColumnName
    alert_on: Annotated[list[fields.CountedValue], Field(max_length=10)] = Field(default_factory=list)


class EmitSection(Section):
    """A topic that gets every row of the table, at least once."""

    topic: fields.Topic
    format: Literal["avro", "json"] = "avro"
    key: Annotated[list[fields.ColumnName], Field(min_length=1)] | None = None
    partitions: int = Field(default=6, ge=1)
    retention: fields.Milliseconds | None = None
    cleanup_policy: Literal["delete", "compact"] | None = None
    schema_id: Literal["prefix", "header"] = "prefix"


class BudgetSection(Section):
    """How many records the rounds of some time may reject before the table suspends."""

    share: fields.Share | None = None
    records: int | None = Field(default=None, ge=0)
    within: fields.Duration | None = None


class TableOptions(Section):
    """What a table may set for itself and `defaults` for all."""

    freshness: fields.Duration | None = None
    flush_size: fields.Size | None = None
    partition_flush_size: fields.Size | None = None
    start: fields.StartingPoint | None = None
    on_error: Literal["dead_letter", "skip", "suspend"] | None = None
    dead_letter_budget: BudgetSection | None = None
    on_data_loss: Literal["suspend", "continue"] | None = None
    gaps: Literal["detect", "allow"] | None = None
    format_version: Literal[2, 3] | None = None
    owner: fields.Text | None = None
    quarantine_new_fields: bool | None = None
    engine: EngineChoice | None = None

    def problems(self) -> Iterator[Problem]:
        if self.on_error == "suspend" and self.dead_letter_budget is not None:
            fix = "remove it, or use `on_error: dead_letter` or `skip`"
            yield Problem(("dead_letter_budget",), "has no use with `on_error: suspend`", fix)


class TableSection(TableOptions):
    """One topic kept as one table; its key is the table's name. With `topics`: many topics, each kept as a table of its own."""

    topic: fields.Topic | None = None
    topics: fields.Topics | None = None
    job: fields.Text | None = None
    value: SourceSection = SourceSection()
    key: KeySection | None = None
    route: RouteSection | None = None
    upsert: UpsertSection | None = None
    change_data: ChangeDataSection | None = None
    history: HistorySection | None = None
    deduplicate: DeduplicateSection | None = None
    aggregate: AggregateSection | None = None
    steps: list[WrittenStep] = Field(default_factory=list)
    expect: list[ExpectSection] = Field(default_factory=list)
    parameters: dict[ParameterName, ParameterValue] = Field(default_factory=dict)
    emit: EmitSection | None = None
    announce: AnnounceSection | None = None
    maintenance: MaintenanceSection | None = None
    event_time: fields.FieldPath | None = None
    partition_by: fields.Partitioning | None = None
    sort_by: fields.Sorting | None = None

    @property
    def source(self) -> str:
        """The topic, or the expression for the topics."""
        return self.topic or self.topics or ""

    def problems(self) -> Iterator[Problem]:
        yield from super().problems()
        named = [self.value.rest_column, (self.value.column or "value") if self.value.kept else None]
        parts = {
            ("value", "cloudevents"): self.value.cloudevents,
            ("key", "column"): self.key.column if self.key else None,
        }
        for path, column in parts.items():
            if column and column.lower() in {each.lower() for each in named if each}:
                reason = f'"{column}" is the name of another column of the records, too'
                yield Problem(path, reason, "give it another name")
            named.append(column)
        modes = [name for name in MODES if getattr(self, name) is not None]
        for each in modes[1:]:
            reason = f"cannot be used together with `{modes[0]}`: a table has one mode"
            yield Problem((each,), reason, "remove one")
        yield from self._inference_problems()
        yield from self._parameter_problems()
        yield from self._change_data_problems()
        yield from self._order_problems()
        yield from self._output_problems()
        yield from self._step_problems()

    def _inference_problems(self) -> Iterator[Problem]:
        if not self.value.infers:
            return
        others = (*MODES, "route", "steps", "expect", "quarantine_new_fields")
        yield from useless_beside_inference([each for each in others if getattr(self, each)])
        named: list[tuple[KeyPath, str]] = []
        for option, listed in (("partition_by", self.partition_by), ("sort_by", self.sort_by)):
            named += [((option, str(number)), each.column) for number, each in enumerate(listed or ())]
        named += [(("event_time",), self.event_time)] if self.event_time else []
        named += [(("announce", "count_by"), self.announce.count_by)] if self.announce else []
        yield from unknown_beside_inference(self.value, self.key, named)

    def _parameter_problems(self) -> Iterator[Problem]:
        """Parameters that a step names and the table has not, and the other way round."""
        named = [
            (("steps", str(n), *each.model_fields_set), each.marked) for n, each in enumerate(self.steps)
        ]
        named += [(("expect", str(n), "that"), each.marked) for n, each in enumerate(self.expect)]
        for path, marked in named:
            for name in [each for each in marked if each not in self.parameters]:
                reason = f"names :{name}, which is not a parameter of the table"
                fix = near_miss(name, self.parameters) or f"add `parameters: {{{name}: ...}}` to the table"
                yield Problem(path, reason, fix)
        used = {name for _, marked in named for name in marked}
        for name in [each for each in self.parameters if each not in used]:
            yield Problem(("parameters", name), "is named by no step", f"write :{name} in one, or remove it")

    def _document_problems(self, mode: Literal["change_data", "history"]) -> Iterator[Problem]:
        section: ChangeDataSection | HistorySection | None = getattr(self, mode)
        named = section.key if section and self.value.document is not None else None
        columns = {RECORD_KEY} if self.key is None else {RECORD_KEY, self.key.column}
        for path in named or ():
            if path not in columns and path.partition(".")[0] not in columns:
                reason = f"names {path} of the document, and MongoDB's deletions hold no document"
                yield Problem((mode, "key"), reason, "remove it: the record key is the `_id`")

    def _change_data_problems(self) -> Iterator[Problem]:
        if not (self.change_data or (self.history and self.history.of == "change_data")):
            if self.value.document is not None:
                reason = "has no use without `change_data`: only events of MongoDB hold documents"
                yield Problem(("value", "document"), reason, "remove it, or add `change_data: {}`")
            return
        if self.value.format not in {"registry", "avro", "json"}:
            reason = f'"{self.value.format}" cannot be used with `change_data`: Debezium writes Avro or JSON'
            yield Problem(("value", "format"), reason, "use `avro`, `json`, or remove it to ask the registry")
        if self.value.rest is not None and self.value.document is None:
            fix = "remove it; of MongoDB's documents, add `document: FILE`"
            yield Problem(("value", "rest"), "has no use with `change_data`", fix)
        if self.value.cloudevents is not None:
            reason = "has no use with `change_data`: calve reads Debezium's own events"
            yield Problem(("value", "cloudevents"), reason, "remove it, and let Debezium write them")
        yield from self._document_problems("change_data" if self.change_data else "history")

    def _order_problems(self) -> Iterator[Problem]:
        """Nothing remembers when a record that a step left out would have counted."""
        drops = any(each.else_ == "drop" for each in self.expect)
        if not (self.route or drops or any(each.filters for each in self.steps)):
            return
        fix = "remove it, or the filter, WHERE, route or `else: drop`"
        if self.change_data and self.change_data.order_by:
            reason = "cannot be used with a step that leaves out records: nothing would remember the change that did"
            yield Problem(("change_data", "order_by"), reason, fix)
        if self.history and self.history.order_by:
            reason = "cannot be used with a step that leaves out records: those have no such column"
            yield Problem(("history", "order_by"), reason, fix)

    def _output_problems(self) -> Iterator[Problem]:
        if self.emit and self.history:
            reason = "cannot be used with `history`: a version that ends is written again"
            yield Problem(("emit",), reason, "remove it, or emit from a table of the newest rows")
        keyed = self.upsert or self.change_data
        if self.emit and keyed:
            if self.emit.key is not None:
                reason = "has no use: records have the key of the table"
                yield Problem(("emit", "key"), reason, "remove it")
            for path in [each for each in keyed.key or () if "." in each and each != RECORD_KEY]:
                reason = f"cannot be used here: the key names {path}, which is no column"
                yield Problem(("emit",), reason, "add `flatten`, and name the column that it makes")
        if self.emit and self.emit.topic == self.topic:
            reason = "is the topic that the table is read from"
            yield Problem(("emit", "topic"), reason, "name another topic")
        if self.announce and self._is_personal(self.announce.count_by):
            fix = "count by a column without personal data"
            yield Problem(("announce", "count_by"), "is masked, or the record key", fix)

    def _step_problems(self) -> Iterator[Problem]:
        masks = [n for n, each in enumerate(self.steps) if each.mask]
        for number in masks[1:]:
            yield Problem(("steps", str(number), "mask"), "masks a second time", "make both one step")
        if masks and any(each.sql for each in self.steps[: masks[0]]):
            reason = "comes after `sql`, which may have copied personal data"
            yield Problem(("steps", str(masks[0]), "mask"), reason, "put it before")
        conditions = [each.that for each in self.expect]
        for number, each in enumerate(conditions):
            if each in conditions[:number]:
                yield Problem(("expect", str(number), "that"), "is expected twice", "remove one")
        several = [n for n, each in enumerate(self.steps) if each.flatten and each.flatten.explode]
        mode = next((each for each in BY_KEY if getattr(self, each)), None)
        if several and mode:
            reason = f"cannot be used with `{mode}`, where a record is one row that replaces another"
            yield Problem(("steps", str(several[0]), "flatten", "explode"), reason, "remove it, or the mode")

    def _is_personal(self, column: str) -> bool:
        masks = [each.step(self.parameters) for each in self.steps if each.mask or each.flatten]
        return column in masked_columns(masks, {}) | ({self.key.column} if self.key else set())
