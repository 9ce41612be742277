"""An upsert round: the newest record of each key becomes a row, and the rows it replaces are deleted (ADR 16).

A tombstone deletes every record of its key read before it. Of the others, the greatest `order_by` wins; null is least.
Among equals the last one read wins: by offset in a partition, by timestamp between partitions.

A change data round is an upsert round with two additions (ADR 19): truncations, and updates that lack values.
They are counted in the first read. A round that has any is staged again with them.
A value missing in the database log comes from the key's row at that event, as if events were applied one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce

from pyspark.sql import Column, DataFrame, Observation, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from calve.modes.mode import Mode
from calve.modes.upsert import ChangeData, Upsert
from calve.schema.change_events import UNAVAILABLE
from calve.schema.columns import CHANGE
from glue_jobs.columns.expressions import (
    OFFSET,
    PARTITION,
    TIMESTAMP,
    at,
    false,
    key_columns,
    key_names,
    keys_of,
)
from glue_jobs.columns.helpers import REJECT, TOMBSTONE
from glue_jobs.decode.change_events import OP, TRUNCATES
from glue_jobs.engines.batch import Batch
from glue_jobs.iceberg.staging import Staged, discard
from glue_jobs.table.counts import Counts, counted_records, observe_records
from glue_jobs.table.open_table import OpenTable
from glue_jobs.table.records import rows

RESET = "calve:reset"
"""True if the batch holds a tombstone of the key: the table's row of the key is ignored."""
LATEST, RANK, BEFORE = "calve:latest", "calve:rank", "calve:before"


def stage_changes(
    upsert: Upsert,
    table: OpenTable,
    good: DataFrame,
    tasks: int,
    stage_id: str,
    gone: DataFrame | None = None,
) -> tuple[Staged, int]:
    """Stage the newest good record of each key, and deletes of the rows they replace; also returns the number of new rows.

    No snapshot contains the files. gone: keys (`keys_of`) of other rows to delete.

    Raises Retryable: the object store failed; nothing is committed. Suspended: `ledger_imbalance`: the deletes differ from
    the counted ones.
    """
    newest = newest_of_each_key(good, upsert, tasks)
    if upsert.order_by is not None:
        newest = without_overtaken(newest, upsert.key, upsert.order_by, table)
    counted = Observation()
    changes = newest.observe(counted, F.count_if(~F.col(TOMBSTONE)).alias("rows")).persist()
    try:
        rows = changes.where(~F.col(TOMBSTONE)).drop(TOMBSTONE, RESET)
        staged = table.stage(rows, tasks, stage_id)
        keys = F.broadcast(keys_of(changes, upsert.key))
        if gone is not None:
            keys = keys_of(changes, upsert.key).union(gone).distinct()
        deletes = table.index.stage_deletes(table.main, keys, upsert.key, stage_id)
        return replace(staged, deletes=deletes), int(counted.get["rows"])
    finally:
        changes.unpersist()


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


def without_overtaken(newest: DataFrame, key: Sequence[str], order_by: str, table: OpenTable) -> DataFrame:
    """The changes, without those whose key has a row of a greater order. Reads the table's key and order columns.

    Reads the current table: a fixed snapshot would have the columns of its time. If another round commits meanwhile, this one
    is refused.
    """
    held = table.rows
    kept = held.select(*key_columns(key), at(order_by).alias(BEFORE))
    same = [at(path) == F.col(name) for path, name in zip(key, key_names(key), strict=True)]
    overtaken = F.col(BEFORE).isNotNull() & (at(order_by).isNull() | (at(order_by) < F.col(BEFORE)))
    return newest.join(kept, reduce(Column.__and__, same, ~F.col(RESET) & overtaken), "left_anti")


POSITION = f"{CHANGE['name']}.position"


def stage_change_data(mode: ChangeData, batch: Batch, stage_id: str) -> tuple[Staged, Counts]:
    """As `glue_jobs.engines.choice.Fold`: the newest event of each key. Raises: as `stage_changes`."""
    flat = batch.records()
    truncates = F.count_if(F.col(REJECT).isNull() & (at(OP) == TRUNCATES))
    unavailable = F.count_if(F.col(REJECT).isNull() & lacks_values(flat))
    observed, observation = observe_records(flat, {"truncates": truncates, "unavailable": unavailable})
    staged, made = _stage(mode, batch, rows(observed), stage_id)
    seen = counted_records(observation)
    if seen.truncates or (seen.unavailable and not batch.lacks_values):
        discard(batch.table.main, staged)
        batch = replace(batch, lacks_values=batch.lacks_values or bool(seen.unavailable))
        truncations = _truncations(batch.records()) if seen.truncates else None
        staged, made = _stage(mode, batch, rows(batch.records()), stage_id, truncations)
    return staged, replace(seen, changes=made)


def _stage(
    mode: ChangeData, batch: Batch, good: DataFrame, stage_id: str, truncations: Truncations | None = None
) -> tuple[Staged, int]:
    table, tasks, gone = batch.table, batch.tasks, None
    if truncations is not None:
        good = good.where(~_ended(truncations, at(OFFSET)))
        gone = keys_of(table.rows.where(_ended(truncations, F.lit(-1))), mode.key)
    if not batch.lacks_values:
        return stage_changes(mode, table, good, tasks, stage_id, gone)
    good = good.persist()
    try:
        return stage_changes(mode, table, filled(good, mode, table), tasks, stage_id, gone)
    finally:
        good.unpersist()


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


def lacks_values(rows: DataFrame) -> Column:
    """True for updates that lack a value of a column; never null."""
    lacking = reduce(Column.__or__, (_lacks(each) for each in _may_lack(rows)), false())
    return F.coalesce((at(OP) == "u") & lacking, false())


def filled(good: DataFrame, mode: ChangeData, table: OpenTable) -> DataFrame:
    """The same rows. Missing values come from the key's previous row, in the batch or in the table.

    Without a known previous row, Debezium's placeholder stays.
    Reads the batch twice, and main's current columns that may lack values. If another round commits meanwhile, this one is
    refused.
    """
    columns = _may_lack(good)
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
        known = F.when(F.col(COUNTS) & ~_lacks(each), F.struct(at(each.name).alias(FILL)))
        last = F.last(known, ignorenulls=True).over(life)
        of_table = F.when(
            (F.col(LIFE) == 0) & F.col(HELD).isNotNull(), F.struct(F.col(HELD)[each.name].alias(FILL))
        )
        value = F.coalesce(last, of_table, F.struct(at(each.name).alias(FILL)))
        found[each.name] = F.when(_lacks(each), value[FILL]).otherwise(at(each.name))
    return good.withColumns(found).drop(LIFE, COUNTS, HELD, HELD_ORDER, *names)


def _may_lack(rows: DataFrame) -> list[T.StructField]:
    """Columns of types that may contain Debezium's placeholder."""
    return [each for each in rows.schema.fields if _placeholder(each.dataType) and ":" not in each.name]


def _lacks(column: T.StructField) -> Column:
    value = at(column.name)
    if isinstance(column.dataType, T.MapType):
        value = F.map_keys(value)
    return F.coalesce(value == F.lit(_placeholder(column.dataType)), false())


def _placeholder(kind: T.DataType) -> str | bytearray | list[str] | None:
    match kind:
        case T.StringType():
            return UNAVAILABLE
        case T.BinaryType():
            return bytearray(UNAVAILABLE.encode())
        case T.ArrayType(elementType=T.StringType()) | T.MapType(keyType=T.StringType()):
            return [UNAVAILABLE]
    return None
