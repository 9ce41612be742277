"""Sums of floating-point columns that do not depend on the order of the rows.

Floating-point addition does: after a compaction the same rows would add up to another last digit, and a file would be corrected
for nothing. So each number is taken apart into an integer and a power of two, integers of about the same power are added exactly,
and only the end result is rounded, once.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

MANTISSA_BITS, SPECIAL, BIAS = 52, 2047, 1075
SHIFT = 5
"""Numbers whose exponents share all bits but the last five are added together: a 53-bit mantissa, shifted by up to 31 bits."""

INFINITE, MINUS_INFINITE, NOT_A_NUMBER = 1000, 1001, 1002
WHOLE = pa.decimal128(38, 0)
POWERS = (
    pa.array([1 << i for i in range(1 << SHIFT)], pa.int64())
    .cast(pa.decimal128(19, 0))
    .cast(pa.decimal128(10, 0))
)
"""In ten digits: Arrow reserves the digits of both factors and one more, and a product has 38 at most."""


def taken_apart(array: Any) -> tuple[Any, Any]:
    """(integer, power) of each number, as columns; both null of null."""
    bits = pc.cast(array, pa.float64()).view(pa.int64())
    negative = pc.less(bits, 0)
    stored = pc.bit_wise_and(pc.shift_right(bits, MANTISSA_BITS), SPECIAL)
    fraction = pc.bit_wise_and(bits, (1 << MANTISSA_BITS) - 1)
    mantissa = pc.if_else(pc.equal(stored, 0), fraction, pc.add(fraction, 1 << MANTISSA_BITS))
    exponent = pc.max_element_wise(stored, 1, skip_nulls=False)
    factor = pc.take(POWERS, pc.bit_wise_and(exponent, (1 << SHIFT) - 1))
    signed = pc.cast(pc.if_else(negative, pc.negate(mantissa), mantissa), pa.decimal128(19, 0))
    special = pc.equal(stored, SPECIAL)
    infinite = pc.if_else(negative, MINUS_INFINITE, INFINITE)
    mark = pc.if_else(pc.equal(fraction, 0), infinite, NOT_A_NUMBER)
    power = pc.if_else(special, mark, pc.shift_right(exponent, SHIFT))
    whole = pc.if_else(special, pa.scalar(0, WHOLE), pc.cast(pc.multiply(signed, factor), WHOLE))
    return whole, pc.cast(power, pa.int16())


def total(parts: Iterable[tuple[Any, int | None]]) -> float | None:
    """The sum of (sum of integers, power), correctly rounded; None where every number was null."""
    exact, powers = Fraction(0), set()
    for integer, power in parts:
        if power is None:
            continue
        powers.add(power)
        if power < INFINITE:
            exact += Fraction(int(integer)) * Fraction(2) ** ((power << SHIFT) - BIAS)
    if not powers:
        return None
    if NOT_A_NUMBER in powers or {INFINITE, MINUS_INFINITE} <= powers:
        return math.nan
    if INFINITE in powers or MINUS_INFINITE in powers:
        return math.inf if INFINITE in powers else -math.inf
    try:
        return float(exact)
    except OverflowError:
        return math.inf if exact > 0 else -math.inf
