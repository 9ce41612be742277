"""`calve init`: a commented calve.yaml, made from the topics and schemas of a Kafka and a registry.

A topic of JSON without a schema gets a JSON Schema, inferred from its newest records.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal, get_args

import typer

from calve.config import job
from calve.config.job import AnyRegistry, Auth, GlueRegistry, Kafka, Registry
from calve.config.topics import REGISTRYS_OWN
from calve.decoding.formats import columns
from calve.errors import CalveError, ConfigError
from calve.names import DEAD_LETTERS_SUFFIX, as_table_name, table_problem
from calve.registry.registry import open_registry
from calve.schema.evolution import SchemaProblem
from calve.schema.wire import Schema
from calve.settings import model
from cli.config import DEFAULT_CONFIG
from cli.console import Console
from cli.embedded.layout import project_root
from cli.embedded.stack import current
from cli.kafka import Cluster
from cli.project.samples import inferred

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

    A topic of JSON without a schema in the registry gets one in `schemas/`, inferred from its newest records. Editors complete
    and check the file by `calve.schema.json` beside it.

    Examples:
      calve up && calve init
      calve init -b broker:9096
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
    schemas = _registry(registry, registry_secret, region)
    if embedded and not (registry or bootstrap_servers):
        schemas = Registry(embedded.registry_url)
    found = survey(kafka, schemas, region)
    ready = sum(each.problem is None for each in found)
    if not ready:
        problems = "".join(f"\n  {each.topic}: {each.problem}" for each in found) or ": it has none"
        raise CalveError(
            f"no topic at {kafka.bootstrap_servers} can be a table yet{problems}",
            fix=NO_TABLE,
        )
    source = Source(
        deployment_name(name or Path.cwd().name),
        kafka if bootstrap_servers else None,
        schemas if registry else None,
        region,
    )
    names, guesses = table_names([each.topic for each in found]), [each for each in found if each.inferred]
    schemas_of = {config.parent / _file(names[each.topic]): each.inferred or "" for each in guesses}
    write({config: configuration(source, found), **schemas_of})
    _put(config.with_name(EDITORS_FILE), _for_editors(), "w")
    for each in guesses[:SHOWN]:
        console.event(
            f"inferred {_file(names[each.topic])}", records=each.sampled, fields=_shown(each.fields)
        )
    if len(guesses) > SHOWN:
        console.event(f"inferred {len(guesses) - SHOWN} more in schemas/")
    console.event(f"wrote {config}", tables=ready, left_out=len(found) - ready)
    then = "calve ingest --drain" if embedded and not bootstrap_servers else "calve plan"
    then += "" if config == DEFAULT_CONFIG else f" --config {config}"
    console.event("next", look=f"$EDITOR {config}", then=then)


def json_schema() -> None:
    """Print the JSON Schema of calve.yaml, by which editors complete and check the file.

    `calve init` writes it into `calve.schema.json` beside the file. After an upgrade of calve, write it there again.

    Example:
      calve json-schema
    """
    typer.echo(_for_editors(), nl=False)


def _for_editors() -> str:
    return json.dumps(model.json_schema(), indent=1) + "\n"


def _registry(named: str | None, secret: str | None, region: str) -> AnyRegistry | None:
    if named and named.startswith("glue:"):
        return GlueRegistry(named.removeprefix("glue:"), region)
    return Registry(named.rstrip("/"), secret) if named else None


def write(files: Mapping[Path, str]) -> None:
    """Write these files, if none of them exists."""
    for path in files:
        if path.exists():
            raise ConfigError(
                f"{path} exists already", fix="remove it, or run `calve init` in another folder"
            )
    for path, text in files.items():
        _put(path, text, "x")


def _put(path: Path, text: str, mode: Literal["w", "x"]) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open(mode, encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}") from error


@dataclass(frozen=True, slots=True)
class Found:
    """A topic with the newest schema of its values. `problem`: why it cannot be a table yet; `bare`: it has no schema.

    `inferred`: a JSON Schema by so many `sampled` values, because the registry has none.
    """

    topic: str
    partitions: int = 0
    records: int = 0
    fields: tuple[str, ...] = ()
    times: tuple[str, ...] = ()
    problem: str | None = None
    bare: bool = False
    inferred: str | None = None
    sampled: int = 0


SAMPLES = 200


def survey(kafka: job.Kafka, registry: job.AnyRegistry | None, region: str) -> list[Found]:
    """All topics except Kafka's own, sorted."""
    cluster = Cluster(kafka, region)
    topics = cluster.topics(set(cluster.topic_names()) - {REGISTRYS_OWN})
    schemas = open_registry(registry) if registry else None
    subjects = set(schemas.subjects()) if schemas else set()
    found = []
    for name, topic in sorted(topics.items()):
        records = sum(topic.end.values()) - sum(topic.log_start.values())
        subject = schemas.default_subject(name) if schemas else None
        versions = schemas.versions(subject) if schemas and subject in subjects else []
        newest = versions[-1] if versions else None
        found.append(described(name, len(topic.end), records, newest, subject))
    samples = cluster.newest_values([topics[each.topic] for each in found if each.bare], SAMPLES)
    return [with_samples(each, samples.get(each.topic, ())) for each in found]


def with_samples(found: Found, values: Sequence[bytes]) -> Found:
    """A topic without a schema gets the JSON Schema of its values, if these are objects of JSON."""
    schema = inferred(values) if found.bare else None
    if schema is None:
        return found
    text = json.dumps(schema, indent=2) + "\n"
    made = described(found.topic, found.partitions, found.records, Schema(0, text, "JSON"), None)
    return replace(made, inferred=text, sampled=len(values)) if made.problem is None else found


def described(topic: str, partitions: int, records: int, schema: Schema | None, subject: str | None) -> Found:
    """One topic; `schema`: the newest version of its values, registered under `subject`; no subject: there is no registry."""
    if schema is None:
        problem = f"the registry has no subject {subject}" if subject else "no registry is named"
        values = "its newest records are not objects of JSON" if records else "it has no records"
        return Found(topic, partitions, records, problem=f"{problem}, and {values}", bare=True)
    try:
        found = columns(schema)["fields"]
    except SchemaProblem as problem:
        return Found(topic, partitions, records, problem=problem.message)
    fields = tuple(each["name"] for each in found)
    times = tuple(each["name"] for each in found if each["type"] == "timestamptz")
    return Found(topic, partitions, records, fields, times)


SHOWN = 8
EDITORS_FILE = "calve.schema.json"
NO_TABLE = "produce objects of JSON; or register a schema of a topic's values as TOPIC-value, in a Glue registry as TOPIC"


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
    kafka, registry = EMBEDDED_KAFKA, NO_REGISTRY if source.kafka else EMBEDDED_REGISTRY
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


def _file(table: str) -> str:
    return f"schemas/{table}.json"


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


HEAD = (
    f"# yaml-language-server: $schema={EDITORS_FILE}"
    + """
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
)
EMBEDDED_KAFKA = """\
# Without `kafka`, the embedded broker. A deploy needs one:
# kafka:
#   bootstrap_servers: broker-1:9096,broker-2:9096
#   auth: {type: sasl_scram, secret: aws:SECRET_ID}"""
EMBEDDED_REGISTRY = """\
# Without `registry`, the embedded one. A deploy needs one:
# registry: {url: https://registry.example, secret: aws:SECRET_ID} # or {type: glue, name: REGISTRY}"""
NO_REGISTRY = """\
# No table asks a schema registry. With one:
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
            file = _file(names[each.topic])
            if each.bare:
                yield f"  # Register its schema; or write the JSON Schema of its values into {file}, and uncomment:"
            yield f"  # {names[each.topic]}:"
            yield f"  #   topic: {_quoted(each.topic)}"
            if each.bare:
                yield f"  #   value: {{format: json, schema: {file}}} # or avro or protobuf; string and bytes need no schema"
            continue
        yield f"  # fields: {_shown(each.fields)}"
        yield f"  {_quoted(names[each.topic])}:"
        yield f"    topic: {_quoted(each.topic)}"
        if each.inferred:
            rest = next(name for name in ("rest", "undeclared") if name not in each.fields)
            records = "1 record" if each.sampled == 1 else f"{each.sampled:,} records"
            yield f"    # this schema is inferred from {records}: check it before you rely on it"
            yield f"    value: {{format: json, schema: {_file(names[each.topic])}, rest: {rest}}}"
        for field in each.times:
            yield f"    # event_time: {field} # partitions the table by day"


def _shown(fields: Sequence[str]) -> str:
    return ", ".join(fields[:SHOWN]) + (", ..." if len(fields) > SHOWN else "")


def _quoted(text: str) -> str:
    """Text for YAML: as it is where that is safe, else in quotes."""
    plain = re.fullmatch(r"[A-Za-z_][A-Za-z0-9_./-]*(:(?=\S)[A-Za-z0-9_./-]+)*", text)
    return text if plain and text.lower() not in ("true", "false", "null") else json.dumps(text)
