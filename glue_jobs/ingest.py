"""The ingest job: keep every topic of a job as a table. Runs as a Glue job script and on a laptop, unchanged.

Arguments: `--settings JSON` or `--settings-file PATH` (a resolved `calve.config.job.Job`), and `--drain [true|false]`.
With `--drain` the job stops at the end offsets that the topics had at its start.
Values known only at deployment are separate arguments and override the settings: `--warehouse URI`, `--region NAME`,
`--kms-key ARN`, `--bootstrap-servers LIST`.
`glue_jobs.rounds.reporting` uses `--control URI` and `--generation NAME`. `--packages-file FILE` is an archive for
`glue_jobs.process.workers`. With `--restart-at Sun:3` the run ends at that hour of the week, in GMT, for another to begin.
With `--announce true` the job sends an event to EventBridge for every commit.
The job ignores Glue's own arguments and refuses all others. SIGTERM, Ctrl-C and a hand-over end it after the running rounds.
"""

from __future__ import annotations

import argparse
import sys
import threading
from contextlib import ExitStack, closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

from calve.config.job import Job, Table
from calve.log import event
from calve.names import TableName
from calve.outputs.job_status import place
from glue_jobs.engines import choice
from glue_jobs.iceberg.catalog import Lake
from glue_jobs.outputs.outbox import Outbox, send
from glue_jobs.process.session import flag, job_parser, read, run_script, spark_session
from glue_jobs.process.workers import brought, ship
from glue_jobs.rounds.reporting import LakeObject, Reporter, watch

if TYPE_CHECKING:
    from glue_jobs.kafka.cluster import Cluster
    from glue_jobs.rounds.loop import State
    from glue_jobs.table.opening import Opener

DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
FLUSH_S = 5.0
"""How long an ending job still sends announcements. The next job sends the rest."""


def main(arguments: list[str]) -> int:
    """Run the job. Exit code 0; 1 if a table is suspended or failed; 2 if the settings are invalid."""
    return run_script(lambda: _read(arguments), _work)


def _work(
    job: Job, options: argparse.Namespace, spark: SparkSession, stop: threading.Event
) -> tuple[dict[str, str], bool]:
    if options.packages_file:
        ship(spark.sparkContext, options.packages_file)
    if options.restart_at:
        timer = threading.Timer(until(options.restart_at, datetime.now(UTC)).total_seconds(), stop.set)
        timer.daemon = True
        timer.start()
    asked = threading.Event()
    if options.control and options.generation:
        asked = watch(spark, job.job, options.control, options.generation, stop)
    states = run(
        job, drain=options.drain, stop=stop, announce=options.announce, generation=options.generation
    )
    stopped = not {"suspended", "failed"}.isdisjoint(states.values())
    # After a hand-over the next generation takes care of the tables; this one must not be started again.
    return {**states}, stopped and not asked.is_set()


def run(
    job: Job,
    *,
    drain: bool,
    stop: threading.Event,
    announce: bool = False,
    generation: str | None = None,
) -> dict[str, State]:
    """Run the loops of all tables until they end; returns the state of each table.

    Raises Fatal: a package is missing; Kafka or the registry refused the credentials; or, of a deployed job, the lake did.
    """
    spark = spark_session(job)
    said = LakeObject(spark, place(job.lake.warehouse, job.name, job.job))
    with Reporter(job, said, generation).running() as reporter, ExitStack() as opened:
        require_packages()
        # Spark provides packages that the host lacks (`glue_jobs.process.workers`): import their users after its
        # start.
        from glue_jobs.iceberg.storage import require_access
        from glue_jobs.kafka.cluster import Cluster
        from glue_jobs.rounds.loop import TableLoop
        from glue_jobs.rounds.loops import Discovery, Loops, Openers

        if generation:
            require_access(spark, job.lake.warehouse)
        loops = Loops(stop)
        cluster = output = opened.enter_context(closing(Cluster(job.kafka)))
        if job.kafka.emit_secret:
            output = opened.enter_context(closing(Cluster(job.kafka.output)))
        outbox = Outbox(job.job, partial(send, job.lake.region)) if announce else None
        if outbox:
            opened.callback(outbox.close, FLUSH_S)
        openers = Openers(job, Lake(spark, job.name), cluster, output, outbox)
        named = list(map(openers.of, job.tables))
        choice.load(spark.sparkContext)
        tables = [str(each.name) for each in named]
        event("job.started", job=job.job, writer=openers.services.writer, tables=tables)

        for opener in named:
            loops.start(TableLoop(opener, stop, drain))
        reporter.loops = loops
        if job.patterns:

            def keep(table: Table) -> TableName:
                return loops.start(TableLoop(openers.of(table), stop, drain))

            found = Discovery(job, cluster.names, openers.topic_of, keep, stop, drain)
            loops.run(found.run, "the search for topics")
        return loops.wait()


LEAST = timedelta(hours=1)
"""How long a run lasts at least, so that it does not end twice within an hour of the week."""


def until(window: str, now: datetime) -> timedelta:
    """How long a run that begins now lasts until the hour of the week."""
    day, hour = window.split(":")
    start = now.replace(hour=int(hour), minute=0, second=0, microsecond=0)
    start += timedelta(days=DAYS.index(day) - now.weekday())
    while start - now < LEAST:
        start += timedelta(days=7)
    return start - now


def require_packages() -> None:
    """Import the record source. This compiles its kernels, unless a process on this machine has compiled them before.

    Raises Fatal: a package cannot be imported.
    """
    with brought():
        from glue_jobs.index import table_index  # noqa: F401 the import is the proof
        from glue_jobs.kafka import source  # noqa: F401


def openers_of(job: Job, lake: Lake, cluster: Cluster) -> list[Opener]:
    """One opener per table. All share the cluster, the catalog and the registry's cache."""
    from glue_jobs.rounds.loops import Openers

    return list(map(Openers(job, lake, cluster, cluster).of, job.tables))


def _read(arguments: list[str]) -> tuple[Job, argparse.Namespace]:
    parser = job_parser("ingest", __doc__)
    flag(parser, "--drain", "stop at the topics' ends as they are at start")
    flag(parser, "--announce", "send events to EventBridge")
    parser.add_argument("--bootstrap-servers", help="the brokers")
    parser.add_argument("--packages-file", type=Path, help="an archive of Python packages")
    parser.add_argument("--restart-at", help="the day and hour at which the run ends, such as Sun:3")
    parser.add_argument("--control", help="S3 URI of the object that names the generation to run")
    parser.add_argument("--generation", help="which generation this run is of")
    job, options = read(parser, arguments)
    servers = options.bootstrap_servers or job.kafka.bootstrap_servers
    return replace(job, kafka=replace(job.kafka, bootstrap_servers=servers)), options


if __name__ == "__main__":
    if code := main(sys.argv[1:]):  # a host may take any SystemExit, that of 0 too, for a failure
        sys.exit(code)
