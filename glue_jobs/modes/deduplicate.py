"""A round of a deduplicate table: the first record of each key becomes a row, unless the table has one (ADR 17).

First means read first: within a partition by offset, between partitions of one round by timestamp.
With a window, a record is a duplicate only of rows whose timestamps are less than the window away, before or after it.
"""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import Column, DataFrame, Observation, Window
from pyspark.sql import functions as F

from calve.modes.deduplicate import Deduplicate
from calve.names import SYSTEM_COLUMN, quote
from glue_jobs.columns.expressions import OFFSET, PARTITION, TIMESTAMP, at, key_columns, key_names, keys_of
from glue_jobs.engines.batch import Batch
from glue_jobs.iceberg.staging import Staged
from glue_jobs.table.counts import Counts, counted_records, observe_records, with_counted_rows
from glue_jobs.table.open_table import OpenTable
from glue_jobs.table.records import rows

RANK, PLACES, ROWS, HELD = "calve:rank", "calve:places", "calve:rows", "calve:held"
KEPT = "array<struct<at: bigint, partition: int, offset: bigint>>"
"""Rows of a key: timestamp in ms since epoch. Only rows of this batch have a partition and offset."""


def stage_firsts(mode: Deduplicate, batch: Batch, stage_id: str) -> tuple[Staged, Counts]:
    """As `glue_jobs.engines.choice.Fold`: the first record of each key that the table does not have.

    Records are compared, not the rows they make.
    """
    table = batch.table
    observed, observation = observe_records(batch.records())
    keyed = rows(observed).repartition(batch.tasks, *(at(path) for path in mode.key)).persist()
    try:
        counted = Observation()
        kept = without_duplicates(table, mode, keyed).observe(counted, F.count(F.lit(1)).alias("rows"))
        made, several = table.row_plan.rows(kept)
        staged = table.stage(made, batch.tasks, stage_id)
        seen = counted_records(observation)
        seen = replace(seen, duplicates=seen.applied - int(counted.get["rows"]))
        return staged, with_counted_rows(seen, several) if several else seen
    finally:
        keyed.unpersist()


def without_duplicates(table: OpenTable, mode: Deduplicate, batch: DataFrame) -> DataFrame:
    """The records of the batch, with their other columns, whose key neither the batch nor the table has before.

    Reads the batch three times. If another round commits meanwhile, this one is refused.
    """
    if mode.window_ms is None:
        held = table.index.held(table.main, keys_of(batch, mode.key), mode.key)
        return _first_of_each(batch, mode, held)
    low, high = batch.agg(*(F.unix_millis(each(TIMESTAMP)) for each in (F.min, F.max))).collect()[0]
    rows = table.rows
    if low is not None:
        since, until = (
            F.timestamp_millis(F.lit(each)) for each in (low - mode.window_ms, high + mode.window_ms)
        )
        rows = rows.where(F.col(TIMESTAMP).between(since, until))
    names = key_names(mode.key)
    held = rows.select(*key_columns(mode.key), F.unix_millis(TIMESTAMP).alias("at"))
    held = held.join(F.broadcast(keys_of(batch, mode.key)), names, "left_semi")
    return _apart(batch, mode, mode.window_ms, held)


def _first_of_each(batch: DataFrame, mode: Deduplicate, held: DataFrame) -> DataFrame:
    """The first record of each key that is not among those that the table holds."""
    key = [at(path) for path in mode.key]
    in_partition = Window.partitionBy(*key, at(PARTITION)).orderBy(at(OFFSET))
    in_all = Window.partitionBy(*key).orderBy(at(TIMESTAMP), at(PARTITION))
    firsts = batch
    for window in (in_partition, in_all):
        firsts = firsts.withColumn(RANK, F.row_number().over(window)).where(F.col(RANK) == 1)
    names = key_names(mode.key)
    keyed = firsts.drop(RANK).withColumns(dict(zip(names, key, strict=True)))
    return keyed.join(F.broadcast(held), names, "left_anti").drop(*names)


def _apart(batch: DataFrame, mode: Deduplicate, window_ms: int, held: DataFrame) -> DataFrame:
    """The records of each key, in order, that are at least a window away from all rows before them.

    Order: by offset in a partition; between partitions, by the greatest timestamp so far in each.
    """
    key, names = [at(path) for path in mode.key], key_names(mode.key)
    so_far = (
        Window.partitionBy(*key, at(PARTITION)).orderBy(at(OFFSET)).rowsBetween(Window.unboundedPreceding, 0)
    )
    place = F.struct(F.max(at(TIMESTAMP)).over(so_far), *_place(F.col(SYSTEM_COLUMN)))
    by_key = batch.select(*key_columns(mode.key), place.alias(PLACES), F.struct("*").alias(ROWS)).groupBy(
        *names
    )
    records = by_key.agg(F.sort_array(F.collect_list(PLACES)).alias(PLACES), F.collect_list(ROWS).alias(ROWS))
    of_table = F.struct("at", F.lit(None).alias("partition"), F.lit(None).alias("offset"))
    there = held.groupBy(*names).agg(F.collect_list(of_table).cast(KEPT).alias(HELD))
    both = records.join(F.broadcast(there), names, "left")

    def or_with(found: Column, record: Column) -> Column:
        near = F.exists(found, lambda row: F.abs(row["at"] - record["at"]) < window_ms)
        added = F.array(F.struct(record["at"], record["partition"], record["offset"])).cast(KEPT)
        return F.when(near, found).otherwise(F.concat(found, added))

    kept = F.aggregate(PLACES, F.coalesce(F.col(HELD), F.array().cast(KEPT)), or_with)
    chosen = F.filter(ROWS, lambda row: F.exists(HELD, lambda each: _is(row[SYSTEM_COLUMN], each)))
    return both.withColumn(HELD, kept).select(F.explode(chosen).alias(ROWS)).select(f"{quote(ROWS)}.*")


def _place(kafka: Column) -> tuple[Column, ...]:
    moment = F.unix_millis(kafka["timestamp"]).alias("at")
    return kafka["partition"].alias("partition"), kafka["offset"].alias("offset"), moment


def _is(kafka: Column, kept: Column) -> Column:
    return (kafka["partition"] == kept["partition"]) & (kafka["offset"] == kept["offset"])
