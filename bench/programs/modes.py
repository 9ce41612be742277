"""`python -m bench.programs.modes MODE SETTINGS CHANGES ROUNDS SIZES...`: rounds of a table by key as it grows, beside appends.

A topic is kept in the mode, as it is, and for `upsert` also by Spark's own MERGE. For each size the tables are filled first.
Then rounds of all read the same records in turn: of keys from all over; for `deduplicate` of new keys and, one in twenty, of keys
from all over.
"""

from __future__ import annotations

import base64
import json
import sys
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from pyspark.sql import SparkSession, Window
from pyspark.sql import functions as F

from bench.programs.marks import mark
from calve.config.job import Job, Source, Table
from calve.config.spark_conf import CATALOG
from calve.config.steps import Mask, Rule
from calve.modes.aggregate import Aggregate, Measure
from calve.modes.history import History
from calve.modes.upsert import Deduplicate, Upsert
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
WARMING, FEW = 200, 100
"""So many rounds of so few records come first, in tables of their own. The JVM compiles meanwhile; nothing is reported."""
STRIDE = 104_729
KNOWN = 20
"""One record of so many has a key that a table without duplicates has already."""
UPSERT = Upsert(("_kafka.key",), deletes=True, bucketed=True)
MODES: dict[str, dict[str, Any]] = {
    "upsert": {"upsert": UPSERT},
    "masked": {"upsert": UPSERT, "steps": (Mask({"value": Rule("hash")}, key="keep"),)},
    "history": {"history": History(("_kafka.key",), deletes=True, bucketed=True)},
    "deduplicate": {"deduplicate": Deduplicate(("_kafka.key",))},
    "aggregate": {
        "aggregate": Aggregate(
            ("_kafka.key",), (Measure("records", "count(*)"), Measure("reached", "max(_kafka.offset)"))
        )
    },
}
"""The settings of each table. `masked`: upserts whose value is hashed."""
MASKING_KEY = {"id": "k1", "from": "2020-01-01T00:00:00Z", "key": base64.b64encode(bytes(32)).decode()}


def main(mode: str, settings: Path, changes: int, rounds: int, sizes: list[int]) -> None:
    masking = settings.with_name("masking.json")
    masking.write_text(json.dumps({"keys": [MASKING_KEY]}))
    job = replace(Job.from_json(settings.read_text()), masking=f"file:{masking}")
    spark = spark_session(job)
    with closing(Cluster(job.kafka)) as cluster:

        def begun() -> tuple[str, dict[str, Drain]]:
            topic = f"{mode}_{uuid.uuid4().hex[:8]}"
            create_topic(topic, PARTITIONS, client_properties(job.kafka, job.lake.region))
            return topic, drains_of(job, topic, mode, spark, cluster)

        warm(job, *begun())
        for size in sizes:
            grow(job, *begun(), size, changes, rounds)
    spark.stop()


Drain = Callable[[], None]
"""Read all new records of the topic."""


def drains_of(job: Job, topic: str, mode: str, spark: SparkSession, cluster: Cluster) -> dict[str, Drain]:
    plain = Table(topic, topic, value=Source(format="bytes", prefix="none"))
    tables = (replace(plain, name=f"{topic}_append"), replace(plain, **MODES[mode]))
    openers = openers_of(replace(job, tables=tables), Lake(spark, "bench"), cluster)
    found: dict[str, Drain] = {
        name: partial(drain, opener, TableMemory())
        for name, opener in zip(("append", mode), openers, strict=True)
    }
    if mode == "upsert":
        found["merge"] = Merge(spark, job, topic, cluster).drain
    return found


def warm(job: Job, topic: str, drains: dict[str, Drain]) -> None:
    """Rounds of a few keys by calve, each of all new keys or of known ones in turn."""
    for number in range(WARMING):
        produce(job, topic, range(number // 2 * FEW, (number // 2 + 1) * FEW))
        for name in drains.keys() - {"merge"}:
            drains[name]()


def grow(job: Job, topic: str, drains: dict[str, Drain], size: int, changes: int, rounds: int) -> None:
    """Fill the tables, then have rounds of each; the first is for warming up, and not reported."""
    produce(job, topic, range(size))
    for each in drains.values():
        each()
    for number in range(rounds + 1):
        produce(job, topic, keys(number, size, changes, new="deduplicate" in drains))
        for name, each in drains.items():
            if number:
                mark("begin", mode=name, size=size)
            each()
            if number:
                mark("end", mode=name, size=size)


class Merge:
    """The newest record of each key by Spark alone: keep the last one of each key among the new records, and MERGE these."""

    def __init__(self, spark: SparkSession, job: Job, topic: str, cluster: Cluster) -> None:
        self._spark, self._topic, self._cluster, self._job = spark, topic, cluster, job
        self._name = f"{CATALOG}.{job.lake.database}.{topic}_merge"
        self._read_to = dict.fromkeys(range(PARTITIONS), 0)

    def drain(self) -> None:
        start, self._read_to = self._read_to, dict(self._cluster.state(self._topic).end)
        options = {
            "kafka.bootstrap.servers": self._job.kafka.bootstrap_servers,
            "subscribe": self._topic,
            "startingOffsets": json.dumps({self._topic: start}),
            "endingOffsets": json.dumps({self._topic: self._read_to}),
        }
        read = self._spark.read.format("kafka").options(**options).load()
        last = Window.partitionBy("key").orderBy(F.desc("timestamp"), F.desc("offset"))
        newest = read.withColumn("rank", F.row_number().over(last)).where("rank = 1")
        newest = newest.select("key", "value", "partition", "offset", "timestamp")
        if not any(start.values()):
            table = newest.writeTo(self._name).using("iceberg").tableProperty("format-version", "2")
            table.tableProperty("write.merge.mode", "merge-on-read").create()
            return
        newest.createOrReplaceTempView("changes")
        self._spark.sql(
            f"MERGE INTO {self._name} t USING changes s ON t.key = s.key"
            " WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        )


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
