"""What the commands work on: calve.yaml, the running embedded stack for what it omits, and the AWS account of `--profile`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

import boto3
import typer

from calve.config.deployment import UNKNOWN_WAREHOUSE, Deployment
from calve.config.job import Job, Kafka, Registry, Table
from calve.errors import ConfigError
from calve.settings import load, load_deployment, load_spark_settings, notation
from calve.settings.problems import Invalid, choice
from calve.settings.resolving import StackDefaults
from cli.console import COMMON, PROFILE_VARIABLE
from cli.embedded.layout import project_root
from cli.embedded.stack import Stack, current
from cli.topics import with_named

ConfigOption = Annotated[
    Path,
    typer.Option(
        "--config",
        "-c",
        help="The configuration, or the variable CALVE_CONFIG.",
        envvar="CALVE_CONFIG",
        show_envvar=False,
        rich_help_panel=COMMON,
    ),
]
EnvOption = Annotated[
    str | None,
    typer.Option(
        "--env",
        help="Lay calve.ENV.yaml over it, or the variable CALVE_ENV.",
        envvar="CALVE_ENV",
        show_envvar=False,
        rich_help_panel=COMMON,
    ),
]
TableArgument = Annotated[str, typer.Argument(metavar="TABLE", help="The table's name in calve.yaml.")]
TablesArgument = Annotated[
    list[str] | None, typer.Argument(metavar="TABLE", help="Names of tables; none stands for all.")
]
DEFAULT_CONFIG = Path("calve.yaml")


def load_jobs(
    config: Path, env: str | None = None, *, tables: Sequence[str] = (), writes: bool = False
) -> tuple[Job, ...]:
    """The jobs of a configuration, on the embedded stack if that runs. Entries with `topics` expand to the named tables only.

    `writes`: the lake's bucket is needed by name; readers find tables through the catalog.

    Raises:
        ConfigError: the configuration cannot be used, or has no table of one of these names.
    """
    config = found(config)
    embedded = embedded_stack()
    supplied = stack_defaults(embedded)
    if embedded is None:
        supplied = replace(supplied, region=default_region())
        if not writes:
            supplied = replace(supplied, warehouse=UNKNOWN_WAREHOUSE)
    jobs = load(config, env=env, stack=supplied)
    if tables and any(job.patterns for job in jobs):
        jobs = with_named(jobs, tables)
    known = [table.name for job in jobs for table in job.tables]
    for name in tables:
        if name not in known:
            raise ConfigError(
                f'{config} has no table "{name}"', fix=choice(name, known, "calve tables lists them")
            )
    return jobs


def spark_settings(config: Path, env: str | None = None) -> dict[str, dict[str, str]]:
    """`jobs.<name>.conf` of a valid configuration, by job."""
    return load_spark_settings(found(config), env)


def load_target(config: Path, env: str | None = None) -> tuple[Deployment, Stack | None]:
    """The deployment that a configuration describes, and the embedded stack if that is its target.

    It is the target if the configuration leaves Kafka or the registry to it, or names those of the stack.

    Raises:
        ConfigError: the configuration cannot be used.
    """
    embedded = embedded_stack()
    supplied = stack_defaults(embedded)
    deployment = load_deployment(
        found(config), env, StackDefaults(supplied.kafka, supplied.registry, region=supplied.region)
    )
    settings = deployment.jobs[0].settings
    here = embedded and (settings.kafka == supplied.kafka or settings.registry == supplied.registry)
    return deployment, embedded if here else None


def embedded_stack() -> Stack | None:
    """The embedded stack, if it runs and no profile was named."""
    return None if profile_is_named() else current(project_root())


def found(config: Path) -> Path:
    """The configuration's path; the default one is searched for upwards."""
    return project_root() / config if config == DEFAULT_CONFIG and not config.exists() else config


def default_region() -> str | None:
    """The region of the environment or of the profile, which a deploy uses, too."""
    return os.environ.get("AWS_REGION") or boto3.Session().region_name


def stack_defaults(embedded: Stack | None) -> StackDefaults:
    """The settings that a running embedded stack supplies; none if it does not run."""
    if embedded is None:
        return StackDefaults()
    return StackDefaults(
        kafka=Kafka(embedded.bootstrap_servers),
        registry=Registry(embedded.registry_url),
        warehouse=f"s3://{embedded.bucket}",
        region=embedded.region,
        endpoint=embedded.aws_endpoint,
    )


def table_named(jobs: Sequence[Job], name: str) -> tuple[Job, Table]:
    """A table that `load_jobs` returned, with its job."""
    return next((job, table) for job in jobs for table in job.tables if table.name == name)


def parse_time(text: str, now: datetime, option: str) -> datetime:
    """The time of `1h` before `now`, or of an ISO timestamp with a time zone.

    Raises:
        ConfigError: the text, given as `option`, is neither.
    """
    try:
        return now - timedelta(seconds=notation.seconds(text))
    except (Invalid, OverflowError):
        pass
    fix = 'write a duration, such as "2h" or "7d", or a moment, such as "2026-01-01T00:00:00Z"'
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(f'{option}: "{text}" is neither a duration nor a moment', fix=fix) from None
    if found.tzinfo is None:
        raise ConfigError(f'{option}: "{text}" has no time zone', fix=fix)
    return found.astimezone(UTC)


def profile_is_named() -> bool:
    return bool(os.environ.get(PROFILE_VARIABLE))
