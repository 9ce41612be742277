"""What a plan asks Kafka, the registry and Spark: which topics there are, and what the tables of today's schemas would be."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from calve.deployment import UNKNOWN_SERVERS
from calve.errors import CalveError, ConfigError, Fatal, Retryable, Suspended
from calve.job import ChangeData
from calve.modes import require_tombstones
from calve.settings.problems import Problem
from cli.kafka import Cluster
from cli.plan.engines import engines
from cli.plan.records import Read, asks_registry, read_records
from cli.plan.topics import expanded

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from calve.deployment import Deployment
    from calve.job import Job, Table
    from cli.plan.deployed import Deployed
    from cli.plan.engines import Engines
    from cli.plan.records import Records
    from cli.plan.steps import Foreseen
    from cli.plan.topics import Expanded


@dataclass(frozen=True, slots=True)
class Survey:
    """What was found. made: what steps make. listed: the topics, None where they are not known. faults: systems that did not
    answer, and topics that their tables refuse. skipped: what was not looked at, and why.
    """

    whole: Expanded
    records: Records
    made: dict[str, Foreseen]
    engines: Engines
    listed: Collection[str] | None = None
    faults: list[Problem] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)


def survey(deployment: Deployment, deployed: Deployed, *, offline: bool) -> Survey:
    """Ask; offline: neither Kafka nor the registry, and of the tables those whose schemas are files."""
    faults: list[Problem] = []
    listed, skipped = (None, _SKIPPED) if offline else _listed(deployment.jobs[0].settings, faults)
    whole = expanded(deployment, deployed, listed or ())
    jobs = _jobs(
        whole.deployment, lambda table: table.pattern is None or listed is None or table.topic in listed
    )
    without_registry = _jobs(
        replace(deployment, jobs=whole.deployment.jobs), lambda table: not asks_registry(table)
    )
    try:
        records = read_records(without_registry if offline else jobs, deployed.tables)
    except (Retryable, Fatal, ConfigError) as error:
        faults.append(_fault("registry", error))
        records = read_records(without_registry, deployed.tables)
    faults += _refused_topics(jobs, listed or (), deployed)
    made = _made_by_steps([_only(job, lambda each: isinstance(records.get(each.name), Read)) for job in jobs])
    failed = {name for name, each in made.items() if isinstance(each.columns, CalveError)}
    shaped = {name: each for name, each in records.items() if name not in failed}
    by_rows = {name: each.by_rows for name, each in made.items()}
    return Survey(whole, records, made, engines(shaped, by_rows), listed, faults, skipped)


_SKIPPED = ["neither topics nor registered schemas were looked at, nor what depends on them: --offline"]


def _listed(job: Job, faults: list[Problem]) -> tuple[Collection[str] | None, list[str]]:
    if job.kafka.bootstrap_servers == UNKNOWN_SERVERS:
        return None, ["topics were not looked for: a deploy makes the cluster"]
    try:
        return set(Cluster(job.kafka, job.lake.region).topic_names()), []
    except (Retryable, Fatal) as error:
        faults.append(_fault("kafka", error))
        return None, []


def _refused_topics(jobs: Sequence[Job], listed: Collection[str], deployed: Deployed) -> list[Problem]:
    """What the job would refuse of a topic: offsets to start at that it does not hold, and compaction that loses deletions."""
    asked = [
        (job, table)
        for job in jobs
        for table in job.tables
        if table.topic in listed
        and (
            isinstance(table.mode, ChangeData) or (table.start.offsets and table.name not in deployed.tables)
        )
    ]
    if not asked:
        return []
    from glue_jobs.kafka.cluster import Cluster as JobCluster

    found = []
    try:
        with closing(JobCluster(asked[0][0].kafka)) as cluster:
            for _, table in asked:
                try:
                    topic = cluster.state(table.topic)
                    require_tombstones(table.topic, table.mode, compacted=topic.compacted)
                    if table.name not in deployed.tables:
                        cluster.first_offsets(topic, table.start)
                except Suspended as error:
                    entry = ("tables", table.pattern or table.name, *(error.at or ("topic",)))
                    found.append(Problem(entry, error.message, error.fix))
    except (Retryable, Fatal, ConfigError) as error:
        found.append(_fault("kafka", error))
    return found


def _fault(section: str, error: CalveError) -> Problem:
    fix = f"{error.fix}; or" if error.fix else "make it reachable from here, or"
    return Problem(
        (section,),
        f"nothing could be checked against it: {error.message}",
        f"{fix} plan without it: --offline",
    )


def _jobs(deployment: Deployment, wanted: Callable[[Table], bool]) -> list[Job]:
    return [_only(job.settings, wanted) for job in deployment.jobs]


def _only(job: Job, wanted: Callable[[Table], bool]) -> Job:
    return replace(job, tables=tuple(filter(wanted, job.tables)))


def _made_by_steps(jobs: Sequence[Job]) -> dict[str, Foreseen]:
    """What steps make now, asked of Spark: only where a table has some."""
    found: dict[str, Foreseen] = {}
    stepped = [job for job in jobs if any(each.steps for each in job.tables)]
    if not stepped:
        return found
    from cli.plan.steps import made_by_steps
    from cli.spark import local_session

    with local_session(stepped[0]) as spark:
        for job in stepped:
            found |= made_by_steps(spark, job)
    return found
