"""Payments of a shop, day by day; and the end of the topic, as retention brings it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from calve.config.job import Job
from cli.config import load_jobs
from cli.kafka import client_properties
from cli.run.datagen.produce import create_topic

HERE = Path(__file__).parent
PAYMENTS = 100


def send(job: Job, day: int) -> int:
    """Write the payments of a day to the only table's topic, in one partition; their number."""
    [table], settings = job.tables, client_properties(job.kafka, job.lake.region)
    create_topic(table.topic, 1, settings)
    producer = Producer(settings)
    for number in range(PAYMENTS):
        payment = {"payment": f"{day}-{number}", "account": f"a-{number % 9}", "cents": 100 * number}
        producer.produce(table.topic, json.dumps(payment), key="shop")
    if producer.flush(30):
        raise SystemExit("the broker does not answer")
    return PAYMENTS


def delete(job: Job) -> str:
    """Delete the only table's topic; its name."""
    [table] = job.tables
    admin = AdminClient(client_properties(job.kafka, job.lake.region))
    admin.delete_topics([table.topic])[table.topic].result(30)
    return table.topic


if __name__ == "__main__":
    [job] = load_jobs(HERE / "calve.yaml")
    if sys.argv[1] == "delete":
        print(f"deleted topic {delete(job)}")  # noqa: T201 a script
    else:
        print(f"sent {send(job, int(sys.argv[1]))} payments of day {sys.argv[1]}")  # noqa: T201
