"""`calve preview`: what the steps of a table make of the newest records of its topic, by the job's code; nothing is written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any, NamedTuple

import typer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from calve.config.job import Job, Table
from calve.names import SYSTEM_COLUMN, quote
from calve.schema.columns import REASONS
from calve.table.protocol import bounded
from cli.config import Common, TableArgument, load_jobs, table_named
from cli.look.query.command import shown
from cli.spark import local_session
from glue_jobs.columns.expressions import FILTERED, IDLE, OTHER, REJECT
from glue_jobs.decode.decode import decode
from glue_jobs.engines.batch import errors_of_source
from glue_jobs.iceberg.catalog import Lake
from glue_jobs.ingest import openers_of
from glue_jobs.kafka.client import settings_of
from glue_jobs.kafka.cluster import Cluster
from glue_jobs.kafka.source import read_few
from glue_jobs.table.records import rows
from glue_jobs.transform.row_columns import data, system

RecordsOption = Annotated[
    int, typer.Option("--records", "-n", min=1, max=10_000, help="How many of the newest records to read.")
]


def preview(
    table: TableArgument,
    records: RecordsOption = 20,
    *,
    given: Common,
) -> None:
    """Show what a table's steps make of its newest records.

    Nothing is written, and the table need not exist. Rows are shown as the table would get them, so what is masked is masked
    here, too. Its mode (upsert, deduplicate, aggregate) is not applied.

    Example:
      calve preview stock_trades --records 100
    """
    console = given.console
    job, wanted = table_named(load_jobs(given.config, given.env, tables=[table]), table)
    with console.progress().task(f"reading {wanted.topic}"):
        found = look(local_session(job), job, wanted, records)
    if found.shown:
        console.heading(f"preview {table}")
        console.grid(list(found.shown[0]), [list(map(shown, row.values())) for row in found.shown])
    if found.refused:
        refused = [{**asdict(each), "why": REASONS[each.reason]} for each in found.refused]
        console.table("dead letters", refused)
    console.say(summary(found))
    console.document(asdict(replace(found, shown=tuple(map(_plain, found.shown)))))


def summary(found: Preview) -> str:
    """One sentence: `20 records: 18 rows, 1 left out by a step, 1 dead letter`."""
    parts = {
        "rows": found.rows,
        "left out by a step": found.filtered,
        "rows left out behind an explosion": found.cut,
        "of other tables": found.others,
        "dead-lettered": sum(each.records for each in found.refused),
    }
    counts = [f"{count:,} {what}" for what, count in parts.items() if count or what == "rows"]
    return f"{found.records:,} records: {', '.join(counts)}"


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
    def is_live(self) -> bool:
        return self.reject is None and self.other is None and not self.left_out and not self.idle


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


def look(spark: SparkSession, job: Job, table: Table, newest: int) -> Preview:
    """The outcome of the steps for the `newest` records of the table's topic, whatever the table and its position."""
    with closing(Cluster(job.kafka)) as cluster:
        [opener] = openers_of(replace(job, tables=(table,)), Lake(spark, job.name), cluster)
        plan = opener.plan_without_table()
        topic = cluster.state(table.topic)
        where = settings_of(plan.services.cluster.connection), topic.name, topic.key.topic_id
        # Of each partition as many of the newest as it has, up to a fair share.
        backwards = {p: -end for p, end in topic.end.items()}
        first = {p: -start for p, start in topic.log_start.items()}
        share = bounded(backwards, first, budget_records=newest, partition_records=newest)
        start = {p: -offset for p, offset in share.items()}
        with errors_of_source(table):
            records = read_few(spark, *where, start, topic.end)
            found = plan.row_plan.records(decode(records, plan.decode_plan, plan.mode))
            if (learnt := opener.grown(rows(found))) is not None:
                plan = opener.plan_without_table(learnt)
                found = plan.row_plan.records(decode(records, plan.decode_plan, plan.mode))
            if not plan.row_plan.chain.explodes:
                return _preview(_collected(found, columns_of(found)))
            found = found.cache()
            try:
                made = plan.row_plan.all_rows(rows(found))
                return _preview(_collected(found, ()), _collected(made, columns_of(made)))
            finally:
                found.unpersist()


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


def _preview(records: list[_Row], made: list[_Row] | None = None) -> Preview:
    """`made`: the rows of records that may make several; None: each record is one row."""
    good = [each for each in (records if made is None else made) if each.is_live]
    refused = []
    for judged in (records, made or []):
        places: dict[str, list[_Row]] = {}
        for each in judged:
            if each.reject is not None:
                places.setdefault(each.reject, []).append(each)
        refused += [
            Refused(reason, len(found), found[0].partition, found[0].offset)
            for reason, found in sorted(places.items())
        ]
    return Preview(
        records=len(records),
        rows=len(good),
        shown=tuple(
            {"partition": each.partition, "offset": each.offset} | dict(each.values) for each in good
        ),
        filtered=sum(bool(each.left_out) for each in records),
        cut=sum(bool(each.left_out) for each in made or ()),
        others=sum(each.other is not None for each in records),
        refused=tuple(refused),
    )
