"""The deployed state, read from Glue, EventBridge Scheduler, S3, the stacks and the tables. The plan compares it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar
from urllib.parse import urlsplit

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table as IcebergTable

from calve.config.deployment import Deployment
from calve.config.job import Job, Table
from calve.config.publishing import Delta, Export, IcebergRest, OpenLineage, Snowflake
from calve.config.spark_conf import LEAST_EXECUTORS, OWN_SETTINGS
from calve.decoding.field_quarantine import fields_in
from calve.names import DEAD_LETTERS_SUFFIX, TableName, schedule_name
from calve.schema.columns import Json
from calve.table.summary import INITIALISED, LEARNT, TOPIC
from cli.account import Account, resources
from cli.kafka import cluster_database
from cli.lake import Tables, aws_errors, latest_commit, load, open_catalog
from cli.look.tables import partitioning, sorting
from cli.spark import parse_conf
from lambdas.aws import tolerating
from lambdas.doctor.lake import ABSENT
from lambdas.publish_states import PublishStates

_T = TypeVar("_T")
Target = IcebergRest | Snowflake | Delta | OpenLineage
TARGETS: dict[str, tuple[str, Callable[[str], Target]]] = {
    "iceberg_rest": ("CATALOG", IcebergRest.from_json),
    "snowflake": ("SNOWFLAKE", Snowflake.from_json),
    "delta": ("DELTA", Delta.from_json),
    "openlineage": ("LINEAGE", OpenLineage.from_json),
}
"""By key below `publish`: the variable of its functions with its settings, and how to read them."""


@dataclass(frozen=True, slots=True)
class DeployedJob:
    """A Glue job. `settings` None: its settings file is missing, or not readable by this release.

    least: the fewest workers it scales down to; None: it does not scale.
    """

    worker: str
    workers: int
    schedule: str | None = None
    time_zone: str = "UTC"
    maintenance_window: str | None = None
    conf: dict[str, str] = field(default_factory=dict)
    settings: Job | None = None
    least: int | None = None

    @property
    def fewest(self) -> int:
        return self.workers if self.least is None else self.least


@dataclass(frozen=True, slots=True)
class DeployedTable:
    """An Iceberg table that calve keeps. `mode`: by its position; `empty`: it has read nothing, so any mode will do.

    fields: `calve.decoding.field_quarantine.fields_in` its properties. topic, learnt: stored in the table.
    """

    partition_by: str
    sort_by: str
    format_version: int
    columns: Json
    mode: str | None = None
    empty: bool = False
    fields: frozenset[str] | None = None
    topic: str | None = None
    learnt: str | None = None


@dataclass(frozen=True, slots=True)
class DeployedTarget:
    """A target that tables are published to, with their names. `settings` None: not readable by this release."""

    settings: Target | None
    tables: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Deployed:
    """The deployed state in an account. `database`: its name; foreign: tables in it that calve does not keep.

    targets: by their key below `publish`. cluster, endpoints: whether the deployment made a cluster, and endpoints in a VPC.
    """

    database: str
    database_exists: bool = False
    jobs: dict[str, DeployedJob] = field(default_factory=dict)
    tables: dict[str, DeployedTable] = field(default_factory=dict)
    exports: dict[str, Export] = field(default_factory=dict)
    targets: dict[str, DeployedTarget] = field(default_factory=dict)
    cluster: bool = False
    endpoints: bool = False
    foreign: frozenset[str] = frozenset()

    @property
    def _readable(self) -> dict[str, Job]:
        """The settings of the jobs, by name."""
        return {name: job.settings for name, job in self.jobs.items() if job.settings}

    @property
    def settings(self) -> dict[str, tuple[str, Table]]:
        """The deployed entries of `tables`, each with the name of its job; a pattern with that of its entry in `jobs`."""
        known = self._readable
        of_patterns = {table.name: (job.of, table) for job in known.values() for table in job.patterns}
        return of_patterns | {
            table.name: (name, table) for name, job in known.items() for table in job.tables
        }

    def job_of(self, table: Table) -> str | None:
        """The deployed job that keeps a table of a pattern."""
        return next(
            (
                name
                for name, job in self._readable.items()
                if job.has(table.topic) and any(each.name == table.pattern for each in job.patterns)
            ),
            None,
        )


def read_deployed(deployment: Deployment, account: Account) -> Deployed:
    """Read the account; nothing is changed."""
    settings = deployment.jobs[0].settings
    database = cluster_database(settings) or deployment.lake.database
    lake = replace(settings.lake, region=account.region, endpoint=account.endpoint)
    with aws_errors(f"the deployment {deployment.name}"):
        catalog = open_catalog(lake)
        exists = catalog.namespace_exists(database)
        tables, foreign = _tables(catalog, database) if exists else ({}, frozenset())
        network = {each.type for each in resources(account, f"{deployment.name}-kafka")}
        return Deployed(
            database=database,
            database_exists=exists,
            jobs=dict(_jobs(deployment, account)),
            tables=tables,
            foreign=foreign,
            exports=dict(_exports(deployment, account)),
            targets=dict(_targets(account, f"{deployment.name}-publish")),
            cluster="AWS::MSK::ServerlessCluster" in network,
            endpoints="AWS::EC2::VPCEndpoint" in network,
        )


def _jobs(deployment: Deployment, account: Account) -> Iterator[tuple[str, DeployedJob]]:
    """The Glue jobs NAME-JOB that keep tables, and whose settings are of this deployment."""
    prefix = f"{deployment.name}-"
    configured = {job.settings.job for job in deployment.jobs}
    schedules = {each["Name"]: each for each in _schedules(account, f"{deployment.name}-jobs")}
    for page in account.client("glue").get_paginator("get_jobs").paginate():
        for raw in page["Jobs"]:
            name = raw["Name"].removeprefix(prefix)
            if not raw["Name"].startswith(prefix) or raw["Command"]["Name"] != "gluestreaming":
                continue
            settings = _settings(account, raw.get("DefaultArguments", {}))
            if settings.name == deployment.name if settings else name in configured:
                yield name, _job(raw, settings, schedules.get(schedule_name(raw["Name"])))


def _job(raw: dict[str, Any], settings: Job | None, schedule: dict[str, Any] | None) -> DeployedJob:
    conf = parse_conf(raw.get("DefaultArguments", {}).get("--conf", ""))
    return DeployedJob(
        worker=raw.get("WorkerType", ""),
        workers=int(raw.get("NumberOfWorkers", 0)),
        schedule=schedule["ScheduleExpression"] if schedule else None,
        time_zone=(schedule or {}).get("ScheduleExpressionTimezone") or "UTC",
        maintenance_window=raw.get("MaintenanceWindow"),
        conf=own(conf),
        settings=settings,
        least=int(conf[LEAST_EXECUTORS]) + 1 if LEAST_EXECUTORS in conf else None,  # one worker is the driver
    )


def own(conf: dict[str, str]) -> dict[str, str]:
    return {key: value for key, value in conf.items() if not OWN_SETTINGS.fullmatch(key)}


def _settings(account: Account, arguments: dict[str, str]) -> Job | None:
    """The settings in the file that the job reads."""
    name = arguments.get("--settings-file", "")
    files = arguments.get("--extra-files", "").split(",")
    place = next((urlsplit(file) for file in files if name and file.endswith(name)), None)
    if place is None:
        return None
    with tolerating(*ABSENT):
        found = account.client("s3").get_object(Bucket=place.netloc, Key=place.path.lstrip("/"))
        return _readable(Job.from_json, found["Body"].read().decode())
    return None


def _readable(parse: Callable[[str], _T], text: str) -> _T | None:
    """A stored value; None: another release wrote it."""
    try:
        return parse(text)
    except (ValueError, KeyError, TypeError):
        return None


def _exports(deployment: Deployment, account: Account) -> Iterator[tuple[str, Export]]:
    for schedule in _schedules(account, deployment.name):
        text = schedule["Target"]["Input"]
        if export := _readable(lambda text: Export.from_json(json.dumps(json.loads(text)["export"])), text):
            # The schedule is what fires; its input only says the same.
            zone = schedule.get("ScheduleExpressionTimezone") or export.time_zone
            yield export.name, replace(export, schedule=schedule["ScheduleExpression"], time_zone=zone)


def _targets(account: Account, stack: str) -> Iterator[tuple[str, DeployedTarget]]:
    """The targets in the functions' environment, with their published tables."""
    client = account.client("lambda")
    variables: dict[str, str] = {}
    for each in resources(account, stack):
        if each.type == "AWS::Lambda::Function":
            made = client.get_function_configuration(FunctionName=each.id)
            variables |= made.get("Environment", {}).get("Variables", {})
    if "STATES_TABLE" not in variables:
        return
    states = list(PublishStates(variables["STATES_TABLE"], account.client("dynamodb")).all())
    for target, (variable, parse) in TARGETS.items():
        if text := variables.get(variable):
            tables = frozenset(each.table.rpartition(".")[2] for each in states if each.target == target)
            yield target, DeployedTarget(_readable(parse, text), tables)


def _schedules(account: Account, group: str) -> Iterator[dict[str, Any]]:
    """The repeating schedules of a group; those that fire once are retries."""
    scheduler = account.client("scheduler")
    with tolerating(*ABSENT):
        for page in scheduler.get_paginator("list_schedules").paginate(GroupName=group):
            for each in page["Schedules"]:
                found = scheduler.get_schedule(Name=each["Name"], GroupName=group)
                if not found["ScheduleExpression"].startswith("at("):
                    yield found


def _tables(catalog: Catalog, database: str) -> tuple[dict[str, DeployedTable], frozenset[str]]:
    """The tables of the database that calve made, whether configured or not; and the names of those that it does not keep."""
    names = [each for each in Tables(catalog).names(database) if not each.endswith(DEAD_LETTERS_SUFFIX)]
    with ThreadPoolExecutor(max_workers=8) as pool:
        loaded = pool.map(lambda name: load(catalog, TableName(database, name)), names)
        found = {name: each for name, each in zip(names, loaded, strict=True) if each}
    foreign = frozenset(name for name, each in found.items() if INITIALISED not in each.properties)
    return {name: made for name, each in found.items() if (made := _table(each))}, foreign


def _table(table: IcebergTable) -> DeployedTable | None:
    head = table.current_snapshot()
    summary = head.summary.additional_properties if head and head.summary else {}
    if not any(key.startswith("calve.") for key in (*table.properties, *summary)):
        return None  # calve did not make it
    latest = latest_commit(table)
    return DeployedTable(
        partitioning(table),
        sorting(table),
        table.format_version,
        columns=json.loads(table.schema().model_dump_json()),
        mode=latest[1].mode if latest else None,
        empty=latest is not None and not latest[1].offsets,
        fields=fields_in(table.properties),
        topic=table.properties.get(TOPIC),
        learnt=table.properties.get(LEARNT),
    )
