"""Expressions of measures as Spark's columns: made of their trees, never of text."""

from __future__ import annotations

from functools import reduce

from pyspark.sql import Column
from pyspark.sql import functions as F

from calve.measures import Cast, ColumnAt, Number, Typed, columns_in
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
    return SIGNS[tree.sign](_value(tree.left), _value(tree.right))
