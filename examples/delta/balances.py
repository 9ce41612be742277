"""Balances of accounts: 50 accounts change four times, and ten of them are closed at the end."""

from __future__ import annotations

import json
from pathlib import Path

from confluent_kafka import Producer

from calve.config.job import Job
from cli.config import load_jobs
from cli.kafka import client_properties
from cli.run.datagen.produce import create_topic

HERE = Path(__file__).parent
ACCOUNTS, CHANGES, CLOSED = 50, 4, 10


def send(job: Job) -> int:
    """Write the records to the only table's topic; their number."""
    [table], settings = job.tables, client_properties(job.kafka, job.lake.region)
    create_topic(table.topic, 2, settings)
    producer = Producer(settings)
    for change in range(CHANGES):
        for number in range(ACCOUNTS):
            balance = {"account": f"a-{number}", "cents": 1_000 * change + number}
            producer.produce(table.topic, json.dumps(balance), key=f"a-{number}")
    for number in range(CLOSED):
        producer.produce(table.topic, None, key=f"a-{number}")
    if producer.flush(30):
        raise SystemExit("the broker does not answer")
    return ACCOUNTS * CHANGES + CLOSED


if __name__ == "__main__":
    [made] = load_jobs(HERE / "calve.yaml")
    print(f"sent {send(made)} records")  # noqa: T201 a script
