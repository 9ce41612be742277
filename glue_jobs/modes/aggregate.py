"""A round of an aggregate table: add the totals of its records to the table's rows, group by group (ADR 20, ADR 50).

An engine's tasks fold their records to one row for each group. The driver folds these with the rows of the table, which the
index finds. It writes the new rows and deletes the old ones by position.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import types as T

from calve.config.engine_choice import Unsupported
from calve.errors import Suspended
from calve.modes.aggregate import Aggregate
from glue_jobs.columns.expressions import at
from glue_jobs.engines.choice import loaded
from glue_jobs.iceberg.staging import Staged
from glue_jobs.index.decision import KeyedRecords, KeyRule
from glue_jobs.index.hashing import Hashes
from glue_jobs.index.table_index import AddedFile, hashed
from glue_jobs.process.workers import errors_by_value, map_in_arrow
from glue_jobs.table.open_table import OpenTable
from glue_jobs.totals.fold import Fold, Gathered, Totals, packed, unpacked

SENT = T.StructType([T.StructField("totals", T.BinaryType())])
"""Parts of a table of totals, `packed`: Spark has no decimals of 256 bits."""
PART_ROWS = 65_536


def stage_totals(
    aggregate: Aggregate, table: OpenTable, good: DataFrame, tasks: int, stage_id: str
) -> tuple[Staged, int]:
    """Stage the totals of Spark's rows, as `stage_groups`. Raises as that, and as `Fold.of`."""
    fold = Fold.of(aggregate, str(table.name), table.main.schema, table.row_plan.made)
    return stage_groups(table, totals_of(good, fold), tasks, stage_id)


def stage_groups(table: OpenTable, batch: Totals, tasks: int, stage_id: str) -> tuple[Staged, int]:
    """Stage the new rows of the groups and deletes of their old rows; also returns the number of groups.

    batch: the totals of the round's records. No snapshot contains the files yet.
    Raises Retryable: the object store failed; nothing is committed. Suspended: `measure_overflow`: a measure is too large for
    its column.
    """
    fold, groups = batch.fold, batch.rows.select([*batch.fold.groups])
    rule, keys = KeyRule(tuple(fold.groups), newest=True), hashed(groups)
    held = fold.held(_rows_of(table, fold, groups, keys))
    rows, inexact = fold.rows(fold.together([batch.rows, held]))
    if inexact:
        raise _overflow(table, inexact)
    staged, records = _stage_rows(table, rows, rule, tasks, stage_id)
    added = [
        AddedFile(file, each.keys, None, np.ones(len(each.offset), bool))
        for file, each in zip(staged.files, records, strict=bool(records))
    ]
    deletes = table.index.delete(table.main, keys, rule.key, stage_id, added)
    return replace(staged, deletes=deletes), len(rows)


def _rows_of(table: OpenTable, fold: Fold, groups: pa.Table, keys: Hashes) -> pa.Table:
    """The table's rows of these groups, as it is now. If another round commits meanwhile, this one is refused."""
    measures = [each.name for each in fold.totals]
    numbers, values = table.index.values(table.main, keys, groups.column_names, measures)
    rows = groups.take(pa.array(numbers))
    for name in measures:
        rows = rows.append_column(name, values[name])
    return rows


def _stage_rows(
    table: OpenTable, rows: pa.Table, rule: KeyRule, tasks: int, stage_id: str
) -> tuple[Staged, tuple[KeyedRecords, ...]]:
    """Write rows; also returns the records of each file by position, unless Spark writes them."""
    spark = table.services.lake.spark
    try:
        found: tuple[Staged, tuple[KeyedRecords, ...]] = loaded(spark.sparkContext).stage_rows(
            table, rows, rule, stage_id
        )
    except Unsupported:  # such as files in ORC
        return table.stage(spark.createDataFrame(rows), tasks, stage_id), ()
    return found


def _overflow(table: OpenTable, inexact: Mapping[str, int]) -> Suspended:
    """inexact: measures, with the number of groups in which they or their values are not exact."""
    lost = ", ".join(f"{name} of {count} groups" for name, count in inexact.items())
    return Suspended(
        "measure_overflow",
        f"table {table.name} cannot hold the totals of the next records: {lost} would have more digits than the column or an"
        " expression has room for",
        fix="name another table whose measures have more room, or roll this one back and start it behind these records",
    )


def totals_of(good: DataFrame, fold: Fold) -> Totals:
    """The totals of records. Spark's tasks fold them: the driver gets a row for each group of a task.

    good: records with a value in each column of the group.
    """
    columns = [at(path).alias(f"c{number}") for number, path in enumerate(fold.paths)]

    def folded(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with errors_by_value():  # the text of Arrow's errors may quote a record
            gathered = Gathered(fold)
            for batch in batches:
                gathered.add(dict(zip(fold.paths, batch.columns, strict=True)))
            for part in gathered.together().rows.to_batches(PART_ROWS):
                yield pa.RecordBatch.from_arrays([pa.array([packed(part)])], SENT.names)

    found = map_in_arrow(good.select(*columns), folded, SENT).toArrow()
    parts = [unpacked(each.as_buffer()) for each in found[0]]
    return Totals(fold, fold.folded(pa.concat_tables([fold.schema.empty_table(), *parts])))
