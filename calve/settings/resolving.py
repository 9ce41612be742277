"""Turns a validated calve.yaml into jobs and a deployment: adds defaults, and what other sections decide."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

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
from calve.config.engine_choice import MODES
from calve.config.job import (
    AnyRegistry,
    Catalog,
    Entry,
    GlueRegistry,
    Job,
    Kafka,
    Lake,
    Registry,
    RestCatalog,
    S3Tables,
    Share,
    Source,
    Table,
    part_name,
    part_of,
)
from calve.config.publishing import Delta, Emit, Export, OpenLineage, Publish
from calve.config.publishing import Measure as ExportMeasure
from calve.config.steps import Route
from calve.config.topics import name_pattern
from calve.modes.aggregate import WINDOW_START, Aggregate, Measure, Window, column_of
from calve.modes.history import History
from calve.modes.upsert import ChangeData, Deduplicate, Upsert
from calve.names import RECORD_KEY, SYSTEM_COLUMN, TableName
from calve.schema.columns import CHANGE, Transform
from calve.schema.documents import AS_TEXT
from calve.schema.inference import Infer
from calve.settings.document import schema_text
from calve.settings.entries.deploy import KEYS_TO_RETAIN, UNSCALED, JobSection, RotateSection
from calve.settings.entries.sources import PartSection, SourceSection
from calve.settings.entries.tables import TableSection
from calve.settings.fields import resolved
from calve.settings.model import CatalogSection, Configuration
from calve.settings.schedules import CONTINUOUS

ARRIVAL_TIME = f"{SYSTEM_COLUMN}.timestamp"
CHANGE_POSITION = f"{CHANGE['name']}.position"


@dataclass(frozen=True, slots=True)
class StackDefaults:
    """Values of the running stack for what calve.yaml omits.

    `kafka` and `registry` replace absent sections. `warehouse` (an S3 URI without a trailing slash, `{name}` in it is the
    deployment's) replaces `lake.bucket`; `endpoint` belongs to it and is not used with a bucket of calve.yaml.
    """

    kafka: Kafka | None = None
    registry: AnyRegistry | None = None
    warehouse: str | None = None
    region: str | None = None
    endpoint: str | None = None


def resolved_jobs(checked: Configuration, name: str, stack: StackDefaults, folder: Path) -> Iterator[Job]:
    """The job of an entry of `jobs`, or with `count` its parts. A part without tables is no job."""
    whole, section = _whole_job(checked, name, stack, folder), (checked.jobs or {}).get(name)
    if section is None or section.count == 1:
        yield whole
        return
    parts = [part_of(each.topic, section.count) for each in whole.tables]
    for part in range(1, section.count + 1):
        tables = tuple(table for table, its in zip(whole.tables, parts, strict=True) if its == part)
        if tables or whole.patterns:
            share = Share(name, part, section.count)
            yield replace(whole, job=part_name(name, part), tables=tables, share=share)


def _whole_job(checked: Configuration, name: str, stack: StackDefaults, folder: Path) -> Job:
    only = len(checked.jobs or {}) <= 1
    own = {key: table for key, table in checked.tables.items() if only or table.job == name}
    tables = [_table(key, table, checked, folder) for key, table in own.items()]
    patterns = tuple(each for each in tables if own[each.name].topics)
    entries = (
        Entry(key, table.source, table.topics is not None, table.emit.topic if table.emit else None)
        for key, table in checked.tables.items()
    )
    lake = _lake(checked, stack)
    return Job(
        name=checked.name,
        job=name,
        kafka=_kafka(checked, stack),
        registry=_registry(checked, stack, lake),
        lake=lake,
        tables=tuple(each for each in tables if own[each.name].topic),
        masking=checked.masking.secret if checked.masking else None,
        patterns=patterns,
        entries=tuple(entries) if patterns else (),
    )


def _kafka(checked: Configuration, stack: StackDefaults) -> Kafka:
    if checked.kafka is None:
        assert stack.kafka is not None  # noqa: S101 its absence was reported before
        return stack.kafka
    auth = checked.kafka.authentication
    return resolved(
        Kafka,
        auth,
        bootstrap_servers=checked.kafka.bootstrap_servers or UNKNOWN_SERVERS,
        auth=auth.type,
        mechanism=(auth.mechanism or "SCRAM-SHA-512") if auth.type == "sasl_scram" else None,
        tls=auth.encrypted,
    )


def _registry(checked: Configuration, stack: StackDefaults, lake: Lake) -> AnyRegistry | None:
    registry = checked.registry
    if registry is None:
        return stack.registry
    if registry.type == "glue":
        return resolved(GlueRegistry, registry, region=registry.region or lake.region)
    return resolved(Registry, registry)


def _lake(checked: Configuration, stack: StackDefaults) -> Lake:
    lake = checked.lake
    supplied = stack.warehouse and stack.warehouse.replace("{name}", checked.name)
    warehouse = f"s3://{lake.bucket}" if lake.bucket else supplied
    catalog = _catalog(lake.catalog)
    own = catalog.region if isinstance(catalog, S3Tables) else None
    return resolved(
        Lake,
        lake,
        catalog=catalog,
        database=lake.database or checked.name.replace("-", "_"),
        warehouse=f"{warehouse}/{lake.prefix}" if lake.prefix else warehouse,
        region=lake.region or own or stack.region or "us-east-1",
        endpoint=None if lake.bucket else stack.endpoint,
        names_key=bool(lake.bucket and lake.kms_key),
    )


def _catalog(section: CatalogSection) -> Catalog | None:
    if section.type == "glue":
        return None
    if section.type == "rest":
        return resolved(RestCatalog, section)
    assert section.table_bucket is not None  # noqa: S101 its absence was reported before
    _, partition, _, region, *_ = section.table_bucket.split(":")
    suffix = "amazonaws.com.cn" if partition == "aws-cn" else "amazonaws.com"
    return S3Tables(section.table_bucket, f"https://s3tables.{region}.{suffix}/iceberg", region)


def _table(name: str, table: TableSection, checked: Configuration, folder: Path) -> Table:
    by_key = table.upsert or table.change_data or table.history or table.aggregate
    partition_by = table.partition_by
    if partition_by is None:
        partition_by = [] if by_key or not table.event_time else [Transform(table.event_time, "day")]
    route = _route_of(name, checked.tables)
    found = resolved(
        Table,
        checked.defaults,
        table,
        name=name,
        topic=table.source,
        partition_by=tuple(partition_by),
        value=_source(table.value, folder),
        key=_source(table.key, folder) if table.key else None,
        **dict.fromkeys(MODES) | _mode(table),
        steps=(
            *((route,) if route else ()),
            *(each.step(table.parameters) for each in table.steps),
            *(each.step(table.parameters) for each in table.expect),
        ),
        emit=_emit(table),
    )
    publish = checked.publish
    by_name = publish is not None and publish.delta is not None
    lineage = publish is not None and publish.openlineage is not None
    return replace(found, lineage=lineage, maintenance=replace(found.maintenance, one_name=by_name))


def _mode(table: TableSection) -> dict[str, Any]:
    """The value of the table's mode, by the mode's name; empty: every record is a row."""
    record_key = table.key.column if table.key else RECORD_KEY
    bucketed = table.partition_by is None

    def is_record_key(key: Sequence[str]) -> bool:
        """A tombstone has only its record key, so it deletes only if that is the key of the table."""
        return all(each in {record_key, RECORD_KEY} or each.startswith(f"{record_key}.") for each in key)

    if upsert := table.upsert:
        key = tuple(upsert.key or (record_key,))
        return {"upsert": Upsert(key, upsert.order_by, is_record_key(key), bucketed)}
    if changes := table.change_data:
        key, keep = tuple(changes.key or (record_key,)), changes.deletes == "keep"
        order_by = CHANGE_POSITION if changes.order_by else None
        deletes = not keep and is_record_key(key)
        return {
            "change_data": ChangeData(key, order_by, deletes, bucketed, tuple(changes.order_by or ()), keep)
        }
    if history := table.history:
        key, of_changes = tuple(history.key or (record_key,)), history.of == "change_data"
        deletes = not of_changes and is_record_key(key)
        return {"history": History(key, history.order_by, deletes, of_changes, bucketed)}
    if table.deduplicate:
        key = tuple(table.deduplicate.key or (record_key,))
        return {"deduplicate": Deduplicate(key, table.deduplicate.window)}
    if totals := table.aggregate:
        measures = tuple(Measure(*each) for each in totals.measures.items())
        window = resolved(Window, totals.window) if totals.window else None
        return {"aggregate": Aggregate(tuple(totals.by), measures, window)}
    return {}


def _emit(table: TableSection) -> Emit | None:
    """The newest row of each key is all that is needed of a table that replaces rows: its key is that of the records."""
    emit, keyed = table.emit, table.upsert or table.change_data
    if emit is None:
        return None
    own = [column_of(each) for each in table.aggregate.by] if table.aggregate else []
    own += [WINDOW_START] if table.aggregate and table.aggregate.window else []
    if keyed and keyed.key != [RECORD_KEY]:
        own = keyed.key or ([table.key.column] if table.key else [])
    return resolved(
        Emit,
        emit,
        key=tuple(own if emit.key is None else emit.key),
        cleanup_policy=emit.cleanup_policy or ("compact" if table.aggregate or keyed else "delete"),
    )


def _source(section: PartSection, folder: Path) -> Source:
    document = section.document if isinstance(section, SourceSection) else None
    if isinstance(section, SourceSection) and section.infers:
        infer = resolved(Infer, section.infer)
        return resolved(Source, section, prefix="none", schema=None, rest=section.rest_column, infer=infer)
    if document is not None and document != AS_TEXT:
        document = schema_text(folder, document)
    return resolved(
        Source,
        section,
        prefix=section.prefix or ("confluent" if section.format == "registry" else "none"),
        schema=schema_text(folder, section.schema_) if section.schema_ else None,
        document=document,
    )


def _route_of(name: str, tables: Mapping[str, TableSection]) -> Route | None:
    """The first step of a routed table. Exactly one of the tables of the same records keeps or rejects those of no table."""
    table = tables[name]
    if table.route is None:
        return None
    read = table.topic, table.value.subject, table.value.message
    routes = {
        key: each.route
        for key, each in tables.items()
        if each.route and (each.topic, each.value.subject, each.value.message) == read
    }
    others: Literal["leave_out", "keep", "reject"] = "leave_out"
    if table.route.otherwise:
        others = "keep"
    elif name == next(iter(routes)) and not any(each.otherwise for each in routes.values()):
        others = "reject"
    named = [value for each in routes.values() for value in each.value or ()]
    return Route(
        table.route.column,
        values=table.route.value or (),
        named=() if others == "leave_out" else tuple(named),
        others=others,
    )


def deployment(checked: Configuration, jobs: Sequence[Job]) -> Deployment:
    """All that a deploy needs; `jobs`: the resolved ones."""
    lake, kafka, sections = jobs[0].lake, checked.kafka, checked.jobs or {}
    msk = kafka.msk if kafka else None
    return Deployment(
        name=checked.name,
        jobs=tuple(_job(job, sections.get(job.of) or JobSection()) for job in jobs),
        lake=resolved(LakeDeployment, checked.lake, database=lake.database, catalog=lake.catalog),
        msk=Msk(msk.cluster) if msk else None,
        network=resolved(Network, checked.network) if checked.network or (msk and msk.create) else None,
        exports=tuple(_export(checked, name, lake) for name in checked.exports),
        alerts=resolved(Alerts, checked.alerts),
        publish=_publish(checked, jobs),
        region=checked.lake.region or (lake.region if lake.service == "s3tables" else None),
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
    least, most = section.workers.min, section.workers.max
    if most is None:
        most = least if section.worker == UNSCALED else max(least, Workers().max)
    schedule = None if section.run == CONTINUOUS else section.run
    return resolved(JobDeployment, section, settings=job, workers=Workers(least, most), schedule=schedule)


def _export(checked: Configuration, name: str, lake: Lake) -> Export:
    section = checked.exports[name]
    return resolved(
        Export,
        section,
        section.link,
        name=name,
        database="" if lake.namespace == "cluster_id" else lake.database,
        channel=section.channel or ("ses" if section.sender else "sns"),
        time_column=section.time_column or checked.tables[section.table].event_time or ARRIVAL_TIME,
        measures=tuple(ExportMeasure(name, *each) for name, each in section.measures.items()),
    )


def _publish(checked: Configuration, jobs: Sequence[Job]) -> Publish | None:
    section = checked.publish
    if section is None:
        return None
    snowflake, iceberg_rest, lineage = section.snowflake, section.iceberg_rest, section.openlineage
    return Publish(
        tables=tuple(TableName(job.lake.database, table.name) for job in jobs for table in job.tables),
        patterns=tuple(name_pattern(table.name) for job in jobs for table in job.patterns),
        snowflake=snowflake.resolved(checked.name, jobs[0].lake.database) if snowflake else None,
        iceberg_rest=iceberg_rest.resolved() if iceberg_rest else None,
        delta=Delta() if section.delta else None,
        openlineage=resolved(OpenLineage, lineage, namespace=lineage.namespace or checked.name)
        if lineage
        else None,
    )
