"""The records of one round, read as often as the round needs: always the same offsets, with the same pinned schemas."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace

from pyspark.sql import DataFrame

from calve.job import Aggregate, ChangeData, Deduplicate, Upsert
from calve.position import Offsets, TopicKey
from calve.rejects import Rejects
from glue_jobs.change_data import stage_change_data
from glue_jobs.decode import decode, flattened, rejected, rows
from glue_jobs.duplicates import stage_firsts
from glue_jobs.kafka import read
from glue_jobs.layout import clustered, tasks_for
from glue_jobs.seen import (
    Seen,
    count_by_partition,
    observe_records,
    observe_rejects,
    reject_groups,
    seen_reasons,
    seen_records,
    unknown_ids,
)
from glue_jobs.staging import Staged, stage
from glue_jobs.target import Target
from glue_jobs.totals import stage_totals
from glue_jobs.upserts import stage_changes
from glue_jobs.verdicts import MAX_OTHERS


@dataclass(frozen=True, slots=True)
class Reading:
    """Offsets [start, to) of the target's topic; `mark` is what `glue_jobs.decode` appends to every value."""

    target: Target
    start: Offsets
    to: Offsets
    mark: bytes = field(default_factory=lambda: os.urandom(8))

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
        target = self.target
        tasks = tasks_for(bytes_per_record * sum(self.span.values()), target.cores, len(self.to))
        if isinstance(target.mode, ChangeData):
            return stage_change_data(target, target.mode, self._flat, tasks, stage_id)
        observed, observation = observe_records(self._flat())
        match target.mode:
            case Upsert():
                staged, made = stage_changes(target, target.mode, rows(observed), tasks, stage_id)
                return staged, replace(seen_records(observation), changes=made)
            case Deduplicate():
                staged, made = stage_firsts(target, target.mode, rows(observed), tasks, stage_id)
                seen = seen_records(observation)
                return staged, replace(seen, duplicates=seen.rows - made)
            case Aggregate():
                staged, made = stage_totals(target, target.mode, rows(observed), tasks, stage_id)
                return staged, replace(seen_records(observation), changes=made)
        staged = stage(target.lake, target.main, clustered(rows(observed), target.main, tasks), stage_id)
        return staged, seen_records(observation)

    def stage_rejects(self, seen: Seen, *, topic: TopicKey, round_id: str) -> tuple[Staged, dict[str, int]]:
        """Write the rejects as data files of the dead-letter table, in a second read of their range, and count the reasons."""
        observed, observation = observe_rejects(self._decoded(*self._reject_range(seen)))
        refused = rejected(observed, topic=topic, round_id=round_id).coalesce(1)
        staged = stage(self.target.lake, self.target.letters.ensure(), refused, f"{round_id}-letters")
        return staged, seen_reasons(observation)

    def count_rejects(self, seen: Seen) -> Rejects:
        """What the rejects are, in a second read of their range, where they are not to be kept."""
        observed, observation = observe_rejects(self._decoded(*self._reject_range(seen)))
        groups = reject_groups(observed, self.target.decoding.wire)
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

    def _flat(self) -> DataFrame:
        return flattened(self._decoded(self.start, self.to), self.target.columns)

    def _decoded(self, start: Offsets, to: Offsets) -> DataFrame:
        return decode(self._records(start, to), self.target.decoding, self.mark, self.target.mode)

    def _records(self, start: Offsets, to: Offsets) -> DataFrame:
        target = self.target
        return read(
            target.lake.spark,
            target.table.topic,
            start,
            to,
            properties=target.kafka_properties,
            group=f"calve-{target.name.table}",
        )
