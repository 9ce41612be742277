"""The step `lookup`: columns of another table, of its row with the same key. The other table goes to every task as a whole."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    IntegralType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from calve.errors import Suspended
from calve.names import field_problem, quote, quote_path
from calve.steps import Lookup
from glue_jobs.decode import REJECT
from glue_jobs.steps.frame import beside, data, is_live, unusable
from glue_jobs.steps.paths import type_at, type_of

MISSING = "lookup_missing"
FOUND = "calve:found"
COMPARABLE = (
    IntegralType,
    StringType,
    BinaryType,
    BooleanType,
    DateType,
    TimestampType,
    TimestampNTZType,
)
"""Types of keys; each is compared with its own kind alone, decimals also only where no digit is lost."""
MOST_DIGITS = 38


def run_lookup(frame: DataFrame, step: Lookup, table: DataFrame) -> DataFrame:
    """The new columns stand after the others: null where the table has no row of the key, or a part of the key is null.

    With `missing: reject` such records are rejected. In `table` no key stands twice, see `require_unique`.

    Raises:
        Suspended: `step_unusable`, where columns are missing, cannot be compared, or exist already.
    """
    _require_fit(frame, step, table.schema)
    keys = [f"calve:other:{n}" for n in range(len(step.on))]
    others = table.select(
        *(F.col(quote(other)).alias(key) for other, key in zip(step.on.values(), keys, strict=True)),
        F.struct(*(F.col(quote(other)).alias(new) for new, other in step.columns.items())).alias(FOUND),
    )
    same = [F.col(quote_path(path)) == F.col(key) for path, key in zip(step.on, keys, strict=True)]
    joined = frame.join(F.broadcast(others), on=reduce(Column.__and__, same), how="left")
    own = {name: F.col(name) for name in beside(frame)}
    if step.missing == "reject":
        reject = F.col(REJECT) if REJECT in frame.columns else F.lit(None).cast("string")
        lost = is_live(joined) & F.col(FOUND).isNull()
        own[REJECT] = F.coalesce(reject, F.when(lost, F.lit(MISSING)))
    return joined.select(
        *data(frame),
        *(F.col(FOUND)[new].alias(new) for new in step.columns),
        *(column.alias(name) for name, column in own.items()),
    )


def require_unique(table: DataFrame, columns: Sequence[str]) -> None:
    """Refuse a table in which a key stands twice: a record would become two rows. Keys with a null match nothing.

    Raises:
        Suspended: `lookup_ambiguous`.
    """
    keys = [F.col(quote(column)).alias(f"calve:other:{n}") for n, column in enumerate(columns)]
    each = table.select(*keys).dropna()
    if each.groupBy(*each.columns).count().where(F.col("count") > 1).limit(1).collect():
        raise Suspended(
            "lookup_ambiguous",
            f"several rows of the other table have the same {' and '.join(columns)}, so none of them can be told by it",
            fix="look up by columns that tell its rows apart, or remove the others",
        )


def require_columns(table: StructType, step: Lookup) -> None:
    """Refuse a step that names columns which the other table has not. Raises Suspended `step_unusable`."""
    for other in (*step.on.values(), *step.columns.values()):
        type_of(table, other, f"column of {step.table}")


def _require_fit(frame: DataFrame, step: Lookup, table: StructType) -> None:
    require_columns(table, step)
    record = StructType([field for field in frame.schema if field.name in data(frame)])
    for path, other in step.on.items():
        ours, theirs = type_at(record, path), type_of(table, other, f"column of {step.table}")
        if not _comparable(ours, theirs):
            raise unusable(
                f'"{path}" is {ours.simpleString()} and "{other}" of {step.table} {theirs.simpleString()}: '
                "keys are compared with their own kind alone, and only plain values are keys"
            )
    taken = {name.lower() for name in record.names}
    for new in step.columns:
        if problem := field_problem(new):
            raise unusable(problem)
        if new.lower() in taken:
            raise unusable(f'"{new}" is a column of the record already')
        taken.add(new.lower())


def _comparable(ours: DataType, theirs: DataType) -> bool:
    if isinstance(ours, DecimalType) and isinstance(theirs, DecimalType):
        whole = max(each.precision - each.scale for each in (ours, theirs))
        return whole + max(ours.scale, theirs.scale) <= MOST_DIGITS
    return any(isinstance(ours, kind) and isinstance(theirs, kind) for kind in COMPARABLE)
