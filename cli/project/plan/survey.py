"""The state of Kafka, the registry and Spark's view of steps for a plan: topics, schemas and columns of each table."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from calve.config.deployment import UNKNOWN_SERVERS, Deployment
from calve.config.engine_choice import Chosen, choose, of_settings
from calve.config.job import Job, Table
from calve.config.topics import expand
from calve.decoding.record_schemas import RecordSchemas, Versions, record_schemas_of
from calve.errors import CalveError, ConfigError, Fatal, Retryable, Suspended
from calve.modes.upsert import require_tombstones
from calve.registry.registry import Registry, open_registry
from calve.schema.columns import Json
from calve.schema.evolution import data_columns
from calve.settings.problems import Problem
from cli.config import joined, of_lake, with_patterns_of, with_tables
from cli.kafka import Cluster
from cli.project.plan.change import Change
from cli.project.plan.changes import of_entry
from cli.project.plan.deployed import Deployed, DeployedTable
from cli.spark import local_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class Foreseen:
    """The result of steps. columns: the data columns, or why the steps cannot run. by_rows: why the columnar engine does not make
    the rows.
    """

    columns: Json | CalveError
    by_rows: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Read:
    """The schemas of a table's records. `columns`: of decoded records; without steps, the data columns. misfit: why no value of
    the newest version is a row.
    """

    table: Table
    parts: RecordSchemas
    versions: Versions
    columns: Json
    misfit: str | None = None


Records = dict[str, "Read | CalveError"]
"""By table; an error says why its records cannot be read."""


def _asks_registry(table: Table) -> bool:
    return table.value.registered or (table.key is not None and table.key.registered)


def read_records(jobs: Iterable[Job], deployed: Mapping[str, DeployedTable]) -> Records:
    """The records of all tables of these jobs.

    Raises:
        CalveError: the registry does not answer, or its secret cannot be read.
    """
    found: Records = {}
    for job in jobs:
        registry = open_registry(job.registry) if any(map(_asks_registry, job.tables)) else None
        with ThreadPoolExecutor(max_workers=8) as pool:
            read = pool.map(partial(_read, registry, deployed), job.tables)
            found |= {table.name: each for table, each in zip(job.tables, read, strict=True)}
    return found


def _read(
    registry: Registry | None, deployed: Mapping[str, DeployedTable], table: Table
) -> Read | CalveError:
    parts, held = record_schemas_of(table, registry), deployed.get(table.name)
    for each in filter(None, (parts.value, parts.key)):
        each.schemas.listed()  # a registry that does not answer is no fault of the table
    try:
        if held is not None:
            parts.take(held.learnt)
            parts.require_learnt(table.name)
        versions = parts.versions()
        if held is None or table.aggregate or table.steps:
            columns = parts.first_columns(versions)
        else:  # those of the table, once its job has added those of newer versions
            columns, _ = parts.evolved(data_columns(held.columns), versions)
        decoding = parts.decoding(columns, versions)
    except (Retryable, Suspended) as problem:
        return problem
    newest = versions.values[-1].id
    refused = newest in decoding.incompatible
    misfit = parts.misfit(columns, parts.value.wire.name(newest)) if refused else None
    return Read(table, parts, versions, columns, misfit)


Engines = dict[str, "Chosen | Suspended"]
"""By table; an error says why it cannot have the engine that calve.yaml wants."""


def engines(records: Records, by_rows: Mapping[str, tuple[str, ...]]) -> Engines:
    found: Engines = {}
    for name, read in records.items():
        if isinstance(read, Read):
            try:
                why = of_settings(read.table) or by_rows.get(name, ())
                found[name] = choose(name, read.table.engine, why)
            except Suspended as refused:
                found[name] = refused
    return found


def with_engines(found: Sequence[Change], chosen: Engines) -> list[Change]:
    shown = {name: str(each) for name, each in chosen.items() if isinstance(each, Chosen)}
    return [
        replace(each, engine=shown.get(each.name)) if each.section == "tables" and each.kind != "-" else each
        for each in found
    ]


def expanded(
    deployment: Deployment, deployed: Deployed, listed: Collection[str]
) -> tuple[Deployment, list[Change]]:
    """The deployment with the tables of its patterns, by the topics of Kafka and the lake's tables; a line for each pattern."""
    topics = {name: each.topic for name, each in deployed.tables.items() if each.topic}
    all_jobs = [job.settings for job in deployment.jobs]
    whole = with_patterns_of(all_jobs)
    found = joined(expand(whole, listed, topics.get), of_lake(whole, topics))
    jobs = tuple(replace(job, settings=with_tables(job.settings, found)) for job in deployment.jobs)
    owners = {each.name: job.of for job in all_jobs for each in job.patterns}
    entries: list[Change] = []
    for each in whole.patterns:
        count = sum(table.pattern == each.name for table in found.tables)
        note = f"from topics {each.topic}: {count} {'table' if count == 1 else 'tables'}"
        undecided = tuple(
            f"topic {one.topic} is not kept: {one.reason}; {one.fix}"
            for one in found.not_kept
            if one.entry == each.name
        )
        change = of_entry(owners[each.name], each, deployed)
        entries.append(replace(change, note=note, undecided=undecided))
    return replace(deployment, jobs=jobs), entries


@dataclass(frozen=True, slots=True)
class Survey:
    """deployment: with the tables of its patterns. made: the result of steps. entries: a line for each pattern.

    listed: the topics; None: not known. held: records that the topic of a table by key holds, by table. faults: systems that did
    not answer, and topics that their tables refuse. skipped: unchecked parts, with the reason.
    """

    deployment: Deployment
    records: Records
    made: dict[str, Foreseen]
    engines: Engines
    entries: list[Change] = field(default_factory=list)
    listed: Collection[str] | None = None
    held: Mapping[str, int] = field(default_factory=dict)
    faults: list[Problem] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)


def survey(deployment: Deployment, deployed: Deployed, *, offline: bool) -> Survey:
    """Ask all systems; offline: neither Kafka nor the registry, and only tables whose schemas are files."""
    faults: list[Problem] = []
    skipped: list[str] = []
    listed: Collection[str] | None = None
    first = deployment.jobs[0].settings
    if offline:
        skipped = [
            "neither topics nor registered schemas were looked at, nor what depends on them: --offline"
        ]
    elif first.kafka.bootstrap_servers == UNKNOWN_SERVERS:
        skipped = ["topics were not looked for: a deploy makes the cluster"]
    else:
        try:
            listed = set(Cluster(first.kafka, first.lake.region).topic_names())
        except (Retryable, Fatal) as error:
            faults.append(_fault("kafka", error))
    deployment, entries = expanded(deployment, deployed, listed or ())
    jobs = _jobs(deployment, lambda table: table.pattern is None or listed is None or table.topic in listed)
    without_registry = _jobs(deployment, lambda table: not _asks_registry(table))
    try:
        records = read_records(without_registry if offline else jobs, deployed.tables)
    except (Retryable, Fatal, ConfigError) as error:
        faults.append(_fault("registry", error))
        records = read_records(without_registry, deployed.tables)
    held, refused = _of_topics(jobs, listed or (), deployed)
    faults += refused
    made: dict[str, Foreseen] = {}
    stepped = [
        _only(job, lambda each: each.steps and isinstance(records.get(each.name), Read)) for job in jobs
    ]
    if stepped := [job for job in stepped if job.tables]:
        spark = local_session(stepped[0])
        for job in stepped:
            made |= made_by_steps(spark, job)
    failed = {name for name, each in made.items() if isinstance(each.columns, CalveError)}
    shaped = {name: each for name, each in records.items() if name not in failed}
    by_rows = {name: each.by_rows for name, each in made.items()}
    chosen = engines(shaped, by_rows)
    return Survey(deployment, records, made, chosen, entries, listed, held, faults, skipped)


def _of_topics(
    jobs: Sequence[Job], listed: Collection[str], deployed: Deployed
) -> tuple[dict[str, int], list[Problem]]:
    """The records that the topics of tables by key hold, by table; and topics that the job would refuse.

    It refuses a topic that lacks the offsets to start at, or where compaction loses deletions.
    """
    every = (table for job in jobs for table in job.tables if table.topic in listed)
    checked = [each for each in every if each.start.offsets or each.mode.key]
    held: dict[str, int] = {}
    if not checked:
        return held, []
    from glue_jobs.kafka.cluster import Cluster as JobCluster

    found = []
    try:
        with closing(JobCluster(jobs[0].kafka)) as cluster:
            for table in checked:
                try:
                    topic = cluster.state(table.topic)
                    held[table.name] = sum(end - topic.log_start[p] for p, end in topic.end.items())
                    require_tombstones(table.topic, table.mode, compacted=topic.compacted)
                    if table.name not in deployed.tables:
                        cluster.first_offsets(topic, table.start)
                except Suspended as error:
                    entry = ("tables", table.pattern or table.name, *(error.at or ("topic",)))
                    found.append(Problem(entry, error.message, error.fix))
    except (Retryable, Fatal, ConfigError) as error:
        found.append(_fault("kafka", error))
    return held, found


def _fault(section: str, error: CalveError) -> Problem:
    fix = f"{error.fix}; or" if error.fix else "make it reachable from here, or"
    return Problem(
        (section,),
        f"nothing could be checked against it: {error.message}",
        f"{fix} plan without it: --offline",
    )


def _jobs(deployment: Deployment, wanted: Callable[[Table], bool]) -> list[Job]:
    return [_only(job.settings, wanted) for job in deployment.jobs]


def _only(job: Job, wanted: Callable[[Table], object]) -> Job:
    return replace(job, tables=tuple(filter(wanted, job.tables)))


def made_by_steps(spark: SparkSession, job: Job) -> dict[str, Foreseen]:
    from glue_jobs.engines.choice import reasons_foreseen
    from glue_jobs.iceberg.catalog import Lake
    from glue_jobs.ingest import openers_of
    from glue_jobs.kafka.cluster import Cluster as JobCluster

    # `cli.project.plan.checks` checks announcements against the final columns.
    tables = tuple(replace(each, announce=None) for each in job.tables if each.steps)
    found: dict[str, Foreseen] = {}
    with closing(JobCluster(job.kafka)) as cluster:
        for opener in openers_of(replace(job, tables=tables), Lake(spark, job.name), cluster):
            try:
                plan = opener.plan_without_table()
                found[opener.config.name] = Foreseen(plan.row_plan.made, reasons_foreseen(plan))
            except CalveError as problem:
                found[opener.config.name] = Foreseen(problem)
    return found
