"""A round of an aggregate table: add the measures of its records to those of the table, group by group (ADR 20).

A record is the aggregate of itself, and a row that of all its records so far. The same function folds both.
So the result does not depend on rounds, record order or the number of tasks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F

from calve.errors import Suspended
from calve.modes.aggregate import (
    EMPTY,
    Aggregate,
    Total,
    groups_of,
    require_same_columns,
    totals_of,
)
from calve.modes.measures import Cast, ColumnAt, Number, Typed, columns_in, decimal
from calve.modes.measures import Expression as Tree
from calve.names import SYSTEM_COLUMN
from calve.schema.columns import KAFKA, decimal_digits
from glue_jobs.columns.expressions import at, false
from glue_jobs.iceberg.staging import Staged, discard
from glue_jobs.index.table_index import hashed
from glue_jobs.table.open_table import OpenTable

SIGNS = {"+": F.try_add, "-": F.try_subtract, "*": F.try_multiply}
SPARK_TYPES = {"timestamptz": "timestamp", "timestamp": "timestamp_ntz"}
"""Types with different names in Spark and Iceberg."""


def value(of: Typed) -> Column:
    """The value of an expression; null if a column is null, or if the value cannot be computed exactly."""
    return _value(of.of)


def is_lost(of: Typed) -> Column:
    """True if all columns have values but the result is null: it has too many digits."""
    given = [at(path).isNotNull() for path in columns_in(of.of)]
    return reduce(Column.__and__, given, value(of).isNull())


def spark_type(kind: str) -> str:
    """The Spark name of an Iceberg type."""
    return "binary" if kind.startswith("fixed") else SPARK_TYPES.get(kind, kind)


def _value(tree: Tree) -> Column:
    match tree:
        case ColumnAt(path):
            return at(path)
        case Number(text):
            return F.lit(text).cast(tree.kind)
        case Cast(of, kind, of_float=True):
            return _nearest(_value(of).cast("double"), *(decimal_digits(kind) or (0, 0)))
        case Cast(of, kind):
            return _value(of).try_cast(kind)
    return SIGNS[tree.sign](_value(tree.left), _value(tree.right))


def _nearest(of: Column, precision: int, scale: int) -> Column:
    """Round as a `Cast` of a float; null if there are too many digits. Every step but the first is exact."""
    scaled = of * F.lit(10.0**scale)
    size = F.abs(scaled)
    below = F.floor(size)
    units = below + F.when(size - below.cast("double") >= 0.5, 1).otherwise(0)
    signed = F.when(scaled < 0, -units).otherwise(units).cast("decimal(19, 0)")
    unit = F.lit(f"1e-{scale}").cast(decimal(max(scale, 1), scale))
    found = F.try_multiply(signed, unit).try_cast(decimal(precision, scale))
    return F.when(size < 10.0**precision, found)


LAST = "calve:last"
"""`_kafka` of the last record that changed the group in this round; null in rows of the table."""
OF_LAST = ("timestamp", "partition", "offset", "topic", "timestamp_type", "schema_id")
"""Its fields. The first three decide which record is last."""
NULLS = {"key": "binary", "headers": "array<struct<key: string, value: binary>>"}
WIDE = "decimal(38, 0)"
"""The type that integers are summed in. No sum of a round can exceed it."""


def stage_totals(
    aggregate: Aggregate, table: OpenTable, good: DataFrame, tasks: int, stage_id: str
) -> tuple[Staged, int]:
    """Stage the new rows of the changed groups and deletes of the old rows; also returns the number of groups.

    No snapshot contains the files yet.

    Raises Retryable: the object store failed; nothing is committed. Suspended: `measure_changed`, `measure_unusable`,
    `key_unusable`: the records do not fit the table's columns; `measure_overflow`: a measure is too large for its column;
    `ledger_imbalance`: as `stage_deletes`.
    """
    require_same_columns(str(table.name), table.main.schema, table.row_plan.made, aggregate)
    fold = _Fold(groups_of(table.row_plan.made, aggregate), totals_of(table.row_plan.made, aggregate), tasks)
    batch = fold.folded(fold.alone(good, aggregate)).persist()
    try:
        keys = batch.select(*fold.groups).toArrow()
        held = fold.held(_rows_of(table, keys, [each.name for each in fold.totals]), batch)
        counted = Observation()
        figures = [F.count(F.lit(1)).alias("rows"), *(F.count_if(each).alias(each) for each in fold.flags)]
        changed = fold.rows(fold.folded(batch.unionByName(held))).observe(counted, *figures)
        staged = table.stage(changed.drop(*fold.flags), tasks, stage_id)
        found = {name: int(count) for name, count in counted.get.items()}
        inexact = [(each.name, found[_flag(each)]) for each in fold.totals if found[_flag(each)]]
        if inexact:
            discard(table.main, staged)
            raise _overflow(table, inexact)
        deletes = table.index.delete(table.main, hashed(keys), list(fold.groups), stage_id)
        return replace(staged, deletes=deletes), found["rows"]
    finally:
        batch.unpersist()


@dataclass(frozen=True, slots=True)
class _Fold:
    """Folds aggregates of records. `groups`: the grouping columns, with the types of the table."""

    groups: Mapping[str, str]
    totals: Sequence[Total]
    tasks: int

    @property
    def flags(self) -> list[str]:
        """Columns beside the measures, each true where its measure is not exact."""
        return [_flag(each) for each in self.totals]

    def alone(self, good: DataFrame, aggregate: Aggregate) -> DataFrame:
        """Each record as the aggregate of itself."""
        groups = [at(path) for path in aggregate.by]
        outside = false()
        if (window := aggregate.window) is not None:
            micros = F.unix_micros(at(window.column))
            since = F.pmod(micros, F.lit(window.size_ms * 1000))  # windows are counted from the epoch
            start = F.timestamp_micros(F.try_subtract(micros, since))
            groups.append(start)
            outside = start.isNull()
        names = [
            group.cast(spark_type(kind)).alias(name)
            for group, (name, kind) in zip(groups, self.groups.items(), strict=True)
        ]
        totals = [_alone(each).cast(_folding(each)).alias(each.name) for each in self.totals]
        flags = [
            (outside | is_lost(each.of) if each.of else outside).alias(_flag(each)) for each in self.totals
        ]
        last = F.struct(*(at(f"{SYSTEM_COLUMN}.{name}") for name in OF_LAST)).alias(LAST)
        return good.select(*names, *totals, *flags, last)

    def held(self, rows: DataFrame, batch: DataFrame) -> DataFrame:
        """Rows of the table as aggregates."""
        totals = [F.col(each.name).cast(_folding(each)).alias(each.name) for each in self.totals]
        flags = [false().alias(name) for name in self.flags]
        last = F.lit(None).cast(batch.schema[LAST].dataType).alias(LAST)
        return rows.select(*self.groups, *totals, *flags, last)

    def folded(self, totals: DataFrame) -> DataFrame:
        folds = {"min": F.min, "max": F.max}
        folded = {each: folds.get(each.term.function, F.try_sum)(each.name) for each in self.totals}
        values = [found.cast(_folding(each)).alias(each.name) for each, found in folded.items()]
        flags = [
            (F.max(_flag(each)) | ((F.count(each.name) > 0) & found.isNull())).alias(_flag(each))
            for each, found in folded.items()
        ]
        together = totals.repartition(self.tasks, *self.groups)
        return together.groupBy(*self.groups).agg(*values, *flags, F.max(LAST).alias(LAST))

    def rows(self, folded: DataFrame) -> DataFrame:
        """The same as rows of the table, with the flags."""
        kept = {each: F.col(each.name).try_cast(spark_type(each.kind)) for each in self.totals}
        values = [found.alias(each.name) for each, found in kept.items()]
        flags = [
            (F.col(_flag(each)) | (F.col(each.name).isNotNull() & found.isNull())).alias(_flag(each))
            for each, found in kept.items()
        ]
        return folded.select(*self.groups, *values, _kafka().alias(SYSTEM_COLUMN), *flags)


def _rows_of(table: OpenTable, groups: pa.Table, measures: Sequence[str]) -> DataFrame:
    """The rows of the table for these groups, as it is now. If another round commits meanwhile, this one is refused."""
    spark = table.services.lake.spark
    found = table.index.values(table.main, hashed(groups), groups.column_names, measures)
    if found is None:
        mine = F.broadcast(spark.createDataFrame(groups))
        return table.rows.join(mine, groups.column_names, "left_semi")
    numbers, values = found
    rows = groups.take(pa.array(numbers))
    for name in measures:
        rows = rows.append_column(name, values[name])
    return spark.createDataFrame(rows)


def _alone(total: Total) -> Column:
    if total.of is None:
        return F.lit(1)
    found = value(total.of)
    return found.isNotNull() if total.term.function == "count" else found


def _folding(total: Total) -> str:
    return WIDE if total.term.function == "sum" and total.kind == "long" else spark_type(total.kind)


def _flag(total: Total) -> str:
    return f"calve:lost:{total.name}"


def _kafka() -> Column:
    names = [each["name"] for each in KAFKA["type"]["fields"]]
    fields = {name: F.lit(None).cast(NULLS[name]) if name in EMPTY else F.col(LAST)[name] for name in names}
    return F.struct(*(found.alias(name) for name, found in fields.items()))


def _overflow(table: OpenTable, inexact: Sequence[tuple[str, int]]) -> Suspended:
    """inexact: measures, with the number of groups in which they or their values are not exact."""
    lost = ", ".join(f"{name} of {count} groups" for name, count in inexact)
    return Suspended(
        "measure_overflow",
        f"table {table.name} cannot hold the totals of the next records: {lost} would have more digits than the column or an"
        " expression has room for",
        fix="name another table whose measures have more room, or roll this one back and start it behind these records",
    )
