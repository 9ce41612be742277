"""How rows are laid out in files: by the table's partition spec and sort order. calve clusters rows, Iceberg does not.

Iceberg's range distribution makes Spark sample its input. That reads Kafka twice and doubles every count
(`glue_jobs.table.counts`). Hash clustering by partition, with a sort inside each task, gives the same files without sampling.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from calve.config.spark_conf import CATALOG
from calve.names import quote_path
from calve.schema.columns import Transform
from glue_jobs.iceberg.catalog import Table
from glue_jobs.process.java import elements

BYTES_PER_TASK = 32_000_000
SMALL_BYTES = 4_000_000
FUNCTIONS = {"year": "years", "month": "months", "day": "days", "hour": "hours"}


def tasks_for(size_bytes: float, cores: int, partitions: int) -> int:
    """The number of tasks, and so of files per table partition, for a round of this size; one for a small round."""
    if size_bytes < SMALL_BYTES:
        return 1
    return max(1, min(partitions, max(cores, int(size_bytes // BYTES_PER_TASK))))


def clustered(rows: DataFrame, table: Table, tasks: int) -> DataFrame:
    """The same rows in at most `tasks` tasks, each sorted by the table's partitions and sort order, if it has them."""
    partition = [_column(each) for each in partition_of(table)]
    order = partition + sort_columns(table)
    if not order:
        return rows.coalesce(tasks)
    spread = rows.repartition(tasks, *partition) if partition else rows.coalesce(tasks)
    return spread.sortWithinPartitions(*order)


def sort_columns(table: Table) -> list[Column]:
    order, schema = table.java.sortOrder(), table.java.schema()
    found = []
    for each in elements(order.fields()):
        column = _column(transform_of(schema, each))
        nulls_first = str(each.nullOrder().toString()) == "NULLS FIRST"
        if str(each.direction().toString()) == "ASC":
            found.append(column.asc_nulls_first() if nulls_first else column.asc_nulls_last())
        else:
            found.append(column.desc_nulls_first() if nulls_first else column.desc_nulls_last())
    return found


def partition_of(table: Table) -> tuple[Transform, ...]:
    """The partition fields that new files have. Iceberg keeps a removed field of format 1 as `void`."""
    fields = elements(table.java.spec().fields())
    used = (each for each in fields if str(each.transform().toString()) != "void")
    return tuple(transform_of(table.java.schema(), each) for each in used)


def transform_of(schema: Any, field: Any) -> Transform:
    """The transform of a partition or sort field, in ascending order."""
    name, _, argument = str(field.transform().toString()).removesuffix("]").partition("[")
    return Transform(str(schema.findColumnName(field.sourceId())), name, int(argument) if argument else None)  # type: ignore[arg-type]


def _column(field: Transform) -> Column:
    column = quote_path(field.column)
    if field.name == "identity":
        return F.expr(column)
    arguments = column if field.argument is None else f"{field.argument}, {column}"
    return F.expr(f"{CATALOG}.system.{FUNCTIONS.get(field.name, field.name)}({arguments})")
