"""Packages that a deployed job brings along, since the host's Python lacks them, on every machine of the job.

Native code cannot be imported from a zip. Spark unpacks an archive wherever it starts an executor, and beside the driver; whoever
needs the packages asks for them (`use`), in the driver and in Python workers alike.
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
    """Let Spark bring the archive to all machines."""
    context.addArchive(f"{archive.resolve()}#{FOLDER}")


def use() -> None:
    """Let Python find what was shipped, behind everything that the host has; nothing where nothing was."""
    worker, context = SparkFiles._is_running_on_worker, SparkContext._active_spark_context
    if not worker and context is None:
        return
    folder = Path(SparkFiles.getRootDirectory()) / FOLDER
    if folder.is_dir() and str(folder) not in sys.path:
        sys.path.append(str(folder))


@contextmanager
def brought() -> Iterator[None]:
    """Imports inside name what is missing.

    Raises:
        Fatal: a package cannot be imported.
    """
    try:
        yield
    except ImportError as error:
        raise Fatal(
            f"the job cannot import {error.name or error} under Python {platform.python_version()} ({sys.executable})",
            fix="deploy the job again: that brings its packages for this Python; on a laptop, install calve with pip",
        ) from error
