"""The records of one round, read as often as the round needs: always the same offsets, with the same pinned schemas."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F

from calve.config.job import Aggregate, ChangeData, Deduplicate, Upsert
from calve.config.masking_keys import newest
from calve.errors import Retryable, Suspended
from calve.rounds.dead_letter_policy import Rejects
from calve.table.position import Offsets, TopicKey
from glue_jobs.columns.expressions import OFFSET, PARTITION, at, key_names
from glue_jobs.columns.helpers import RECEIVED, REJECT
from glue_jobs.dead_letters.encryption import sealed
from glue_jobs.decode.decode import decode
from glue_jobs.decode.reject_reasons import MAX_OTHERS
from glue_jobs.engines.choice import columnar
from glue_jobs.iceberg.layout import clustered, tasks_for
from glue_jobs.iceberg.staging import Staged, discard, stage
from glue_jobs.modes.aggregate import stage_totals
from glue_jobs.modes.deduplicate import stage_firsts
from glue_jobs.modes.upsert import stage_change_data, stage_changes
from glue_jobs.process.workers import told_by_workers
from glue_jobs.table.counts import (
    Seen,
    count_by_partition,
    observe_records,
    observe_rejects,
    reject_groups,
    seen_reasons,
    seen_records,
    unknown_ids,
    with_rows_seen,
)
from glue_jobs.table.records import rejected, rows
from glue_jobs.table.target import Target

PLACE = (PARTITION, OFFSET)
LOST = ("topic_recreated", "offsets_expired")


@dataclass(slots=True)
class Reading:
    """Offsets [start, to) of the target's topic, of this incarnation; `mark` is what `glue_jobs.decode.decode` appends to every
    value.

    failing: places of records of which a row cannot be computed, with the reason, once a read has shown that there are some.
    bytes_per_record: as far as it is known.
    """

    target: Target
    start: Offsets
    to: Offsets
    topic: TopicKey
    mark: bytes = field(default_factory=lambda: os.urandom(8))
    failing: DataFrame | None = None
    bytes_per_record: float = 0.0

    @property
    def span(self) -> Offsets:
        """Number of offsets by partition."""
        return {p: self.to[p] - o for p, o in self.start.items()}

    def stage_rows(self, stage_id: str, bytes_per_record: float) -> tuple[Staged, Seen]:
        """Write the good records as data files that no snapshot holds, and count everything in passing.

        Of an upsert table, and of one of change data: the newest record of each key, with deletes of the rows that they replace.
        Of one without duplicates: the first of each key that the table does not have. Of one of totals: those of the groups that
        they change.
        """
        self.bytes_per_record = bytes_per_record
        size_bytes = bytes_per_record * sum(self.span.values())
        engine = columnar(self.target)
        staged, seen = (
            engine.stage(self, stage_id, size_bytes) if engine else self._stage(stage_id, size_bytes)
        )
        if seen.failed:
            discard(self.target.main, staged)
            self.failing = self._failing()
            staged, seen = self._stage(stage_id, size_bytes)
        return staged, seen

    def _stage(self, stage_id: str, size_bytes: float) -> tuple[Staged, Seen]:
        """By rows."""
        before = self.target.workers_s.value
        staged, seen = self._staged(stage_id, size_bytes)
        return replace(staged, cpu_s=self.target.workers_s.value - before), seen

    def _staged(self, stage_id: str, size_bytes: float) -> tuple[Staged, Seen]:
        target, mode = self.target, self.target.mode
        tasks = tasks_for(size_bytes, target.cores, len(self.to))
        if isinstance(mode, ChangeData):
            return stage_change_data(target, mode, self.records, tasks, stage_id)
        observed, observation = observe_records(self.records())
        if isinstance(mode, Deduplicate):
            return self._stage_firsts(mode, observed, observation, tasks, stage_id)
        good, several = target.shaping.rows(observed)
        changed = None
        match mode:
            case Upsert():
                staged, changed = stage_changes(target, mode, good, tasks, stage_id)
            case Aggregate():
                staged, changed = stage_totals(target, mode, good, tasks, stage_id)
            case None:
                staged = stage(
                    target.lake,
                    target.main,
                    clustered(good, target.main, tasks),
                    stage_id,
                    count_by=target.table.count_by,
                )
        seen = replace(seen_records(observation), changes=changed)
        return staged, with_rows_seen(seen, several) if several else seen

    def _stage_firsts(
        self, mode: Deduplicate, observed: DataFrame, observation: Observation, tasks: int, stage_id: str
    ) -> tuple[Staged, Seen]:
        """Records are compared, not the rows that they make."""
        several: list[Observation | None] = []

        def made(kept: DataFrame) -> DataFrame:
            good, counted = self.target.shaping.rows(kept)
            several.append(counted)
            return good

        staged, firsts = stage_firsts(self.target, mode, rows(observed), made, tasks, stage_id)
        seen = seen_records(observation)
        seen = replace(seen, duplicates=seen.applied - firsts)
        return staged, with_rows_seen(seen, several[0]) if several[0] else seen

    def stage_rejects(self, seen: Seen, round_id: str) -> tuple[Staged, dict[str, int]]:
        """Write the rejects as data files of the dead-letter table, in a second read of their range, and count the reasons.

        Those of a table that masks are sealed by the key that is the newest now.
        """
        observed, observation = observe_rejects(self._rejects(seen))
        refused = rejected(observed, self.target.decoding, topic=self.topic, round_id=round_id)
        if self.target.table.masks:
            refused = sealed(refused, newest(self.target.masking_keys, time.time_ns() // 1_000))
        letters = self.target.letters.ensure()
        before = self.target.workers_s.value
        staged = stage(self.target.lake, letters, refused.coalesce(1), f"{round_id}-letters")
        return replace(staged, cpu_s=self.target.workers_s.value - before), seen_reasons(observation)

    def count_rejects(self, seen: Seen) -> Rejects:
        """What the rejects are, in a second read of their range, where they are not to be kept."""
        observed, observation = observe_rejects(self._rejects(seen))
        groups = reject_groups(observed, self.target.decoding)
        return Rejects(seen_reasons(observation), groups)

    def filtered_schemas(self, seen: Seen) -> dict[str, int]:
        """Records of other tables by their schema, as far as those are not too many."""
        decoding = self.target.decoding
        return {
            decoding.wire.name(decoding.other_ids[place]): count
            for place, count in sorted(seen.others.items())
            if place < MAX_OTHERS
        }

    def unknown_ids(self, seen: Seen) -> tuple[list[int], list[int]]:
        """Schema ids in the range of the rejects that the round does not know: those of values, and those of keys."""
        return unknown_ids(self._records(*self._reject_range(seen)), self.target.decoding)

    def missing(self) -> Offsets:
        """Offsets without a record by partition, as Kafka holds the range now; reads it once more."""
        held = count_by_partition(self._records(self.start, self.to))
        return {p: size - held.get(p, 0) for p, size in self.span.items()}

    def _reject_range(self, seen: Seen) -> tuple[Offsets, Offsets]:
        if seen.reject_range is None:
            return self.start, self.start
        first, last = seen.reject_range
        start = {p: min(max(first, o), self.to[p]) for p, o in self.start.items()}
        return start, {p: min(max(last + 1, o), self.to[p]) for p, o in start.items()}

    def records(self) -> DataFrame:
        """Each record as a row, with its verdict (`Shaping.records`)."""
        return self._judged(self.start, self.to)

    def _rejects(self, seen: Seen) -> DataFrame:
        return self._judged(*self._reject_range(seen), RECEIVED)

    def _judged(self, start: Offsets, to: Offsets, *beside: str) -> DataFrame:
        target = self.target
        decoded = decode(self._records(start, to), target.decoding, self.mark, target.mode)
        found = target.shaping.records(decoded, *beside)
        if self.failing is None:
            return found
        why = self.failing.columns[-1]
        place = [at(path) == F.col(name) for path, name in zip(PLACE, self.failing.columns, strict=False)]
        told = found.join(F.broadcast(self.failing), place, "left")
        return told.withColumn(REJECT, F.coalesce(REJECT, why)).drop(*self.failing.columns)

    def _failing(self) -> DataFrame:
        """Read once more which records have rows that cannot be computed."""
        made = self.target.shaping.all_rows(rows(self.records())).where(F.col(REJECT).isNotNull())
        names = key_names((*PLACE, REJECT))
        places = made.select(
            *(c.alias(n) for c, n in zip((*map(at, PLACE), F.col(REJECT)), names, strict=True))
        )
        return places.groupBy(*names[:2]).agg(F.min(names[2]).alias(names[2])).localCheckpoint()

    def _records(self, start: Offsets, to: Offsets) -> DataFrame:
        from glue_jobs.kafka.client import settings_of
        from glue_jobs.kafka.source import read

        target = self.target
        size_bytes = self.bytes_per_record * sum(to[p] - o for p, o in start.items())
        return read(
            target.lake.spark,
            settings_of(target.cluster.connection),
            target.table.topic,
            self.topic.topic_id,
            start,
            to,
            tasks=tasks_for(size_bytes, target.cores, target.cores),
            cpu_s=target.workers_s,
        )


def sampled(target: Target, topic: TopicKey, start: Offsets, to: Offsets) -> float | None:
    """As `glue_jobs.kafka.source.bytes_per_record`."""
    from glue_jobs.kafka.client import settings_of
    from glue_jobs.kafka.source import bytes_per_record

    return bytes_per_record(
        settings_of(target.cluster.connection), target.table.topic, topic.topic_id, start, to
    )


@contextmanager
def errors_of_source(target: Target) -> Iterator[None]:
    """What tasks inside have raised, as they have raised it.

    Raises:
        Retryable: what they read has expired, or was made again, and the table accepts that: the next round begins behind it.
    """
    try:
        with told_by_workers():
            yield
    except Suspended as error:
        if error.code in LOST and target.table.on_data_loss == "continue":
            raise Retryable(error.message) from None
        raise
