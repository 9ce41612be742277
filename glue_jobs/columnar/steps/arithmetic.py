"""Functions that fail where a value is beyond its type: the values, and where there are none.

They are given numbers for all rows, zero for null, and what they say of rows with a null does not count.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glue_jobs.columnar.steps.rows import Mask

Longs = NDArray[np.int64]
Computed = tuple[NDArray[Any], Mask]
LEAST, MOST = np.iinfo(np.int64).min, np.iinfo(np.int64).max


def add(left: Longs, right: Longs, kind: pa.DataType) -> Computed:
    found = left + right
    return _bounded(found, ((left ^ found) & (right ^ found)) < 0, kind)


def subtract(left: Longs, right: Longs, kind: pa.DataType) -> Computed:
    found = left - right
    return _bounded(found, ((left ^ right) & (left ^ found)) < 0, kind)


def multiply(left: Longs, right: Longs, kind: pa.DataType) -> Computed:
    found = left * right
    plain = (left == 0) | (left == -1)  # what division cannot prove
    wrong = found // np.where(plain, 1, left) != right
    return _bounded(found, np.where(plain, (left == -1) & (right == LEAST), wrong), kind)


def divide(left: NDArray[np.float64], right: NDArray[np.float64], _: pa.DataType) -> Computed:
    nothing = right == 0
    with np.errstate(all="ignore"):
        return left / np.where(nothing, 1.0, right), nothing


def remainder(left: Longs, right: Longs, _: pa.DataType) -> Computed:
    """With the sign of the dividend."""
    plain = (right == 0) | (right == -1)
    return np.where(plain, 0, np.fmod(left, np.where(plain, 1, right))), right == 0


def quotient(left: Longs, right: Longs, _: pa.DataType) -> Computed:
    """The whole part, cut off towards zero."""
    plain = (right == 0) | (right == -1)
    divisor = np.where(plain, 1, right)
    found = (left - np.fmod(left, divisor)) // divisor
    return np.where(plain, -left, found), (right == 0) | ((right == -1) & (left == LEAST))


def moment_of_seconds(numbers: Longs, kind: pa.DataType) -> Computed:
    return multiply(np.full_like(numbers, 1_000_000), numbers, kind)


def moment_of_millis(numbers: Longs, kind: pa.DataType) -> Computed:
    return multiply(np.full_like(numbers, 1_000), numbers, kind)


def _bounded(found: Longs, overflow: Mask, kind: pa.DataType) -> Computed:
    if pa.types.is_int32(kind):
        overflow = overflow | (found != found.astype(np.int32))
    return found, overflow


FAILING: Mapping[str, Callable[..., Computed]] = {
    "add": add,
    "subtract": subtract,
    "multiply": multiply,
    "divide": divide,
    "remainder": remainder,
    "quotient": quotient,
    "moment_of_seconds": moment_of_seconds,
    "moment_of_millis": moment_of_millis,
}
RIGHT_FIRST = ("divide", "remainder", "quotient")
"""Functions of which Spark computes the left operand only where the right one is not null."""
