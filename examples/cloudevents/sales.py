"""Sales as CloudEvents: a till writes binary events, a web shop structured ones. Both send some of them again."""

from __future__ import annotations

import json
from pathlib import Path

from confluent_kafka import Producer

from calve.config.job import Job
from cli.config import load_jobs
from cli.kafka import client_properties
from cli.run.datagen.produce import create_topic

HERE = Path(__file__).parent
SALES = 100
AGAIN = 10
Message = tuple[bytes, list[tuple[str, str | bytes | None]]]


def sale(number: int) -> dict[str, str | float]:
    return {"item": f"i-{number}", "price": number + 0.5}


def attributes(source: str, number: int) -> dict[str, str]:
    return {
        "specversion": "1.0",
        "id": str(number),
        "source": source,
        "type": "eu.example.sold",
        "time": f"2026-11-02T12:{number // 60:02}:{number % 60:02}Z",
        "traceparent": f"00-{number:032x}-{number:016x}-01",
    }


def binary(number: int) -> Message:
    """The attributes are headers, and the value is the data."""
    headers: list[tuple[str, str | bytes | None]] = [("content-type", "application/json")]
    headers += [(f"ce_{name}", text) for name, text in attributes("/till", number).items()]
    return json.dumps(sale(number)).encode(), headers


def structured(number: int) -> Message:
    """The value is one JSON object of the attributes and the data."""
    event = {**attributes("/web", number), "data": sale(number)}
    return json.dumps(event).encode(), [("content-type", "application/cloudevents+json")]


def send(job: Job) -> int:
    """Write the events to the only table's topic; their number."""
    [table], settings = job.tables, client_properties(job.kafka, job.lake.region)
    create_topic(table.topic, 2, settings)
    producer = Producer(settings)
    numbers = [*range(SALES), *range(AGAIN)]
    for number in numbers:
        for value, headers in (binary(number), structured(number)):
            producer.produce(table.topic, value, headers=headers, key=f"sale-{number}")
    if producer.flush(30):
        raise SystemExit("the broker does not answer")
    return 2 * len(numbers)


if __name__ == "__main__":
    [made] = load_jobs(HERE / "calve.yaml")
    print(f"sent {send(made)} events")  # noqa: T201 a script
