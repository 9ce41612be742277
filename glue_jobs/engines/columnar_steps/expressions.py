"""Expressions of `filter` and `sql` on Arrow columns, with the same results as Spark SQL under ANSI rules.

Spark computes an operand only where needed. Examples: the right side of a sum if the left side is not null, and that of AND
if the left side is not false. A failure there fails the row. A failure elsewhere does not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from calve.names import SYSTEM_COLUMN
from calve.schema.columns import CHANGE
from glue_jobs.columns.arrow_types import arrow_type
from glue_jobs.decode.machines.cells import stored
from glue_jobs.engines.columnar.arranging import DAY_US
from glue_jobs.engines.columnar_steps.mask import text

Mask = NDArray[np.bool_]
CHANGE_TYPE = arrow_type(CHANGE["type"])


@dataclass(frozen=True, slots=True)
class Rows:
    """columns: the data columns. kafka: `_kafka` of each row. record: the index of each row's input record.

    change: `_change` of each row of change events; None: of other records.
    """

    columns: Mapping[str, pa.Array]
    kafka: pa.StructArray
    record: NDArray[np.int64]
    change: pa.StructArray | None = None

    @staticmethod
    def of(batch: pa.Table | pa.RecordBatch) -> Rows:
        arrays = dict(zip(batch.column_names, map(_whole, batch.columns), strict=True))
        kafka = arrays.pop(SYSTEM_COLUMN)
        name = CHANGE["name"]
        change = arrays.pop(name) if name in arrays and arrays[name].type == CHANGE_TYPE else None
        return Rows(arrays, kafka, np.arange(len(kafka)), change)

    def __len__(self) -> int:
        return len(self.record)

    def with_columns(self, columns: Mapping[str, pa.Array]) -> Rows:
        return replace(self, columns=columns)

    def at(self, path: tuple[str, ...]) -> pa.Array:
        """The value at a path of structs; null where a struct is null."""
        first, *names = path
        found = self._systems.get(first)
        found = self.columns[first] if found is None else found
        return pc.struct_field(found, names) if names else found

    def where(self, wanted: Mask) -> Rows:
        if wanted.all():
            return self
        kept = pa.array(wanted)
        columns = {name: each.filter(kept) for name, each in self.columns.items()}
        change = None if self.change is None else self.change.filter(kept)
        return Rows(columns, self.kafka.filter(kept), self.record[wanted], change)

    def take(self, places: NDArray[np.int64]) -> Rows:
        taken = pa.array(places)
        columns = {name: each.take(taken) for name, each in self.columns.items()}
        change = None if self.change is None else self.change.take(taken)
        return Rows(columns, self.kafka.take(taken), self.record[places], change)

    def table(self) -> pa.Table:
        """The rows with their system columns."""
        return pa.table({**self.columns, **self._systems})

    @property
    def _systems(self) -> dict[str, pa.StructArray]:
        found = {SYSTEM_COLUMN: self.kafka}
        return found if self.change is None else {CHANGE["name"]: self.change, **found}


def _whole(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    if isinstance(column, pa.Array):
        return column
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def as_mask(condition: pa.Array | pa.Scalar) -> Any:
    """True where a condition is true; null counts as false. One value for all rows if it is a scalar."""
    if isinstance(condition, pa.Scalar):
        return np.bool_(condition.as_py())
    return condition.fill_null(False).to_numpy(zero_copy_only=False)  # noqa: FBT003 what null becomes


Longs = NDArray[np.int64]
Computed = tuple[NDArray[Any], Mask]
LEAST, MOST = np.iinfo(np.int64).min, np.iinfo(np.int64).max


# Functions that fail if a value exceeds its type. They return values and a mask of failures. Their inputs are numbers for all
# rows, zero for null. Results for rows with a null are ignored.
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
    """The integer quotient, truncated towards zero."""
    plain = (right == 0) | (right == -1)
    divisor = np.where(plain, 1, right)
    found = (left - np.fmod(left, divisor)) // divisor
    return np.where(plain, -left, found), (right == 0) | ((right == -1) & (left == LEAST))


def _bounded(found: Longs, overflow: Mask, kind: pa.DataType) -> Computed:
    if pa.types.is_int32(kind):
        overflow = overflow | (found != found.astype(np.int32))
    return found, overflow


RIGHT_FIRST = (divide, remainder, quotient)
"""Functions whose left operand Spark computes only if the right one is not null."""
FAILING = frozenset({add, subtract, multiply, *RIGHT_FIRST})


Datum = Any
"""An Arrow array or scalar."""


# Functions that never fail: they return a value or null for every input.
def equal(left: Datum, right: Datum) -> Datum:
    """NaN equals itself."""
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
    """Null, not false, if the value matches none of the others and one of them is null."""
    return reduce(pc.or_kleene, (equal(value, each) for each in others))


def chosen(*parts: Datum) -> Datum:
    """Conditions, each followed by its value: the value of the first true condition, else the last argument."""
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
    """The UTC day of a timestamp."""
    numbers = moments.cast(pa.int64())
    days = numbers.fill_null(0).to_numpy() // DAY_US
    return pa.array(days.astype(np.int32), mask=pc.is_null(numbers).to_numpy(zero_copy_only=False)).cast(
        pa.date32()
    )


def cast(value: pa.Array, kind: pa.DataType) -> pa.Array:
    """To a type that holds all values; a float type holds the nearest ones."""
    if pa.types.is_string(kind):
        return text(value)
    return value.cast(kind, safe=not pa.types.is_floating(kind))


@dataclass(frozen=True, slots=True)
class At:
    """The value at a path of structs. kind: None if the value is only passed on."""

    path: tuple[str, ...]
    kind: pa.DataType | None = None
    fails: ClassVar[bool] = False


@dataclass(frozen=True, slots=True)
class Constant:
    """value: None, boolean, number, string or bytes; for dates and timestamps their stored number."""

    value: object
    kind: pa.DataType
    fails: ClassVar[bool] = False


@dataclass(frozen=True, slots=True)
class Call:
    """function: one of this module or of `pyarrow.compute`. kind: of the result; None if it is only passed on.

    fails: whether a row may fail. tries: a failure of the function gives null.
    """

    function: Callable[..., Any]
    arguments: tuple[Expression, ...]
    kind: pa.DataType | None
    fails: bool = False
    tries: bool = False


Expression = At | Constant | Call


@dataclass(frozen=True, slots=True)
class Values:
    """values: an array, or a scalar if all are equal. failed: where the row failed and the value is null; None for nowhere."""

    values: pa.Array | pa.Scalar
    failed: Mask | None = None

    def array(self, length: int) -> pa.Array:
        return pa.repeat(self.values, length) if isinstance(self.values, pa.Scalar) else self.values


SETTLED = {pc.and_kleene: False, pc.or_kleene: True}
"""AND and OR, with the value of the left side that settles the result."""


def evaluate(expression: Expression, rows: Rows) -> Values:
    match expression:
        case At(path):
            return Values(rows.at(path))
        case Constant(value, kind):
            return Values(pa.scalar(value, kind))
    function, kind = expression.function, expression.kind
    found = [evaluate(each, rows) for each in expression.arguments]
    plain = [each.values for each in found]
    if function in FAILING:
        values, failed = _computed(function, found, kind, len(rows))
        ordered = found[::-1] if function in RIGHT_FIRST else found
        return Values(values, either(_first_failure(ordered), None if expression.tries else failed))
    if function in SETTLED:
        left, right = found
        failures = left.failed
        if right.failed is not None:
            settled = as_mask(pc.equal(left.values, SETTLED[function]))
            failures = either(failures, right.failed & ~settled)
        return Values(function(*plain), failures)
    return Values(cast(plain[0], kind) if function is cast else function(*plain), _first_failure(found))


def _first_failure(found: Sequence[Values]) -> Mask | None:
    """Where an operand fails. A second operand is computed only if the first is not null."""
    first, *others = found
    if not others or others[0].failed is None:
        return first.failed
    return either(first.failed, others[0].failed & as_mask(pc.is_valid(first.values)))


def _computed(
    function: Callable[..., Computed], found: Sequence[Values], kind: pa.DataType, length: int
) -> tuple[pa.Array, Mask]:
    arrays = [each.array(length) for each in found]
    there = np.logical_and.reduce([as_mask(pc.is_valid(each)) for each in arrays])
    numbers = (each.cast(_computed_as(each.type)).fill_null(0).to_numpy() for each in arrays)
    values, failed = function(*numbers, kind)
    failed = failed & there
    made = np.where(there & ~failed, values, 0).astype(stored(_computed_as(kind)))
    return pa.array(made, mask=~there | failed).cast(kind), failed


def _computed_as(kind: pa.DataType) -> pa.DataType:
    return pa.float64() if pa.types.is_floating(kind) else pa.int64()


def either(one: Mask | None, other: Mask | None) -> Mask | None:
    if one is None or other is None:
        return other if one is None else one
    return one | other
