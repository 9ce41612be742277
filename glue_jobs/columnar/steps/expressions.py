"""Expressions of `filter` and `sql` on columns of Arrow, with the values that Spark SQL computes under ANSI's rules.

Spark computes an operand only where it needs to: of a sum the right one where the left one is not null, of AND where the left one
is not false. What fails there fails the row, and what fails elsewhere does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from glue_jobs.columnar.steps.arithmetic import FAILING, RIGHT_FIRST
from glue_jobs.columnar.steps.functions import FUNCTIONS, cast
from glue_jobs.columnar.steps.rows import Mask, Rows
from glue_jobs.columnar.types import stored


@dataclass(frozen=True, slots=True)
class At:
    """What is at a path of structs."""

    path: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Constant:
    """value: None, a truth value, a number, a text or bytes; of days and moments the number that they are stored by."""

    value: object
    kind: pa.DataType


@dataclass(frozen=True, slots=True)
class Call:
    """`and`, `or`, `cast`, or a function of `FUNCTIONS` or `FAILING`. kind: the type of its values; None: any. tries: where it
    fails is null.
    """

    function: str
    arguments: tuple[Expression, ...]
    kind: pa.DataType | None
    tries: bool = False


Expression = At | Constant | Call


@dataclass(frozen=True, slots=True)
class Values:
    """values: an array, or a scalar where all are the same. failed: where there is none but a null; None: nowhere."""

    values: pa.Array | pa.Scalar
    failed: Mask | None = None

    def array(self, length: int) -> pa.Array:
        return pa.repeat(self.values, length) if isinstance(self.values, pa.Scalar) else self.values


def evaluate(expression: Expression, rows: Rows) -> Values:
    match expression:
        case At(path):
            return Values(rows.at(path))
        case Constant(value, kind):
            return Values(pa.scalar(value, kind))
        case Call(function, arguments, kind, tries):
            found = [evaluate(each, rows) for each in arguments]
    if function in ("and", "or"):
        return _connected(function, *found)
    if function in FAILING:
        ordered = found[::-1] if function in RIGHT_FIRST else found
        values, failed = _computed(function, found, kind, len(rows))
        return Values(values, _either(_first_failure(ordered), None if tries else failed))
    plain = [each.values for each in found]
    made = cast(plain[0], kind) if function == "cast" else FUNCTIONS[function](*plain)
    return Values(made, _first_failure(found))


def _connected(function: str, left: Values, right: Values) -> Values:
    connect, settles = (pc.and_kleene, False) if function == "and" else (pc.or_kleene, True)
    failed = left.failed
    if right.failed is not None:
        settled = _mask(pc.fill_null(pc.equal(left.values, settles), False))  # noqa: FBT003 what null becomes
        failed = _either(failed, right.failed & ~settled)
    return Values(connect(left.values, right.values), failed)


def _first_failure(found: Sequence[Values]) -> Mask | None:
    """Where one of the operands fails; of two, the second is computed where the first is not null."""
    first, *others = found
    if not others or others[0].failed is None:
        return first.failed
    return _either(first.failed, others[0].failed & _mask(pc.is_valid(first.values)))


def _computed(
    function: str, found: Sequence[Values], kind: pa.DataType, length: int
) -> tuple[pa.Array, Mask]:
    arrays = [each.array(length) for each in found]
    there = np.logical_and.reduce([_mask(pc.is_valid(each)) for each in arrays])
    values, failed = FAILING[function](*map(_numbers, arrays), kind)
    failed = failed & there
    numbers = np.where(there & ~failed, values, 0).astype(stored(_computed_as(kind)))
    return pa.array(numbers, mask=~there | failed).cast(kind), failed


def _numbers(array: pa.Array) -> NDArray[Any]:
    found: NDArray[Any] = array.cast(_computed_as(array.type)).fill_null(0).to_numpy()
    return found


def _computed_as(kind: pa.DataType) -> pa.DataType:
    """How numbers of a type are computed."""
    return pa.float64() if pa.types.is_floating(kind) else pa.int64()


def _mask(condition: pa.Array | pa.Scalar) -> Mask | np.bool_:
    """Of a condition that is never null."""
    if isinstance(condition, pa.Scalar):
        return np.bool_(condition.as_py())
    found: Mask = condition.to_numpy(zero_copy_only=False)
    return found


def _either(one: Mask | None, other: Mask | None) -> Mask | None:
    if one is None or other is None:
        return other if one is None else one
    return one | other
