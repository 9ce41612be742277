"""How rows are laid out in files: by the table's partition spec and sort order. calve clusters rows, Iceberg does not.

Iceberg's range distribution makes Spark sample its input. That reads Kafka twice and doubles every count
(`glue_jobs.table.counts`). Hash clustering by partition, with a sort inside each task, gives the same files without sampling.
"""

from __future__ import annotations

import re
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from calve.config.spark_conf import CATALOG
from calve.names import quote_path
from glue_jobs.iceberg.catalog import Table
from glue_jobs.process.java import elements

BYTES_PER_TASK = 32_000_000
SMALL_BYTES = 4_000_000
FUNCTIONS = {"year": "years", "month": "months", "day": "days", "hour": "hours"}
PARAMETRIC = re.compile(r"(bucket|truncate)\[(\d+)\]")


def tasks_for(size_bytes: float, cores: int, partitions: int) -> int:
    """The number of tasks, and so of files per table partition, for a round of this size; one for a small round."""
    if size_bytes < SMALL_BYTES:
        return 1
    return max(1, min(partitions, max(cores, int(size_bytes // BYTES_PER_TASK))))


def clustered(rows: DataFrame, table: Table, tasks: int) -> DataFrame:
    """The same rows in at most `tasks` tasks, each sorted by the table's partitions and sort order, if it has them."""
    partition = _partition_columns(table)
    order = partition + sort_columns(table)
    if not order:
        return rows.coalesce(tasks)
    spread = rows.repartition(tasks, *partition) if partition else rows.coalesce(tasks)
    return spread.sortWithinPartitions(*order)


def _partition_columns(table: Table) -> list[Column]:
    spec, schema = table.java.spec(), table.java.schema()
    return [_column(schema, f) for f in elements(spec.fields()) if str(f.transform().toString()) != "void"]


def sort_columns(table: Table) -> list[Column]:
    order, schema = table.java.sortOrder(), table.java.schema()
    found = []
    for each in elements(order.fields()):
        column = _column(schema, each)
        nulls_first = str(each.nullOrder().toString()) == "NULLS FIRST"
        if str(each.direction().toString()) == "ASC":
            found.append(column.asc_nulls_first() if nulls_first else column.asc_nulls_last())
        else:
            found.append(column.desc_nulls_first() if nulls_first else column.desc_nulls_last())
    return found


def _column(schema: Any, field: Any) -> Column:
    """The value of a partition or sort field, computed by Iceberg's functions."""
    path = str(schema.findColumnName(field.sourceId()))
    column = quote_path(path)
    transform = str(field.transform().toString())
    if transform == "identity":
        return F.expr(column)
    if match := PARAMETRIC.fullmatch(transform):
        return F.expr(f"{CATALOG}.system.{match[1]}({match[2]}, {column})")
    return F.expr(f"{CATALOG}.system.{FUNCTIONS[transform]}({column})")
