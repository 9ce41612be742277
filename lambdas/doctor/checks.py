"""All that the jobs of a deployment need, whoever looks and from wherever."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from lambdas.doctor import brokers, lake, schemas

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from calve.job import Job
    from lambdas.doctor.finding import Probe
    from lambdas.doctor.lake import Client

LIMIT_S = 40.0
"""A cluster that does not answer is waited for several times."""


def probes(jobs: Sequence[Job], client: Client) -> dict[str, Probe]:
    """What jobs need besides a lake; they share cluster and registry."""
    first, tables = jobs[0], [table for job in jobs for table in job.tables]
    return {
        "secrets": partial(lake.secrets, client, list(secrets_of(first))),
        "kafka": partial(brokers.kafka, first.kafka, first.lake.region, tables),
        "registry": partial(schemas.registry, first.registry, tables),
    }


def lake_probes(
    jobs: Sequence[Job], client: Client, warehouse: str, database: str | None
) -> dict[str, Probe]:
    """The lake that a deploy has made or adopted. database: None: it is named after the cluster, and not looked for."""
    found: dict[str, Probe] = {"bucket": partial(lake.bucket, client, warehouse, jobs[0].lake.region)}
    if database:
        names = [table.name for job in jobs for table in job.tables]
        found["tables"] = partial(lake.tables, client, database, names)
    return found


def secrets_of(job: Job) -> Iterator[tuple[str, str]]:
    """What each secret that a job reads is for, and its reference."""
    uses = [("kafka", job.kafka.secret), ("kafka, emit", job.kafka.emit_secret), ("masking", job.masking)]
    uses += [("registry", each) for each in (job.registry.secrets if job.registry else ())]
    for use, reference in uses:
        if reference:
            yield use, reference
