"""`python -m bench.programs.modes MODE SETTINGS CHANGES ROUNDS SIZES...`: rounds of a table by key as it grows, beside appends.

A topic is kept twice, in the mode and as it is. For each size the table is filled first; then rounds of both read the same
records in turn: for `upsert` and `aggregate` those of keys from all over, for `deduplicate` new keys and, one in twenty, keys
from all over.
"""

from __future__ import annotations

import sys
import uuid
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from pyspark.sql import SparkSession

from bench.programs.marks import mark
from calve.config.job import Job, Source, Table
from calve.modes.aggregate import Aggregate, Measure
from calve.modes.deduplicate import Deduplicate
from calve.modes.upsert import Upsert
from cli.kafka import client_properties
from cli.run.datagen.produce import create_topic
from glue_jobs.iceberg.catalog import Lake
from glue_jobs.ingest import openers_of
from glue_jobs.kafka.cluster import Cluster
from glue_jobs.process.session import spark_session
from glue_jobs.rounds.round import Round
from glue_jobs.table.open_table import TableMemory
from glue_jobs.table.opening import Opener

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


def main(mode: str, settings: Path, changes: int, rounds: int, sizes: list[int]) -> None:
    job = Job.from_json(settings.read_text())
    spark = spark_session(job)
    with closing(Cluster(job.kafka)) as cluster:
        for size in sizes:
            topic = f"{mode}_{uuid.uuid4().hex[:8]}"
            create_topic(topic, PARTITIONS, client_properties(job.kafka, job.lake.region))
            targets = targets_of(job, topic, mode, spark, cluster)
            grow(job, topic, targets, size, changes, rounds)
    spark.stop()


def targets_of(job: Job, topic: str, mode: str, spark: SparkSession, cluster: Cluster) -> dict[str, Opener]:
    plain = Table(topic, topic, value=Source(format="bytes", prefix="none"))
    tables = (replace(plain, name=f"{topic}_append"), replace(plain, **{mode: MODES[mode]}))
    found = openers_of(replace(job, tables=tables), Lake(spark, "bench"), cluster)
    return dict(zip(("append", mode), found, strict=True))


def grow(job: Job, topic: str, targets: dict[str, Opener], size: int, changes: int, rounds: int) -> None:
    """Fill both tables, then have rounds of both; the first is for warming up, and not told."""
    memories = {name: TableMemory() for name in targets}
    produce(job, topic, range(size))
    for name, target in targets.items():
        drain(target, memories[name])
    for number in range(rounds + 1):
        produce(job, topic, keys(number, size, changes, new="deduplicate" in targets))
        for name, target in targets.items():
            if number:
                mark("begin", mode=name, size=size)
            drain(target, memories[name])
            if number:
                mark("end", mode=name, size=size)


def keys(number: int, size: int, records: int, *, new: bool) -> Iterator[int]:
    """The keys of a round: of those that the table has, or new ones with some of those among them."""
    for each in range(records):
        known = (number * STRIDE + each * 7_919) % size
        yield known if not new or each % KNOWN == 0 else size + number * records + each


def drain(target: Opener, memory: TableMemory) -> None:
    while Round(target, memory).run().more:
        pass


def produce(job: Job, topic: str, keys: Iterable[int]) -> None:
    properties = client_properties(job.kafka, job.lake.region)
    producer = Producer({**properties, "linger.ms": 50, "compression.type": "lz4"})
    for number, key in enumerate(keys):
        value = f"{number:012d}".encode() + b"x" * (VALUE_BYTES - 12)
        if number % 50_000 == 0:
            producer.flush()
        producer.produce(topic, value, f"user-{key:012d}")
    producer.flush()


if __name__ == "__main__":
    main(
        sys.argv[1],
        Path(sys.argv[2]),
        int(sys.argv[3]),
        int(sys.argv[4]),
        [int(each) for each in sys.argv[5:]],
    )
