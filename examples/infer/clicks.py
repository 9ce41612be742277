"""Events of a shop, as three releases of its website write them: no schema says so."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from calve.config.job import Job
from cli.config import load_jobs
from cli.kafka import client_properties
from cli.run.datagen.produce import create_topic

HERE = Path(__file__).parent
EVENTS = 100


def clicks(release: int) -> list[dict[str, Any]]:
    """The first release counts visitors; the second one knows the page; the third one names them, and makes a test."""
    found: list[dict[str, Any]] = []
    for n in range(EVENTS):
        event: dict[str, Any] = {
            "clicked_at": f"2026-11-{release:02}T12:{n // 60:02}:{n % 60:02}Z",
            "visitor": n % 7,
            "price": n % 9,
        }
        if release > 1:
            event |= {"page": {"path": f"/shoes/{n}", "tags": ["sale", "new"][: n % 3]}, "price": n % 9 + 0.5}
        if release > 2:
            event |= {"visitor": f"u-{n % 7}", "experiment": {"name": "blue", "arm": n % 2}}
        found.append(event)
    return found


def send(job: Job, release: int) -> int:
    """Write the events of a release to the only table's topic, in one partition; their number."""
    [table], settings = job.tables, client_properties(job.kafka, job.lake.region)
    create_topic(table.topic, 1, settings)
    producer = Producer(settings)
    events = clicks(release)
    for each in events:
        producer.produce(table.topic, json.dumps(each), key="shop")
    if producer.flush(30):
        raise SystemExit("the broker does not answer")
    return len(events)


if __name__ == "__main__":
    [job] = load_jobs(HERE / "calve.yaml")
    print(f"sent {send(job, int(sys.argv[1]))} events of release {sys.argv[1]}")  # noqa: T201 a script
