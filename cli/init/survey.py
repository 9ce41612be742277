"""What a Kafka and a registry hold that could become tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from calve.evolution import SchemaProblem
from calve.formats import columns
from calve.registry import Schema, open_registry
from cli.kafka import Cluster

if TYPE_CHECKING:
    from calve import job


@dataclass(frozen=True, slots=True)
class Found:
    """A topic with the newest schema of its values. `problem` says why it cannot be a table yet; `bare`: it has no schema."""

    topic: str
    partitions: int = 0
    records: int = 0
    fields: tuple[str, ...] = ()
    times: tuple[str, ...] = ()
    problem: str | None = None
    bare: bool = False


def survey(kafka: job.Kafka, registry: job.AnyRegistry, region: str) -> list[Found]:
    """Every topic but Kafka's own, in order.

    Raises:
        Retryable: one of the two does not answer.
        Fatal: it refuses the credentials.
    """
    cluster = Cluster(kafka, region)
    topics = cluster.topics(set(cluster.topic_names()))
    schemas = open_registry(registry)
    subjects = set(schemas.subjects())
    found = []
    for name, topic in sorted(topics.items()):
        records = sum(topic.end.values()) - sum(topic.log_start.values())
        subject = schemas.default_subject(name)
        versions = schemas.versions(subject) if subject in subjects else []
        newest = versions[-1] if versions else None
        found.append(described(name, len(topic.end), records, newest, subject))
    return found


def described(topic: str, partitions: int, records: int, schema: Schema | None, subject: str) -> Found:
    """One topic; `schema` is the newest version of its values, whose subject is this one."""
    if schema is None:
        return Found(topic, partitions, records, problem=f"the registry has no subject {subject}", bare=True)
    try:
        found = columns(schema)["fields"]
    except SchemaProblem as problem:
        return Found(topic, partitions, records, problem=problem.message)
    fields = tuple(each["name"] for each in found)
    times = tuple(each["name"] for each in found if each["type"] == "timestamptz")
    return Found(topic, partitions, records, fields, times)
