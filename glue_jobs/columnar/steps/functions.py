"""Functions that have a value, or null, for whatever they are given, as Spark SQL computes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from glue_jobs.columnar.steps.masked import text

Datum = Any
"""An array or a scalar of Arrow."""
DAY_US = 86_400_000_000


def equal(left: Datum, right: Datum) -> Datum:
    """NaN is equal to itself."""
    found = pc.equal(left, right)
    if pa.types.is_floating(left.type):
        return pc.or_(found, pc.and_(pc.is_nan(left), pc.is_nan(right)))
    return found


def less(left: Datum, right: Datum) -> Datum:
    """NaN is greater than all other numbers."""
    found = pc.less(left, right)
    if pa.types.is_floating(left.type):
        return pc.or_(found, pc.and_(pc.invert(pc.is_nan(left)), pc.is_nan(right)))
    return found


def equal_or_both_null(left: Datum, right: Datum) -> Datum:
    one, other = pc.is_null(left), pc.is_null(right)
    return pc.if_else(pc.or_(one, other), pc.and_(one, other), equal(left, right))


def one_of(value: Datum, *others: Datum) -> Datum:
    """Null, not false, where the value is none of them and one of them is null."""
    return reduce(pc.or_kleene, (equal(value, each) for each in others))


def chosen(*parts: Datum) -> Datum:
    """Of conditions, each before its value, the value of the first that is true; else the last."""
    *branches, found = parts
    for condition, value in reversed(list(zip(branches[::2], branches[1::2], strict=True))):
        found = pc.if_else(pc.fill_null(condition, False), value, found)  # noqa: FBT003 what null becomes
    return found


def joined(*parts: Datum) -> Datum:
    return pc.binary_join_element_wise(*parts, "", null_handling="emit_null")


def begins_with(value: Datum, pattern: pa.Scalar) -> Datum:
    return pc.starts_with(value, pattern.as_py())


def ends_with(value: Datum, pattern: pa.Scalar) -> Datum:
    return pc.ends_with(value, pattern.as_py())


def contains(value: Datum, pattern: pa.Scalar) -> Datum:
    return pc.match_substring(value, pattern.as_py())


def at_key(value: pa.Array, key: pa.Scalar) -> pa.Array:
    return pc.map_lookup(value, key, "first")


def day_of(moments: pa.Array) -> pa.Array:
    """The day of a moment in UTC."""
    numbers = moments.cast(pa.int64())
    days = numbers.fill_null(0).to_numpy() // DAY_US
    return pa.array(days.astype(np.int32), mask=pc.is_null(numbers).to_numpy(zero_copy_only=False)).cast(
        pa.date32()
    )


def cast(value: pa.Array, kind: pa.DataType) -> pa.Array:
    """To a type that has all values, or the nearest ones where it is one of floating point."""
    if pa.types.is_string(kind):
        return text(value)
    return value.cast(kind, safe=not pa.types.is_floating(kind))


FUNCTIONS: Mapping[str, Callable[..., Datum]] = {
    "not": pc.invert,
    "is_null": lambda value: pc.is_null(value),
    "is_not_null": pc.is_valid,
    "equal": equal,
    "less": less,
    "greater": lambda left, right: less(right, left),
    "less_equal": lambda left, right: pc.invert(less(right, left)),
    "greater_equal": lambda left, right: pc.invert(less(left, right)),
    "equal_or_both_null": equal_or_both_null,
    "one_of": one_of,
    "chosen": chosen,
    "first_there": pc.coalesce,
    "plus": pc.add,
    "minus": pc.subtract,
    "times": pc.multiply,
    "joined": joined,
    "begins_with": begins_with,
    "ends_with": ends_with,
    "contains": contains,
    "at_key": at_key,
    "day_of": day_of,
}
"""`plus`, `minus` and `times` are for floating point, and for decimals where every result has room."""
