"""`make bench`, second part: CPU seconds per million records of each format, as a ratio to Avro's, for the same trades.

Every format has a topic of its own with the same rows; the jobs run in turn, each as a process of its own, and several times.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from google.protobuf.message_factory import GetMessageClass

from bench.programs import figures, ingest
from calve import registry as registered
from calve.job import Job, Table
from calve.protobuf.wire import message_indexes
from calve.wire import CONFLUENT
from cli.config import load_jobs
from cli.console import Console
from cli.datagen.plan import Plan, blocks
from cli.datagen.produce import create_topic
from cli.datagen.records import register, rows, schema_text
from cli.embedded.layout import project_root
from cli.embedded.stack import running
from cli.kafka import client_properties
from cli.verify.protobuf_schema import compiled

Row = dict[str, Any]
Encode = Callable[[Row], bytes]
BASE = "Avro"


def avro(registry: SchemaRegistryClient, topic: str, row: Row) -> Encode:
    return register(registry, topic, schema_text("stock_trades", ""), row).encode


def json_schema(registry: SchemaRegistryClient, topic: str, row: Row) -> Encode:
    types = {str: {"type": "string"}, int: {"type": "integer", "connect.type": "int32"}}
    schema = {"type": "object", "properties": {name: types[type(value)] for name, value in row.items()}}
    schema_id = registry.register_schema(f"{topic}-value", Schema(json.dumps(schema), "JSON"))
    frame = CONFLUENT.frame(schema_id)
    return lambda each: frame + json.dumps(each, separators=(",", ":")).encode()


def protobuf(registry: SchemaRegistryClient, topic: str, row: Row) -> Encode:
    types = {str: "string", int: "int32"}
    fields = [f"{types[type(value)]} {name} = {n};" for n, (name, value) in enumerate(row.items(), 1)]
    text = f'syntax = "proto3"; message Trade {{ {" ".join(fields)} }}'
    schema_id = registry.register_schema(f"{topic}-value", Schema(text, "PROTOBUF"))
    message = GetMessageClass(compiled(registered.Schema(schema_id, text, "PROTOBUF")).messages[0])
    first = CONFLUENT.frame(schema_id) + message_indexes([0])
    return lambda each: first + message(**each).SerializeToString()


FORMATS: dict[str, Callable[[SchemaRegistryClient, str, Row], Encode]] = {
    BASE: avro,
    "JSON Schema": json_schema,
    "Protobuf": protobuf,
}


def main(records: int, rounds: int) -> None:
    console, root, name = Console(), project_root(), f"formats_{uuid.uuid4().hex[:8]}"
    with running(root, console.progress()) as stack, tempfile.TemporaryDirectory() as folder:
        job = load_jobs(root / "calve.yaml")[0]
        topics = {each: f"{name}_{number}" for number, each in enumerate(FORMATS)}
        for each, topic in topics.items():
            with console.progress().task(f"producing {records:,} trades as {each}", total=records) as task:
                _produce(job, topic, each, records, task.update)
        spent: dict[str, list[float]] = {each: [] for each in FORMATS}
        for number in range(1, rounds + 1):
            table = []
            for each, topic in topics.items():
                mine = replace(job, tables=(Table(name=f"{topic}_{number}", topic=topic),))
                result = ingest(mine, stack, Path(folder), records=records)
                spent[each].append(result.cpu_s)
                table.append(figures(each, result, records))
            console.table(f"round {number}", table)
    ratios = {
        each: statistics.median(figure) / statistics.median(spent[BASE]) for each, figure in spent.items()
    }
    console.panel(f"CPU, as a ratio to {BASE}", {each: round(ratio, 2) for each, ratio in ratios.items()})


def _produce(job: Job, topic: str, kind: str, records: int, progress: Callable[[int], object]) -> None:
    plan = Plan(topic=topic, count=records, seed=1)
    properties = client_properties(job.kafka, job.lake.region)
    create_topic(topic, plan.partitions, properties)
    producer = Producer({**properties, "linger.ms": 50, "batch.size": 1_000_000, "compression.type": "lz4"})
    encode, done = None, 0
    for block in blocks(plan):
        for row in rows(plan, block):
            encode = encode or FORMATS[kind](SchemaRegistryClient({"url": job.registry.url}), topic, row)
            producer.produce(topic, encode(row), row["userid"].encode())
            producer.poll(0)
        done += block.size
        progress(done)
    producer.flush()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    main(options.records, options.rounds)
