"""`calve init`: a first configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, get_args

import typer

from calve.config.job import AnyRegistry, Auth, GlueRegistry, Kafka, Registry
from calve.errors import CalveError, ConfigError
from cli.config import DEFAULT_CONFIG
from cli.console import Console
from cli.embedded.layout import project_root
from cli.embedded.stack import Stack, current
from cli.project.init.text import Source, configuration, deployment_name, survey

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
    str | None, typer.Option("--registry-secret", help="The same for the registry.", show_default=False)
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
    """Ask Kafka and registry what is there, and write a calve.yaml.

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
    kafka = _kafka(bootstrap_servers, auth, secret, embedded)
    schemas = _registry(registry, registry_secret, region, embedded)
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


def _kafka(servers: str | None, auth: Auth, secret: str | None, embedded: Stack | None) -> Kafka:
    if servers is None and embedded:
        return Kafka(embedded.bootstrap_servers)
    mechanism = "SCRAM-SHA-512" if auth == "sasl_scram" else None
    return Kafka(servers or "", auth, mechanism, tls=auth != "none", secret=secret)


def _registry(url: str | None, secret: str | None, region: str, embedded: Stack | None) -> AnyRegistry:
    if url and url.startswith("glue:"):
        return GlueRegistry(url.removeprefix("glue:"), region)
    if url:
        return Registry(url.rstrip("/"), secret)
    if embedded is None:
        raise ConfigError("no schema registry is named", fix="add --registry https://host, or glue:NAME")
    return Registry(embedded.registry_url)
