"""A round of a table that holds every version of a row (ADR 67).

Each record becomes a row. The index finds the rows of its key that may change. Windows of Spark say from when to when each is
valid. Rows that change are written again, and deleted where they were, in the same commit. The driver itself places the records
of a small round that the columnar engine has decoded (`placed`).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
from pyroaring import BitMap64
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from calve.modes.history import DELETED, VALID_FROM, VALID_TO, History
from calve.names import quote
from calve.schema.columns import CHANGE, HISTORY, Json
from glue_jobs.columns.expressions import OFFSET, PARTITION, TOMBSTONE, at, false, spark_type
from glue_jobs.decode.machines.change_events import lacking
from glue_jobs.engines.choice import loaded
from glue_jobs.iceberg.staging import FILE, POSITION, Staged
from glue_jobs.index.decision import KeyedFiles, KeyedRecords, KeyRule
from glue_jobs.index.key_index import bitmap
from glue_jobs.index.records import records_of
from glue_jobs.index.table_index import AddedFile
from glue_jobs.index.versions import Versions, every_row, from_before, next_to, with_history
from glue_jobs.modes.filling import INFLATION, TooLarge
from glue_jobs.table.counts import Counts
from glue_jobs.table.open_table import OpenTable
from glue_jobs.transform.row_columns import lacks, may_lack
from glue_jobs.transform.types import conformed

MOST_BYTES = 128_000_000
"""The bytes of records, or of rows, that the driver takes for one round."""
BEFORE, CUT, END, LIFE = (f"calve:{each}" for each in ("before", "cut", "end", "life"))
SO_FAR = Window.unboundedPreceding, Window.currentRow
LINE = VALID_FROM, PARTITION, OFFSET
"""The order of the versions of a row."""


def stage_versions(
    mode: History, table: OpenTable, good: DataFrame, tasks: int, stage_id: str, *, late: bool = False
) -> tuple[Staged, int]:
    """Stage a version for each good record, and the rows of the table that these change; also returns their number.

    good: with `TOMBSTONE` if records may delete: such a version has nothing but its key. late: the records lie among those that
    the table has read already.
    Raises Suspended, Retryable: as `TableIndex.delete`.
    """
    rule, main = KeyRule.of(mode), table.main
    choose = next_to if mode.by is not None else every_row if late else from_before
    rows = versions(good, mode, table.row_plan.columns).persist()
    try:
        with table.index.rows_of_keys(main, records_of(rows, rule), rule.key, choose) as held:
            made = with_times(rows, held, mode, late=late).persist()
            try:
                moved = made.where(F.col(FILE).isNotNull()).select(FILE, POSITION).toArrow()
                staged = table.stage(made.drop(FILE, POSITION), tasks, stage_id)
            finally:
                made.unpersist()
    finally:
        rows.unpersist()
    deletes = table.index.delete_at(main, by_file(moved), stage_id) if len(moved) else None
    return replace(staged, deletes=deletes), staged.rows


def stage_every(mode: History, table: OpenTable, good: DataFrame, tasks: int, stage_id: str) -> Staged:
    """Stage a version for each record of a table that had no versions. `good`: all its records, as in `stage_versions`."""
    made = with_times(versions(good, mode, table.row_plan.columns), None, mode, late=True)
    return table.stage(made.drop(FILE, POSITION), tasks, stage_id)


def versions(good: DataFrame, mode: History, columns: Json) -> DataFrame:
    """The records as rows of the table with these columns, each from its own time on. None has an end."""
    gone = F.col(TOMBSTONE) if TOMBSTONE in good.columns else false()
    deleted = gone
    if mode.changes:
        deleted = gone | F.coalesce(at(f"{CHANGE['name']}.deleted"), false())
    begin, never = F.coalesce(*(at(each) for each in mode.times)), F.lit(None).cast("timestamp")
    rows = conformed(good.withColumn(HISTORY["name"], _history(begin, never, deleted)), columns)
    if TOMBSTONE not in good.columns:
        return rows
    keys, alone = [each.split(".") for each in mode.key], {}
    for each in columns["fields"]:
        value, name = F.col(quote(each["name"])), each["name"]
        if name != HISTORY["name"]:
            alone[name] = F.when(gone, _only(value, each["type"], _within(keys, name))).otherwise(value)
    return rows.withColumns(alone).drop(TOMBSTONE)


def _only(value: Column, kind: Json, keys: list[list[str]]) -> Column:
    """A value with nothing but these paths in it."""
    if not keys:
        return F.lit(None).cast(spark_type(kind))
    if keys == [[]]:
        return value
    fields = [(each["name"], each["type"]) for each in kind["fields"]]
    return F.struct(*(_only(value[name], of, _within(keys, name)).alias(name) for name, of in fields))


def _within(keys: list[list[str]], name: str) -> list[list[str]]:
    return [key[1:] for key in keys if key[0] == name]


def _history(begin: Column, end: Column, deleted: Column) -> Column:
    values = {"valid_from": begin, "valid_to": end, "is_current": end.isNull(), "deleted": deleted}
    return F.struct(*(values[each["name"]].alias(each["name"]) for each in HISTORY["type"]["fields"]))


def with_times(rows: DataFrame, held: DataFrame | None, mode: History, *, late: bool) -> DataFrame:
    """The new rows, and those of the table's rows that change, with their `FILE` and `POSITION`: from when to when each is valid.

    held: the rows of the table that may change. Without a column that orders them, the records of a partition follow one another
    by offset: none is valid from before the one that it replaces.
    """
    keys = [at(path) for path in mode.key]
    none = {FILE: F.lit(None).cast("string"), POSITION: F.lit(None).cast("long")}
    every = rows.withColumns(none | {CUT: F.lit(None).cast("timestamp"), BEFORE: at(VALID_FROM)})
    by_line = Window.partitionBy(*keys).orderBy(*map(at, LINE))
    if held is not None:
        # Where the next row of a key is not the one that ended it, that one was forgotten: nothing is valid across its time.
        cut = F.when(~at(VALID_TO).eqNullSafe(F.lead(at(VALID_FROM)).over(by_line)), at(VALID_TO))
        held = held.withColumns({CUT: cut, BEFORE: at(VALID_FROM)})
        every = every.unionByName(held.select(*every.columns))
    if mode.by is None:
        read = at(OFFSET) if late else F.struct(F.col(FILE).isNull(), at(OFFSET))
        so_far = Window.partitionBy(*keys, at(PARTITION)).orderBy(read).rowsBetween(*SO_FAR)
        moved = _history(F.max(at(VALID_FROM)).over(so_far), at(VALID_TO), at(DELETED))
        every = every.withColumn(HISTORY["name"], moved)
    if mode.changes:
        every = _filled(every, keys)
    following = F.lead(at(VALID_FROM)).over(by_line)
    cuts = F.when(F.col(FILE).isNotNull(), F.struct(CUT))
    cut = F.last(cuts, ignorenulls=True).over(by_line.rowsBetween(*SO_FAR))[CUT]
    end = F.least(F.when(cut > at(VALID_FROM), cut), following)
    end = F.when(at(DELETED), at(VALID_FROM)).otherwise(end)
    same = at(VALID_FROM).eqNullSafe(F.col(BEFORE)) & at(VALID_TO).eqNullSafe(F.col(END))
    changed = every.withColumn(END, end).where(F.col(FILE).isNull() | ~same)
    made = _history(at(VALID_FROM), F.col(END), at(DELETED))
    return changed.withColumn(HISTORY["name"], made).drop(BEFORE, CUT, END)


def _filled(every: DataFrame, keys: list[Column]) -> DataFrame:
    """Values that a new update lacks are those of the version before, unless that deletes. Else the placeholder stays."""
    columns = may_lack(every)
    lives = F.count_if(at(DELETED)).over(
        Window.partitionBy(*keys).orderBy(*map(at, LINE)).rowsBetween(*SO_FAR)
    )
    every = every.withColumn(LIFE, lives)
    life = Window.partitionBy(*keys, LIFE).orderBy(*map(at, LINE)).rowsBetween(*SO_FAR)
    found = {}
    for each in columns:
        own = at(each.name)
        known = F.last(
            F.when(~lacks(each) & ~at(DELETED), F.struct(own.alias("value"))), ignorenulls=True
        ).over(life)
        asks = F.col(FILE).isNull() & lacks(each) & known.isNotNull()
        found[each.name] = F.when(asks, known["value"]).otherwise(own)
    return every.withColumns(found).drop(LIFE)


def by_file(places: pa.Table) -> dict[str, BitMap64]:
    """The positions of rows by their `FILE`."""
    files = places[FILE].combine_chunks().dictionary_encode()
    positions, numbers = places[POSITION].to_numpy(), files.indices.to_numpy()
    paths = files.dictionary.to_pylist()
    return {path: bitmap(positions[numbers == n]) for n, path in enumerate(paths)}


def placed(
    mode: History, table: OpenTable, files: Staged, counts: Counts, keyed: KeyedFiles, stage_id: str
) -> tuple[Staged, Counts]:
    """Write the records that were set aside as versions, with the rows that these change; and deletes of those where they were.

    Raises TooLarge: nothing was read or written. Suspended, Retryable: as `TableIndex.delete`.
    """
    rule, main, index, rows = keyed.rule, table.main, table.index, keyed.aside
    if rows is None:
        return files, replace(counts, changes=0)
    choose = from_before if mode.by is None else next_to
    records = KeyedRecords.of(rows, rule)
    near = index.near(main, records, rule.key, choose)
    if rows.nbytes + INFLATION * index.bytes_at(near) > MOST_BYTES:
        raise TooLarge
    held = index.rows_at(main, near)
    every = rows
    if held is not None:
        older = held.select(rows.schema.names).cast(rows.schema)
        every = pa.concat_tables([rows, older])
        records = KeyedRecords.together([records, KeyedRecords.of(older, rule)])
    new = np.arange(len(every)) < len(rows)
    before = Versions.of(every, records, new)
    versions = before.with_times(by_offset=mode.by is None)
    if mode.changes:
        every = _complete(every, versions)
    changed = new | (versions.begin != before.begin) | (versions.end != before.end)
    made = with_history(every, versions).filter(pa.array(changed))
    staged, written = loaded(table.services.lake.spark.sparkContext).stage_rows(table, made, rule, stage_id)
    moved = {} if held is None else by_file(held.filter(pa.array(changed[len(rows) :])))
    added = [
        AddedFile(file, each.keys, rule.compared(each), np.ones(len(each.high), bool))
        for file, each in zip(staged.files, written, strict=True)
    ]
    deletes = index.delete_at(main, moved, stage_id, added)
    return replace(staged, deletes=deletes, cpu_s=files.cpu_s), replace(counts, changes=staged.rows)


def _complete(every: pa.Table, versions: Versions) -> pa.Table:
    """Values that a new update lacks are those of the version before, unless that deletes. Else the placeholder stays."""
    for name, missing, last in versions.known_before(lacking(every)):
        asks = missing & versions.new & (last >= 0)
        if asks.any():
            values = every[name].take(pa.array(np.where(asks, last, np.arange(len(every)))))
            every = every.set_column(every.schema.get_field_index(name), every.schema.field(name), values)
    return every
