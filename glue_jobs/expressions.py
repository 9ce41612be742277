"""Expressions of measures as Spark's columns: made of their trees, never of text."""

from __future__ import annotations

from functools import reduce

from pyspark.sql import Column
from pyspark.sql import functions as F

from calve.measures import Cast, ColumnAt, Nearest, Number, Typed, columns_in, decimal
from calve.measures import Expression as Tree
from glue_jobs.keys import at

SIGNS = {"+": F.try_add, "-": F.try_subtract, "*": F.try_multiply}
SPARK_TYPES = {"timestamptz": "timestamp", "timestamp": "timestamp_ntz"}
"""Those that Spark calls by another name than Iceberg."""


def value(of: Typed) -> Column:
    """The value of an expression: null where a column is, or where it cannot be computed exactly."""
    return _value(of.of)


def is_lost(of: Typed) -> Column:
    """True where all columns of the expression are there and its value is not: it has more digits than there is room for."""
    given = [at(path).isNotNull() for path in columns_in(of.of)]
    return reduce(Column.__and__, given, value(of).isNull())


def spark_type(kind: str) -> str:
    """The name of an Iceberg type in Spark."""
    return "binary" if kind.startswith("fixed") else SPARK_TYPES.get(kind, kind)


def _value(tree: Tree) -> Column:
    match tree:
        case ColumnAt(path):
            return at(path)
        case Number(text):
            return F.lit(text).cast(tree.kind)
        case Cast(of, kind):
            return _value(of).try_cast(kind)
        case Nearest(of, precision, scale):
            return _nearest(_value(of).cast("double"), precision, scale)
    return SIGNS[tree.sign](_value(tree.left), _value(tree.right))


def _nearest(of: Column, precision: int, scale: int) -> Column:
    """As `Nearest` says; null where it has more digits. Every step is exact but the first."""
    scaled = of * F.lit(10.0**scale)
    size = F.abs(scaled)
    below = F.floor(size)
    units = below + F.when(size - below.cast("double") >= 0.5, 1).otherwise(0)
    signed = F.when(scaled < 0, -units).otherwise(units).cast("decimal(19, 0)")
    unit = F.lit(f"1e-{scale}").cast(decimal(max(scale, 1), scale))
    found = F.try_multiply(signed, unit).try_cast(decimal(precision, scale))
    return F.when(size < 10.0**precision, found)
