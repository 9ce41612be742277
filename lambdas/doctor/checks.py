"""All checks of a deployment's jobs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from calve.config.job import AnyRegistry, GlueRegistry, Job, Table
from calve.decoding.record_schemas import record_schemas_of
from calve.registry.registry import open_registry
from lambdas.doctor import brokers, lake
from lambdas.doctor.finding import Finding, Probe
from lambdas.doctor.lake import Client

REGISTER = "register the schema, or let a producer do it: the table waits for it"


def registry(settings: AnyRegistry | None, tables: Sequence[Table]) -> Iterator[Finding]:
    """The registry with the configured credentials, and the subjects.

    Raises:
        CalveError: it does not answer, or refuses them.
    """
    if settings is None:
        yield Finding("registry", "absent", "no table needs one")
        return
    opened = open_registry(settings)
    where = settings.name if isinstance(settings, GlueRegistry) else settings.url
    known = len(opened.subjects())
    yield Finding("registry", "ok", f"{where}; subjects: {known}")
    registered = 0
    for table in (each for each in tables if each.registered):
        parts = record_schemas_of(table, opened)
        for part in filter(None, (parts.value, parts.key)):
            if part.schemas.listed():
                registered += 1
            else:
                unversioned = f"{part.schemas.title} has no version"
                yield Finding(f"schema of {table.name}", "warn", unversioned, REGISTER)
    if registered:
        yield Finding("subjects", "ok", f"with versions: {registered}")


LIMIT_S = 40.0
"""A check waits several times for a cluster that does not answer."""


def probes(jobs: Sequence[Job], client: Client) -> dict[str, Probe]:
    """The checks besides the lake. All jobs share cluster and registry."""
    first, tables = jobs[0], [table for job in jobs for table in job.tables]
    return {
        "secrets": partial(lake.secrets, client, list(secrets_of(first))),
        "kafka": partial(brokers.kafka, first.kafka, first.lake.region, tables),
        "registry": partial(registry, first.registry, tables),
    }


def lake_probes(
    jobs: Sequence[Job], client: Client, warehouse: str, database: str | None, *, for_operator: bool = False
) -> dict[str, Probe]:
    """The checks of the deployed lake. database: None: it is named after the cluster, and not checked."""
    bucket = partial(lake.bucket, client, warehouse, jobs[0].lake.region, for_operator=for_operator)
    found: dict[str, Probe] = {"bucket": bucket}
    if (catalog := jobs[0].lake.catalog) is not None:
        found["catalog"] = partial(lake.catalog, client, catalog)
    elif database:
        found["lake formation"] = partial(lake.formation, client, jobs[0].name, database)
        names = [table.name for job in jobs for table in job.tables]
        found["tables"] = partial(lake.tables, client, database, names)
    return found


def secrets_of(job: Job) -> Iterator[tuple[str, str]]:
    """The use and the reference of each secret that a job reads."""
    uses = [("kafka", job.kafka.secret), ("kafka, emit", job.kafka.emit_secret), ("masking", job.masking)]
    uses.append(("lake.catalog", job.lake.secret))
    uses += [("registry", each) for each in (job.registry.secrets if job.registry else ())]
    for use, reference in uses:
        if reference:
            yield use, reference
