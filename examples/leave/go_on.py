"""Another writer of a released table: `calve release TABLE -o json > report.json`, then `go_on.py report.json`.

It reads each partition from the offset in the report to its end, and appends the records by PyIceberg. No job of calve runs.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext

from calve.config.job import Job, Registry
from cli.config import load_jobs
from cli.kafka import client_properties
from cli.lake import open_catalog

HERE = Path(__file__).parent


def go_on(job: Job, report: dict[str, Any]) -> int:
    """Append the records behind the reported offsets; their number."""
    table = open_catalog(job.lake).load_table(tuple(report["table"].split(".")))
    names = [each.name for each in table.schema().fields if each.name != "_kafka"]
    kinds = pa.schema([each for each in table.schema().as_arrow() if each.name in names])
    rows = [{name: row.get(name) for name in names} for row in _records(job, report)]
    if rows:
        table.append(pa.Table.from_pylist(rows, kinds))
    return len(rows)


def _records(job: Job, report: dict[str, Any]) -> list[dict[str, Any]]:
    topic, found = report["topic"], []
    if not isinstance(job.registry, Registry):
        raise SystemExit("calve.yaml names no registry of Confluent's")
    read = AvroDeserializer(SchemaRegistryClient({"url": job.registry.url}))
    settings = {
        "group.id": "another-writer",
        "enable.auto.commit": False,
        "isolation.level": "read_committed",
    }
    consumer = Consumer(client_properties(job.kafka, job.lake.region) | settings)
    try:
        begins = [
            TopicPartition(topic, int(partition), offset) for partition, offset in report["offsets"].items()
        ]
        ends = {each.partition: consumer.get_watermark_offsets(each, 10)[1] for each in begins}
        consumer.assign(begins)
        left = {each.partition for each in begins if each.offset < ends[each.partition]}
        while left:
            message = consumer.poll(10)
            if message is None:
                raise SystemExit("the topic does not answer")
            found.append(read(message.value(), SerializationContext(topic, MessageField.VALUE)))
            if message.offset() + 1 == ends[message.partition()]:
                left.remove(message.partition())
    finally:
        consumer.close()
    return found


if __name__ == "__main__":
    [job] = load_jobs(Path(sys.argv[2]) if sys.argv[2:] else HERE / "calve.yaml")
    print(f"appended {go_on(job, json.loads(Path(sys.argv[1]).read_text()))} records")  # noqa: T201 a script
