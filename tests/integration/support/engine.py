"""The engine in the test's own process, on the shared stack and the shared Spark session: what a job does, step by step."""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from pyspark.sql import DataFrame, SparkSession

from calve.config.job import Catalog, Job, Kafka, Lake, Registry, Table
from calve.config.spark_conf import CATALOG
from calve.errors import Retryable, Suspended
from calve.names import TableName
from calve.table.position import Position, TopicKey
from cli.embedded.stack import Stack
from glue_jobs.iceberg.catalog import Lake as JobLake
from glue_jobs.iceberg.catalog import Table as IcebergTable
from glue_jobs.ingest import openers_of
from glue_jobs.kafka.cluster import Cluster
from glue_jobs.process import faults
from glue_jobs.rounds.round import Round
from glue_jobs.table.open_table import OpenTable, Outcome, TableMemory, position_of
from glue_jobs.table.opening import Opener

TRADE = json.dumps(
    {
        "type": "record",
        "name": "Trade",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "side", "type": "string"},
            {"name": "price", "type": "int"},
        ],
    }
)
DATABASE = "tests"
CHOICE: Any = os.environ.get("CALVE_TEST_ENGINE", "auto")
"""What makes rows (`calve.config.job.Table.engine`) where a test does not say it."""


@dataclass
class Engine:
    """Makes topics and drains them into tables. Every topic and table has a name of its own."""

    stack: Stack
    spark: SparkSession
    cluster: Cluster
    lake: JobLake
    admin: AdminClient
    registry: SchemaRegistryClient
    producer: Producer
    home: Catalog | None = None
    serializers: dict[str, AvroSerializer] = field(default_factory=dict)

    def topic(self, *, partitions: int = 2, schema: str = TRADE, config: dict[str, str] | None = None) -> str:
        """A new topic with its registered value schema."""
        name = f"t{uuid.uuid4().hex[:12]}"
        self.create(name, partitions=partitions, config=config)
        self.register(name, schema)
        return name

    def create(self, name: str, *, partitions: int = 2, config: dict[str, str] | None = None) -> None:
        made = self.admin.create_topics([NewTopic(name, partitions, 1, config=config or {})])
        made[name].result(30)
        until(lambda: self.key(name) is not None)  # the broker says so a moment later

    def delete(self, name: str) -> None:
        self.admin.delete_topics([name])[name].result(30)

    def recreate(self, name: str, *, partitions: int = 1) -> None:
        """Delete a topic and make it again; returns when its new id is what clients see."""
        before = self.cluster.state(name).key
        self.delete(name)
        self.create(name, partitions=partitions)
        until(lambda: self.key(name) not in (None, before))

    def key(self, name: str) -> TopicKey | None:
        """The topic's incarnation, as clients see it now; None where there is none."""
        try:
            return self.cluster.state(name).key
        except Retryable:
            return None

    def expire(self, topic: str, before: int, *, partition: int = 0) -> None:
        """Delete the records below an offset, as retention does."""
        for done in self.admin.delete_records([TopicPartition(topic, partition, before)]).values():
            done.result(30)

    def configure(self, name: str, **config: str) -> None:
        entries = [
            ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
            for key, value in config.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=entries)
        for done in self.admin.incremental_alter_configs([resource]).values():
            done.result(30)

    def config_of(self, topic: str, name: str) -> str | None:
        resource = ConfigResource(ResourceType.TOPIC, topic)
        found: str | None = self.admin.describe_configs([resource])[resource].result(30)[name].value
        return found

    def add_partitions(self, name: str, total: int) -> None:
        """More partitions for a topic; returns when all clients see them."""
        self.admin.create_partitions([NewPartitions(name, total)])[name].result(30)
        until(lambda: len(self.cluster.state(name).end) == total)
        until(lambda: len(self.producer.list_topics(name).topics[name].partitions) == total)

    def register(self, topic: str, schema: str) -> int:
        """Register a value schema and serialize with it from now on."""
        schema_id = self.registry.register_schema(f"{topic}-value", Schema(schema, "AVRO"))
        settings = {"auto.register.schemas": False, "use.latest.version": False}
        self.serializers[topic] = AvroSerializer(self.registry, schema, conf=settings)
        return int(schema_id)

    def produce(
        self, topic: str, records: int | list[dict[str, Any]], *, partition: int | None = None
    ) -> None:
        """Produce good records, by default numbered ones, in turn to all partitions."""
        rows = trades(records) if isinstance(records, int) else records
        for row in rows:
            self.send(topic, self.encode(topic, row), partition=partition)
        self.flush()

    def encode(self, topic: str, row: dict[str, Any]) -> bytes:
        value = self.serializers[topic](row, SerializationContext(topic, MessageField.VALUE))
        assert value is not None
        return bytes(value)

    def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        partition: int | None = None,
        at_ms: int = 0,
    ) -> None:
        """Produce raw bytes; `flush` waits for all of them. `at_ms`: the record's timestamp; 0: now."""
        if partition is None:
            self.producer.produce(topic, value, key=key, timestamp=at_ms)
        else:
            self.producer.produce(topic, value, key=key, partition=partition, timestamp=at_ms)

    @contextmanager
    def transaction(self, topic: str, values: list[bytes], *, partition: int = 0) -> Iterator[Producer]:
        """Records in a transaction that stays open; it is aborted at the end unless it was committed or aborted before.

        A broker writes the marker that ends it after it has answered: the block waits for it.
        """
        settings = {"bootstrap.servers": self.stack.bootstrap_servers, "transactional.id": uuid.uuid4().hex}
        producer = Producer(settings)
        producer.init_transactions(30)
        producer.begin_transaction()
        for value in values:
            producer.produce(topic, value, partition=partition)
        assert producer.flush(30) == 0
        try:
            yield producer
        finally:
            with suppress(KafkaException):
                producer.abort_transaction(30)
            written = TopicPartition(topic, partition)
            last = self.admin.list_offsets({written: OffsetSpec.latest()})
            until(lambda: self.cluster.state(topic).end[partition] >= last[written].result(30).offset)

    def flush(self) -> None:
        assert self.producer.flush(30) == 0

    def job(self, *tables: Table, **changes: Any) -> Job:
        stack = self.stack
        lake = Lake(
            DATABASE,
            f"s3://{stack.bucket}/tests",
            endpoint=stack.aws_endpoint,
            region=stack.region,
            catalog=self.home,
        )
        made = Job(
            "tests", "main", Kafka(stack.bootstrap_servers), Registry(stack.registry_url), lake, tables
        )
        return replace(made, **changes)

    def target(self, topic: str, *, table: str | None = None, **settings: Any) -> Opener:
        """A writer of its own for the topic's table, as a new job would make it."""
        registry = settings.pop("registry", None) or Registry(self.stack.registry_url)
        masking = settings.pop("masking", None)
        job = self.job(
            Table(name=table or topic, topic=topic, **{"engine": CHOICE} | settings),
            registry=registry,
            masking=masking,
        )
        return openers_of(job, self.lake, self.cluster)[0]

    def drain(self, target: Opener, *, memory: TableMemory | None = None) -> list[Outcome]:
        """Rounds until the topic has nothing more; at most 20."""
        memory = memory or TableMemory()
        outcomes = []
        for _ in range(20):
            outcomes.append(Round(target, memory).run())
            if not outcomes[-1].more:
                return outcomes
        raise AssertionError("the topic did not drain in 20 rounds")

    def mixed(self, topic: str, good: int, bad: int = 0) -> None:
        """Produce good records, then rejects, to partition 0."""
        self.produce(topic, good, partition=0)
        for _ in range(bad):
            self.send(topic, b"\x01no magic byte", partition=0)
        self.flush()

    def ingest(self, topic: str, good: int, bad: int = 0) -> int:
        """Produce and drain in one round of a new job; the snapshot that it made."""
        self.mixed(topic, good, bad)
        (outcome,) = self.drain(self.target(topic))
        assert outcome.snapshot is not None
        return outcome.snapshot

    def round(self, target: Opener) -> Outcome:
        return Round(target, TableMemory()).run()

    def rows(self, topic: str) -> DataFrame:
        return self.spark.table(TableName(DATABASE, topic).quoted(CATALOG))

    def letters(self, topic: str) -> DataFrame:
        return self.spark.table(TableName(DATABASE, topic).dead_letters.quoted(CATALOG))

    def offsets(self, topic: str) -> list[tuple[int, int]]:
        """(partition, offset) of every row, sorted; a row that is there twice is listed twice."""
        found = self.rows(topic).select("_kafka.partition", "_kafka.offset").collect()
        return sorted((row[0], row[1]) for row in found)

    def letter_offsets(self, topic: str) -> list[tuple[int, int]]:
        found = self.letters(topic).select("partition", "offset").collect()
        return sorted((row[0], row[1]) for row in found)

    def position(self, topic: str) -> Position:
        target = self.target(topic)
        target.open()
        return position_of_open(target.opened)

    def compact(self, table: str) -> None:
        """Replace all data files, as a table service does: the new snapshot says nothing of calve."""
        where = f"table => '{DATABASE}.{table}', options => map('rewrite-all', 'true')"
        self.spark.sql(f"CALL {CATALOG}.system.rewrite_data_files({where})")

    def expire_history(self, table: str, *, retain: int = 1) -> None:
        """Expire every snapshot but the newest ones and what tags hold, as a table service does."""
        where = (
            f"table => '{DATABASE}.{table}', older_than => TIMESTAMP '2100-01-01 00:00:00',"
            f" retain_last => {retain}"
        )
        self.spark.sql(f"CALL {CATALOG}.system.expire_snapshots({where})")

    def rollback(self, table: str, snapshot: int) -> None:
        self.spark.sql(f"CALL {CATALOG}.system.rollback_to_snapshot('{DATABASE}.{table}', {snapshot})")

    def table(self, name: str) -> IcebergTable:
        """A table that exists, as it is now."""
        found = self.lake.load(TableName(DATABASE, name))
        assert found is not None
        return found

    def sql(self, text: str, topic: str) -> DataFrame:
        """SQL on the topic's table, written `{t}`: what a user may do to it."""
        return self.spark.sql(text.format(t=TableName(DATABASE, topic).quoted(CATALOG)))


def trades(count: int, *, first: int = 0) -> list[dict[str, Any]]:
    return [{"id": first + n, "side": "BUY" if n % 2 else "SELL", "price": n % 900} for n in range(count)]


def everything(*counts: int) -> list[tuple[int, int]]:
    """All (partition, offset) of a topic that holds `counts[p]` records in partition p, without gaps."""
    return [(partition, offset) for partition, count in enumerate(counts) for offset in range(count)]


def until(condition: Callable[[], object], *, seconds: float = 30) -> None:
    """Wait for a condition; fails when it has not come true in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        time.sleep(0.05)


@contextmanager
def suspended(code: str) -> Iterator[pytest.ExceptionInfo[Suspended]]:
    """The code inside must suspend its table for this reason."""
    with pytest.raises(Suspended) as caught:
        yield caught
    assert caught.value.code == code, caught.value


@contextmanager
def at(point: str, action: Callable[[str], object]) -> Iterator[None]:
    """Do something when a round passes a fault point, once."""

    def once(table: str) -> None:
        del faults.handlers[point]
        action(table)

    faults.handlers[point] = once
    try:
        yield
    finally:
        faults.handlers.pop(point, None)


@contextmanager
def each_time(point: str, action: Callable[[str], None]) -> Iterator[None]:
    """Do something each time a round passes a fault point."""
    faults.handlers[point] = action
    try:
        yield
    finally:
        faults.handlers.pop(point, None)


def position_of_open(table: OpenTable) -> Position:
    """The committed offsets, as main's history proves them now."""
    return position_of(table.main, table.dead_letters, table.services)[0]
