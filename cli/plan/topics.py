"""Entries with `topics` in a plan: which topics are which tables, and which are none."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from calve.deployment import UNKNOWN_SERVERS
from calve.errors import Fatal, Retryable
from calve.topics import Expansion, expand
from cli.kafka import Cluster
from cli.plan.changes import of_entry
from cli.topics import joined, of_lake, with_tables

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from calve.deployment import Deployment, JobDeployment
    from calve.job import Job
    from cli.plan.change import Change
    from cli.plan.deployed import Deployed


@dataclass(frozen=True, slots=True)
class Expanded:
    """The deployment with the tables of its patterns. `entries`: a line for each pattern; `unasked`: why Kafka was not asked."""

    deployment: Deployment
    entries: list[Change]
    unasked: str | None = None


def expanded(deployment: Deployment, deployed: Deployed) -> Expanded:
    """By what Kafka lists, and by what the lake has."""
    patterns = [job.settings for job in deployment.jobs if job.settings.patterns]
    if not patterns:
        return Expanded(deployment, [])
    listed, unasked = _listed(patterns[0])
    topics = {name: each.topic for name, each in deployed.tables.items() if each.topic}
    jobs: list[JobDeployment] = []
    entries: list[Change] = []
    for job in deployment.jobs:
        settings = job.settings
        found = joined(expand(settings, listed, topics.get), of_lake(settings, topics))
        jobs.append(replace(job, settings=with_tables(settings, found)))
        entries += _entries(settings, found, deployed)
    return Expanded(replace(deployment, jobs=tuple(jobs)), entries, unasked)


def _listed(job: Job) -> tuple[Sequence[str], str | None]:
    told = "topics were not listed, so new ones of expressions are not shown"
    if job.kafka.bootstrap_servers == UNKNOWN_SERVERS:
        return (), f"{told}: a deploy makes the cluster"
    try:
        return Cluster(job.kafka, job.lake.region).topic_names(), None
    except (Retryable, Fatal) as error:
        return (), f"{told}: {error.message}"


def _entries(settings: Job, found: Expansion, deployed: Deployed) -> Iterator[Change]:
    for each in settings.patterns:
        count = sum(table.pattern == each.name for table in found.tables)
        yield replace(
            of_entry(settings.job, each, deployed),
            note=f"from topics {each.topic}: {count} {'table' if count == 1 else 'tables'}",
            undecided=tuple(
                f"topic {one.topic} is not kept: {one.reason}; {one.fix}"
                for one in found.not_kept
                if one.entry == each.name
            ),
        )
