"""A round of change data: an upsert round, but for what only some rounds have (ADR 19).

Truncations and updates that lack values are counted in passing; a round that has any is staged once more, with them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from calve.columns import CHANGE
from calve.job import ChangeData
from calve.spark_conf import CATALOG
from glue_jobs.decode import REJECT
from glue_jobs.events import OP, TRUNCATES
from glue_jobs.keys import OFFSET, PARTITION, TIMESTAMP, at, keys_of
from glue_jobs.records import rows
from glue_jobs.seen import Seen, observe_records, seen_records
from glue_jobs.staging import Staged, discard
from glue_jobs.target import Target
from glue_jobs.unavailable import filled, lacks_values
from glue_jobs.upserts import stage_changes

POSITION = f"{CHANGE['name']}.position"


def stage_change_data(
    target: Target, mode: ChangeData, read: Callable[[], DataFrame], tasks: int, stage_id: str
) -> tuple[Staged, Seen]:
    """Write what the events change, as files that no snapshot holds, and count; `read` gives the round's records
    (`Shaping.records`).

    Raises:
        Retryable, Suspended: as `glue_jobs.upserts.stage_changes`.
    """
    flat = read()
    truncates = F.count_if(F.col(REJECT).isNull() & (at(OP) == TRUNCATES))
    unavailable = F.count_if(F.col(REJECT).isNull() & lacks_values(flat))
    observed, observation = observe_records(flat, {"truncates": truncates, "unavailable": unavailable})
    staged, made = _stage(target, mode, rows(observed), tasks, stage_id)
    seen = seen_records(observation)
    if seen.truncates or (seen.unavailable and not target.lacks_values):
        discard(target.main, staged)
        target.lacks_values |= bool(seen.unavailable)
        truncation = _truncation(read()) if seen.truncates else None
        staged, made = _stage(target, mode, rows(read()), tasks, stage_id, truncation)
    return staged, replace(seen, changes=made)


def _stage(
    target: Target,
    mode: ChangeData,
    good: DataFrame,
    tasks: int,
    stage_id: str,
    truncation: _Truncation | None = None,
) -> tuple[Staged, int]:
    gone = None
    if truncation is not None:
        good = good.where(~truncation.ends(at(OFFSET)))
        held = target.lake.spark.table(target.name.quoted(CATALOG))
        gone = keys_of(held.where(truncation.ends(F.lit(-1))), mode.key)
    if not target.lacks_values:
        return stage_changes(target, mode, good, tasks, stage_id, gone)
    good = good.persist()
    try:
        return stage_changes(target, mode, filled(good, mode, target), tasks, stage_id, gone)
    finally:
        good.unpersist()


@dataclass(frozen=True, slots=True)
class _Truncation:
    """The last truncation of each partition: its offset, its time (ms), its position in the database's log if there is one."""

    last: dict[int, tuple[int, int, str | None]]

    def ends(self, offset: Column) -> Column:
        """True for rows that a truncation has ended; `offset`: -1 for all that the table holds.

        It ends what lies before it in its partition, and in others what is older by the time of its record. With positions only
        what is older by its position.
        """
        return reduce(Column.__or__, (self._ended_by(each, offset) for each in self.last))

    def _ended_by(self, partition: int, offset: Column) -> Column:
        last, moment, position = self.last[partition]
        here = at(PARTITION) == partition
        before = F.when(here, offset < last).otherwise(F.unix_millis(at(TIMESTAMP)) < moment)
        if position is None:
            return before
        older = at(POSITION).isNull() | (at(POSITION) < position)
        return older & (~here | (offset < last))


def _truncation(flat: DataFrame) -> _Truncation:
    found = flat.where(F.col(REJECT).isNull() & (at(OP) == TRUNCATES))
    places = F.max(OFFSET), F.unix_millis(F.max(TIMESTAMP)), F.max(POSITION)
    return _Truncation({row[0]: tuple(row[1:]) for row in found.groupBy(PARTITION).agg(*places).collect()})
