"""Produce the example's events: `python examples/sales_channel/generate.py [COUNT]`, with the embedded stack up (`calve up`)."""

from __future__ import annotations

import sys
from datetime import datetime
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from cli.config import load_jobs
from cli.run.datagen.produce import create_topic

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from sales import MONDAY, events  # noqa: E402 beside this script


def generate(
    topic: str, servers: str, registry: str, count: int, *, start: datetime = MONDAY, first: int = 0
) -> None:
    """Produce `events`, each with the customer's e-mail as its key and in a header, as careless producers do."""
    create_topic(topic, 3, {"bootstrap.servers": servers})
    client = SchemaRegistryClient({"url": registry})
    schema = (HERE / "sale.avsc").read_text()
    client.register_schema(f"{topic}-value", Schema(schema, "AVRO"))
    settings = {"auto.register.schemas": False, "use.latest.version": True}
    encode = AvroSerializer(client, schema, conf=settings)
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 20, "log_level": 3})
    for event in events(count, start=start, first=first):
        email, at = event["customer"]["email"], event["created_at"]
        value = encode(event, SerializationContext(topic, MessageField.VALUE))
        headers = {"trace": event["event_id"], "customer": email}
        producer.produce(topic, value, key=email, headers=headers, timestamp=int(at.timestamp() * 1000))
        producer.poll(0)
    producer.flush()


if __name__ == "__main__":
    [job] = load_jobs(HERE / "calve.yaml")
    count = int(sys.argv[1]) if sys.argv[1:] else 1_000
    generate("sales_channel", job.kafka.bootstrap_servers, job.registry.url, count)  # type: ignore[union-attr]
    print(f"produced {count} events to sales_channel")  # noqa: T201 a script
