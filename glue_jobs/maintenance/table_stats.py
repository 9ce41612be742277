"""The tables of a job, and their statistics from metadata, for `calve.config.maintenance.due`.

Uses neither Kafka nor a registry.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from calve.config import job
from calve.config.maintenance import SMALL, SURPLUS_FILES, Figures, Maintenance
from calve.config.spark_conf import CATALOG
from calve.config.topics import expand, name_pattern
from calve.names import DEAD_LETTERS_SUFFIX, TableName
from calve.schema.columns import REJECTED_AT
from calve.table.summary import INITIALISED, RENAMED, TOPIC
from glue_jobs.columns.expressions import at
from glue_jobs.iceberg.catalog import Lake, Table
from glue_jobs.iceberg.purge import looked_at
from glue_jobs.process.java import elements


def tables_of(settings: job.Job, catalog: Lake) -> Iterator[tuple[job.Table, Table]]:
    """Tables of calve.yaml that calve has created, including those of patterns. Raises Retryable: the catalog does not answer."""
    # With `namespace: cluster_id`, all databases of the deployment may hold tables of the job.
    per_cluster = settings.lake.namespace == "cluster_id"
    for database in catalog.databases() if per_cluster else [settings.database()]:
        declared = {
            each.name: each for each in (*settings.tables, *_of_patterns(settings, catalog, database))
        }
        for name, table in declared.items():
            found = catalog.load(TableName(database, name))
            if found is not None and INITIALISED in found.properties:
                yield table, found


def _of_patterns(settings: job.Job, catalog: Lake, database: str) -> Iterable[job.Table]:
    """The tables of the job's patterns, by the topic that each table was created for."""
    patterns = [re.compile(name_pattern(each.name)) for each in settings.patterns]
    topics: dict[str, str] = {}
    for name in catalog.tables(database) if patterns else ():
        if not name.endswith(DEAD_LETTERS_SUFFIX) and any(each.fullmatch(name) for each in patterns):
            found = catalog.load(TableName(database, name))
            if found is not None and TOPIC in found.properties:
                topics[name] = found.properties[TOPIC]
    made = expand(settings, topics.values(), topics.get).tables
    return (each for each in made if topics.get(each.name) == each.topic)


def figures(table: Table, dead_letters: Table | None, maintenance: Maintenance) -> Figures:
    """The statistics of main as of its last refresh, and of its dead letters.

    Raises Retryable: the object store does not answer.
    """
    head, now = table.java.currentSnapshot(), time.time()
    if head is None:
        return Figures()
    names = ("data-files", "delete-files", "records", "position-deletes")
    data_files, delete_files, rows, deleted = map(table.total, names)
    manifests = [int(each.length()) for each in elements(head.allManifests(table.java.io()))]
    taken = [each.timestampMillis() / 1000 for each in elements(table.java.snapshots())]
    timed, aging = maintenance.rows, maintenance.dead_letters_s is not None
    return Figures(
        data_files=data_files,
        surplus_files=_surplus(table, maintenance.file_bytes) if data_files >= SURPLUS_FILES else 0,
        renamed_files=renamed_files(table) if maintenance.one_name else 0,
        delete_files=delete_files,
        rows=rows,
        deleted_rows=deleted,
        manifests=len(manifests),
        manifest_bytes=sum(manifests),
        snapshots=len(taken),
        oldest_snapshot_s=now - min(taken),
        oldest_row_s=_age(now, table, timed.column) if timed else None,
        oldest_dead_letter_s=_age(now, dead_letters, REJECTED_AT) if dead_letters and aging else None,
        orphans_s=None if table.lake.is_managed else now - (looked_at(table) or min(taken)),
    )


def _files(table: Table) -> DataFrame:
    return table.lake.spark.table(f"{table.name.quoted(CATALOG)}.data_files")


def _surplus(table: Table, file_bytes: int) -> int:
    """How many files fewer there would be if each partition's small ones were merged (`calve.config.maintenance.surplus`)."""
    files = _files(table)
    small = files.where(F.col("file_size_in_bytes") < SMALL * file_bytes)
    place = [name for name in ("spec_id", "partition") if name in files.columns]
    merged = F.ceil(F.sum("file_size_in_bytes") / file_bytes)
    spare = small.groupBy(*place).agg((F.count("*") - merged).alias("spare"))
    return int(spare.agg(F.coalesce(F.sum("spare"), F.lit(0))).collect()[0][0])


def renamed_files(table: Table) -> int:
    """The number of data files from before a column was renamed."""
    until = table.properties.get(RENAMED)
    if until is None:
        return 0
    entries = table.lake.spark.table(f"{table.name.quoted(CATALOG)}.entries")
    live = (F.col("status") < 2) & (F.col("data_file.content") == 0)
    return entries.where(live & (F.col("file_sequence_number") <= int(until))).count()


def _age(now: float, table: Table, column: str) -> float | None:
    """The age of the oldest row, by Iceberg's file bounds or else by the column; None if no row has a value."""
    known = F.col("readable_metrics")[column]["lower_bound"]
    for rows, moment in ((_files(table), known), (table.rows, at(column))):
        found = rows.agg(F.min(moment).cast("timestamp").cast("double")).collect()[0][0]
        if found is not None:
            return now - float(found)
    return None
