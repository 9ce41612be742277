"""Retention: delete the rows that are old enough. Files with only old rows are dropped, mixed files are rewritten (ADR 31)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DateType, TimestampNTZType, TimestampType

from calve.config.maintenance import Kind, after, retained
from calve.rounds.column_rules import require_age
from calve.table.protocol import Commit
from calve.table.summary import RETAINED
from glue_jobs.columns.expressions import at, kind_at
from glue_jobs.iceberg.catalog import Table
from glue_jobs.iceberg.commit_cost import CostMeter
from glue_jobs.iceberg.layout import BYTES_PER_TASK, clustered
from glue_jobs.iceberg.rewriting import CarriedCommit, overwriting, write_rest
from glue_jobs.iceberg.staging import FILE, Staged
from glue_jobs.process import faults
from glue_jobs.process.java import elements


def retain(
    upkept: CarriedCommit, kind: Kind, column: str, before: datetime, *, budget_bytes: int
) -> dict[str, int]:
    """Delete the rows whose `column` is before a time, in one commit. Files beyond the budget wait.

    Returns the number of deleted `rows` and of their `files`; `conflicts`: 1 if others changed these files; nothing was done.
    Raises Suspended: the column is not a time.
    Raises Retryable: as `CarriedCommit.commit`.
    """
    upkept.refresh()
    table, meter = upkept.table, CostMeter(upkept.table.lake)
    _note(upkept)
    nothing = {"rows": 0, "files": 0, "conflicts": 0}
    if table.head is None:
        return nothing
    start = table.java.currentSnapshot()
    every = table.rows_at(table.head)
    require_age(str(table.name), column, table.schema)
    is_old = _is_old(every, column, before)
    counted = every.select("*", FILE).where(is_old).groupBy(FILE).count().collect()
    held: dict[str, int] = {each[FILE]: each["count"] for each in counted}
    tasks = _within(held, elements(table.java.newScan().planFiles()), budget_bytes)
    if not tasks:
        return nothing
    rows = sum(held[str(each.file().location())] for each in tasks)
    left = _rest(table, tasks, held, is_old)
    faults.point("retention.staged", table.name.table)

    def update() -> Any:
        made = overwriting(table, tasks, left)
        return made.validateFromSnapshot(start.snapshotId()).validateNoConflictingDeletes()

    def also(stood: Commit) -> dict[str, str]:
        known = retained(table.ancestors(), table.properties)
        micros = int(before.timestamp()) * 1_000_000 + before.microsecond
        return {RETAINED: after(known, column, micros, rows, stood.summary).to_json()}

    cost = meter.of_work(table, left, read=len(tasks), all_read=True)
    if not upkept.commit(kind, update, cost, left, said=also):
        return nothing | {"conflicts": 1}
    faults.point("retention.committed", table.name.table)
    _note(upkept)
    return {"rows": rows, "files": len(tasks), "conflicts": 0}


def _is_old(rows: DataFrame, column: str, before: datetime) -> Column:
    limits: dict[Any, Column] = {
        TimestampType: F.lit(before),
        TimestampNTZType: F.lit(before).cast("timestamp_ntz"),
        DateType: F.lit(before.date()),  # a date is before a time if the whole day is
    }
    return at(column) < limits[type(kind_at(rows.schema, column))]


def _within(held: Mapping[str, int], tasks: Iterable[Any], budget_bytes: int) -> list[Any]:
    """The scan tasks whose files have old rows, within the budget. A file with only old rows costs nothing."""
    found: list[Any] = []
    spent = 0
    for each in tasks:
        file = each.file()
        rows = held.get(str(file.location()), 0)
        spent += 0 if rows in (0, file.recordCount()) else int(file.fileSizeInBytes())
        if rows and (not found or spent <= budget_bytes):
            found.append(each)
    return found


def _rest(table: Table, tasks: list[Any], held: Mapping[str, int], is_old: Column) -> Staged:
    mixed = [each for each in tasks if held[str(each.file().location())] < each.file().recordCount()]
    size = sum(int(each.file().fileSizeInBytes()) for each in mixed)
    is_kept = F.coalesce(~is_old, F.lit(True))  # noqa: FBT003
    return write_rest(
        table,
        mixed,
        lambda rows: clustered(rows.where(is_kept), table, -(-size // BYTES_PER_TASK)),
        gone=sum(held[str(each.file().location())] for each in mixed),
    )


def _note(upkept: CarriedCommit) -> None:
    """Copy the retention entry of the newest commits to the table's properties: commits expire, but the rows stay deleted."""
    table = upkept.table
    found = retained(table.ancestors(), table.properties)
    if found is not None and table.properties.get(RETAINED) != found.to_json():
        table.set_properties({RETAINED: found.to_json()})
        faults.point("retention.noted", table.name.table)
        table.refresh()
