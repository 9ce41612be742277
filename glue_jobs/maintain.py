"""The maintenance job: the work that tables need beside their rounds (ADR 31). A Glue job script, and also `calve maintain`.

Arguments: those of `glue_jobs.ingest` that locate the warehouse and the settings. `--dry-run [true|false]` reports
what is due and changes nothing. `--only KIND` does one kind of work, due or not. The job reads neither Kafka nor a registry.
Each run has limits, and the next run continues. SIGTERM and Ctrl-C end the job after the current commit.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from typing import get_args

from pyspark.sql import SparkSession

from calve.config import job
from calve.config.job import Job
from calve.config.maintenance import OF_S3_TABLES, TURN_KINDS, Kind, due
from calve.errors import CalveError
from calve.log import event
from glue_jobs.iceberg.catalog import Lake, Table
from glue_jobs.maintenance.table_stats import figures, tables_of
from glue_jobs.maintenance.tasks import Work, asked
from glue_jobs.process.java import problem
from glue_jobs.process.session import flag, job_parser, read, run_script

RUN_S = 3_000.0
"""A run ends before the next one is due. Unfinished work stays due."""
TURNS = 30
"""The most turns that a run requests from the ingest job for one table."""


def main(arguments: list[str]) -> int:
    """Run the maintenance. Exit code 0; 1 if it failed for a table; 2 if the settings are invalid."""
    return run_script(lambda: _read(arguments), _work)


def _work(
    settings: Job, options: argparse.Namespace, spark: SparkSession, stop: threading.Event
) -> tuple[dict[str, str], bool]:
    lake = Lake(spark, settings.name)
    failed = Maintaining(lake, stop, dry=options.dry_run, only=options.only).all(settings)
    return dict.fromkeys(failed, "failed"), bool(failed)


class Maintaining:
    """One run over the tables of a job."""

    def __init__(
        self, lake: Lake, stop: threading.Event, *, dry: bool = False, only: Kind | None = None
    ) -> None:
        self._lake = lake
        self._stop = stop
        self._dry = dry
        self._only = only
        self._until = time.monotonic() + RUN_S

    def all(self, settings: Job) -> list[str]:
        """Maintain each table in turn; returns the names of the tables that failed.

        Raises Retryable: the catalog does not answer.
        """
        failed = []
        for table, main in tables_of(settings, self._lake):
            if self._over():
                break
            try:
                self.one(table, main)
            except Exception as error:  # noqa: BLE001 one table's error must not affect the others
                failed.append(str(main.name))
                who = {"table": str(main.name), "topic": table.topic}
                event("maintenance.failed", **who, kind=self._only, why=problem(error))
        return failed

    def one(self, table: job.Table, main: Table) -> None:
        """Do the work that is due for a table, or the one requested kind. Skip a table while a forget request runs.

        Raises CalveError: the work is not possible, or not possible now.
        """
        dead_letters = self._lake.load(main.name.dead_letters)
        if main.lake.is_managed and self._only in OF_S3_TABLES:
            raise CalveError(f"S3 Tables does this for {main.name}: {self._only}", fix="omit --only")
        work = Work(table, main, dead_letters)
        if work.is_forgetting:
            event("maintenance.skipped", **work.who, why="a person is being forgotten")
            return
        found = {
            each.kind: each.why
            for each in due(figures(main, dead_letters, table.maintenance), table.maintenance)
            if not (main.lake.is_managed and each.kind in OF_S3_TABLES)
        }
        wanted = {self._only: found.get(self._only, "requested")} if self._only else found
        for kind, why in wanted.items():
            event("maintenance.due", **work.who, kind=kind, why=why)
            if not self._dry and not self._over():
                self._do(kind, work)

    def _do(self, kind: Kind, work: Work) -> None:
        if kind in TURN_KINDS and work.settings.mode.replaces_rows:
            for _ in range(TURNS):
                if not work.has_left():
                    return
                if not asked(work.main, kind, self._stop.wait):
                    break
        if not self._over():
            work.run(kind, self._over)

    def _over(self) -> bool:
        return self._stop.is_set() or time.monotonic() > self._until


def _read(arguments: list[str]) -> tuple[Job, argparse.Namespace]:
    parser = job_parser("maintain", __doc__)
    flag(parser, "--dry-run", "report what is due, and change nothing")
    parser.add_argument("--only", choices=get_args(Kind), help="do only this kind, due or not")
    return read(parser, arguments)


if __name__ == "__main__":
    if code := main(sys.argv[1:]):  # a host may take any SystemExit, that of 0 too, for a failure
        sys.exit(code)
