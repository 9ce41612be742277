"""The topics of the benchmark: registered, created and filled; and tables with the columns that calve gives them."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from confluent_kafka import Producer
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from pyiceberg.exceptions import NamespaceAlreadyExistsError
from pyiceberg.schema import Schema as Columns

from bench.workloads.workload import Workload, blocks
from calve.config import job
from calve.decoding.decode_plan import first_columns
from calve.registry.registry import open_registry
from calve.schema.columns import KAFKA, struct, with_ids
from calve.schema.wire import CONFLUENT
from calve.table.summary import PROPERTIES
from cli.kafka import client_properties
from cli.lake import open_catalog
from cli.run.datagen.produce import create_topic

SETTINGS = {
    "linger.ms": 50,
    "batch.size": 1_000_000,
    "compression.type": "lz4",
    "queue.buffering.max.messages": 500_000,
    "delivery.report.only.error": True,
}


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic with `count` records of a workload; all its bytes stand in `bytes`."""

    name: str
    workload: Workload
    count: int
    bytes: int


def make(settings: job.Job, name: str, workload: Workload) -> bytes:
    """Register the schema and create the topic; gives what every value begins with."""
    assert isinstance(settings.registry, job.Registry)
    registry = SchemaRegistryClient({"url": settings.registry.url})
    schema_id = registry.register_schema(f"{name}-value", Schema(workload.schema, workload.type))
    create_topic(name, workload.partitions, client_properties(settings.kafka, settings.lake.region))
    first_message = b"\0" if workload.type == "PROTOBUF" else b""
    return CONFLUENT.frame(schema_id) + first_message


def fill(
    settings: job.Job, name: str, workload: Workload, count: int, progress: Callable[[int], object]
) -> Topic:
    """Make a topic of `count` records, spread evenly over its partitions."""
    frame = make(settings, name, workload)
    producer = Producer({**client_properties(settings.kafka, settings.lake.region), **SETTINGS})
    done = size = 0
    for keys, values in blocks(workload, count, frame):
        each = [{"key": key, "value": value} for key, value in zip(keys, values, strict=True)]
        for partition in range(workload.partitions):
            mine = each[partition :: workload.partitions]
            while (queued := producer.produce_batch(name, mine, partition)) < len(mine):
                mine = mine[queued:]
                producer.poll(0.1)
        done, size = done + len(values), size + sum(map(len, values))
        producer.poll(0)
        progress(done)
    if left := producer.flush(60):
        raise RuntimeError(f"{left} records of {name} were not acknowledged")
    return Topic(name, workload, count, size)


def create_table(settings: job.Job, topic: str, table: str) -> None:
    """A table with the columns and the properties that calve would give it, for the programs that make none."""
    assert settings.registry is not None
    columns = first_columns(open_registry(settings.registry).versions(f"{topic}-value"), topic)
    schema = with_ids(struct(*columns["fields"], KAFKA)) | {"schema-id": 0}
    catalog = open_catalog(settings.lake)
    with suppress(NamespaceAlreadyExistsError):
        location = f"{settings.lake.warehouse}/{settings.lake.database}"
        catalog.create_namespace(settings.lake.database, {"location": location})
    catalog.create_table(
        (settings.lake.database, table),
        Columns.model_validate_json(json.dumps(schema)),
        properties=PROPERTIES,
    )


def drop_table(settings: job.Job, table: str) -> None:
    """Drop a table with its files: the embedded store keeps all of them in memory."""
    open_catalog(settings.lake).purge_table((settings.lake.database, table))
