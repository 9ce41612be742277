"""`calve init`: a commented calve.yaml, made from the topics and schemas of a Kafka and a registry."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, get_args

import typer

from calve.config import job
from calve.config.job import AnyRegistry, Auth, GlueRegistry, Kafka, Registry
from calve.decoding.formats import columns
from calve.errors import CalveError, ConfigError
from calve.names import DEAD_LETTERS_SUFFIX, as_table_name, table_problem
from calve.registry.registry import open_registry
from calve.schema.evolution import SchemaProblem
from calve.schema.wire import Schema
from cli.config import DEFAULT_CONFIG
from cli.console import Console
from cli.embedded.layout import project_root
from cli.embedded.stack import current
from cli.kafka import Cluster

ServersOption = Annotated[
    str | None,
    typer.Option("--bootstrap-servers", "-b", help="Kafka, host:port.", show_default="the embedded stack's"),
]
RegistryOption = Annotated[
    str | None,
    typer.Option(
        "--registry",
        "-r",
        help="Schema registry, https://host, or glue:NAME in AWS.",
        show_default="the embedded stack's",
    ),
]
AuthOption = Annotated[
    Auth,
    typer.Option(
        "--auth", metavar="AUTH", help=f"How Kafka wants to be logged in to: {', '.join(get_args(Auth))}."
    ),
]
SecretOption = Annotated[
    str | None, typer.Option("--secret", help="Reference to Kafka's password: env:NAME, file:PATH, aws:ID.")
]
RegistrySecretOption = Annotated[
    str | None, typer.Option("--registry-secret", help="The same for the registry.")
]
NameOption = Annotated[
    str | None, typer.Option("--name", help="Name of the deployment.", show_default="that of the folder")
]
RegionOption = Annotated[str, typer.Option("--region", help="AWS region.", envvar="AWS_REGION")]
FileOption = Annotated[Path, typer.Option("--config", "-c", help="The file to write; it must not exist.")]


def init(
    bootstrap_servers: ServersOption = None,
    registry: RegistryOption = None,
    auth: AuthOption = "none",
    secret: SecretOption = None,
    registry_secret: RegistrySecretOption = None,
    name: NameOption = None,
    region: RegionOption = "us-east-1",
    config: FileOption = DEFAULT_CONFIG,
) -> None:
    """Write a calve.yaml from the topics and schemas of a Kafka and a registry.

    Examples:
      calve up && calve init
      calve init -b broker:9096 --auth sasl_scram --secret aws:trading/kafka -r https://registry
    """
    console = Console()
    if config.exists():
        raise ConfigError(
            f"{config} exists already",
            fix="write to another file, such as --config calve.mine.yaml, and name that to every command; or remove it",
        )
    embedded = current(project_root())
    if bootstrap_servers is None and embedded is None:
        raise ConfigError(
            "no Kafka is named", fix="add --bootstrap-servers host:port, or start the embedded one: calve up"
        )
    kafka = Kafka(embedded.bootstrap_servers if embedded else "")
    if bootstrap_servers:
        mechanism = "SCRAM-SHA-512" if auth == "sasl_scram" else None
        kafka = Kafka(bootstrap_servers, auth, mechanism, tls=auth != "none", secret=secret)
    schemas: AnyRegistry
    if registry and registry.startswith("glue:"):
        schemas = GlueRegistry(registry.removeprefix("glue:"), region)
    elif registry:
        schemas = Registry(registry.rstrip("/"), registry_secret)
    elif embedded:
        schemas = Registry(embedded.registry_url)
    else:
        raise ConfigError("no schema registry is named", fix="add --registry https://host, or glue:NAME")
    found = survey(kafka, schemas, region)
    ready = sum(each.problem is None for each in found)
    if not ready:
        problems = "".join(f"\n  {each.topic}: {each.problem}" for each in found)
        raise CalveError(
            f"no topic at {kafka.bootstrap_servers} can be a table yet{problems}",
            fix="register a schema for the values of one: its subject is TOPIC-value, in a Glue registry TOPIC",
        )
    source = Source(
        deployment_name(name or Path.cwd().name),
        kafka if bootstrap_servers else None,
        schemas if registry else None,
        region,
    )
    try:
        with config.open("x", encoding="utf-8") as file:
            file.write(configuration(source, found))
    except OSError as error:
        raise ConfigError(f"{config} cannot be written: {error.strerror}") from error
    console.event(f"wrote {config}", tables=ready, left_out=len(found) - ready)
    then = "calve plan" if config == DEFAULT_CONFIG else f"calve plan --config {config}"
    console.event("next", look=f"$EDITOR {config}", then=then)


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
    names = table_names([each.topic for each in found])
    kafka, registry = EMBEDDED_KAFKA, EMBEDDED_REGISTRY
    if source.kafka:
        kafka = f"kafka:\n  bootstrap_servers: {_quoted(source.kafka.bootstrap_servers)}\n"
        if source.kafka.auth == "none":
            kafka += "  # auth: {type: sasl_scram, secret: aws:SECRET_ID}"
        else:
            secret = f"\n    secret: {_quoted(source.kafka.secret)}" if source.kafka.secret else ""
            kafka += f"  auth:\n    type: {source.kafka.auth}{secret}"
    if isinstance(source.registry, GlueRegistry):
        registry = f"registry:\n  type: glue\n  name: {_quoted(source.registry.name)}"
    elif source.registry:
        secret = f"\n  secret: {_quoted(source.registry.secret)}" if source.registry.secret else ""
        registry = f"registry:\n  url: {_quoted(source.registry.url)}{secret}"
    head = HEAD.format(name=source.name, kafka=kafka, registry=registry, region=source.region)
    usable = next((names[each.topic] for each in found if each.problem is None), None)
    exports = [EXPORTS.format(short=usable[:20].rstrip("_"), table=usable)] if usable else []
    return "\n".join([head, *_tables(found, names), *exports, ""])


def deployment_name(text: str) -> str:
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


HEAD = """\
# Every key: docs/configuration.md
name: {name} # a part of every name that is made in AWS

{kafka}

{registry}

lake:
  region: {region}
  # bucket: an-existing-bucket # without it a deploy makes one

jobs:
  main:
    worker: G.1X
    workers: {{min: 2, max: 4}} # `calve cost` shows what that costs
    run: continuous # or schedule(rate(6 hours)): starts, reads what has arrived, ends

# alerts: {{emails: [ops@example.com]}}

defaults:
  freshness: 60s # greatest age of a record from produce to visible (p95)
"""
EMBEDDED_KAFKA = """\
# Without `kafka`, the embedded broker. A deploy needs one:
# kafka:
#   bootstrap_servers: broker-1:9096,broker-2:9096
#   auth: {type: sasl_scram, secret: aws:SECRET_ID}"""
EMBEDDED_REGISTRY = """\
# Without `registry`, the embedded one. A deploy needs one:
# registry: {url: https://registry.example, secret: aws:SECRET_ID} # or {type: glue, name: REGISTRY}"""
EXPORTS = """
# exports:
#   weekly_{short}:
#     table: {table}
#     measures: {{rows: count}}
#     schedule: cron(0 6 ? * MON *) # Mondays at six
#     time_zone: Europe/Vilnius
#     recipients: [analyst@example.com]"""


def _tables(found: Sequence[Found], names: Mapping[str, str]) -> Iterator[str]:
    yield "tables:"
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


def _quoted(text: str) -> str:
    """Text for YAML: as it is where that is safe, else in quotes."""
    plain = re.fullmatch(r"[A-Za-z_][A-Za-z0-9_./-]*(:(?=\S)[A-Za-z0-9_./-]+)*", text)
    return text if plain and text.lower() not in ("true", "false", "null") else json.dumps(text)
