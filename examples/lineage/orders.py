"""A hundred orders, of which ten are empty."""

from __future__ import annotations

import json
from pathlib import Path

from confluent_kafka import Producer

from calve.config.job import Job
from cli.config import load_jobs
from cli.kafka import client_properties
from cli.run.datagen.produce import create_topic

HERE = Path(__file__).parent
CUSTOMER = {"name": "Ada", "email": "ada@example.com", "city": "Turin"}
ORDERS = 100


def send(job: Job) -> int:
    """Write the records to the only table's topic; their number."""
    [table], settings = job.tables, client_properties(job.kafka, job.lake.region)
    create_topic(table.topic, 2, settings)
    producer = Producer(settings)
    for number in range(ORDERS):
        order = {"number": number, "price": 2.5, "quantity": number % 10, "customer": CUSTOMER}
        producer.produce(table.topic, json.dumps(order), key=str(number))
    if producer.flush(30):
        raise SystemExit("the broker does not answer")
    return ORDERS


if __name__ == "__main__":
    [made] = load_jobs(HERE / "calve.yaml")
    print(f"sent {send(made)} records")  # noqa: T201 a script
