"""`python -m bench.upserts`: CPU seconds of a round of changes to an upsert table as it grows, beside an append of the same.

A topic is kept twice, by key and as it is. For each size the table is filled first; then rounds of both read the same changes
of keys from all over, in turn. Everything runs in this process and its JVM, whose CPU time is what counts.
"""

from __future__ import annotations

import argparse
import os
import statistics
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from confluent_kafka import Producer

from bench.cpu import cpu_of_session
from calve.job import Job, Source, Table, Upsert
from cli.config import load_jobs
from cli.console import Console
from cli.datagen.produce import create_topic
from cli.embedded.layout import project_root
from cli.embedded.stack import Stack, running
from cli.kafka import client_properties
from cli.progress import Progress
from cli.spark import spark_environment
from glue_jobs.ingest import open_targets
from glue_jobs.kafka import Cluster
from glue_jobs.lake import Lake
from glue_jobs.outcome import Memory
from glue_jobs.round import Round
from glue_jobs.session import spark_session
from glue_jobs.target import Target

PARTITIONS = 4
VALUE_BYTES = 100
STRIDE = 104_729
UPSERT = Upsert(("_kafka.key",), deletes=True, bucketed=True)


def main(sizes: list[int], changes: int, rounds: int) -> None:
    console, root = Console(), project_root()
    with running(root, console.progress()) as stack:
        job = load_jobs(root / "calve.yaml")[0]
        with targets_of(job, stack) as make:
            base = None
            for size in sizes:
                topic = f"upserts_{uuid.uuid4().hex[:8]}"
                create_topic(topic, PARTITIONS, client_properties(job.kafka, job.lake.region))
                spent = measured(job, topic, make(topic), size, changes, rounds, console.progress())
                base = base or spent["upsert"]
                console.panel(
                    f"{size:,} keys: {changes:,} changes a round",
                    {f"{name}, CPU s": round(each, 2) for name, each in spent.items()}
                    | {"upsert / append": round(spent["upsert"] / spent["append"], 2)}
                    | {"upsert / smallest table": round(spent["upsert"] / base, 2)},
                )


@contextmanager
def targets_of(job: Job, stack: Stack) -> Iterator[Callable[[str], dict[str, Target]]]:
    """Gives what makes the two targets of a topic, on one Spark session."""
    os.environ.update(spark_environment(stack.root, stack, memory="4g"))
    spark = spark_session(job)
    properties = {"bootstrap.servers": job.kafka.bootstrap_servers}
    cluster = Cluster(spark, properties)

    def make(topic: str) -> dict[str, Target]:
        plain = Table(topic, topic, value=Source(format="bytes", prefix="none"))
        tables = (replace(plain, name=f"{topic}_append"), replace(plain, upsert=UPSERT))
        found = open_targets(replace(job, tables=tables), Lake(spark, "bench"), cluster, properties)
        return dict(zip(("append", "upsert"), found, strict=True))

    try:
        yield make
    finally:
        cluster.close()
        spark.stop()


def measured(
    job: Job, topic: str, targets: dict[str, Target], size: int, changes: int, rounds: int, progress: Progress
) -> dict[str, float]:
    """Median CPU seconds of a round of each target, once its table has `size` keys."""
    memories = {name: Memory() for name in targets}
    with progress.task(f"filling tables with {size:,} keys"):
        produce(job, topic, range(size))
        for name, target in targets.items():
            drain(target, memories[name])
    spent: dict[str, list[float]] = {name: [] for name in targets}
    for number in range(rounds + 1):  # the first is for warming up
        produce(job, topic, ((number * STRIDE + each * 7_919) % size for each in range(changes)))
        for name, target in targets.items():
            began = cpu_of_session(os.getsid(0))
            drain(target, memories[name])
            if number:
                spent[name].append(cpu_of_session(os.getsid(0)) - began)
    return {name: statistics.median(each) for name, each in spent.items()}


def drain(target: Target, memory: Memory) -> None:
    while Round(target, memory).run().more:
        pass


def produce(job: Job, topic: str, keys: Iterable[int]) -> None:
    producer = Producer(
        {**client_properties(job.kafka, job.lake.region), "linger.ms": 50, "compression.type": "lz4"}
    )
    for number, key in enumerate(keys):
        value = f"{number:012d}".encode() + b"x" * (VALUE_BYTES - 12)
        if number % 50_000 == 0:
            producer.flush()
        producer.produce(topic, value, f"user-{key:012d}")
    producer.flush()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1_000_000, 4_000_000, 16_000_000])
    parser.add_argument("--changes", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    main(options.sizes, options.changes, options.rounds)
