"""What the commands work on: calve.yaml, the running embedded stack for what it omits, and the AWS account of `--profile`."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from calve.config.job import Job, Kafka, Registry, Table
from calve.errors import ConfigError
from calve.names import nearest
from cli.console import COMMON

if TYPE_CHECKING:
    from calve.config.deployment import Deployment
    from calve.settings import StackDefaults
    from cli.embedded.stack import Stack

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
TableArgument = Annotated[
    str, typer.Argument(metavar="TABLE", help="The table's name in calve.yaml.", show_default=False)
]
TablesArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="TABLE", help="Names of tables; none stands for all.", show_default=False),
]
DEFAULT_CONFIG = Path("calve.yaml")
PROFILE_VARIABLE = "CALVE_PROFILE"
KEY_VARIABLES = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
"""boto3 would take these from the environment, and not ask the profile."""


def load_jobs(
    config: Path, env: str | None = None, *, tables: Sequence[str] = (), writes: bool = False
) -> tuple[Job, ...]:
    """The jobs of a configuration, on the embedded stack where that runs; of entries with `topics`, those tables that are named.

    Only who `writes` needs the lake's bucket by name: the catalog knows where tables lie.

    Raises:
        ConfigError: the configuration cannot be used, or has no table of one of these names.
        Retryable, Fatal: as `cli.topics.with_named`.
    """
    from calve.config.deployment import UNKNOWN_WAREHOUSE
    from calve.settings import load
    from calve.settings.problems import choice

    config = found(config)
    embedded = embedded_stack()
    supplied = stack_defaults(embedded)
    if embedded is None:
        supplied = replace(supplied, region=default_region())
        if not writes:
            supplied = replace(supplied, warehouse=UNKNOWN_WAREHOUSE)
    jobs = load(config, env=env, stack=supplied)
    if tables and any(job.patterns for job in jobs):
        from cli.topics import with_named

        jobs = with_named(jobs, tables)
    known = [table.name for job in jobs for table in job.tables]
    for name in tables:
        if name not in known:
            raise ConfigError(
                f'{config} has no table "{name}"', fix=choice(name, known, "calve tables lists them")
            )
    return jobs


def spark_settings(config: Path, env: str | None = None) -> dict[str, dict[str, str]]:
    """`jobs.<name>.conf` of a configuration that can be used, by job."""
    from calve.settings import load_spark_settings

    return load_spark_settings(found(config), env)


def load_target(config: Path, env: str | None = None) -> tuple[Deployment, Stack | None]:
    """What a configuration deploys, and the embedded stack where it deploys to that one.

    The embedded stack is the target of a configuration that leaves Kafka or registry to it, or names those of it.

    Raises:
        ConfigError: the configuration cannot be used.
    """
    from calve.settings import StackDefaults, load_deployment

    embedded = embedded_stack()
    supplied = stack_defaults(embedded)
    deployment = load_deployment(
        found(config), env, StackDefaults(supplied.kafka, supplied.registry, region=supplied.region)
    )
    settings = deployment.jobs[0].settings
    here = embedded and (settings.kafka == supplied.kafka or settings.registry == supplied.registry)
    return deployment, embedded if here else None


def embedded_stack() -> Stack | None:
    """The embedded stack, if it runs here and no account was named instead."""
    from cli.embedded.layout import project_root
    from cli.embedded.stack import current

    return None if profile_is_named() else current(project_root())


def found(config: Path) -> Path:
    """The configuration, which is looked for upwards unless it was named."""
    from cli.embedded.layout import project_root

    return project_root() / config if config == DEFAULT_CONFIG and not config.exists() else config


def default_region() -> str | None:
    """The region of the environment or of the profile: a deploy goes there, too."""
    import boto3

    return os.environ.get("AWS_REGION") or boto3.Session().region_name


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


def table_named(jobs: Sequence[Job], name: str) -> tuple[Job, Table]:
    """A table that `load_jobs` has found, with its job."""
    return next((job, table) for job in jobs for table in job.tables if table.name == name)


def moment(text: str, now: datetime, option: str) -> datetime:
    """`1h` before now, or a moment with its time zone.

    Raises:
        ConfigError: the text, given as `option`, is neither.
    """
    from calve.settings import notation
    from calve.settings.problems import Invalid

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


def _use_profile(name: str | None) -> None:
    """Work on the account of a profile, whatever else the environment says; None: nothing changes.

    Raises:
        ConfigError: there is no such profile, or none of the name that AWS_PROFILE has.
    """
    if wanted := name or os.environ.get("AWS_PROFILE"):
        _require_profile(wanted)
    if name:
        os.environ[PROFILE_VARIABLE] = os.environ["AWS_PROFILE"] = name
        for key in KEY_VARIABLES:
            os.environ.pop(key, None)


def _require_profile(name: str) -> None:
    from botocore.session import Session

    known = Session(profile=name).full_config["profiles"]
    if name not in known:
        near = nearest(name, known)
        fix = f'use "{near}"' if near else "`aws configure list-profiles` shows those that there are"
        raise ConfigError(f'this machine has no AWS profile "{name}"', fix=fix)


ProfileOption = Annotated[
    str | None,
    typer.Option(
        "--profile",
        help=f"Work on the account of this AWS profile, or of the variable {PROFILE_VARIABLE}.",
        envvar=PROFILE_VARIABLE,
        show_envvar=False,
        expose_value=False,
        callback=_use_profile,
        rich_help_panel=COMMON,
    ),
]


class InAccount(TyperCommand):
    """A command that takes `--profile` beside its own options."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        alone = typer.Typer(add_completion=False)
        alone.command()(_profile)
        self.params += typer.main.get_command(alone).params


def _profile(profile: ProfileOption = None) -> None:
    """Stands for a command that has this option alone."""


def offer_profile(app: typer.Typer, *, but: Collection[Callable[..., Any]] = ()) -> None:
    """Have all commands of an app that read calve.yaml take `--profile`. but: those that have no account to work on."""
    for command in app.registered_commands:
        function = command.callback
        if function and function not in but and "env" in inspect.signature(function).parameters:
            command.cls = InAccount
    for group in app.registered_groups:
        if group.typer_instance:
            offer_profile(group.typer_instance, but=but)


def profile_is_named() -> bool:
    """Whether a profile was named for this command."""
    return bool(os.environ.get(PROFILE_VARIABLE))
