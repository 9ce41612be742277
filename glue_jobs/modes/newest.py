"""The newest record of each key, by Spark: among all rows of a table that changes its mode, or by an `order_by` of text (ADR 16).

A tombstone deletes every record of its key read before it. Of the others, the greatest `order_by` wins; null is least.
Among equals the last one read wins: by offset in a partition, by timestamp between partitions.
"""

from __future__ import annotations

from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from calve.modes.mode import Mode
from glue_jobs.columns.expressions import OFFSET, PARTITION, TIMESTAMP, at, false, key_columns, key_names
from glue_jobs.columns.helpers import TOMBSTONE
from glue_jobs.table.open_table import OpenTable

RESET = "calve:reset"
"""True if the batch holds a tombstone of the key: the table's row of the key is ignored."""
LATEST, RANK, BEFORE = "calve:latest", "calve:rank", "calve:before"


def newest_of_each_key(good: DataFrame, upsert: Mode, tasks: int) -> DataFrame:
    """One record per key, in `tasks` tasks: its row or tombstone, with `TOMBSTONE` and `RESET`."""
    if TOMBSTONE not in good.columns:
        good = good.withColumn(TOMBSTONE, false())
    key = [at(path) for path in upsert.key]
    here = Window.partitionBy(*key, at(PARTITION))
    latest = F.max(F.when(F.col(TOMBSTONE), at(OFFSET))).over(here)
    order = [] if upsert.order_by is None else [at(upsert.order_by).desc_nulls_last()]
    in_partition = here.orderBy(F.col(TOMBSTONE), *order, at(OFFSET).desc())
    in_all = Window.partitionBy(*key).orderBy(*order, at(TIMESTAMP).desc(), at(PARTITION).desc())
    return (
        good.repartition(tasks, *key)
        .withColumn(LATEST, latest)
        .where(F.col(LATEST).isNull() | (at(OFFSET) >= F.col(LATEST)))
        .withColumn(RANK, F.row_number().over(in_partition))
        .where(F.col(RANK) == 1)
        .withColumn(RESET, F.max(F.col(LATEST).isNotNull()).over(Window.partitionBy(*key)))
        .withColumn(RANK, F.row_number().over(in_all))
        .where(F.col(RANK) == 1)
        .drop(LATEST, RANK)
    )


def without_overtaken(newest: DataFrame, table: OpenTable) -> DataFrame:
    """The changes, without those whose key has a row of a greater order. Reads the table's key and order columns.

    Reads the current table: a fixed snapshot would have the columns of its time. If another round commits meanwhile, this one
    is refused.
    """
    key, order_by = table.mode.key, table.mode.order_by
    if order_by is None:
        return newest
    kept = table.rows.select(*key_columns(key), at(order_by).alias(BEFORE))
    same = [at(path) == F.col(name) for path, name in zip(key, key_names(key), strict=True)]
    overtaken = F.col(BEFORE).isNotNull() & (at(order_by).isNull() | (at(order_by) < F.col(BEFORE)))
    return newest.join(kept, reduce(Column.__and__, same, ~F.col(RESET) & overtaken), "left_anti").drop(RESET)
