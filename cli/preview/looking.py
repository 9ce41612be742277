"""The newest records of a topic, read and shaped by the job's own code."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from calve.columns import REASONS
from calve.names import SYSTEM_COLUMN, quote
from calve.protocol import bounded
from glue_jobs.decode import OTHER, REJECT
from glue_jobs.ingest import open_targets
from glue_jobs.kafka.cluster import Cluster
from glue_jobs.lake import Lake
from glue_jobs.reading import Reading, errors_of_source
from glue_jobs.records import rows
from glue_jobs.steps.frame import FILTERED, data

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from calve.job import Job, Table
    from calve.position import Offsets
    from calve.protocol import TopicState
    from glue_jobs.target import Target


@dataclass(frozen=True, slots=True)
class Refused:
    """Records that would be dead letters for one reason, and where the first of them is."""

    reason: str
    records: int
    partition: int
    offset: int

    @property
    def why(self) -> str:
        return REASONS[self.reason]


@dataclass(frozen=True, slots=True)
class Preview:
    """What becomes of the newest records.

    rows: those that the table would get, before its mode is applied, and of them `shown`, in the order of their places.
    filtered: records that a step leaves out; cut: rows that one behind an explosion leaves out; others: other tables' records.
    """

    records: int
    rows: int
    shown: tuple[Mapping[str, Any], ...]
    filtered: int
    cut: int
    others: int
    refused: tuple[Refused, ...]


def look(spark: SparkSession, job: Job, table: Table, newest: int) -> Preview:
    """What the steps make of the `newest` records of the table's topic; neither the table nor a position is looked at.

    Raises:
        CalveError: the topic, the registry or a step cannot be used.
    """
    with closing(Cluster(job.kafka)) as cluster:
        [target] = open_targets(replace(job, tables=(table,)), Lake(spark, job.name), cluster)
        target.foresee()
        topic = cluster.state(table.topic)
        found = Reading(target, _start(topic, newest), topic.end, topic.key).records().cache()
        try:
            with errors_of_source(target):
                return _preview(target, found)
        finally:
            found.unpersist()


def _start(topic: TopicState, newest: int) -> Offsets:
    """Where the newest records begin, as many of each partition as it has, up to a fair share."""
    backwards = {p: -end for p, end in topic.end.items()}
    first = {p: -start for p, start in topic.log_start.items()}
    share = bounded(backwards, first, budget_records=newest, partition_records=newest)
    return {p: -offset for p, offset in share.items()}


def _preview(target: Target, records: DataFrame) -> Preview:
    left_out = F.count_if(FILTERED) if FILTERED in records.columns else F.lit(0)
    others = F.count(OTHER) if OTHER in records.columns else F.lit(0)
    [counted] = records.select(F.count(F.lit(1)), left_out, others).collect()
    made = target.shaping.all_rows(rows(records)).cache()
    try:
        cut = made.where(F.col(FILTERED)).count() if FILTERED in made.columns else 0
        good = rows(made)
        return Preview(
            records=counted[0],
            rows=good.count(),
            shown=_shown(good),
            filtered=counted[1],
            cut=cut,
            others=counted[2],
            refused=(*_refused(records), *(_refused(made) if REJECT in made.columns else ())),
        )
    finally:
        made.unpersist()


def _shown(good: DataFrame) -> tuple[Mapping[str, Any], ...]:
    place = [f"{SYSTEM_COLUMN}.partition", f"{SYSTEM_COLUMN}.offset"]
    wanted = good.select(*place, *(quote(name) for name in data(good))).orderBy(*place)
    return tuple(row.asDict(recursive=True) for row in wanted.collect())


def _refused(frame: DataFrame) -> tuple[Refused, ...]:
    """By reason; of several rows of a record each counts."""
    first = F.min(F.struct(f"{SYSTEM_COLUMN}.partition", f"{SYSTEM_COLUMN}.offset"))
    found = frame.where(F.col(REJECT).isNotNull()).groupBy(REJECT).agg(F.count(F.lit(1)), first).collect()
    return tuple(sorted((Refused(row[0], row[1], *row[2]) for row in found), key=lambda each: each.reason))
