"""Python packages that a deployed job ships to every machine, because the host's Python lacks them.

Native code cannot be imported from a zip. Spark unpacks an archive wherever it starts an executor, and beside the driver.
Code that needs the packages calls `use`, in the driver and in Python workers.
"""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark import SparkContext, SparkFiles

from calve.errors import Fatal

FOLDER = "calve-packages"


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
