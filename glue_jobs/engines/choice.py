"""The interface of the two engines, the row engine, and the choice between the engines.

The columnar engine is loaded in the background, with the machines by which both engines decode. A computer compiles them once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from types import ModuleType
from typing import TYPE_CHECKING, ClassVar, Protocol

from pyspark import SparkContext

from calve.config.engine_choice import Chosen, choose, of_settings
from glue_jobs.engines.batch import Batch
from glue_jobs.iceberg.staging import Staged
from glue_jobs.process.workers import brought
from glue_jobs.table.counts import Counts
from glue_jobs.table.open_table import OpenTable, TablePlan

if TYPE_CHECKING:
    from glue_jobs.index.decision import KeyedFiles
    from glue_jobs.totals.fold import Totals

Fold = Callable[[Batch, str], tuple[Staged, Counts]]
"""A batch and a file id -> data files of its rows, which no snapshot contains, and the counts of the read.

Raises:
    Retryable: the object store failed; nothing is committed.
    Suspended: the mode cannot take the records.
"""


@dataclass(frozen=True, slots=True)
class RowEngine:
    """Supports every table. fold: writes the rows of the table's mode (`glue_jobs.modes`)."""

    fold: Fold
    unsupported: ClassVar[tuple[str, ...]] = ()

    def stage(self, batch: Batch, stage_id: str) -> tuple[Staged, Counts, None]:
        before = batch.table.worker_s.value
        staged, counts = self.fold(batch, stage_id)
        return replace(staged, cpu_s=batch.table.worker_s.value - before), counts, None


_lock = threading.Lock()
_loaded: ModuleType | None = None


class Engine(Protocol):
    """Makes the rows of one open table. Both engines give the same rows, rejects and counts.

    unsupported: why this engine cannot make the table; empty if it can.
    """

    @property
    def unsupported(self) -> tuple[str, ...]: ...

    def stage(self, batch: Batch, stage_id: str) -> tuple[Staged, Counts, KeyedFiles | Totals | None]:
        """Write the good records of a batch as data files that no snapshot contains, and count all records.

        If the engine leaves it to the caller which rows of a key stay, returns their keys, too. For an aggregate table it writes
        no files, and returns the totals of the batch.
        Raises CalveError: the source, a step or the object store failed. Nothing is committed.
        """
        ...


def choose_engine(table: OpenTable, fold: Fold) -> tuple[Engine, Chosen]:
    """The engine for the table, and the reasons. Logs nothing and changes nothing.

    Raises Suspended: `engine_unsupported`; or `step_unusable`, as the steps. Fatal: as `loaded`.
    """
    config, why = table.config, of_settings(table.config)
    columnar: Engine | None = None
    engine = loaded(table.services.lake.spark.sparkContext)
    if config.engine != "rows" and not why:
        columnar = engine.ColumnarEngine.of(table)
        why = columnar.unsupported
    chosen = choose(config.name, config.engine, why)
    return columnar if columnar and chosen.engine == "columnar" else RowEngine(fold), chosen


def load(context: SparkContext) -> None:
    """Start loading the columnar engine. The first table that needs it gets the error, if any."""

    def begin() -> None:
        with suppress(Exception):
            loaded(context)

    # Not a daemon thread: a process that ends during a compilation crashes.
    threading.Thread(target=begin, name="columnar engine").start()


def loaded(context: SparkContext) -> ModuleType:
    """The columnar engine and the machines, compiled in this process and on every machine of the job.

    Raises Fatal: a package is missing.
    """
    global _loaded
    with _lock:
        if _loaded is None:
            with brought():
                from glue_jobs.engines.columnar import engine
            engine.compile_everywhere(context)
            _loaded = engine
        return _loaded


def reasons_foreseen(plan: TablePlan) -> tuple[str, ...]:
    """Why a table that may not exist yet would not be columnar. The layout is not checked."""
    found: tuple[str, ...] = loaded(plan.services.lake.spark.sparkContext).reasons_of(plan)
    return found
