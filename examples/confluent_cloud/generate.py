"""Produce the example's records: `python examples/confluent_cloud/generate.py [CONFIG]`, to the cluster that calve.yaml names.

The topics must be there: Confluent Cloud lets few API keys make some. Schemas are registered where the subject has none.
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from calve.config.job import Job, Registry
from calve.secrets import read_secret
from cli.config import load_jobs
from cli.kafka import client_properties

HERE = Path(__file__).parent
MONDAY = datetime(2026, 11, 9, 8, tzinfo=UTC)
ORDERS = [(1, 7, "20.00"), (2, 8, "7.50"), (3, 7, "0.99"), (4, 9, "100.00")]
CUSTOMERS = [(7, "Vilnius"), (8, "Riga"), (9, "Lyon"), (7, "Kaunas"), (8, None)]
"""The city that a customer has from then on; None: the customer is deleted."""


def generate(job: Job) -> None:
    """Produce to the topics of the job's tables `orders` and `customers`, in their order."""
    topics = {table.name: table.topic for table in job.tables}
    producer = Producer(client_properties(job.kafka, job.lake.region))
    registry = SchemaRegistryClient(_registry(job))

    def send(table: str, schema: str, key: int, value: dict[str, Any] | None) -> None:
        topic = topics[table]
        encode = AvroSerializer(registry, (HERE / schema).read_text())
        producer.produce(
            topic, encode(value, SerializationContext(topic, MessageField.VALUE)) if value else None, str(key)
        )

    for number, (order, customer, amount) in enumerate(ORDERS):
        at = MONDAY + timedelta(minutes=number)
        fields = {"order_id": order, "customer_id": customer, "ordered_at": at, "amount": Decimal(amount)}
        send("orders", "order.avsc", order, fields)
    for customer, city in CUSTOMERS:
        send("customers", "customer.avsc", customer, city and {"customer_id": customer, "city": city})
    if producer.flush(30):
        raise SystemExit("not every record was acknowledged within 30 s")


def _registry(job: Job) -> dict[str, Any]:
    registry = job.registry
    if not isinstance(registry, Registry):
        raise SystemExit("calve.yaml names no registry of Confluent's")
    if registry.secret is None:
        return {"url": registry.url}
    secret = read_secret(registry.secret)
    return {"url": registry.url, "basic.auth.user.info": f"{secret['username']}:{secret['password']}"}


if __name__ == "__main__":
    [job] = load_jobs(Path(sys.argv[1]) if sys.argv[1:] else HERE / "calve.yaml")
    generate(job)
    print(f"produced {len(ORDERS)} orders and {len(CUSTOMERS)} changes of customers")  # noqa: T201 a script
