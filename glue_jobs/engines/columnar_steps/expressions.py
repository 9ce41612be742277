"""Expressions of `filter` and `sql` on columns of Arrow, with the values that Spark SQL computes under ANSI's rules.

Spark computes an operand only where it needs to: of a sum the right one where the left one is not null, of AND where the left one
is not false. What fails there fails the row, and what fails elsewhere does not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from calve.names import SYSTEM_COLUMN
from glue_jobs.engines.columnar.cells import stored
from glue_jobs.engines.columnar_steps.mask import text

Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Rows:
    """columns: the data columns. kafka: `_kafka` of each row. record: which of the records that came in the row is of."""

    columns: Mapping[str, pa.Array]
    kafka: pa.StructArray
    record: NDArray[np.int64]

    @staticmethod
    def of(batch: pa.Table | pa.RecordBatch) -> Rows:
        arrays = {
            name: _whole(column) for name, column in zip(batch.column_names, batch.columns, strict=True)
        }
        kafka = arrays.pop(SYSTEM_COLUMN)
        return Rows(arrays, kafka, np.arange(len(kafka)))

    def __len__(self) -> int:
        return len(self.record)

    def with_columns(self, columns: Mapping[str, pa.Array]) -> Rows:
        return replace(self, columns=columns)

    def at(self, path: tuple[str, ...]) -> pa.Array:
        """What is at a path of structs: null where one of them is."""
        first, *names = path
        found = self.kafka if first == SYSTEM_COLUMN else self.columns[first]
        return pc.struct_field(found, names) if names else found

    def where(self, wanted: Mask) -> Rows:
        if wanted.all():
            return self
        kept = pa.array(wanted)
        columns = {name: each.filter(kept) for name, each in self.columns.items()}
        return Rows(columns, self.kafka.filter(kept), self.record[wanted])

    def take(self, places: NDArray[np.int64]) -> Rows:
        taken = pa.array(places)
        columns = {name: each.take(taken) for name, each in self.columns.items()}
        return Rows(columns, self.kafka.take(taken), self.record[places])


def _whole(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    if isinstance(column, pa.Array):
        return column
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def as_mask(condition: pa.Array) -> Mask:
    """Where a condition is true; where it is null it is not."""
    found: Mask = condition.fill_null(False).to_numpy(zero_copy_only=False)  # noqa: FBT003 what null becomes
    return found


Longs = NDArray[np.int64]
Computed = tuple[NDArray[Any], Mask]
LEAST, MOST = np.iinfo(np.int64).min, np.iinfo(np.int64).max


# Functions that fail where a value is beyond its type: the values, and where there are none. They are given numbers for all rows,
# zero for null, and what they say of rows with a null does not count.
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


Datum = Any
"""An array or a scalar of Arrow."""
DAY_US = 86_400_000_000


# Functions that have a value, or null, for whatever they are given.
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
