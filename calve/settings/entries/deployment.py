"""Turns a validated calve.yaml into a deployment."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from calve.config.deployment import (
    Alerts,
    Deployment,
    JobDeployment,
    KeyRotation,
    LakeDeployment,
    Msk,
    Network,
    Workers,
)
from calve.config.job import Job, Lake
from calve.config.publishing import Csv, Export, Measure, Publish
from calve.config.topics import name_pattern
from calve.names import SYSTEM_COLUMN, TableName
from calve.settings.entries.deploy import (
    KEYS_TO_RETAIN,
    UNSCALED,
    JobSection,
    RotateSection,
    WorkersSection,
)
from calve.settings.entries.publish import PublishSection
from calve.settings.fields import resolved
from calve.settings.model import Configuration
from calve.settings.schedules import CONTINUOUS

ARRIVAL_TIME = f"{SYSTEM_COLUMN}.timestamp"


def deployment(checked: Configuration, jobs: Sequence[Job]) -> Deployment:
    """All that a deploy needs; `jobs`: the resolved ones."""
    lake = jobs[0].lake
    sections = checked.jobs or {}
    return Deployment(
        name=checked.name,
        jobs=tuple(_job(job, sections.get(job.job) or JobSection()) for job in jobs),
        lake=resolved(LakeDeployment, checked.lake, database=lake.database),
        msk=_msk(checked),
        network=_network(checked),
        exports=tuple(_export(checked, name, lake) for name in checked.exports),
        alerts=resolved(Alerts, checked.alerts),
        publish=_publish(checked, checked.publish, jobs) if checked.publish else None,
        region=checked.lake.region,
        rotations=tuple(_rotations(checked)),
    )


def _rotations(checked: Configuration) -> Iterator[KeyRotation]:
    auth, registry = checked.kafka and checked.kafka.auth, checked.registry
    if auth and auth.rotate:
        cloud = auth.type == "sasl_plain"
        if auth.secret:
            yield _rotation("kafka", auth.secret, auth.rotate, cloud=cloud)
        if auth.emit_secret:
            yield _rotation("emit", auth.emit_secret, auth.rotate, cloud=cloud)
    if registry and registry.rotate and registry.secret:
        yield _rotation("registry", registry.secret, registry.rotate, cloud=True)


def _rotation(
    of: Literal["kafka", "emit", "registry"], secret: str, section: RotateSection, *, cloud: bool
) -> KeyRotation:
    retained = (section.keys_to_retain or KEYS_TO_RETAIN) if cloud else None
    return KeyRotation(of, secret, section.after_days, section.admin_secret, retained)


def _job(job: Job, section: JobSection) -> JobDeployment:
    return resolved(
        JobDeployment,
        section,
        settings=job,
        workers=_workers(section.workers, scaled=section.worker != UNSCALED),
        schedule=None if section.run == CONTINUOUS else section.run,
    )


def _workers(section: WorkersSection, *, scaled: bool) -> Workers:
    most = section.max
    if most is None:
        most = max(section.min, Workers().max) if scaled else section.min
    return Workers(section.min, most)


def _msk(checked: Configuration) -> Msk | None:
    msk = checked.kafka and checked.kafka.msk
    return Msk(msk.cluster) if msk else None


def _network(checked: Configuration) -> Network | None:
    made = checked.kafka and checked.kafka.msk and checked.kafka.msk.create
    return resolved(Network, checked.network) if checked.network or made else None


def _export(checked: Configuration, name: str, lake: Lake) -> Export:
    section = checked.exports[name]
    return resolved(
        Export,
        section,
        section.link,
        name=name,
        database="" if lake.namespace == "cluster_id" else lake.database,
        time_column=section.time_column or checked.tables[section.table].event_time or ARRIVAL_TIME,
        measures=tuple(Measure(name, *each) for name, each in section.measures.items()),
        csv=resolved(Csv, section.csv),
    )


def _publish(checked: Configuration, section: PublishSection, jobs: Sequence[Job]) -> Publish:
    return Publish(
        tables=tuple(TableName(job.lake.database, table.name) for job in jobs for table in job.tables),
        patterns=tuple(name_pattern(table.name) for job in jobs for table in job.patterns),
        snowflake=section.snowflake.resolved(checked.name, jobs[0].lake.database)
        if section.snowflake
        else None,
        iceberg_rest=section.iceberg_rest.resolved() if section.iceberg_rest else None,
    )
