"""What the commands work on: calve.yaml, with the running embedded stack in the place of what it omits."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from calve.errors import ConfigError
from calve.job import Kafka, Registry

if TYPE_CHECKING:
    from collections.abc import Sequence

    from calve.job import Job
    from calve.settings import StackDefaults
    from cli.embedded.stack import Stack

ConfigOption = Annotated[
    Path, typer.Option("--config", "-c", help="The configuration.", envvar="CALVE_CONFIG")
]
EnvOption = Annotated[
    str | None, typer.Option("--env", help="Lay calve.ENV.yaml over the configuration.", envvar="CALVE_ENV")
]
TablesArgument = Annotated[
    list[str] | None, typer.Argument(help="Names of tables; none stands for all.", show_default=False)
]
DEFAULT_CONFIG = Path("calve.yaml")


def load_jobs(config: Path, env: str | None = None, *, tables: Sequence[str] = ()) -> tuple[Job, ...]:
    """The jobs of a configuration, on the embedded stack where that runs.

    Raises:
        ConfigError: the configuration cannot be used, or has no table of one of these names.
    """
    from calve.settings import load
    from calve.settings.problems import near_miss, one_of
    from cli.embedded.layout import project_root
    from cli.embedded.stack import current

    if config == DEFAULT_CONFIG and not config.exists():
        config = project_root() / config
    jobs = load(config, env=env, stack=stack_defaults(current(project_root())))
    known = [table.name for job in jobs for table in job.tables]
    for name in tables:
        if name not in known:
            raise ConfigError(
                f'{config} has no table "{name}"', fix=near_miss(name, known) or f"use {one_of(known)}"
            )
    return jobs


def stack_defaults(embedded: Stack | None) -> StackDefaults:
    """What a running embedded stack supplies; nothing where none runs."""
    from calve.settings import StackDefaults

    if embedded is None:
        return StackDefaults()
    return StackDefaults(
        kafka=Kafka(embedded.bootstrap_servers),
        registry=Registry(embedded.registry_url),
        warehouse=f"s3://{embedded.bucket}",
        region=embedded.region,
        endpoint=embedded.aws_endpoint,
    )
