"""The ingest job: keep every topic of a job as a table. Runs as a Glue job script and on a laptop, unchanged.

Arguments: `--settings JSON` or `--settings-file PATH` (a resolved `calve.config.job.Job`), `--drain [true|false]`
to stop at the topics' ends as they are at start. What only a deploy knows stands beside the settings and wins over them:
`--warehouse URI`, `--region NAME`, `--kms-key ARN`, `--bootstrap-servers LIST`; `--control URI` and `--generation NAME` are for
`glue_jobs.rounds.reporting`; `--packages FILE` is an archive for `glue_jobs.process.packages`. Under `--announce true` the job
tells EventBridge of every commit. Glue's own arguments are ignored, all others refused. SIGTERM, Ctrl-C and a hand-over end the
job after the running rounds.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

from calve.config.engine_choice import of_settings
from calve.config.job import Job
from calve.errors import CalveError, ConfigError
from calve.log import event
from calve.names import TableName
from calve.outputs.job_status import place
from glue_jobs.engines import choice
from glue_jobs.iceberg.catalog import Lake
from glue_jobs.outputs.outbox import EventBus, Outbox
from glue_jobs.process import faults
from glue_jobs.process.packages import brought, ship
from glue_jobs.process.session import (
    flag,
    job_of,
    job_parser,
    parsed,
    require_avro_guard,
    spark_session,
)
from glue_jobs.rounds.reporting import HandOver, LakeObject, Reporter

if TYPE_CHECKING:
    from glue_jobs.kafka.cluster import Cluster
    from glue_jobs.rounds.loop import State
    from glue_jobs.table.opening import Opener

FLUSH_S = 5.0
"""How long a job that ends sends announcements; those that are left are sent by the next one."""


def main(arguments: list[str]) -> int:
    """Run the job; exit code 0, 1 where a table was left suspended or failed, 2 where the settings are of no use."""
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    try:
        job, options = _read(arguments)
        if fault := os.environ.get("CALVE_FAULT"):
            faults.arm(fault)
        spark = spark_session(job)
        if options.packages:
            ship(spark.sparkContext, options.packages)
        handover = _watched(job, options, spark, stop)
        signal.signal(signal.SIGINT, lambda *_: stop.set())  # PySpark takes it when the session is made
        states = run(job, drain=options.drain, stop=stop, announce=options.announce)
    except CalveError as error:
        event("job.failed", reason=error.message, fix=error.fix)
        return 2 if isinstance(error, ConfigError) else 1
    event("job.ended", job=job.job, states=states)
    if handover and handover.asked.is_set():
        return 0  # the next generation takes care of the tables; this one must not be started again
    return 1 if {"suspended", "failed"} & set(states.values()) else 0


def run(job: Job, *, drain: bool, stop: threading.Event, announce: bool = False) -> dict[str, State]:
    """Keep the job's tables until all loops are over; returns the state of each table.

    Raises:
        Fatal: the Avro guard is not active, a package is missing, or Kafka or the registry refused the credentials.
    """
    spark = spark_session(job)
    require_avro_guard(spark)
    said = LakeObject(spark, place(job.lake.warehouse, job.name, job.job))
    with Reporter(job, said) as reporter, ExitStack() as opened:
        require_packages()
        # Spark brings the packages that the host lacks (`glue_jobs.process.packages`): import their users after its start.
        from glue_jobs.kafka.cluster import Cluster
        from glue_jobs.rounds.loop import TableLoop
        from glue_jobs.rounds.loops import Discovery, Loops, Openers

        loops = reporter.loops = Loops(stop)
        cluster = output = opened.enter_context(closing(Cluster(job.kafka)))
        if job.kafka.emit_secret:
            output = opened.enter_context(closing(Cluster(job.kafka.output)))
        outbox = Outbox(job.job, EventBus(job.lake.region)) if announce else None
        if outbox:
            opened.callback(outbox.close, FLUSH_S)
        openers = Openers(job, Lake(spark, job.name), cluster, output, outbox)
        named = list(map(openers.of, job.tables))
        if any(each.engine != "rows" and not of_settings(each) for each in (*job.tables, *job.patterns)):
            choice.load(spark.sparkContext)
        tables = [str(each.name) for each in named]
        event("job.started", job=job.job, writer=openers.services.writer, tables=tables)

        def keep(opener: Opener) -> TableName:
            loops.start(TableLoop(opener, stop, drain))
            return opener.name

        for opener in named:
            keep(opener)
        if job.patterns:
            found = Discovery(
                job, cluster.names, openers.topic_of, lambda table: keep(openers.of(table)), stop, drain
            )
            loops.run(found.run, "the topics of patterns", name="discovery")
        return loops.wait()


def require_packages() -> None:
    """Import the source of records; its kernels are compiled where no process of this machine has done so.

    Raises:
        Fatal: a package cannot be imported.
    """
    with brought():
        from glue_jobs.kafka import source  # noqa: F401 the import is the proof


def openers_of(job: Job, lake: Lake, cluster: Cluster) -> list[Opener]:
    """One for each table; all share the cluster, the catalog and the registry's cache."""
    from glue_jobs.rounds.loops import Openers

    return list(map(Openers(job, lake, cluster, cluster).of, job.tables))


def _watched(
    job: Job, options: argparse.Namespace, spark: SparkSession, stop: threading.Event
) -> HandOver | None:
    if not options.control or not options.generation:
        return None
    handover = HandOver(job.job, options.generation, options.control, stop)
    handover.watch(spark)
    return handover


def _read(arguments: list[str]) -> tuple[Job, argparse.Namespace]:
    parser = job_parser("ingest", __doc__)
    flag(parser, "--drain", "stop at the topics' ends as they are at start")
    flag(parser, "--announce", "send events to EventBridge")
    parser.add_argument("--bootstrap-servers", help="the brokers")
    parser.add_argument("--packages", type=Path, help="an archive of Python packages")
    parser.add_argument("--control", help="S3 URI of the object that names the generation to run")
    parser.add_argument("--generation", help="which generation this run is of")
    options = parsed(parser, arguments)
    job = job_of(options)
    servers = options.bootstrap_servers or job.kafka.bootstrap_servers
    return replace(job, kafka=replace(job.kafka, bootstrap_servers=servers)), options


if __name__ == "__main__":
    if code := main(sys.argv[1:]):  # a host may take any SystemExit, that of 0 too, for a failure
        sys.exit(code)
