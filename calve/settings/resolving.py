"""Turns a validated calve.yaml into jobs and a deployment: adds defaults, makes files and references absolute."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

from calve.config.deployment import (
    UNKNOWN_SERVERS,
    Alerts,
    Deployment,
    JobDeployment,
    KeyRotation,
    LakeDeployment,
    Msk,
    Network,
    Workers,
)
from calve.config.job import (
    AnyRegistry,
    Budget,
    Entry,
    GlueRegistry,
    Job,
    Kafka,
    Lake,
    OAuth,
    Registry,
    Source,
    Table,
)
from calve.config.maintenance import Maintenance, RowRetention
from calve.config.publishing import Announce, Csv, Emit, Export, Publish
from calve.config.publishing import Measure as ExportMeasure
from calve.config.steps import Route
from calve.config.topics import name_pattern
from calve.modes.aggregate import WINDOW_START, Aggregate, Measure, Window, column_of
from calve.modes.deduplicate import Deduplicate
from calve.modes.upsert import ChangeData, Upsert
from calve.names import SYSTEM_COLUMN, TableName
from calve.schema.columns import CHANGE, Transform
from calve.settings.document import schema_text
from calve.settings.entries.deploy import KEYS_TO_RETAIN, UNSCALED, JobSection, RotateSection, WorkersSection
from calve.settings.entries.modes import (
    AggregateSection,
    ChangeDataSection,
    DeduplicateSection,
    UpsertSection,
)
from calve.settings.entries.publish import PublishSection
from calve.settings.entries.routes import RouteSection
from calve.settings.entries.sources import PartSection
from calve.settings.entries.tables import EmitSection, TableSection
from calve.settings.fields import resolved
from calve.settings.model import Configuration
from calve.settings.schedules import CONTINUOUS

_T = TypeVar("_T")

RECORD_KEY = f"{SYSTEM_COLUMN}.key"
CHANGE_POSITION = f"{CHANGE['name']}.position"


@dataclass(frozen=True, slots=True)
class StackDefaults:
    """Values of the running stack for what calve.yaml omits.

    `kafka` and `registry` replace absent sections. `warehouse` (an S3 URI without a trailing slash) replaces `lake.bucket`;
    `endpoint` belongs to it and is not used with a bucket of calve.yaml.
    """

    kafka: Kafka | None = None
    registry: AnyRegistry | None = None
    warehouse: str | None = None
    region: str | None = None
    endpoint: str | None = None


def resolved_job(checked: Configuration, name: str, stack: StackDefaults, folder: Path) -> Job:
    only = len(checked.jobs or {}) <= 1
    own = {key: table for key, table in checked.tables.items() if only or table.job == name}
    patterns = tuple(_table(key, table, checked, folder) for key, table in own.items() if table.topics)
    return Job(
        name=checked.name,
        job=name,
        kafka=_kafka(checked, stack, folder),
        registry=_registry(checked, stack, folder),
        lake=_lake(checked, stack),
        tables=tuple(_table(key, table, checked, folder) for key, table in own.items() if table.topic),
        masking=_reference(checked.masking.secret, folder) if checked.masking else None,
        patterns=patterns,
        entries=tuple(_entry(key, table) for key, table in checked.tables.items()) if patterns else (),
    )


def _entry(name: str, table: TableSection) -> Entry:
    output = table.emit.topic if table.emit else None
    return Entry(name, _given(table.topic or table.topics), pattern=table.topics is not None, output=output)


def _kafka(checked: Configuration, stack: StackDefaults, folder: Path) -> Kafka:
    if checked.kafka is None:
        return _given(stack.kafka)
    auth = checked.kafka.authentication
    return Kafka(
        bootstrap_servers=checked.kafka.bootstrap_servers or UNKNOWN_SERVERS,
        auth=auth.type,
        mechanism=(auth.mechanism or "SCRAM-SHA-512") if auth.type == "sasl_scram" else None,
        tls=auth.encrypted,
        ca_file=_file(auth.ca_file, folder),
        secret=_reference(auth.secret, folder),
        emit_secret=_reference(auth.emit_secret, folder),
    )


def _registry(checked: Configuration, stack: StackDefaults, folder: Path) -> AnyRegistry | None:
    registry = checked.registry
    if registry is None:
        return stack.registry
    if registry.type == "glue":
        return GlueRegistry(_given(registry.name), registry.region or _lake(checked, stack).region)
    return Registry(
        _given(registry.url),
        secret=_reference(registry.secret, folder),
        ca_file=_file(registry.ca_file, folder),
        oauth=resolved(OAuth, registry.oauth) if registry.oauth else None,
        client_certificate=_reference(registry.client_certificate, folder),
    )


def _lake(checked: Configuration, stack: StackDefaults) -> Lake:
    lake = checked.lake
    warehouse = f"s3://{lake.bucket}" if lake.bucket else _given(stack.warehouse)
    return Lake(
        database=lake.database or checked.name.replace("-", "_"),
        warehouse=f"{warehouse}/{lake.prefix}" if lake.prefix else warehouse,
        namespace=lake.namespace,
        region=lake.region or stack.region or "us-east-1",
        endpoint=None if lake.bucket else stack.endpoint,
        kms_key=lake.kms_key,
        names_key=bool(lake.bucket and lake.kms_key),
    )


def _table(name: str, table: TableSection, checked: Configuration, folder: Path) -> Table:
    defaults, route = checked.defaults, _route_of(name, checked.tables)
    by_key = table.upsert or table.change_data or table.aggregate
    partition_by = table.partition_by
    if partition_by is None:
        partition_by = [] if by_key or not table.event_time else [Transform(table.event_time, "day")]
    rows = table.maintenance.rows if table.maintenance else None
    return resolved(
        Table,
        defaults,
        table,
        name=name,
        topic=_given(table.topic or table.topics),
        partition_by=tuple(partition_by),
        dead_letter_budget=resolved(Budget, defaults.dead_letter_budget, table.dead_letter_budget),
        value=_source(table.value, folder),
        key=_source(table.key, folder) if table.key else None,
        upsert=_upsert(table, table.upsert) if table.upsert else None,
        change_data=_change_data(table, table.change_data) if table.change_data else None,
        deduplicate=_deduplicate(table, table.deduplicate) if table.deduplicate else None,
        aggregate=_aggregate(table.aggregate) if table.aggregate else None,
        steps=(*((route,) if route else ()), *(each.step(table.parameters) for each in table.steps)),
        emit=_emit(table, table.emit) if table.emit else None,
        announce=resolved(Announce, table.announce) if table.announce else None,
        maintenance=resolved(
            Maintenance,
            defaults.maintenance,
            table.maintenance,
            rows=RowRetention(rows.column, rows.keep) if rows else None,
        ),
    )


def _upsert(table: TableSection, upsert: UpsertSection) -> Upsert:
    key = tuple(upsert.key or (_record_key(table),))
    return Upsert(key, upsert.order_by, _is_record_key(table, key), bucketed=table.partition_by is None)


def _change_data(table: TableSection, changes: ChangeDataSection) -> ChangeData:
    key, keep = tuple(changes.key or (_record_key(table),)), changes.deletes == "keep"
    return ChangeData(
        key,
        order_by=CHANGE_POSITION if changes.order_by else None,
        deletes=not keep and _is_record_key(table, key),
        bucketed=table.partition_by is None,
        source_order=tuple(changes.order_by or ()),
        keep_deleted=keep,
    )


def _record_key(table: TableSection) -> str:
    return table.key.column if table.key else RECORD_KEY


def _is_record_key(table: TableSection, key: tuple[str, ...]) -> bool:
    """A tombstone has only its record key, so it deletes only if that is the key of the table."""
    column = _record_key(table)
    return all(each in {column, RECORD_KEY} or each.startswith(f"{column}.") for each in key)


def _deduplicate(table: TableSection, deduplicate: DeduplicateSection) -> Deduplicate:
    window = deduplicate.window
    return Deduplicate(
        key=tuple(deduplicate.key or (_record_key(table),)),
        window_ms=None if window is None else round(window * 1000),
    )


def _aggregate(aggregate: AggregateSection) -> Aggregate:
    window = aggregate.window
    return Aggregate(
        tuple(aggregate.by),
        tuple(Measure(*each) for each in aggregate.measures.items()),
        Window(window.column, round(window.size * 1000)) if window else None,
    )


def _emit(table: TableSection, emit: EmitSection) -> Emit:
    """Aggregates are keyed by their group, and only the newest row of each group is needed."""
    groups = [column_of(each) for each in table.aggregate.by] if table.aggregate else []
    groups += [WINDOW_START] if table.aggregate and table.aggregate.window else []
    return resolved(
        Emit,
        emit,
        key=tuple(groups if emit.key is None else emit.key),
        retention_ms=None if emit.retention is None else round(emit.retention * 1000),
        cleanup_policy=emit.cleanup_policy or ("compact" if table.aggregate else "delete"),
    )


def _source(section: PartSection, folder: Path) -> Source:
    return resolved(
        Source,
        section,
        prefix=section.prefix or ("confluent" if section.format == "registry" else "none"),
        schema=schema_text(folder, section.schema_) if section.schema_ else None,
    )


def _file(file: str | None, folder: Path) -> str | None:
    return str((folder / file).resolve()) if file else None


def _reference(secret: str | None, folder: Path) -> str | None:
    """A reference that is valid in any working directory."""
    if secret and secret.startswith("file:"):
        return "file:" + str((folder / secret.removeprefix("file:")).resolve())
    return secret


def _given(value: _T | None) -> _T:
    """A value whose absence was reported before."""
    if value is None:
        raise AssertionError
    return value


def _route_of(name: str, tables: Mapping[str, TableSection]) -> Route | None:
    """The route of a table, its first step; None: all records of the topic belong to the table."""
    table = tables[name]
    if table.route is None:
        return None
    routes = {
        key: each.route
        for key, each in tables.items()
        if each.route and _source_of(each) == _source_of(table)
    }
    others = _other_records(name, routes)
    named = [value for each in routes.values() for value in each.value or ()]
    return Route(
        table.route.column,
        values=table.route.value or (),
        named=() if others == "leave_out" else tuple(named),
        others=others,
    )


def _source_of(table: TableSection) -> tuple[str | None, ...]:
    """Equal for tables that read the same records."""
    return table.topic, table.value.subject, table.value.message


def _other_records(name: str, routes: Mapping[str, RouteSection]) -> Literal["leave_out", "keep", "reject"]:
    """What the table does with records that no table names: exactly one of the tables keeps or rejects them."""
    if routes[name].otherwise:
        return "keep"
    unnamed = not any(each.otherwise for each in routes.values())
    return "reject" if unnamed and name == next(iter(routes)) else "leave_out"


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
    found: list[tuple[Literal["kafka", "emit", "registry"], str | None, RotateSection | None, bool]] = []
    if auth:
        cloud = auth.type == "sasl_plain"
        found += [("kafka", auth.secret, auth.rotate, cloud), ("emit", auth.emit_secret, auth.rotate, cloud)]
    if registry:
        found.append(("registry", registry.secret, registry.rotate, True))
    for of, secret, section, cloud in found:
        if secret and section:
            retained = (section.keys_to_retain or KEYS_TO_RETAIN) if cloud else None
            yield KeyRotation(of, secret, section.after_days, section.admin_secret, retained)


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
        measures=tuple(ExportMeasure(name, *each) for name, each in section.measures.items()),
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
