"""A home-made writer: it makes a table, and appends all records of its topic by PyIceberg. No row says where it comes from."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from pyiceberg.exceptions import NamespaceAlreadyExistsError

from calve.config.job import Job, Registry
from cli.config import load_jobs
from cli.embedded.aws import make_bucket
from cli.kafka import client_properties
from cli.lake import open_catalog

HERE = Path(__file__).parent


def fill(job: Job) -> int:
    """Append the records of the only table's topic; their number."""
    [table], catalog = job.tables, open_catalog(job.lake)
    if job.lake.endpoint:
        make_bucket(urlsplit(job.lake.warehouse).netloc, job.name, job.lake.endpoint)
    with suppress(NamespaceAlreadyExistsError):
        catalog.create_namespace(job.lake.database, {"location": f"{job.lake.warehouse}/{job.lake.database}"})
    rows = pa.Table.from_pylist(_records(job, table.topic))
    made = catalog.create_table_if_not_exists((job.lake.database, table.name), rows.schema)
    made.append(rows.cast(made.schema().as_arrow()))
    return int(rows.num_rows)


def _records(job: Job, topic: str) -> list[dict[str, Any]]:
    if not isinstance(job.registry, Registry):
        raise SystemExit("calve.yaml names no registry of Confluent's")
    read = AvroDeserializer(SchemaRegistryClient({"url": job.registry.url}))
    consumer = Consumer(client_properties(job.kafka, job.lake.region) | {"group.id": "home-made"})
    found: list[dict[str, Any]] = []
    try:
        partitions = [
            TopicPartition(topic, p, 0) for p in consumer.list_topics(topic).topics[topic].partitions
        ]
        total = sum(consumer.get_watermark_offsets(each, 10)[1] for each in partitions)
        consumer.assign(partitions)
        while len(found) < total:
            message = consumer.poll(10)
            if message is None:
                raise SystemExit("the topic does not answer")
            found.append(read(message.value(), SerializationContext(topic, MessageField.VALUE)))
    finally:
        consumer.close()
    return found


if __name__ == "__main__":
    [job] = load_jobs(Path(sys.argv[1]) if sys.argv[1:] else HERE / "calve.yaml")
    print(f"appended {fill(job)} records")  # noqa: T201 a script
