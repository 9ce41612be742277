"""`python -m bench.modes`: CPU seconds of a round of a table by key as it grows, beside an append of the same records.

A topic is kept twice, in the mode and as it is. For each size the table is filled first; then rounds of both read the same
records in turn: for `upsert` and `aggregate` those of keys from all over, for `deduplicate` new keys and, one in twenty, keys
from all over. Everything runs in this process and its JVM, whose CPU time is what counts.
"""

from __future__ import annotations

import argparse
import os
import statistics
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from confluent_kafka import Producer

from bench.cpu import cpu_of_session
from calve.job import Aggregate, Deduplicate, Job, Measure, Source, Table, Upsert
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
KNOWN = 20
"""One record of so many has a key that a table without duplicates has already."""
MODES: dict[str, Any] = {
    "upsert": Upsert(("_kafka.key",), deletes=True, bucketed=True),
    "deduplicate": Deduplicate(("_kafka.key",)),
    "aggregate": Aggregate(
        ("_kafka.key",), (Measure("records", "count(*)"), Measure("reached", "max(_kafka.offset)"))
    ),
}


def main(mode: str, sizes: list[int], changes: int, rounds: int) -> None:
    console, root = Console(), project_root()
    with running(root, console.progress()) as stack:
        job = load_jobs(root / "calve.yaml")[0]
        with targets_of(job, stack, mode) as make:
            base = None
            for size in sizes:
                topic = f"{mode}_{uuid.uuid4().hex[:8]}"
                create_topic(topic, PARTITIONS, client_properties(job.kafka, job.lake.region))
                spent = measured(job, topic, make(topic), size, changes, rounds, console.progress())
                base = base or spent[mode]
                console.panel(
                    f"{size:,} keys: {changes:,} records a round",
                    {f"{name}, CPU s": round(each, 2) for name, each in spent.items()}
                    | {f"{mode} / append": round(spent[mode] / spent["append"], 2)}
                    | {f"{mode} / smallest table": round(spent[mode] / base, 2)},
                )


@contextmanager
def targets_of(job: Job, stack: Stack, mode: str) -> Iterator[Callable[[str], dict[str, Target]]]:
    """Gives what makes the two targets of a topic, on one Spark session."""
    os.environ.update(spark_environment(stack.root, stack, memory="4g"))
    spark = spark_session(job)
    cluster = Cluster(spark, job.kafka)

    def make(topic: str) -> dict[str, Target]:
        plain = Table(topic, topic, value=Source(format="bytes", prefix="none"))
        tables = (replace(plain, name=f"{topic}_append"), replace(plain, **{mode: MODES[mode]}))
        found = open_targets(replace(job, tables=tables), Lake(spark, "bench"), cluster)
        return dict(zip(("append", mode), found, strict=True))

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
        produce(job, topic, keys(number, size, changes, new="deduplicate" in targets))
        for name, target in targets.items():
            began = cpu_of_session(os.getsid(0))
            drain(target, memories[name])
            if number:
                spent[name].append(cpu_of_session(os.getsid(0)) - began)
    return {name: statistics.median(each) for name, each in spent.items()}


def keys(number: int, size: int, records: int, *, new: bool) -> Iterator[int]:
    """The keys of a round: of those that the table has, or new ones with some of those among them."""
    for each in range(records):
        known = (number * STRIDE + each * 7_919) % size
        yield known if not new or each % KNOWN == 0 else size + number * records + each


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
    parser.add_argument("--mode", choices=MODES, default="upsert")
    parser.add_argument("--sizes", type=int, nargs="+", default=[1_000_000, 4_000_000, 16_000_000])
    parser.add_argument("--changes", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    main(options.mode, options.sizes, options.changes, options.rounds)
