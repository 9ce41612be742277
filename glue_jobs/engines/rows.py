"""The engine by rows: Spark decodes and computes, and a mode says how the rows of a batch become those of its table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

from calve.config.engine_choice import EngineName
from glue_jobs.engines.batch import Batch
from glue_jobs.iceberg.staging import Staged
from glue_jobs.table.counts import Seen

Fold = Callable[[Batch, str], tuple[Staged, Seen]]
"""A batch and the id of its files -> data files of its rows, which no snapshot holds, and what was counted in passing.

Raises:
    Retryable: the object store failed; nothing is committed.
    Suspended: the mode cannot take the records.
"""


@dataclass(frozen=True, slots=True)
class RowEngine:
    """Makes every table. fold: that of its mode (`glue_jobs.modes`)."""

    fold: Fold
    name: ClassVar[EngineName] = "rows"
    unsupported: ClassVar[tuple[str, ...]] = ()

    def stage(self, batch: Batch, stage_id: str) -> tuple[Staged, Seen]:
        before = batch.table.worker_s.value
        staged, seen = self.fold(batch, stage_id)
        return replace(staged, cpu_s=batch.table.worker_s.value - before), seen
