"""What a Kafka and a registry hold that could become tables."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from calve.names import field_problem
from calve.registry import Registry
from calve.secrets import read_secret
from cli.kafka import Cluster

if TYPE_CHECKING:
    from calve import job

TIMES = ("timestamp-millis", "timestamp-micros", "timestamp-nanos")


@dataclass(frozen=True, slots=True)
class Found:
    """A topic with the newest schema of its values. `problem` says why it cannot be a table yet."""

    topic: str
    partitions: int = 0
    records: int = 0
    fields: tuple[str, ...] = ()
    times: tuple[str, ...] = ()
    problem: str | None = None


def survey(kafka: job.Kafka, registry: job.Registry, region: str) -> list[Found]:
    """Every topic but Kafka's own, in order.

    Raises:
        Retryable: one of the two does not answer.
        Fatal: it refuses the credentials.
    """
    cluster = Cluster(kafka, region)
    topics = cluster.topics(set(cluster.topic_names()))
    credentials = read_secret(registry.secret) if registry.secret else None
    schemas = Registry(registry.url, credentials=credentials, ca_file=registry.ca_file)
    subjects = set(schemas.subjects())
    found = []
    for name, topic in sorted(topics.items()):
        records = sum(topic.end.values()) - sum(topic.log_start.values())
        subject = f"{name}-value"
        versions = schemas.versions(subject) if subject in subjects else []
        newest = (versions[-1].type, versions[-1].text) if versions else None
        found.append(described(name, len(topic.end), records, newest))
    return found


def described(topic: str, partitions: int, records: int, schema: tuple[str, str] | None) -> Found:
    """One topic; `schema` is type and text of the newest version."""
    if schema is None:
        return Found(topic, partitions, records, problem=f"the registry has no subject {topic}-value")
    kind, text = schema
    if kind != "AVRO":
        return Found(topic, partitions, records, problem=f"its values are {kind}, and calve reads AVRO")
    raw = json.loads(text)
    if not isinstance(raw, dict) or raw.get("type") != "record":
        return Found(topic, partitions, records, problem="its values are no records")
    fields = tuple(each["name"] for each in raw["fields"])
    times = tuple(each["name"] for each in raw["fields"] if _is_time(each["type"]))
    problem = next(filter(None, map(field_problem, fields)), None)
    return Found(topic, partitions, records, fields, times, problem)


def _is_time(kind: Any) -> bool:
    match kind:
        case {"logicalType": str(logical)}:
            return logical in TIMES
        case [*branches]:
            return any(map(_is_time, branches))
    return False
