"""What is known of a table from its metadata alone, for `calve.maintenance.due` to judge."""

from __future__ import annotations

import time

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from calve.columns import REJECTED_AT
from calve.maintenance import SMALL, SURPLUS_FILES, Figures, Maintenance
from calve.spark_conf import CATALOG
from glue_jobs.java import elements, strings
from glue_jobs.keys import at
from glue_jobs.lake import Lake, Table
from glue_jobs.maintaining.orphans import looked_at


def figures(lake: Lake, table: Table, letters: Table | None, maintenance: Maintenance) -> Figures:
    """Of main as of its last refresh, and of its dead letters.

    Raises:
        Retryable: the object store does not answer.
    """
    head, now = table.java.currentSnapshot(), time.time()
    if head is None:
        return Figures()
    totals = strings(lake.jvm, head.summary())
    data_files, delete_files, rows, deleted = (
        int(totals.get(f"total-{name}", 0))
        for name in ("data-files", "delete-files", "records", "position-deletes")
    )
    manifests = [int(each.length()) for each in elements(head.allManifests(table.java.io()))]
    taken = [each.timestampMillis() / 1000 for each in elements(table.java.snapshots())]
    timed, aging = maintenance.rows, maintenance.dead_letters_s is not None
    return Figures(
        data_files=data_files,
        surplus_files=_surplus(_files(lake, table), maintenance.file_bytes)
        if data_files >= SURPLUS_FILES
        else 0,
        delete_files=delete_files,
        rows=rows,
        deleted_rows=deleted,
        manifests=len(manifests),
        manifest_bytes=sum(manifests),
        snapshots=len(taken),
        oldest_snapshot_s=now - min(taken),
        oldest_row_s=_age(lake, now, table, timed.column) if timed else None,
        oldest_letter_s=_age(lake, now, letters, REJECTED_AT) if letters and aging else None,
        orphans_s=now - (looked_at(table) or min(taken)),
    )


def _files(lake: Lake, table: Table) -> DataFrame:
    """Iceberg's list of a table's data files."""
    return lake.spark.table(f"{table.name.quoted(CATALOG)}.data_files")


def _surplus(files: DataFrame, file_bytes: int) -> int:
    """How many fewer files there were if the small ones of each partition were merged (`calve.maintenance.surplus`)."""
    small = files.where(F.col("file_size_in_bytes") < SMALL * file_bytes)
    place = [name for name in ("spec_id", "partition") if name in files.columns]
    merged = F.ceil(F.sum("file_size_in_bytes") / file_bytes)
    spare = small.groupBy(*place).agg((F.count("*") - merged).alias("spare"))
    return int(spare.agg(F.coalesce(F.sum("spare"), F.lit(0))).collect()[0][0])


def _age(lake: Lake, now: float, table: Table, column: str) -> float | None:
    """The age of the oldest row, by what Iceberg knows of each file, or else by the column itself; None: no row has one."""
    known = F.col("readable_metrics")[column]["lower_bound"]
    oldest = _oldest(_files(lake, table), known)
    if oldest is None:
        oldest = _oldest(lake.spark.table(table.name.quoted(CATALOG)), at(column))
    return None if oldest is None else now - oldest


def _oldest(rows: DataFrame, moment: Column) -> float | None:
    found: float | None = rows.agg(F.min(moment).cast("timestamp").cast("double")).collect()[0][0]
    return found
