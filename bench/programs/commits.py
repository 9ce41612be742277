"""`python -m bench.programs.commits SETTINGS AT...`: rounds of a few records, and what the table is like after some.

Before and after the `WINDOW` rounds that end at each of these the program makes a mark, the second one with the table's figures.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from confluent_kafka import Producer

from bench.programs.marks import mark
from bench.topics import make
from bench.workloads.trades import TRADES
from bench.workloads.workload import blocks
from calve.config.job import Job
from cli.kafka import client_properties
from glue_jobs.iceberg.catalog import Lake, Table
from glue_jobs.ingest import openers_of
from glue_jobs.kafka.cluster import Cluster
from glue_jobs.maintenance.between_rounds import LoopMaintenance
from glue_jobs.process.java import elements
from glue_jobs.process.session import spark_session
from glue_jobs.rounds.round import Round
from glue_jobs.table.open_table import TableMemory
from glue_jobs.table.opening import Opener

ROWS = 5
WINDOW = 10
WAIT_S = 0.5
"""What upkeep is told that there is between two rounds."""


def main(settings: Path, at: list[int]) -> None:
    job = Job.from_json(settings.read_text())
    topic = job.tables[0].topic
    frame = make(job, topic, TRADES)
    producer = Producer({**client_properties(job.kafka, job.lake.region), "linger.ms": 0})
    records = (each for pairs in blocks(TRADES, ROWS * max(at), frame) for each in zip(*pairs, strict=True))
    spark = spark_session(job)
    with closing(Cluster(job.kafka)) as cluster:
        [target] = openers_of(job, Lake(spark, "bench"), cluster)
        commits_ms: list[float] = []
        for commit_ms in _rounds(target, topic, producer, records, max(at)):
            commits_ms.append(commit_ms)
            if len(commits_ms) + WINDOW in at:
                mark("begin")
            if len(commits_ms) in at:
                median = statistics.median(commits_ms[-WINDOW:])
                mark("end", commit=len(commits_ms), commit_ms=median, **_figures(target))
    spark.stop()


def _rounds(
    target: Opener, topic: str, producer: Producer, records: Iterator[tuple[bytes, bytes]], count: int
) -> Iterator[float]:
    """Milliseconds that the catalog took for each commit."""
    memory, upkeep = TableMemory(), LoopMaintenance(target)
    for _ in range(count):
        for _ in range(ROWS):
            key, value = next(records)
            producer.produce(topic, value, key)
        producer.flush()
        outcome = Round(target, memory).run()
        upkeep.between(outcome, WAIT_S)
        yield outcome.commit_ms


def _figures(target: Opener) -> dict[str, float]:
    """Of the table as it is now."""
    table = target.opened.main
    table.refresh()
    location = str(table.java.operations().current().metadataFileLocation())
    io = table.java.io()
    return {
        "metadata_bytes": int(io.newInputFile(location).getLength()),
        "metadata_files": len(list(elements(io.listPrefix(f"{table.java.location()}/metadata/")))),
        "data_files": table.total("data-files"),
        "snapshots": int(table.java.snapshots().size()),
        "plan_ms": 1000 * statistics.median(_plan_s(table) for _ in range(5)),
    }


def _plan_s(table: Table) -> float:
    began = time.monotonic()
    for _ in elements(table.java.newScan().planFiles()):
        pass
    return time.monotonic() - began


if __name__ == "__main__":
    main(Path(sys.argv[1]), [int(each) for each in sys.argv[2:]])
