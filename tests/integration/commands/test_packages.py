"""Packages that a job brings along are found in the driver and in Python workers, and only behind those of the host."""

import sys
import zipfile
from pathlib import Path

from pyspark.sql import SparkSession

from glue_jobs.process import workers


def test_what_a_job_brings_is_imported_everywhere(spark: SparkSession, tmp_path: Path) -> None:
    archive = tmp_path / "brought.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("calve_brought.py", "ANSWER = 42\n")
        file.writestr("pyarrow.py", "raise ImportError('the host has its own')\n")
    workers.ship(spark.sparkContext, archive)

    def ask(_: int) -> int:
        workers.use()
        import calve_brought  # type: ignore[import-not-found]
        import pyarrow as pa

        return int(calve_brought.ANSWER) + len(pa.array([None]))

    before = list(sys.path)
    try:
        assert [ask(0), *spark.sparkContext.parallelize(range(2), 2).map(ask).collect()] == [43] * 3
        assert sys.path[:-1] == before
    finally:
        sys.path[:] = before
