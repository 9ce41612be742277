"""Problems that keep the jobs and exports of calve.yaml from working, by the job's own rules, each with its place in the file."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from pyiceberg.schema import Schema

from calve.config.deployment import JobDeployment, LakeDeployment
from calve.config.job import Job, Table
from calve.config.publishing import Export
from calve.config.steps import masked_columns
from calve.errors import CalveError, Retryable, Suspended, topic_missing
from calve.modes.aggregate import Aggregate, columns_of, require_same_columns
from calve.rounds import column_rules as rules
from calve.schema.columns import KAFKA, Json, Transform, struct, with_ids
from calve.schema.evolution import apply, column_at, data_columns
from calve.settings.problems import Problem
from calve.table.summary import kind_of
from cli.project.plan.change import Change
from cli.project.plan.deployed import DeployedTable
from cli.project.plan.survey import Foreseen, Read, Records, Survey
from lambdas.csv_export.aggregate import columns_written
from lambdas.csv_export.scan import column_of, filter_of, in_window
from lambdas.csv_export.window import ExportFailed, previous

At = tuple[str, ...]


def topic_problems(jobs: Iterable[Job], listed: Collection[str]) -> Iterator[Problem]:
    for job in jobs:
        for table in job.tables:
            if table.pattern is None and table.topic not in listed:
                missing = topic_missing(table.topic, job.kafka.bootstrap_servers)
                yield Problem(("tables", table.name, "topic"), missing.message, missing.fix)


def topic_warnings(jobs: Iterable[Job], listed: Collection[str]) -> Iterator[Problem]:
    found = {table.pattern for job in jobs for table in job.tables if table.topic in listed}
    for entry in {each.name: each for job in jobs for each in job.patterns}.values():
        if entry.name not in found:
            reason = f"no topic matches {entry.topic}, except topics of other entries"
            fix = "correct the expression, or create the topic: the job finds it while it runs"
            yield Problem(("tables", entry.name, "topics"), reason, fix)


def rights_warnings(lake: LakeDeployment) -> Iterator[Problem]:
    """A database that is named after the cluster is not known when the job gets its rights."""
    if lake.namespace == "cluster_id" and not lake.cluster_ids:
        reason = "the job may write every Glue table of the account"
        fix = "add `lake: {cluster_ids: [ID]}` with the id of each cluster of yours"
        yield Problem(("lake", "namespace"), reason, fix)


INDEX_BYTES, ORDER_BYTES = 48, 8
"""Bytes of the index for a key, while its runs are merged, and for its `order_by` (docs/limits.md)."""
FREE_GB = {"1X": 44, "2X": 78, "4X": 230, "8X": 485, "12X": 741}
"""The free disk of a Glue worker (https://docs.aws.amazon.com/glue/latest/dg/worker-types.html)."""


def index_warnings(jobs: Iterable[JobDeployment], held: Mapping[str, int]) -> Iterator[Problem]:
    """Tables by key whose index may not fit the disk of a worker. held: the records of their topics."""
    for job in jobs:
        free_gb = FREE_GB.get(job.worker.partition(".")[2])
        for table in job.settings.tables:
            mode, records = table.mode, held.get(table.name, 0)
            needed_gb = records * (INDEX_BYTES + ORDER_BYTES * (mode.order_by is not None)) / 1e9
            if mode.key and mode.window_ms is None and free_gb is not None and needed_gb > free_gb:
                reason = (
                    f"{table.name}: its topic holds {records:,} records. With as many keys the index needs up to"
                    f" {needed_gb:,.0f} GB of the driver's disk, and {job.worker} has {free_gb} GB"
                )
                fix = f"set a larger `worker` for job {job.settings.job}, or go on if there are fewer keys"
                yield Problem(("tables", table.pattern or table.name, mode.kind), reason, fix)


def schema_warnings(records: Records) -> Iterator[Problem]:
    for name, each in records.items():
        if isinstance(each, Read) and each.misfit:
            reason = f"{name}: records of the newest version are dead letters: {each.misfit}"
            fix = "register a version that fits, or name another table"
            yield Problem(("tables", each.table.pattern or name, "value"), reason, fix)


def problems(surveyed: Survey, deployed: Mapping[str, DeployedTable]) -> Iterator[Problem]:
    """The problems of the tables with known records, and of their exports."""
    deployment = surveyed.deployment
    for job in deployment.jobs:
        for table in job.settings.tables:
            if (read := surveyed.records.get(table.name)) is None:
                continue
            engine = surveyed.engines.get(table.name)
            found: list[CalveError] = [engine] if isinstance(engine, Suspended) else []
            columns = _columns(table, read, surveyed.made.get(table.name), deployed.get(table.name), found)
            if columns is not None:
                found += _of_columns(table, columns, read)
            if surveyed.listed is not None and table.topic not in surveyed.listed:  # a problem of its own
                found = [each for each in found if not isinstance(each, Retryable)]
            yield from (_problem(table, each) for each in found)
            for export in deployment.exports:
                if columns is not None and export.table == table.name and table.pattern is None:
                    yield from _of_export(export, columns, table.event_time)


def consequences(changes: Iterable[Change], entries: Mapping[str, str]) -> Iterator[Problem]:
    """Changes for which the job would suspend an existing table. entries: of tables by their names."""
    for change in changes:
        for each in change.consequences:
            if each.at is not None:
                name = entries.get(change.name, change.name)
                yield Problem(
                    (change.section, name, *each.at), f"{change.name}: {each.text}", "take the change back"
                )


def _columns(
    table: Table,
    read: Read | CalveError,
    made: Foreseen | None,
    held: DeployedTable | None,
    found: list[CalveError],
) -> Json | None:
    """The columns that the table will have; None: unknown, for the problem that is added to `found`."""
    data = read if isinstance(read, CalveError) else made.columns if made else read.columns
    try:
        if isinstance(data, CalveError):
            raise data
        if table.aggregate:
            found += (wrong := list(_of_measures(data, table.aggregate)))
            if wrong:
                return None
            if held and kind_of(held.mode) == "aggregate":
                require_same_columns(table.name, held.columns, data, table.aggregate)
            data = columns_of(data, table.aggregate)
        elif table.steps and held:
            there = data_columns(held.columns)
            data = apply(there, rules.step_changes(table.name, there, data))
    except CalveError as problem:
        found.append(problem)
        return None
    return struct(*data["fields"], KAFKA)


def _of_measures(records: Json, aggregate: Aggregate) -> Iterator[CalveError]:
    try:
        columns_of(records, replace(aggregate, measures=()))
    except Suspended as problem:
        yield problem
        return
    for each in aggregate.measures:
        yield from _refused(columns_of, records, replace(aggregate, measures=(each,)))


def _of_columns(table: Table, columns: Json, read: Read | CalveError) -> Iterator[CalveError]:
    """Columns that calve.yaml names and that do not exist or do not fit."""
    name, by_day = table.name, Transform(table.event_time, "day") if table.event_time else None
    problem = rules.transform_problem(name, by_day, columns, ("event_time",)) if by_day else None
    if problem:
        yield problem
        table = replace(table, partition_by=tuple(each for each in table.partition_by if each != by_day))
    yield from rules.layout_problems(table, name, columns)
    emit, column, rows = table.emit, table.count_by, table.maintenance.rows
    yield from _refused(table.mode.resolve, columns)
    if emit:
        yield from _refused(rules.require_emit_key, emit, columns)
    if emit and emit.schema_id == "header" and isinstance(read, Read) and table.value.registered:
        yield from _refused(rules.require_guid, read.versions.values[-1])
    if rows:
        yield from _refused(rules.require_age, name, rows.column, columns)
    if column and isinstance(read, Read):
        personal = masked_columns(table.steps, read.parts.tags(read.columns, read.versions))
        yield from _refused(rules.require_countable, name, column, columns, personal)


def _refused(check: Callable[..., object], *of: object) -> Iterator[CalveError]:
    try:
        check(*of)
    except (Suspended, ExportFailed) as problem:
        yield problem


def _problem(table: Table, error: CalveError) -> Problem:
    at = error.at if isinstance(error, Suspended) else ()
    if not at:
        code = error.code if isinstance(error, Suspended) else None
        at = (table.mode.kind, "key") if code == "key_unusable" and table.mode.key else ("value",)
    reason = error.message if table.pattern is None else f"{table.name}: {error.message}"
    return Problem(("tables", table.pattern or table.name, *at), reason, error.fix)


def _of_export(export: Export, columns: Json, event_time: str | None) -> Iterator[Problem]:
    """Columns that the export names and a table of these columns does not have, by the exporting function's rules."""
    schema = Schema.model_validate_json(json.dumps(with_ids(columns) | {"schema-id": 0}))
    period = previous(export.window, datetime.now(UTC), ZoneInfo(export.time_zone))
    named: list[tuple[At, str]] = [
        ((key, str(number)), name)
        for key in ("columns", "group_by")
        for number, name in enumerate(getattr(export, key))
    ]
    named += [(("measures", each.name), each.column) for each in export.measures if each.column]
    found = [(at, failed) for at, name in named for failed in _refused(column_of, schema, export, name)]
    found += [(("time_column",), failed) for failed in _refused(in_window, schema, export, period)]
    if export.filter:
        found += [(("filter",), failed) for failed in _refused(filter_of, schema, export.filter)]
    if not found and export.measures:
        read = tuple(column_of(schema, export, name) for _, name in named)
        found = [(("measures",), failed) for failed in _refused(columns_written, export, read)]
    inherited = export.time_column == event_time and column_at(columns, event_time) is None
    for at, failed in found:
        if not (inherited and at == ("time_column",)):  # a problem of the table
            yield Problem(("exports", export.name, *at), failed.message, failed.fix)
