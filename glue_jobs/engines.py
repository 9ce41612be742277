"""Which engine a round uses. The columnar one is loaded in the background: its kernels are compiled once on a machine.

Only what stands behind `glue_jobs.columnar` knows its packages; a job whose Python lacks them makes all tables by rows.
"""

from __future__ import annotations

import threading
from types import ModuleType
from typing import TYPE_CHECKING

from pyspark import SparkContext

from calve.engines import choose, of_settings
from calve.log import event

if TYPE_CHECKING:
    from glue_jobs.columnar.engine import Columnar
    from glue_jobs.target import Target


class _Loading:
    """The columnar engine's module on its way into this process; `lacks`: why it does not come."""

    def __init__(self, context: SparkContext) -> None:
        self._context = context
        self.module: ModuleType | None = None
        self.lacks: str | None = None
        self._over = threading.Event()
        # No daemon: a process that ends under a compiler that works crashes.
        threading.Thread(target=self._load, name="columnar engine").start()

    def wait(self) -> None:
        self._over.wait()

    @property
    def over(self) -> bool:
        return self._over.is_set()

    def _load(self) -> None:
        try:
            from glue_jobs.columnar import engine
        except ImportError as error:
            self._end(lacks=f"the job's Python lacks {error.name}")
        except Exception as error:  # noqa: BLE001 told as the reason
            self._end(lacks=f"the columnar engine could not be loaded: {type(error).__name__}")
        else:
            threading.Thread(target=self._spread, args=[engine], daemon=True).start()

    def _spread(self, engine: ModuleType) -> None:
        try:
            engine.compile_everywhere(self._context)
        except Exception as error:  # noqa: BLE001 told as the reason
            self._end(lacks=f"the columnar engine could not be loaded by a worker: {type(error).__name__}")
        else:
            self._end(engine)

    def _end(self, module: ModuleType | None = None, lacks: str | None = None) -> None:
        self.module, self.lacks = module, lacks
        self._over.set()


_lock = threading.Lock()
_loading: _Loading | None = None


def load(context: SparkContext) -> _Loading:
    """Begin to load the columnar engine, once in a process."""
    global _loading
    with _lock:
        _loading = _loading or _Loading(context)
        return _loading


def reasons_foreseen(target: Target) -> tuple[str, ...]:
    """Why a table whose records are only foreseen (`Target.foresee`) would not be columnar, but for its layout."""
    loading = load(target.lake.spark.sparkContext)
    loading.wait()
    if loading.module is None:
        return (str(loading.lacks),)
    found: tuple[str, ...] = loading.module.reasons_of(target)
    return found


def columnar(target: Target) -> Columnar | None:
    """The columnar engine of the table, where that is to be made by it, as it is open now; None: it is made by rows.

    Under `auto` a table is made by rows until the engine is there. What is chosen, and why, is told when it changes.

    Raises:
        Suspended: `engine_unsupported`.
    """
    table, why = target.table, of_settings(target.table)
    if table.engine != "rows" and not why:
        loading = load(target.lake.spark.sparkContext)
        if table.engine == "columnar":
            loading.wait()
        if not loading.over:
            return None
        if loading.module and target.columnar is None:
            target.columnar = loading.module.Columnar(target)
        why = target.columnar.unsupported() if target.columnar else (str(loading.lacks),)
    chosen = choose(table.name, table.engine, why)
    if chosen != target.engine:
        target.engine = chosen
        facts = {"engine": chosen.engine, "reasons": list(chosen.reasons)}
        event("table.engine", table=str(target.name), topic=table.topic, **facts)
    return target.columnar if chosen.engine == "columnar" else None
