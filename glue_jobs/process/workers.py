"""Spark's Python workers: the packages that they get, errors that they send to the driver by value, and their CPU seconds."""

from __future__ import annotations

import gc
import json
import platform
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark import SparkContext, SparkFiles
from pyspark.errors.exceptions.captured import CapturedException
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType
from pyspark.sql.udf import UserDefinedFunction
from pyspark.util import PythonEvalType

from calve import errors
from calve.errors import CalveError, Fatal, Suspended

MARK = "calve:trouble:"
FOLDER = "calve-packages"
"""Where Spark unpacks the packages that the host's Python lacks: beside the driver, and wherever it starts an executor.

Native code cannot be imported from a zip. Code that needs the packages calls `use`.
"""


class Unexpected(Exception):
    """An unforeseen error: its class and its place."""


@dataclass(frozen=True, slots=True)
class TaskError:
    """An error on its way to the driver. kind: the class of calve's error.

    Other errors carry only class and place, because their text may quote a record.
    """

    kind: str | None
    arguments: tuple[str, ...]
    fix: str | None = None

    @classmethod
    def of(cls, error: Exception) -> TaskError:
        match error:
            case Suspended():
                return cls(type(error).__name__, (error.code, error.message), error.fix)
            case CalveError():
                return cls(type(error).__name__, (error.message,), error.fix)
        place = traceback.extract_tb(error.__traceback__)[-1]
        return cls(None, (f"{type(error).__name__} at {Path(place.filename).name}:{place.lineno}",))

    def error(self) -> Exception:
        if self.kind is None:
            return Unexpected(*self.arguments)
        found: Exception = getattr(errors, self.kind)(*self.arguments, fix=self.fix)
        return found

    def as_text(self) -> str:
        return f"{MARK}{json.dumps(asdict(self))}"

    @classmethod
    def in_text(cls, text: str) -> TaskError | None:
        at = text.find(MARK)
        if at < 0:
            return None
        told, _ = json.JSONDecoder().raw_decode(text[at + len(MARK) :])
        return cls(told["kind"], tuple(told["arguments"]), told["fix"])


@contextmanager
def errors_by_value() -> Iterator[None]:
    """In a worker: an error inside reaches the driver through Spark as `TaskError`; `errors_of_workers` finds it there."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 sent as a value
        raise RuntimeError(TaskError.of(error).as_text()) from None


@contextmanager
def errors_of_workers() -> Iterator[None]:
    """In the driver: raise the worker's error instead of Spark's. Raises CalveError, Unexpected: the worker's."""
    try:
        yield
    except (Py4JJavaError, CapturedException) as error:
        if found := TaskError.in_text(str(error)):
            raise found.error() from None
        raise


_reported_s: float | None = None
"""CPU seconds of this process that tasks have reported; None before the first task."""


def cpu_since_last_s() -> float:
    """In a worker, which runs one task at a time: the CPU seconds of its process that no other task has reported."""
    global _reported_s
    if _reported_s is None:
        gc.freeze()  # Spark has a worker collect garbage after each task: it need not look at modules and kernels
    sys.path_importer_cache.clear()  # nor read the archives of its path again before the next task
    now = time.process_time()
    taken, _reported_s = now - (_reported_s or 0.0), now
    return taken


def map_in_arrow(
    frame: DataFrame,
    task: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]],
    columns: StructType,
) -> DataFrame:
    """As `DataFrame.mapInArrow`, which needs pandas in the driver without using it."""
    function = UserDefinedFunction(task, columns, evalType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF)
    made: Any = function(*frame.columns)
    return DataFrame(frame._jdf.mapInArrow(made._jc, False, None), frame.sparkSession)  # noqa: FBT003 Java's


def ship(context: SparkContext, archive: Path) -> None:
    context.addArchive(f"{archive.resolve()}#{FOLDER}")


def use() -> None:
    """Add the shipped packages to Python's path, after those of the host. Does nothing if none were shipped."""
    worker, context = SparkFiles._is_running_on_worker, SparkContext._active_spark_context
    if not worker and context is None:
        return
    folder = Path(SparkFiles.getRootDirectory()) / FOLDER
    if folder.is_dir() and str(folder) not in sys.path:
        sys.path.append(str(folder))


@contextmanager
def brought() -> Iterator[None]:
    """Name the missing package if an import inside fails. Raises Fatal: a package cannot be imported."""
    try:
        yield
    except ImportError as error:
        raise Fatal(
            f"the job cannot import {error.name or error} under Python {platform.python_version()} ({sys.executable})",
            fix="deploy the job again: that brings its packages for this Python; on a laptop, install calve with pip",
        ) from error
