"""`calve preview`: what the steps of a table make of records, by the job's code; nothing is written.

The records are the newest ones of the table's topic, or those of a capture.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any, NamedTuple, cast

import pyarrow as pa
import typer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema

from calve.config.deployment import UNKNOWN_WAREHOUSE
from calve.config.job import Job, Kafka, Registry, Table
from calve.decoding.record_schemas import RecordSchemas
from calve.errors import ConfigError
from calve.names import SYSTEM_COLUMN, TableName, quote
from calve.outputs.announcement import EventSource
from calve.schema.columns import REASONS
from calve.settings import load
from calve.settings.problems import choice
from calve.settings.resolving import StackDefaults
from calve.table.protocol import bounded
from cli.config import (
    Common,
    TableArgument,
    Where,
    found,
    load_jobs,
    of_lake,
    table_named,
    with_patterns_of,
    with_tables,
)
from cli.look.query.command import shown
from cli.project.capture.folder import Capture, Record, Recorded, arrow
from cli.project.capture.masking import named
from cli.spark import local_session
from glue_jobs.columns.expressions import FILTERED, IDLE, OTHER, REJECT
from glue_jobs.decode.decode import decode
from glue_jobs.engines.batch import errors_of_source
from glue_jobs.iceberg.catalog import Lake
from glue_jobs.ingest import openers_of
from glue_jobs.kafka.client import settings_of
from glue_jobs.kafka.cluster import Cluster
from glue_jobs.kafka.source import SCHEMA, fetch_few, frame_of
from glue_jobs.table.announcements import Announcer
from glue_jobs.table.open_table import Services
from glue_jobs.table.opening import Opener
from glue_jobs.table.records import rows
from glue_jobs.transform.row_columns import data, system

RecordsOption = Annotated[
    int, typer.Option("--records", "-n", min=1, max=10_000, help="How many of the newest records to read.")
]
CaptureOption = Annotated[
    Path | None,
    typer.Option("--capture", help="Read the records of this folder, which `calve capture` wrote."),
]


def preview(
    table: TableArgument,
    records: RecordsOption = 20,
    capture: CaptureOption = None,
    *,
    given: Common,
) -> None:
    """Show what a table's steps make of its newest records, or of a capture's.

    Nothing is written, and the table need not exist. Rows are shown as the table would get them, so what is masked is masked
    here, too. Its mode (upsert, deduplicate, aggregate) is not applied. A capture needs neither Kafka nor a registry.

    Examples:
      calve preview stock_trades --records 100
      calve preview stock_trades --capture captures/stock_trades
    """
    console, captured = given.console, None
    if capture is None:
        job, wanted = table_named(load_jobs(given.config, given.env, tables=[table]), table)
        with console.progress().task(f"reading {wanted.topic}"):
            outcome = look(local_session(job), job, wanted, records)
    else:
        captured = Capture.read(capture)
        job, wanted = replayable(given, table, captured.topic)
        with console.progress().task(f"reading {capture}"):
            outcome = replayed(local_session(job), job, wanted, captured)
    made = outcome.preview
    if made.shown:
        console.heading(f"preview {table}")
        console.grid(list(made.shown[0]), [list(map(shown, row.values())) for row in made.shown])
    if made.refused:
        refused = [{**asdict(each), "why": REASONS[each.reason]} for each in made.refused]
        console.table("dead letters", refused)
    console.say(summary(made))
    changed = [] if captured is None else changes(captured.expected, outcome.fates)
    if changed:
        console.table("other than captured", changed)
    shown_plainly = replace(made, shown=tuple(map(_plain, made.shown)))
    console.document(asdict(shown_plainly) | ({} if captured is None else {"changed": changed}))


def changes(before: Mapping[Place, str], after: Mapping[Place, str]) -> list[dict[str, str]]:
    """The records with another fate, in the order of their places."""
    return [
        {"record": f"{place[0]}:{place[1]}", "before": fate, "now": after.get(place, "no record")}
        for place, fate in sorted(before.items())
        if after.get(place) != fate
    ]


def summary(found: Preview) -> str:
    """One sentence: `20 records: 18 rows, 1 left out by a step, 1 dead letter`."""
    parts = {
        "rows": found.rows,
        "left out by a step": found.filtered,
        "rows left out behind an explosion": found.cut,
        "of other tables": found.others,
        "dead-lettered": sum(each.records for each in found.refused),
    }
    counts = [_counted(what, count) for what, count in parts.items() if count or what == "rows"]
    return f"{_counted('records', found.records)}: {', '.join(counts)}"


def _plain(value: Any) -> Any:
    """The value for JSON, which has no bytes: they are hexadecimal digits."""
    match value:
        case dict():
            return {name: _plain(each) for name, each in value.items()}
        case list():
            return list(map(_plain, value))
    return value.hex() if isinstance(value, bytes | bytearray) else value


@dataclass(frozen=True, slots=True)
class Refused:
    """Records that would be dead letters for one reason, with the place of the first."""

    reason: str
    records: int
    partition: int
    offset: int


ROW = "rows"


class _Row(NamedTuple):
    """A record, or one of its rows: place, outcome and columns."""

    partition: int
    offset: int
    reject: str | None
    left_out: bool | None
    other: int | None
    idle: bool | None
    values: Sequence[tuple[str, Any]]

    @property
    def fate(self) -> str:
        """A reason of dead letters, or one of these words."""
        if self.reject is not None:
            return self.reject
        if self.other is not None:
            return "of another table"
        return "left out" if self.left_out else "no change" if self.idle else ROW


@dataclass(frozen=True, slots=True)
class Preview:
    """The outcome of the newest records.

    rows: the table's rows before its mode is applied; `shown`: those in the order of their places. filtered: records that a step
    leaves out; cut: rows that a step after an explosion leaves out; others: records of other tables.
    """

    records: int
    rows: int
    shown: tuple[Mapping[str, Any], ...]
    filtered: int
    cut: int
    others: int
    refused: tuple[Refused, ...]


Place = tuple[int, int]
"""Partition and offset of a record."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """made: the rows of records that may make several; None: each record is one row."""

    records: Sequence[_Row]
    made: Sequence[_Row] | None = None

    @property
    def fates(self) -> dict[Place, str]:
        """What becomes of each record: a reason of dead letters, or its rows."""
        rows: defaultdict[Place, Counter[str]] = defaultdict(Counter)
        for each in self.records if self.made is None else self.made:
            rows[each[:2]][each.fate] += 1
        own = {each[:2]: each.fate for each in self.records}
        return {place: fate if fate != ROW else _together(rows[place]) for place, fate in own.items()}

    @property
    def preview(self) -> Preview:
        good = [each for each in (self.records if self.made is None else self.made) if each.fate == ROW]
        refused = []
        for judged in (self.records, self.made or ()):
            places: dict[str, list[_Row]] = {}
            for each in judged:
                if each.reject is not None:
                    places.setdefault(each.reject, []).append(each)
            refused += [
                Refused(reason, len(found), found[0].partition, found[0].offset)
                for reason, found in sorted(places.items())
            ]
        return Preview(
            records=len(self.records),
            rows=len(good),
            shown=tuple(
                {"partition": each.partition, "offset": each.offset} | dict(each.values) for each in good
            ),
            filtered=sum(bool(each.left_out) for each in self.records),
            cut=sum(bool(each.left_out) for each in self.made or ()),
            others=sum(each.other is not None for each in self.records),
            refused=tuple(refused),
        )


def look(spark: SparkSession, job: Job, table: Table, newest: int) -> Outcome:
    """The outcome of the steps for the `newest` records of the table's topic, whatever the table and its position."""
    with closing(Cluster(job.kafka)) as cluster:
        [opener] = openers_of(replace(job, tables=(table,)), Lake(spark, job.name), cluster)
        topic = cluster.state(table.topic)
        # Of each partition as many of the newest as it has, up to a fair share.
        backwards = {p: -end for p, end in topic.end.items()}
        first = {p: -start for p, start in topic.log_start.items()}
        share = bounded(backwards, first, budget_records=newest, partition_records=newest)
        start = {p: -offset for p, offset in share.items()}
        with errors_of_source(table):
            settings = settings_of(cluster.connection)
            return outcome(opener, fetch_few(settings, topic.name, topic.key.topic_id, start, topic.end))


def replayable(given: Where, name: str, topic: str) -> tuple[Job, Table]:
    """A table as calve.yaml describes it, and its job. Neither Kafka nor the registry nor the lake is asked."""
    nowhere = StackDefaults(Kafka("nowhere:9092"), Registry("http://nowhere"), UNKNOWN_WAREHOUSE, "us-east-1")
    config = found(given.config)
    jobs = load(config, env=given.env, stack=nowhere)
    of_patterns = of_lake(with_patterns_of(jobs), {name: topic})
    jobs = tuple(with_tables(each, of_patterns) for each in jobs)
    known = [table.name for each in jobs for table in each.tables]
    if name not in known:
        fix = choice(name, known, f"{config} has no entry with a pattern for topic {topic}, either")
        raise ConfigError(f'{config} has no table "{name}"', fix=fix)
    return table_named(jobs, name)


@dataclass(frozen=True, slots=True)
class _Noted:
    """In the place of the lake, and of the one table in it."""

    spark: SparkSession
    properties: Mapping[str, str]

    def load(self, _: TableName) -> _Noted | None:
        return self if self.properties else None


def replayed(spark: SparkSession, job: Job, table: Table, captured: Capture) -> Outcome:
    """The outcome for the records of a capture, by its schemas."""
    name = TableName(job.lake.database, table.name)
    # A plan without a table asks the lake for these properties alone, and no cluster.
    lake, cluster = cast("Lake", _Noted(spark, captured.properties)), cast("Cluster", None)
    services = Services(lake, cluster, cluster, Recorded(captured.answers), "", cores=1)
    opener = Opener(table, name, services, Announcer(EventSource(job.name, job.job, name), table.topic))
    with errors_of_source(table):
        return outcome(opener, arrow(captured.records, to_arrow_schema(SCHEMA)))


def outcome(opener: Opener, records: pa.Table) -> Outcome:
    """The outcome for records with the columns of `glue_jobs.kafka.source.SCHEMA`."""
    _learn(opener.schemas, records)
    plan = opener.plan_without_table()
    frame = frame_of(opener.services.lake.spark, records, opener.config.topic)
    found = plan.row_plan.records(decode(frame, plan.decode_plan, plan.mode))
    if (learnt := opener.grown(rows(found))) is not None:
        plan = opener.plan_without_table(learnt)
        found = plan.row_plan.records(decode(frame, plan.decode_plan, plan.mode))
    if not plan.row_plan.chain.explodes:
        return Outcome(_collected(found, columns_of(found)))
    found = found.cache()
    try:
        made = plan.row_plan.all_rows(rows(found))
        return Outcome(_collected(found, ()), _collected(made, columns_of(made)))
    finally:
        found.unpersist()


def _learn(schemas: RecordSchemas, records: pa.Table) -> None:
    """Look up the schemas that the records name and their subjects do not list."""
    parts = (schemas.value, "value"), (schemas.key, "key")
    rows = [Record.of_row(each) for each in records.to_pylist()]
    wanted = []
    for part, name in parts:
        numbers = {named(getattr(each, name), part, each.headers) for each in rows}
        known = {number for each in part.schemas.versions() for number in each.ids} if part else set()
        wanted.append(sorted(number for number in numbers - known if number is not None))
    if any(wanted):
        schemas.learn(*wanted)


def _together(rows: Counter[str]) -> str:
    """The fate of a record by those of its rows."""
    return ", ".join(_counted(what, count) for what, count in sorted(rows.items())) or "no row"


def _counted(what: str, count: int) -> str:
    if count == 1 and what in ("rows", "records"):
        what = what.removesuffix("s")
    return f"{count:,} {what}"


def columns_of(frame: DataFrame) -> list[str]:
    """The columns of the table, without `_kafka`."""
    return [*data(frame), *(each for each in system(frame) if each != SYSTEM_COLUMN)]


def _collected(frame: DataFrame, names: Iterable[str]) -> list[_Row]:
    """Every row with place, outcome and these columns, in the order of places."""
    outcomes = [
        F.col(each) if each in frame.columns else F.lit(None) for each in (REJECT, FILTERED, OTHER, IDLE)
    ]
    place = [F.col(f"{SYSTEM_COLUMN}.{each}") for each in ("partition", "offset")]
    columns = [each.alias(f"calve:{n}") for n, each in enumerate((*place, *outcomes))]
    found = frame.select(*columns, *map(quote, names)).collect()
    values = (list(row.asDict(recursive=True).items())[len(columns) :] for row in found)
    made = [_Row._make((*row[: len(columns)], each)) for row, each in zip(found, values, strict=True)]
    return sorted(made, key=lambda row: row[:2])
