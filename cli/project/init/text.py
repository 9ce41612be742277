"""The text of a new calve.yaml, from the topics and schemas of a Kafka and a registry."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from calve.config import job
from calve.config.job import AnyRegistry, GlueRegistry, Kafka
from calve.decoding.formats import columns
from calve.names import DEAD_LETTERS_SUFFIX, as_table_name, table_problem
from calve.registry.registry import open_registry
from calve.schema.evolution import SchemaProblem
from calve.schema.wire import Schema
from cli.kafka import Cluster


@dataclass(frozen=True, slots=True)
class Found:
    """A topic with the newest schema of its values. `problem`: why it cannot be a table yet; `bare`: it has no schema."""

    topic: str
    partitions: int = 0
    records: int = 0
    fields: tuple[str, ...] = ()
    times: tuple[str, ...] = ()
    problem: str | None = None
    bare: bool = False


def survey(kafka: job.Kafka, registry: job.AnyRegistry, region: str) -> list[Found]:
    """All topics except Kafka's own, sorted."""
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
    """One topic; `schema`: the newest version of its values, registered under `subject`."""
    if schema is None:
        return Found(topic, partitions, records, problem=f"the registry has no subject {subject}", bare=True)
    try:
        found = columns(schema)["fields"]
    except SchemaProblem as problem:
        return Found(topic, partitions, records, problem=problem.message)
    fields = tuple(each["name"] for each in found)
    times = tuple(each["name"] for each in found if each["type"] == "timestamptz")
    return Found(topic, partitions, records, fields, times)


SHOWN_FIELDS = 8


@dataclass(frozen=True, slots=True)
class Source:
    """The settings besides tables. `kafka` and `registry` None: the embedded stack's."""

    name: str
    kafka: Kafka | None
    registry: AnyRegistry | None
    region: str


def configuration(source: Source, found: Sequence[Found]) -> str:
    """The whole file; topics that cannot be tables yet are commented out with the reason."""
    return "\n".join([*_head(source), *_tables(found), *_exports(found), ""])


def deployment_name(text: str) -> str:
    """A valid name of a deployment, made from any text."""
    plain = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    return re.sub(r"^[^a-z]+", "", plain)[:30].rstrip("-") or "calve"


def table_names(topics: Sequence[str]) -> dict[str, str]:
    """A table name for each topic; equal names get a number."""
    names: dict[str, str] = {}
    for topic in topics:
        plain = as_table_name(topic)[:190] or "topic"
        plain = plain.removesuffix(DEAD_LETTERS_SUFFIX) if table_problem(plain) else plain
        number, name = 1, plain
        while name in names.values():
            number += 1
            name = f"{plain}_{number}"
        names[topic] = name
    return names


def _head(source: Source) -> Iterator[str]:
    yield "# Every key: docs/configuration.md"
    yield f"name: {source.name} # a part of every name that is made in AWS"
    yield ""
    if source.kafka:
        yield "kafka:"
        yield f"  bootstrap_servers: {_quoted(source.kafka.bootstrap_servers)}"
        yield from _auth(source.kafka)
    else:
        yield "# Without `kafka`, the embedded broker. A deploy needs one:"
        yield "# kafka:"
        yield "#   bootstrap_servers: broker-1:9096,broker-2:9096"
        yield "#   auth: {type: sasl_scram, secret: aws:SECRET_ID}"
    yield ""
    if source.registry:
        yield "registry:"
        yield from _registry(source.registry)
    else:
        yield "# Without `registry`, the embedded one. A deploy needs one:"
        yield "# registry: {url: https://registry.example, secret: aws:SECRET_ID} # or {type: glue, name: REGISTRY}"
    yield ""
    yield "lake:"
    yield f"  region: {source.region}"
    yield "  # bucket: an-existing-bucket # without it a deploy makes one"
    yield ""
    yield "jobs:"
    yield "  main:"
    yield "    worker: G.1X"
    yield "    workers: {min: 2, max: 4} # `calve cost` says what that costs"
    yield "    run: continuous # or schedule(rate(6 hours)): starts, reads what has arrived, ends"
    yield ""
    yield "# alerts: {emails: [ops@example.com]}"
    yield ""
    yield "defaults:"
    yield "  freshness: 60s # greatest age of a record from produce to visible (p95)"
    yield ""


def _registry(registry: AnyRegistry) -> Iterator[str]:
    if isinstance(registry, GlueRegistry):
        yield "  type: glue"
        yield f"  name: {_quoted(registry.name)}"
        return
    yield f"  url: {_quoted(registry.url)}"
    if registry.secret:
        yield f"  secret: {_quoted(registry.secret)}"


def _auth(kafka: Kafka) -> Iterator[str]:
    if kafka.auth == "none":
        yield "  # auth: {type: sasl_scram, secret: aws:SECRET_ID}"
        return
    yield "  auth:"
    yield f"    type: {kafka.auth}"
    if kafka.secret:
        yield f"    secret: {_quoted(kafka.secret)}"


def _tables(found: Sequence[Found]) -> Iterator[str]:
    yield "tables:"
    names = table_names([each.topic for each in found])
    for each in found:
        count = "1 partition" if each.partitions == 1 else f"{each.partitions} partitions"
        yield f"  # topic {each.topic}: {count}, {each.records:,} offsets"
        if each.problem:
            yield f"  # left out: {each.problem}"
            file = f"schemas/{names[each.topic]}.json"
            if each.bare:
                yield f"  # Register its schema; or write the JSON Schema of its values into {file}, and uncomment:"
            yield f"  # {names[each.topic]}:"
            yield f"  #   topic: {_quoted(each.topic)}"
            if each.bare:
                yield f"  #   value: {{format: json, schema: {file}}} # or avro or protobuf; string and bytes need no schema"
            continue
        more = ", ..." if len(each.fields) > SHOWN_FIELDS else ""
        yield f"  # fields: {', '.join(each.fields[:SHOWN_FIELDS])}{more}"
        yield f"  {_quoted(names[each.topic])}:"
        yield f"    topic: {_quoted(each.topic)}"
        for field in each.times:
            yield f"    # event_time: {field} # partitions the table by day"


def _exports(found: Sequence[Found]) -> Iterator[str]:
    names = table_names([each.topic for each in found])
    usable = next((each for each in found if each.problem is None), None)
    if usable is None:
        return
    table = names[usable.topic]
    yield ""
    yield "# exports:"
    yield f"#   weekly_{table[:20].rstrip('_')}:"
    yield f"#     table: {table}"
    yield "#     measures: {rows: count}"
    yield "#     schedule: cron(0 6 ? * MON *) # Mondays at six"
    yield "#     time_zone: Europe/Vilnius"
    yield "#     recipients: [analyst@example.com]"


def _quoted(text: str) -> str:
    """Text for YAML: as it is where that is safe, else in quotes."""
    plain = re.fullmatch(r"[A-Za-z_][A-Za-z0-9_./-]*(:(?=\S)[A-Za-z0-9_./-]+)*", text)
    return text if plain and text.lower() not in ("true", "false", "null") else json.dumps(text)
