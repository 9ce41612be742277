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
    retention: fields.Duration | None = None
    cleanup_policy: Literal["delete", "compact"] | None = None


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
    deduplicate: DeduplicateSection | None = None
    aggregate: AggregateSection | None = None
    steps: list[StepSection] = Field(default_factory=list)
    parameters: dict[ParameterName, ParameterValue] = Field(default_factory=dict)
    emit: EmitSection | None = None
    announce: AnnounceSection | None = None
    maintenance: MaintenanceSection | None = None
    event_time: fields.FieldPath | None = None
    partition_by: fields.Partitioning | None = None
    sort_by: fields.Sorting | None = None

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
            fix = "count by a column without personal data"
            yield Problem(("announce", "count_by"), "is masked, or the record key", fix)

    def _step_problems(self) -> Iterator[Problem]:
        masks = [n for n, each in enumerate(self.steps) if each.mask]
        for number in masks[1:]:
            yield Problem(("steps", str(number), "mask"), "masks a second time", "make both one step")
        if masks and any(each.sql for each in self.steps[: masks[0]]):
            reason = "comes after `sql`, which may have copied personal data"
            yield Problem(("steps", str(masks[0]), "mask"), reason, "put it before")
        several = [n for n, each in enumerate(self.steps) if each.flatten and each.flatten.explode]
        if several and self.upsert is not None:
            reason = "cannot be used with `upsert`, where a record is one row that replaces another"
            yield Problem(("steps", str(several[0]), "flatten", "explode"), reason, "remove it, or the mode")

    def _is_personal(self, column: str) -> bool:
        masks = [each.step(self.parameters) for each in self.steps if each.mask or each.flatten]
        return column in masked_columns(masks, {}) | ({self.key.column} if self.key else set())
