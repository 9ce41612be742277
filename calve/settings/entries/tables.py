"""The entries of `tables`, and their maintenance: sizes of files, and how long data is kept."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from calve.config.engine_choice import MODES
from calve.config.job import EngineChoice
from calve.config.maintenance import Maintenance
from calve.config.steps import masked_columns
from calve.settings import fields
from calve.settings.entries.modes import (
    AggregateSection,
    ChangeDataSection,
    DeduplicateSection,
    UpsertSection,
)
from calve.settings.entries.routes import RouteSection
from calve.settings.entries.sources import KeySection, SourceSection
from calve.settings.entries.steps import ParameterName, ParameterValue, StepSection, parameter_problems
from calve.settings.fields import Section
from calve.settings.problems import Problem


class RowRetentionSection(Section):
    """Rows are deleted once a time in them is old enough: the day after it at the latest."""

    column: fields.FieldPath
    """Column of the table that says how old a row is: a timestamp or a date"""
    keep: fields.Duration
    """How long rows are kept: `90d`"""


class MaintenanceOptions(Section):
    """How tables are kept fast and small; see docs/maintenance.md."""

    file_size: fields.Size | None = None
    """Size that data files are merged to: `128MB`, `512MiB`. Default: `128MB`"""
    snapshots: fields.Duration | None = None
    """How long a snapshot can be read and rolled back to. Default: `7d`"""
    snapshots_at_least: Annotated[int, Field(ge=1)] | None = None
    """So many of the newest stay, however old they are. Default: `10`"""
    snapshots_at_most: Annotated[int, Field(ge=2)] | None = None
    """More than so many are never kept, however young they are. Default: `100`"""
    dead_letters: fields.Duration | None = None
    """How long dead letters are kept. Default: for ever"""

    def problems(self) -> Iterator[Problem]:
        least = self.snapshots_at_least or Maintenance().snapshots_at_least
        most = self.snapshots_at_most or Maintenance().snapshots_at_most
        if least > most:
            fix = "raise `snapshots_at_most`, or lower this"
            yield Problem(("snapshots_at_least",), f"is more than the {most} that stay at most", fix)


class MaintenanceSection(MaintenanceOptions):
    """How this table is kept fast and small: what it does not set is that of `defaults`."""

    rows: RowRetentionSection | None = None
    """See `tables.<name>.maintenance.rows`. Default: rows are kept for ever"""


class AnnounceSection(Section):
    """What the events of the table's commits say beside the usual; see docs/announcements.md."""

    count_by: fields.ColumnName
    """Column of the table, of texts, truths or whole numbers: events say how many rows of a commit have which value. For
    columns of few values, at most 50 in a commit; never for one that is masked"""
    alert_on: Annotated[list[fields.CountedValue], Field(max_length=10)] = Field(default_factory=list)
    """Values of it that are mailed to `alerts.emails` whenever a commit has rows of them. Default: none"""


class EmitSection(Section):
    """A topic that gets every row which the table gets, once it is in the table: at least once, with headers that say which
    record it is of; see docs/emit.md. The topic is made where there is none, and never altered.
    """

    topic: fields.Topic
    """Topic to write. Its schemas are registered under its name and `-value`, or `-key`"""
    format: Literal["avro", "json"] = "avro"
    """`avro`, or `json`: JSON Schema. Default: `avro`"""
    key: Annotated[list[fields.ColumnName], Field(min_length=1)] | None = None
    """Columns of the table that make the record key, in the same format. Default: the key of the record that the row is of, as
    the table has it; with `aggregate` the columns of the group"""
    partitions: int = Field(default=6, ge=1)
    """Partitions, where the topic is made. Default: `6`"""
    retention: fields.Duration | None = None
    """How long the topic keeps records, where it is made: `7d`. Default: the broker's"""
    cleanup_policy: Literal["delete", "compact"] | None = None
    """The topic's `cleanup.policy`, where it is made. Default: `delete`; with `aggregate` `compact`"""


class BudgetSection(Section):
    """How many records the rounds of some time may reject before the table suspends: the greater of `share` and `records`.
    `share: 100%` is no limit. With `on_error: dead_letter` and `skip`.
    """

    share: fields.Share | None = None
    """Part of the records read in that time: `1%`, `0.5%`. Default: `1%`"""
    records: int | None = Field(default=None, ge=0)
    """Number of records. Default: `1000`"""
    within: fields.Duration | None = None
    """The time: rounds that were committed within it count, and the one that is about to be. Default: `1h`"""


class TableOptions(Section):
    """What a table may set for itself and `defaults` for all."""

    freshness: fields.Duration | None = None
    """Greatest age of a record from produce to visible (p95): `60s`, `5m`, `1h`. Default: `60s`"""
    flush_size: fields.Size | None = None
    """Bytes of the topic after which a round commits at the latest: `250MB`, `64MiB`. Default: `250MB`"""
    partition_flush_size: fields.Size | None = None
    """The same for a single partition of the table. Default: `300MB`"""
    start: fields.StartingPoint | None = None
    """Where a table that has read nothing begins: `earliest`, `latest`, `{timestamp: 2026-01-01T00:00:00Z}` or
    `{offsets: {0: 12}}` (partition: next offset to read). Default: `earliest`"""
    on_error: Literal["dead_letter", "skip", "suspend"] | None = None
    """What becomes of a record that cannot be read: `dead_letter` keeps it beside the table, `skip` counts it and leaves
    it out, `suspend` stops the table before it; see docs/dead-letters.md. Default: `dead_letter`"""
    dead_letter_budget: BudgetSection | None = None
    """How many such records are too many; what a table does not set is that of `defaults`; see
    `defaults.dead_letter_budget`. Default: `{share: 1%, records: 1000, within: 1h}`"""
    on_data_loss: Literal["suspend", "continue"] | None = None
    """Offsets that expired before they were read: `suspend` the table, or `continue` and record the loss.
    Default: `suspend`"""
    gaps: Literal["detect", "allow"] | None = None
    """Offsets without a record in a topic that is neither compacted nor transactional: `detect` suspends the
    table. Default: `detect`"""
    format_version: Literal[2, 3] | None = None
    """Iceberg format version of a new table: `2` or `3`. Default: `2`"""
    owner: fields.Text | None = None
    """Who answers for the table, such as a team or an address: its property `owner`"""
    quarantine_new_fields: bool | None = None
    """`true`: fields that a later version of the schema adds stay out of the table until its step `mask` names them; see
    docs/masking.md. Default: `false`"""
    engine: EngineChoice | None = None
    """What makes rows of records: `columnar`, which is many times faster, `rows`, which can do everything, or `auto`: the first
    wherever it can do what the table asks; see docs/engines.md. Default: `auto`"""

    def problems(self) -> Iterator[Problem]:
        if self.on_error == "suspend" and self.dead_letter_budget is not None:
            fix = "remove it, or use `on_error: dead_letter` or `skip`"
            yield Problem(("dead_letter_budget",), "has no use with `on_error: suspend`", fix)


class TableSection(TableOptions):
    """One topic kept as one table; its key is the table's name. With `topics`: many topics, each kept as a table of its own."""

    topic: fields.Topic | None = None
    """Topic to read; needed, unless there are `topics`"""
    topics: fields.Topics | None = None
    """Regular expression, in the place of `topic`: each topic whose whole name matches is kept as a table, also one that is made
    later. The key then says what the tables are named: `{topic}` stands for the topic, `{1}` for the first group; see
    docs/topics.md"""
    job: fields.Text | None = None
    """Job that writes the table; needed where there are several"""
    value: SourceSection = SourceSection()
    """See `tables.<name>.value`. Default: as the registry says"""
    key: KeySection | None = None
    """See `tables.<name>.key`. Default: they make no column"""
    route: RouteSection | None = None
    """See `tables.<name>.route`. Default: every record of the topic is the table's"""
    upsert: UpsertSection | None = None
    """See `tables.<name>.upsert`. Default: every record is a row"""
    change_data: ChangeDataSection | None = None
    """See `tables.<name>.change_data`. Default: every record is a row"""
    deduplicate: DeduplicateSection | None = None
    """See `tables.<name>.deduplicate`. Default: every record is a row"""
    aggregate: AggregateSection | None = None
    """See `tables.<name>.aggregate`. Default: every record is a row"""
    steps: list[StepSection] = Field(default_factory=list)
    """List of what becomes of the columns of a record on its way to the table, in this order; see `tables.<name>.steps`.
    Default: the columns are those of its schema"""
    parameters: dict[ParameterName, ParameterValue] = Field(default_factory=dict)
    """Values that its `sql` and `filter` name: `{large_trade: 4000}` stands for `:large_trade` in them. Default: none"""
    emit: EmitSection | None = None
    """See `tables.<name>.emit`. Default: its rows are in the table alone"""
    announce: AnnounceSection | None = None
    """See `tables.<name>.announce`. Default: events count no values"""
    maintenance: MaintenanceSection | None = None
    """See `tables.<name>.maintenance`. Default: that of `defaults`"""
    event_time: fields.FieldPath | None = None
    """Field that says when the fact happened, such as `created_at` or `order.created_at`"""
    partition_by: fields.Partitioning | None = None
    """List of `column`, `year(column)`, `month(...)`, `day(...)`, `hour(...)`, `bucket(16, column)`,
    `truncate(4, column)`. Default: of tables with `upsert` or `change_data` eight buckets of their key, of
    `aggregate` none; else `day(event_time)` where that is declared, else none"""
    sort_by: fields.Sorting | None = None
    """List of `column`, `column desc`, or a transform of one. Default: none"""

    def problems(self) -> Iterator[Problem]:
        yield from super().problems()
        named = [self.value.rest, (self.value.column or "value") if self.value.kept else None]
        if self.key and self.key.column.lower() in {each.lower() for each in named if each}:
            reason = f'"{self.key.column}" is the name of a column of the values, too'
            yield Problem(("key", "column"), reason, "give it another name")
        modes = [name for name in MODES if getattr(self, name) is not None]
        for each in modes[1:]:
            reason = f"cannot be used together with `{modes[0]}`: a table has one mode"
            yield Problem((each,), reason, "remove one")
        yield from parameter_problems([(each.kind, each.query) for each in self.steps], self.parameters)
        yield from self._change_data_problems() if self.change_data else ()
        yield from self._output_problems()
        yield from self._step_problems()

    def _change_data_problems(self) -> Iterator[Problem]:
        if self.value.format not in {"registry", "avro", "json"}:
            reason = f'"{self.value.format}" cannot be used with `change_data`: Debezium writes Avro or JSON'
            yield Problem(("value", "format"), reason, "use `avro`, `json`, or remove it to ask the registry")
        if self.value.rest is not None:
            yield Problem(("value", "rest"), "has no use with `change_data`", "remove it")
        if self.steps:
            fix = "keep the changes in one table as they are, or remove the steps"
            yield Problem(("steps",), "cannot be used with `change_data`", fix)
        if self.route is not None:
            yield Problem(("route",), "cannot be used with `change_data`", "remove one of the two")

    def _output_problems(self) -> Iterator[Problem]:
        if self.emit and (self.upsert or self.change_data):
            mode = "upsert" if self.upsert else "change_data"
            reason = f"cannot be used with `{mode}`: rows that are deleted would stay in the topic"
            yield Problem(("emit",), reason, "remove it; the topic of the table has the same changes")
        if self.emit and self.emit.topic == self.topic:
            reason = "is the topic that the table is read from"
            yield Problem(("emit", "topic"), reason, "name another topic")
        if self.announce and self._is_personal(self.announce.count_by):
            fix = "count by a column that says nothing of a person"
            yield Problem(("announce", "count_by"), "is masked, or the record key", fix)

    def _step_problems(self) -> Iterator[Problem]:
        masks = [n for n, each in enumerate(self.steps) if each.mask]
        for number in masks[1:]:
            yield Problem(("steps", str(number), "mask"), "masks a second time", "make both one step")
        if masks and any(each.sql for each in self.steps[: masks[0]]):
            reason = "comes after `sql`, which may have copied what is personal"
            yield Problem(("steps", str(masks[0]), "mask"), reason, "put it before")
        several = [n for n, each in enumerate(self.steps) if each.flatten and each.flatten.explode]
        if several and self.upsert is not None:
            reason = "cannot be used with `upsert`, where a record is one row that replaces another"
            yield Problem(("steps", str(several[0]), "flatten", "explode"), reason, "remove it, or the mode")

    def _is_personal(self, column: str) -> bool:
        masks = [each.step(self.parameters) for each in self.steps if each.mask or each.flatten]
        return column in masked_columns(masks, {}) | ({self.key.column} if self.key else set())
