"""A round of change data is one of an upsert table with two additions (ADR 19): truncations, and updates that lack values.

They are counted in the first read. A round that has any is staged again with them.
A value missing in the database log comes from the key's row at that event, as if events were applied one by one.
"""

from __future__ import annotations

from dataclasses import replace
from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from calve.modes.upsert import ChangeData
from calve.schema.change_events import TRUNCATES
from calve.schema.columns import CHANGE
from glue_jobs.columns.expressions import (
    OFFSET,
    PARTITION,
    REJECT,
    TIMESTAMP,
    TOMBSTONE,
    at,
    key_columns,
    key_names,
    keys_of,
)
from glue_jobs.engines.batch import Batch
from glue_jobs.iceberg.staging import Staged, discard
from glue_jobs.index.table_index import hashed
from glue_jobs.modes.by_key import stage_chosen
from glue_jobs.table.counts import Counts, counted_records, observe_records
from glue_jobs.table.open_table import OpenTable
from glue_jobs.transform.row_columns import lacks, lacks_values, may_lack

OP, POSITION = (f"{CHANGE['name']}.{name}" for name in ("op", "position"))


def stage_change_data(mode: ChangeData, batch: Batch, stage_id: str) -> tuple[Staged, Counts]:
    """As `glue_jobs.engines.choice.Fold`: the newest event of each key."""
    flat, plan = batch.records(), batch.table.row_plan
    truncates = F.count_if(F.col(REJECT).isNull() & (at(OP) == TRUNCATES))
    unavailable = F.count_if(F.col(REJECT).isNull() & lacks_values(flat))
    observed, observation = observe_records(flat, {"truncates": truncates, "unavailable": unavailable})
    staged, made = _stage(mode, batch, plan.rows(observed)[0], stage_id)
    seen = counted_records(observation)
    if seen.truncates or (seen.unavailable and not batch.lacks_values):
        discard(batch.table.main, staged)
        batch = replace(batch, lacks_values=batch.lacks_values or bool(seen.unavailable))
        truncations = _truncations(batch.records()) if seen.truncates else None
        staged, made = _stage(mode, batch, plan.rows(batch.records())[0], stage_id, truncations)
    return staged, replace(seen, changes=made)


def _stage(
    mode: ChangeData, batch: Batch, good: DataFrame, stage_id: str, truncations: Truncations | None = None
) -> tuple[Staged, int]:
    table, gone = batch.table, None
    if truncations is not None:
        good = good.where(~_ended(truncations, at(OFFSET)))
        ended = table.rows.where(_ended(truncations, F.lit(-1)))
        gone = hashed(keys_of(ended, mode.key).toArrow())
    lacking = good.persist() if batch.lacks_values else None
    try:
        if lacking is not None:  # a window or a join of Spark leaves 200 parts, and each is a task for Python
            good = filled(lacking, mode, table).coalesce(batch.tasks)
        staged, made, _ = stage_chosen(table, good, batch.tasks, stage_id, gone)
        return staged, made
    finally:
        if lacking is not None:
            lacking.unpersist()


def not_truncated(flat: DataFrame, good: DataFrame) -> DataFrame:
    """The good records of a batch that none of its truncations has ended. flat: all of its records."""
    truncations = _truncations(flat)
    return good.where(~_ended(truncations, at(OFFSET))) if truncations else good


Truncations = dict[int, tuple[int, int, str | None]]
"""The last truncation of each partition: its offset, its time (ms), and its position in the database log, if any."""


def _truncations(flat: DataFrame) -> Truncations:
    found = flat.where(F.col(REJECT).isNull() & (at(OP) == TRUNCATES))
    places = F.max(OFFSET), F.unix_millis(F.max(TIMESTAMP)), F.max(POSITION)
    return {row[0]: tuple(row[1:]) for row in found.groupBy(PARTITION).agg(*places).collect()}


def _ended(truncations: Truncations, offset: Column) -> Column:
    """True for rows that a truncation has ended. `offset`: -1 for all rows of the table.

    It ends earlier offsets of its partition, and records of other partitions with an older timestamp.
    If it has a log position, it ends only records with an older one.
    """
    found = []
    for partition, (last, moment, position) in truncations.items():
        here = at(PARTITION) == partition
        if position is None:
            before = F.when(here, offset < last).otherwise(F.unix_millis(at(TIMESTAMP)) < moment)
        else:
            before = (at(POSITION).isNull() | (at(POSITION) < position)) & (~here | (offset < last))
        found.append(before)
    return reduce(Column.__or__, found)


LIFE, COUNTS, HELD, HELD_ORDER, FILL = (
    f"calve:{each}" for each in ("life", "counts", "held", "held_order", "fill")
)


def filled(good: DataFrame, mode: ChangeData, table: OpenTable) -> DataFrame:
    """The same rows. Missing values come from the key's previous row, in the batch or in the table.

    Without a known previous row, Debezium's placeholder stays.
    Reads the batch twice, and main's current columns that may lack values. If another round commits meanwhile, this one is
    refused.
    """
    columns = may_lack(good)
    if not columns:
        return good
    names = key_names(mode.key)
    lacking = keys_of(good.where(lacks_values(good)), mode.key).distinct()
    held = table.rows
    order = at(mode.order_by) if mode.order_by else F.lit(None).cast("string")
    before = held.select(
        *key_columns(mode.key),
        F.struct(*(at(each.name).alias(each.name) for each in columns)).alias(HELD),
        order.alias(HELD_ORDER),
    ).join(F.broadcast(lacking), names, "left_semi")
    so_far = Window.unboundedPreceding, Window.currentRow
    here = Window.partitionBy(*names, at(PARTITION)).orderBy(at(OFFSET)).rowsBetween(*so_far)
    life = Window.partitionBy(*names, at(PARTITION), LIFE).orderBy(at(OFFSET)).rowsBetween(*so_far)
    good = good.withColumns(dict(zip(names, (at(path) for path in mode.key), strict=True)))
    good = good.join(before, names, "left").withColumn(LIFE, F.count_if(F.col(TOMBSTONE)).over(here))
    # Whether the change became the row of its key when it was read.
    in_batch, in_table = (
        F.coalesce(order >= each, each.isNull()) for each in (F.max(order).over(here), F.col(HELD_ORDER))
    )
    good = good.withColumn(COUNTS, ~F.col(TOMBSTONE) & in_batch & in_table)
    found = {}
    for each in columns:
        known = F.when(F.col(COUNTS) & ~lacks(each), F.struct(at(each.name).alias(FILL)))
        last = F.last(known, ignorenulls=True).over(life)
        of_table = F.when(
            (F.col(LIFE) == 0) & F.col(HELD).isNotNull(), F.struct(F.col(HELD)[each.name].alias(FILL))
        )
        value = F.coalesce(last, of_table, F.struct(at(each.name).alias(FILL)))
        found[each.name] = F.when(lacks(each), value[FILL]).otherwise(at(each.name))
    return good.withColumns(found).drop(LIFE, COUNTS, HELD, HELD_ORDER, *names)
