"""An upsert round: the newest record of each key becomes a row, and the rows that they replace are deleted (ADR 16).

A tombstone deletes whatever was read before it. Of the other records the one with the greatest `order_by` counts, null being
the least, and of equals the one that was read last: by offset inside a partition, by timestamp between partitions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce

from pyspark.sql import Column, DataFrame, Observation, Window
from pyspark.sql import functions as F

from calve.job import Upsert
from calve.spark_conf import CATALOG
from glue_jobs.deletes import stage_deletes
from glue_jobs.events import TOMBSTONE
from glue_jobs.keys import OFFSET, PARTITION, TIMESTAMP, at, key_columns, key_names, keys_of
from glue_jobs.layout import clustered
from glue_jobs.shapes import false
from glue_jobs.staging import Staged, stage
from glue_jobs.target import Target

RESET = "calve:reset"
"""True where the batch holds a tombstone of the key: what the table has of it counts no more."""
LATEST, RANK, BEFORE = "calve:latest", "calve:rank", "calve:before"


def stage_changes(
    target: Target,
    upsert: Upsert,
    good: DataFrame,
    tasks: int,
    stage_id: str,
    gone: DataFrame | None = None,
) -> tuple[Staged, int]:
    """Write what the good records change, as files that no snapshot holds; gives the number of rows that they make, too.

    gone: keys (`keys_of`) of rows that are deleted besides.

    Raises:
        Retryable: the object store failed; nothing is committed.
        Suspended: `ledger_imbalance`: the deletes are not those that were counted.
    """
    newest = newest_of_each_key(good, upsert, tasks)
    if upsert.order_by is not None:
        newest = without_overtaken(newest, upsert.key, upsert.order_by, target)
    counted = Observation()
    changes = newest.observe(counted, F.count_if(~F.col(TOMBSTONE)).alias("rows")).persist()
    try:
        rows = changes.where(~F.col(TOMBSTONE)).drop(TOMBSTONE, RESET)
        staged = stage(
            target.lake,
            target.main,
            clustered(rows, target.main, tasks),
            stage_id,
            count_by=target.table.count_by,
        )
        keys = F.broadcast(keys_of(changes, upsert.key))
        if gone is not None:
            keys = keys_of(changes, upsert.key).union(gone).distinct()
        deletes = stage_deletes(target.lake, target.main, keys, upsert.key, stage_id)
        return replace(staged, deletes=deletes), int(counted.get["rows"])
    finally:
        changes.unpersist()


def newest_of_each_key(good: DataFrame, upsert: Upsert, tasks: int) -> DataFrame:
    """One record of each key, in `tasks` tasks: the row that it makes, or its tombstone, with `TOMBSTONE` and `RESET`."""
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


def without_overtaken(newest: DataFrame, key: Sequence[str], order_by: str, target: Target) -> DataFrame:
    """The changes but those whose key has a row of a greater order; reads the table's key and order columns.

    As the table is now: a snapshot would be read with the columns that it was written with. Another round that is published
    meanwhile makes this one lose.
    """
    held = target.lake.spark.table(target.name.quoted(CATALOG))
    kept = held.select(*key_columns(key), at(order_by).alias(BEFORE))
    same = [at(path) == F.col(name) for path, name in zip(key, key_names(key), strict=True)]
    overtaken = F.col(BEFORE).isNotNull() & (at(order_by).isNull() | (at(order_by) < F.col(BEFORE)))
    return newest.join(kept, reduce(Column.__and__, same, ~F.col(RESET) & overtaken), "left_anti")
