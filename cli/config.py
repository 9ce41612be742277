"""What the commands work on: calve.yaml, the running embedded stack for what it omits, and the AWS account of `--profile`.

The tables of entries with `topics` are found by the topics that Kafka lists, and by the tables that the lake has. A table stores
its topic, so it is found even if Kafka does not answer or the topic is gone.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

import boto3
import typer

from calve.config.deployment import UNKNOWN_WAREHOUSE, Deployment
from calve.config.job import Job, Kafka, Registry, Table
from calve.config.topics import Expansion, Keeper, expand, name_pattern
from calve.errors import ConfigError
from calve.names import DEAD_LETTERS_SUFFIX, TableName
from calve.settings import load, load_deployment, load_kafka, notation
from calve.settings.problems import Invalid, choice
from calve.settings.resolving import StackDefaults
from cli.console import COMMON, PROFILE_VARIABLE, REGION_VARIABLE, Console, Output, OutputOption
from cli.embedded import aws
from cli.embedded.layout import above, project_root
from cli.embedded.stack import Stack, current
from cli.kafka import Cluster, cluster_database
from cli.lake import Tables, open_catalog

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
    list[str] | None, typer.Argument(metavar="TABLE", help="Names of tables; without a name all of them.")
]
DEFAULT_CONFIG = Path("calve.yaml")
AT_ONCE = 16
"""So many metadata files are read at a time."""


@dataclass(frozen=True, slots=True)
class Where:
    """The options of a command that say which configuration it works on."""

    config: ConfigOption = DEFAULT_CONFIG
    env: EnvOption = None


@dataclass(frozen=True, slots=True)
class Common(Where):
    """The options that most commands have."""

    output: OutputOption = Output.text

    @property
    def console(self) -> Console:
        return Console(self.output)


def load_jobs(
    config: Path, env: str | None = None, *, tables: Sequence[str] = (), writes: bool = False
) -> tuple[Job, ...]:
    """The jobs of a configuration, on the embedded stack if that runs. Entries with `topics` expand to the named tables only.

    `writes`: the lake's bucket is needed by name; readers find tables through the catalog.
    """
    config = found(config)
    jobs = load(config, env=env, stack=_supplied(writes=writes))
    _check_region(config, jobs[0].lake.region)
    if tables and any(job.patterns for job in jobs):
        jobs = with_named(jobs, tables)
    known = [table.name for job in jobs for table in job.tables]
    for name in tables:
        if name not in known:
            raise ConfigError(
                f'{config} has no table "{name}"', fix=choice(name, known, "calve tables lists them")
            )
    return jobs


def kafka_in(file: Path, given: Where) -> Kafka:
    """The cluster of `kafka` in another file than the configuration."""
    return load_kafka(file, found(given.config), given.env, _supplied(writes=False))


def _supplied(*, writes: bool) -> StackDefaults:
    """The values that calve.yaml may leave out."""
    embedded = embedded_stack()
    if embedded is not None:
        return stack_defaults(embedded)
    return StackDefaults(warehouse=None if writes else UNKNOWN_WAREHOUSE, region=default_region())


def load_target(config: Path, env: str | None = None) -> tuple[Deployment, Stack | None]:
    """The deployment that a configuration describes, and the embedded stack if that is its target.

    It is the target if the configuration leaves Kafka or the registry to it, or names those of the stack.
    """
    embedded = embedded_stack()
    supplied = stack_defaults(embedded)
    deployment = load_deployment(
        found(config), env, StackDefaults(supplied.kafka, supplied.registry, region=supplied.region)
    )
    _check_region(config, deployment.region)
    settings = deployment.jobs[0].settings
    here = embedded and (settings.kafka == supplied.kafka or settings.registry == supplied.registry)
    return deployment, embedded if here else None


def _check_region(config: Path, region: str | None) -> None:
    """Raises ConfigError: `--region` names another region than the one that the deployment has."""
    asked = os.environ.get(REGION_VARIABLE)
    if asked and region and asked != region:
        fix = "leave out --region, or lay another `lake.region` over it with --env"
        raise ConfigError(f"--region is {asked}, and {config} is for {region}", fix=fix)


def embedded_stack() -> Stack | None:
    return None if profile_is_named() else current(project_root())


def found(config: Path) -> Path:
    """The configuration's path; the default one is searched for upwards."""
    folder = above(config.name) if config == DEFAULT_CONFIG else None
    return folder / config if folder and not config.exists() else config


def default_region() -> str | None:
    """The region of the environment or of the profile, which a deploy uses, too."""
    return os.environ.get("AWS_REGION") or boto3.Session().region_name


def stack_defaults(embedded: Stack | None) -> StackDefaults:
    if embedded is None:
        return StackDefaults()
    return StackDefaults(
        kafka=Kafka(embedded.bootstrap_servers),
        registry=Registry(embedded.registry_url),
        warehouse=f"s3://{{name}}-lake-{aws.ACCOUNT}-{embedded.region}",  # as `calve deploy` names it
        region=embedded.region,
        endpoint=embedded.aws_endpoint,
    )


def table_named(jobs: Sequence[Job], name: str) -> tuple[Job, Table]:
    """A table that `load_jobs` returned, with its job."""
    return next((job, table) for job in jobs for table in job.tables if table.name == name)


def parse_time(text: str, now: datetime, option: str) -> datetime:
    """The time of `1h` before `now`, or of an ISO timestamp with a time zone."""
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


def with_named(jobs: Sequence[Job], names: Iterable[str]) -> tuple[Job, ...]:
    """The jobs with the tables of patterns that have these names, found in the lake, else in Kafka."""
    wanted = set(names) - {table.name for job in jobs for table in job.tables}
    job = with_patterns_of(jobs)
    if not wanted or not job.patterns:
        return tuple(jobs)
    keeper = _keeper(Tables(open_catalog(job.lake)), job.database(cluster_database(job)))
    found = of_lake(job, {name: topic for name in wanted if (topic := keeper(name))})
    if {each.name for each in found.tables} != wanted:
        listed = Cluster(job.kafka, job.lake.region).topic_names()
        found = joined(expand(job, listed, keeper), found)
    return tuple(with_tables(each, found) for each in jobs)


def surveyed(jobs: Sequence[Job], tables: Tables, database: str, listed: Iterable[str]) -> Expansion:
    """The tables of the jobs' patterns: for the topics that Kafka lists, and for other topics that the lake has tables of."""
    job = with_patterns_of(jobs)
    if not job.patterns:
        return Expansion()
    keeper = _keeper(tables, database)
    found = expand(job, listed, keeper)
    known = {each.name for each in found.tables} | {each.name for each in job.entries}
    patterns = [re.compile(name_pattern(each.name)) for each in job.patterns]
    names = [
        name
        for name in tables.names(database)
        if name not in known
        and not name.endswith(DEAD_LETTERS_SUFFIX)
        and any(each.fullmatch(name) for each in patterns)
    ]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        topics = dict(zip(names, pool.map(keeper, names), strict=True))
    return joined(found, of_lake(job, {name: topic for name, topic in topics.items() if topic}))


def of_lake(job: Job, topics: Mapping[str, str]) -> Expansion:
    """The tables of the job's patterns that the lake has; `topics`: the topic of each, by table name."""
    found = expand(job, topics.values(), topics.get)
    return Expansion(tuple(each for each in found.tables if topics.get(each.name) == each.topic))


def joined(first: Expansion, second: Expansion) -> Expansion:
    """Both, each table once; topics without a table are those of the first."""
    tables = {each.name: each for each in (*second.tables, *first.tables)}
    return Expansion(tuple(tables[name] for name in sorted(tables)), first.not_kept)


def with_tables(job: Job, found: Expansion) -> Job:
    """The job with those tables that are of its patterns, each once, after those that calve.yaml names. found: of all jobs."""
    patterns = {each.name for each in job.patterns}
    own = (each for each in found.tables if each.pattern in patterns and job.has(each.topic))
    tables = {each.name: each for each in (*job.tables, *own)}
    return replace(job, tables=tuple(tables.values()))


def with_patterns_of(jobs: Sequence[Job]) -> Job:
    """A job with the patterns of all: lake and Kafka are looked at once."""
    patterns = {each.name: each for job in jobs for each in job.patterns}
    entries = next((job.entries for job in jobs if job.entries), ())
    return replace(jobs[0], patterns=tuple(patterns.values()), entries=entries, share=None)


def _keeper(tables: Tables, database: str) -> Keeper:
    return lambda table: tables.topic(TableName(database, table))
