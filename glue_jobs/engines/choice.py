"""Which engine a round uses. The columnar one is loaded in the background: its kernels are compiled once on a machine."""

from __future__ import annotations

import threading
from contextlib import suppress
from types import ModuleType
from typing import TYPE_CHECKING

from pyspark import SparkContext

from calve.config.engine_choice import choose, of_settings
from calve.log import event
from glue_jobs.process.packages import brought

if TYPE_CHECKING:
    from glue_jobs.engines.columnar.engine import Columnar
    from glue_jobs.table.target import Target

_lock = threading.Lock()
_loaded: ModuleType | None = None


def load(context: SparkContext) -> None:
    """Begin to load the columnar engine; a table that needs it gets the error, if there is one."""

    def begin() -> None:
        with suppress(Exception):
            loaded(context)

    # No daemon: a process that ends under a compiler that works crashes.
    threading.Thread(target=begin, name="columnar engine").start()


def loaded(context: SparkContext) -> ModuleType:
    """The columnar engine, in this process and on every machine of the job.

    Raises:
        Fatal: a package is missing.
    """
    global _loaded
    with _lock:
        if _loaded is None:
            with brought():
                from glue_jobs.engines.columnar import engine
            engine.compile_everywhere(context)
            _loaded = engine
        return _loaded


def reasons_foreseen(target: Target) -> tuple[str, ...]:
    """Why a table whose records are only foreseen (`Target.foresee`) would not be columnar, but for its layout."""
    found: tuple[str, ...] = loaded(target.lake.spark.sparkContext).reasons_of(target)
    return found


def columnar(target: Target) -> Columnar | None:
    """The columnar engine of the table, where that is to be made by it, as it is open now; None: it is made by rows.

    An event says what is chosen, and why, when that changes.

    Raises:
        Suspended: `engine_unsupported`. Fatal: as `loaded`.
    """
    table, why = target.table, of_settings(target.table)
    if table.engine != "rows" and not why:
        if target.columnar is None:
            target.columnar = loaded(target.lake.spark.sparkContext).Columnar(target)
        why = target.columnar.unsupported()
    chosen = choose(table.name, table.engine, why)
    if chosen != target.engine:
        target.engine = chosen
        facts = {"engine": chosen.engine, "reasons": list(chosen.reasons)}
        event("table.engine", table=str(target.name), topic=table.topic, **facts)
    return target.columnar if chosen.engine == "columnar" else None
