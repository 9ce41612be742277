"""Entries with `topics` in a plan: which topics are which tables, and which are none."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from calve.topics import Expansion, expand
from cli.plan.changes import of_entry
from cli.topics import joined, of_lake, with_tables

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from calve.deployment import Deployment, JobDeployment
    from calve.job import Job
    from cli.plan.change import Change
    from cli.plan.deployed import Deployed


@dataclass(frozen=True, slots=True)
class Expanded:
    """The deployment with the tables of its patterns. `entries`: a line for each pattern."""

    deployment: Deployment
    entries: list[Change]


def expanded(deployment: Deployment, deployed: Deployed, listed: Collection[str]) -> Expanded:
    """By the topics that Kafka lists, and by what the lake has."""
    topics = {name: each.topic for name, each in deployed.tables.items() if each.topic}
    jobs: list[JobDeployment] = []
    entries: list[Change] = []
    for job in deployment.jobs:
        settings = job.settings
        found = joined(expand(settings, listed, topics.get), of_lake(settings, topics))
        jobs.append(replace(job, settings=with_tables(settings, found)))
        entries += _entries(settings, found, deployed)
    return Expanded(replace(deployment, jobs=tuple(jobs)), entries)


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
