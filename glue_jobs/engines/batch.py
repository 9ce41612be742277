"""The records of one round: an offset range of a topic. The round may read it several times, always with the same schemas."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from calve.config.job import Table
from calve.config.masking_keys import newest
from calve.decoding.decode_plan import MAX_OTHERS
from calve.errors import Retryable, Suspended
from calve.rounds.dead_letter_policy import Rejects
from calve.table.position import Offsets, TopicKey
from glue_jobs.columns.expressions import OFFSET, PARTITION, RECEIVED, REJECT, RULE, at, key_names
from glue_jobs.dead_letters.records import encrypted
from glue_jobs.decode.decode import judging, marked
from glue_jobs.iceberg.layout import tasks_for
from glue_jobs.iceberg.staging import Staged, stage
from glue_jobs.process.workers import errors_of_workers
from glue_jobs.table.counts import (
    Counts,
    count_by_partition,
    counted_rejects,
    observe_rejects,
    reject_groups,
    unknown_ids,
)
from glue_jobs.table.open_table import OpenTable
from glue_jobs.table.records import rejected, rows

PLACE = (PARTITION, OFFSET)
USUAL_BYTES = 500.0
"""The assumed size of a record, if the table's history says nothing about it."""
LOST = ("topic_recreated", "offsets_expired")


@dataclass(frozen=True, slots=True)
class Batch:
    """Offsets [start, to) of one incarnation of the table's topic.

    bytes_per_record: an estimate; 0 if unknown.
    failing: places and reject reasons of records whose rows cannot be computed, once a read has found any.
    lacks_values: the last round by rows had updates without all values, so this one looks for them at once.
    """

    table: OpenTable
    start: Offsets
    to: Offsets
    topic: TopicKey
    bytes_per_record: float = 0.0
    failing: DataFrame | None = None
    lacks_values: bool = False

    @property
    def span(self) -> Offsets:
        """Number of offsets by partition."""
        return {p: self.to[p] - o for p, o in self.start.items()}

    @property
    def size_bytes(self) -> float:
        """The approximate size of the records in Kafka."""
        return self.bytes_per_record * sum(self.span.values())

    @property
    def tasks(self) -> int:
        return tasks_for(self.size_bytes, self.table.services.cores, len(self.to))

    def records(self) -> DataFrame:
        """Each record as a row, with its reject reason if it has one (`RowPlan.records`)."""
        return self._judged(self.start, self.to)

    def with_failing(self) -> Batch:
        """The same batch after another read that found the records whose rows cannot be computed: they are rejects."""
        made = self.table.row_plan.all_rows(rows(self.records())).where(F.col(REJECT).isNotNull())
        names = key_names((*PLACE, REJECT))
        rule = F.col(RULE) if RULE in made.columns else F.lit(None).cast("int")
        why = F.struct(F.col(REJECT), rule.alias(RULE))
        places = made.select(*(c.alias(n) for c, n in zip((*map(at, PLACE), why), names, strict=True)))
        found = places.groupBy(*names[:2]).agg(F.min(names[2]).alias(names[2])).localCheckpoint()
        return replace(self, failing=found)

    def stage_rejects(self, counts: Counts, round_id: str) -> tuple[Staged, Rejects]:
        """Write the rejects as data files of the dead-letter table and count the reasons, in a second read of their range.

        If the table masks, the dead letters are encrypted by the newest key.
        """
        observed, observation = observe_rejects(self._rejects(counts))
        refused = rejected(
            observed, self.table.decode_plan, self.table.config.steps, topic=self.topic, round_id=round_id
        )
        if self.table.config.masks:
            refused = encrypted(refused, newest(self.table.services.masking_keys, time.time_ns() // 1_000))
        dead_letters = self.table.dead_letters.ensure()
        before = self.table.worker_s.value
        staged = stage(dead_letters, refused.coalesce(1), f"{round_id}-letters")
        return replace(staged, cpu_s=self.table.worker_s.value - before), counted_rejects(observation)

    def count_rejects(self, counts: Counts) -> Rejects:
        """Count the rejects that are not kept, in a second read of their range."""
        observed, observation = observe_rejects(self._rejects(counts))
        groups = reject_groups(observed, self.table.decode_plan)
        return replace(counted_rejects(observation), groups=groups)

    def filtered_schemas(self, counts: Counts) -> dict[str, int]:
        """Records of other tables by schema, unless there are too many schemas."""
        decoding = self.table.decode_plan
        return {
            decoding.wire.name(decoding.other_ids[place]): count
            for place, count in sorted(counts.others.items())
            if place < MAX_OTHERS
        }

    def unknown_ids(self, counts: Counts) -> tuple[list[int], list[int]]:
        """Unknown schema ids in the range of the rejects: of values, and of keys."""
        return unknown_ids(self._read(*self._reject_range(counts)), self.table.decode_plan)

    def missing(self) -> Offsets:
        """Offsets without a record by partition, as Kafka holds the range now. Reads it once more."""
        held = count_by_partition(self._read(self.start, self.to))
        return {p: size - held.get(p, 0) for p, size in self.span.items()}

    def _reject_range(self, counts: Counts) -> tuple[Offsets, Offsets]:
        if counts.reject_range is None:
            return self.start, self.start
        first, last = counts.reject_range
        start = {p: min(max(first, o), self.to[p]) for p, o in self.start.items()}
        return start, {p: min(max(last + 1, o), self.to[p]) for p, o in start.items()}

    def _rejects(self, counts: Counts) -> DataFrame:
        return self._judged(*self._reject_range(counts), RECEIVED)

    def _judged(self, start: Offsets, to: Offsets, *beside: str) -> DataFrame:
        table = self.table
        adding = judging(table.decode_plan, table.mode)
        read = self._read(start, to, adding=adding, leaving_out=() if RECEIVED in beside else ("value",))
        decoded = marked(read, table.decode_plan, table.mode)
        found = table.row_plan.records(decoded, *beside)
        if self.failing is None:
            return found
        why = self.failing.columns[-1]
        place = [at(path) == F.col(name) for path, name in zip(PLACE, self.failing.columns, strict=False)]
        joined = found.join(F.broadcast(self.failing), place, "left")
        rules = [F.col(RULE)] if RULE in found.columns else []
        named = {
            REJECT: F.coalesce(REJECT, F.col(why)[REJECT]),
            RULE: F.coalesce(*rules, F.col(why)[RULE]),
        }
        return joined.withColumns(named).drop(*self.failing.columns)

    def _read(self, start: Offsets, to: Offsets, **how: Any) -> DataFrame:
        """how: as `glue_jobs.kafka.source.read`."""
        from glue_jobs.kafka.client import settings_of
        from glue_jobs.kafka.source import read

        table = self.table
        size_bytes = self.bytes_per_record * sum(to[p] - o for p, o in start.items())
        return read(
            table.services.lake.spark,
            settings_of(table.services.cluster.connection),
            table.config.topic,
            self.topic.topic_id,
            start,
            to,
            tasks=tasks_for(size_bytes, table.services.cores, table.services.cores),
            cpu_s=table.worker_s,
            **how,
        )


def sampled(table: OpenTable, topic: TopicKey, start: Offsets, to: Offsets) -> float | None:
    """As `glue_jobs.kafka.source.bytes_per_record`."""
    from glue_jobs.kafka.client import settings_of
    from glue_jobs.kafka.source import bytes_per_record

    return bytes_per_record(
        settings_of(table.services.cluster.connection), table.config.topic, topic.topic_id, start, to
    )


@contextmanager
def errors_of_source(config: Table) -> Iterator[None]:
    """Raise errors of tasks as they were raised in the task.

    Raises Retryable: the data has expired or the topic was made again, and the table accepts that. The next round starts
    behind it.
    """
    try:
        with errors_of_workers():
            yield
    except Suspended as error:
        if error.code in LOST and config.on_data_loss == "continue":
            raise Retryable(error.message) from None
        raise
