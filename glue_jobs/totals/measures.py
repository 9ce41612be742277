"""Expressions of measures on Arrow columns: exact values, or null where a result has too many digits (ADR 20).

Decimals are computed with 256 bits, which hold every sum and product of two decimals of 38 digits.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from functools import reduce

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from calve.modes.measures import (
    Arithmetic,
    Cast,
    ColumnAt,
    Expression,
    Number,
    Typed,
    columns_in,
    decimal,
    result_digits,
)
from calve.schema.columns import decimal_digits
from glue_jobs.columns.arrow_types import leaf_type

Columns = Mapping[str, pa.Array]
"""The columns of records, by path."""
CHECKED = {"+": pc.add_checked, "-": pc.subtract_checked, "*": pc.multiply_checked}
EXACT = {"+": pc.add, "-": pc.subtract, "*": pc.multiply}
LONG = (-(1 << 63), 1 << 63)
MOST_DIGITS = 76
"""The digits of a decimal of 256 bits."""


def value(of: Typed, columns: Columns, length: int) -> pa.Array:
    """The values of an expression; null if a column is null, or if the value cannot be computed exactly."""
    return _value(of.of, columns, length)


def is_lost(of: Typed, columns: Columns, found: pa.Array) -> pa.Array:
    """Where all columns have values but the value that was found is null: it has too many digits."""
    given = (pc.is_valid(columns[path]) for path in columns_in(of.of))
    return reduce(pc.and_, given, pc.is_null(found))


def fitted(found: pa.Array, kind: str) -> pa.Array:
    """Numbers as `long` or a decimal. Rounds halves away from zero; null if there are too many digits."""
    digits = decimal_digits(kind)
    if digits is None:
        if not pa.types.is_decimal(found.type):
            return found.cast(pa.int64())
        least, most = (pa.scalar(Decimal(each), pa.decimal256(MOST_DIGITS, 0)) for each in LONG)
        return _where(pc.and_(pc.less_equal(least, found), pc.less(found, most)), found).cast(pa.int64())
    precision, scale = digits
    found = wide(found)
    room, before = precision - scale, found.type.precision - found.type.scale
    if found.type.scale > scale:
        found = found.cast(pa.decimal256(MOST_DIGITS, found.type.scale))
        found, before = pc.round(found, scale, "half_towards_infinity"), before + 1
    if before > room:
        limit = pa.scalar(Decimal(10) ** room, pa.decimal256(MOST_DIGITS, found.type.scale))
        found = _where(pc.less(pc.abs(found), limit), found)
    return found.cast(leaf_type(kind))


def wide(found: pa.Array) -> pa.Array:
    """Integers and decimals as decimals of 256 bits."""
    kind = found.type
    exact = (kind.precision, kind.scale) if pa.types.is_decimal(kind) else (19, 0)
    return found.cast(pa.decimal256(*exact))


def _value(tree: Expression, columns: Columns, length: int) -> pa.Array:
    match tree:
        case ColumnAt(path):
            return columns[path]
        case Number(text):
            number = Decimal(text) if "." in text else int(text)
            return pa.repeat(pa.scalar(number, leaf_type(tree.kind)), length)
        case Cast(of, kind, of_float=True):
            return _nearest(_value(of, columns, length), *(decimal_digits(kind) or (0, 0)))
        case Cast(of, kind):
            return fitted(_value(of, columns, length), kind)
    return _computed(tree, _value(tree.left, columns, length), _value(tree.right, columns, length))


def _computed(tree: Arithmetic, left: pa.Array, right: pa.Array) -> pa.Array:
    if pa.types.is_integer(left.type):
        try:
            return CHECKED[tree.sign](left, right)
        except pa.ArrowInvalid:  # some results exceed 64 bits
            return fitted(EXACT[tree.sign](wide(left), wide(right)), "long")
    one, other = ((each.type.precision, each.type.scale) for each in (left, right))
    kind = decimal(*result_digits(tree, one, other))
    left, right = wide(left), wide(right)
    if tree.sign == "*":  # a product has the digits of both, but Arrow wants room for one more
        left = left.view(pa.decimal256(min(one[0], MOST_DIGITS - 1 - other[0]), one[1]))
    return fitted(EXACT[tree.sign](left, right), kind)


def _nearest(of: pa.Array, precision: int, scale: int) -> pa.Array:
    """Round as a `Cast` of a float; null if there are too many digits. Every step but the first is exact."""
    with np.errstate(all="ignore"):
        scaled = of.cast(pa.float64()).to_numpy(zero_copy_only=False) * 10.0**scale
        size = np.abs(scaled)
        fits = size < 10.0**precision
        size = np.where(fits, size, 0.0)
    below = np.floor(size)
    units = below.astype(np.int64) + (size - below >= 0.5)
    fits &= units < 10**precision
    signed = pa.array(np.where(scaled < 0, -units, units), mask=~fits)
    return signed.cast(pa.decimal128(19, 0)).view(pa.decimal128(precision, scale))


def _where(wanted: pa.Array, found: pa.Array) -> pa.Array:
    return pc.if_else(wanted, found, pa.scalar(None, found.type))
