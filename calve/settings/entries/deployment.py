"""Turns a validated calve.yaml into a deployment."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal

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
from calve.config.publishing import Csv, Export, Publish
from calve.config.topics import name_pattern
from calve.names import SYSTEM_COLUMN, TableName
from calve.settings.entries.deploy import (
    KEYS_TO_RETAIN,
    UNSCALED,
    AlertsSection,
    JobSection,
    RotateSection,
    WorkersSection,
)
from calve.settings.entries.publish import ExportSection, resolved
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
        lake=LakeDeployment(
            database=lake.database,
            import_database=checked.lake.import_database,
            bucket=checked.lake.bucket,
            prefix=checked.lake.prefix,
            kms_key=checked.lake.kms_key,
            namespace=lake.namespace,
        ),
        msk=_msk(checked),
        network=_network(checked),
        exports=tuple(_export(checked, name, lake) for name in checked.exports),
        alerts=_alerts(checked.alerts),
        publish=_publish(checked, jobs),
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
    return JobDeployment(
        settings=job,
        worker=section.worker,
        workers=_workers(section.workers, scaled=section.worker != UNSCALED),
        schedule=None if section.run == CONTINUOUS else section.run,
        conf=dict(section.conf),
        **_given(time_zone=section.time_zone, maintenance_window=section.maintenance_window),
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
    network = checked.network
    if network is None:
        made = checked.kafka and checked.kafka.msk and checked.kafka.msk.create
        return Network() if made else None
    return Network(
        vpc_id=network.vpc,
        availability_zones=tuple(network.availability_zones),
        subnets=tuple(network.subnets),
        security_groups=tuple(network.security_groups),
    )


def _alerts(section: AlertsSection) -> Alerts:
    return Alerts(
        emails=tuple(section.emails),
        **_given(freshness_s=section.freshness, lag_records=section.lag, restarts=section.restarts),
    )


def _export(checked: Configuration, name: str, lake: Lake) -> Export:
    section: ExportSection = checked.exports[name]
    return Export(
        name=name,
        database="" if lake.namespace == "cluster_id" else lake.database,
        table=section.table,
        time_column=section.time_column or checked.tables[section.table].event_time or ARRIVAL_TIME,
        schedule=section.schedule,
        recipients=tuple(section.recipients),
        window=section.window,
        time_zone=section.time_zone,
        columns=tuple(section.columns),
        filter=section.filter,
        group_by=tuple(section.group_by),
        measures=tuple(section.measures.values()),
        csv=Csv(**section.csv.model_dump()),
        channel=section.channel,
        sender=section.sender,
        reply_to=section.reply_to,
        recheck_windows=section.recheck_windows,
        link_days=section.link.days,
        max_downloads=section.link.max_downloads,
        **_given(wait_s=section.wait, keep_days=section.keep),
    )


def _publish(checked: Configuration, jobs: Sequence[Job]) -> Publish | None:
    if checked.publish is None:
        return None
    snowflake, rest = checked.publish.snowflake, checked.publish.iceberg_rest
    return Publish(
        tables=tuple(TableName(job.lake.database, table.name) for job in jobs for table in job.tables),
        patterns=tuple(name_pattern(table.name) for job in jobs for table in job.patterns),
        snowflake=resolved(snowflake, checked.name, jobs[0].lake.database) if snowflake else None,
        iceberg_rest=rest.resolved() if rest else None,
    )


def _given(**options: Any) -> dict[str, Any]:
    """The options that are set; the others keep their defaults."""
    return {key: value for key, value in options.items() if value is not None}
