"""Group by, with exact sums, counts, minima and maxima in bounded memory. The order of rows does not change a result.

Floating-point addition depends on the order: after a compaction the last digit could differ, and the file would be corrected
for no reason. So each number is split into an integer and a power of two. Integers of a similar power are added exactly, and
only the total is rounded.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg import types

from calve.config.publishing import Export, Measure
from lambdas.csv_export.scan import Column
from lambdas.csv_export.window import ExportFailed

MANTISSA_BITS, SPECIAL, BIAS = 52, 2047, 1075
SHIFT = 5
"""Numbers whose exponents differ only in the last five bits are added together: a 53-bit mantissa, shifted by up to 31 bits."""

INFINITE, MINUS_INFINITE, NOT_A_NUMBER = 1000, 1001, 1002
WHOLE = pa.decimal128(38, 0)
POWERS = (
    pa.array([1 << i for i in range(1 << SHIFT)], pa.int64())
    .cast(pa.decimal128(19, 0))
    .cast(pa.decimal128(10, 0))
)
"""In ten digits: Arrow reserves the digits of both factors and one more, and a product has at most 38."""


def split_numbers(array: Any) -> tuple[Any, Any]:
    """(integer, power) of each number, as columns; null of null."""
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
    """The sum of (sum of integers, power), correctly rounded; None if every number was null."""
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


STATE_BYTES = 128 * 1024 * 1024
"""Limit in bytes of the groups and their sums; merging and sorting need about twice as much in addition."""

MERGE_ROWS = 100_000
NARROW_DIGITS = 18


def columns_read(export: Export) -> tuple[str, ...]:
    """The columns that an aggregating export needs, without duplicates. At least one, so that rows can be counted."""
    measured = [measure.column for measure in export.measures if measure.column]
    return tuple(dict.fromkeys([*export.group_by, *measured])) or (export.time_column,)


def columns_written(export: Export, read: tuple[Column, ...]) -> tuple[Column, ...]:
    """The columns of the file: the groups, then the measures.

    Raises:
        ExportFailed: `bad_column`: a function does not support the column's type.
    """
    kinds = {column.name: column.type for column in read}
    for name in export.group_by:
        if not isinstance(kinds[name], types.PrimitiveType):
            raise _bad_column(export, f"cannot group by {name}, which is a {kinds[name]}")
    keys = [Column(name, kinds[name]) for name in export.group_by]
    return (*keys, *(Column(each.name, _result_type(export, each, kinds)) for each in export.measures))


@dataclass(slots=True)
class _State:
    """Partial results, one row per group in each table. The first table is the result of the last merge."""

    keys: list[str]
    functions: list[tuple[str, str]]
    tables: list[pa.Table] = field(default_factory=list)

    def add(self, rows: pa.Table) -> None:
        self.tables.append(self._grouped(rows))
        if sum(each.num_rows for each in self.tables[1:]) >= max(MERGE_ROWS, self.tables[0].num_rows):
            self.merge()

    def merge(self) -> pa.Table:
        if len(self.tables) > 1:
            self.tables = [self._grouped(pa.concat_tables(self.tables))]
        return self.tables[0]

    @property
    def size_bytes(self) -> int:
        return sum(table.nbytes for table in self.tables)

    def _grouped(self, rows: pa.Table) -> pa.Table:
        grouped = rows.group_by(self.keys, use_threads=False).aggregate(self.functions)
        return grouped.rename_columns([*self.keys, *(name for name, _ in self.functions)])


class Aggregation:
    """Takes batches; returns one row per group, sorted by the group."""

    def __init__(self, export: Export, *, state_bytes: int = STATE_BYTES) -> None:
        self._export = export
        self._state_bytes = state_bytes
        self._keys = [f"k{i}" for i in range(len(export.group_by))] or ["all"]
        self._plain: _State | None = None
        self._sums: dict[int, _State] = {}

    def add(self, batch: pa.RecordBatch) -> None:
        """Add one batch. Raises ExportFailed: `too_many_groups`."""
        keys = [batch.column(name) for name in self._export.group_by]
        keys = keys or [pa.repeat(pa.scalar(0, pa.int8()), batch.num_rows)]
        plain, floats = {}, {}
        for i, measure in enumerate(self._export.measures):
            if measure.function == "sum" and pa.types.is_floating(batch.column(measure.column).type):
                floats[i] = split_numbers(batch.column(measure.column))
            else:
                plain[f"m{i}"] = _partial(measure, batch)
        if self._plain is None:
            merging = [measure.function.replace("count", "sum") for measure in self._export.measures]
            self._plain = _State(self._keys, [(name, merging[int(name[1:])]) for name in plain])
            self._sums = {i: _State([*self._keys, "power"], [("integer", "sum")]) for i in floats}
        self._plain.add(pa.table([*keys, *plain.values()], names=[*self._keys, *plain]))
        for i, (integer, power) in floats.items():
            self._sums[i].add(pa.table([*keys, power, integer], names=[*self._keys, "power", "integer"]))
        states = [*self._sums.values(), self._plain]
        if sum(state.size_bytes for state in states) > self._state_bytes:
            for state in states:
                state.merge()
        if sum(state.size_bytes for state in states) > self._state_bytes:
            groups = self._plain.merge().num_rows
            raise ExportFailed(
                "too_many_groups",
                f"the groups do not fit {self._state_bytes // (1024 * 1024)} MB: there are more than {groups:,}",
                fix=f"group by fewer columns in exports.{self._export.name}, or export a shorter window",
            )

    def batches(self, rows: int) -> Iterator[pa.RecordBatch]:
        """The result, `rows` at a time."""
        if self._plain is None:
            return
        order = [(key, "ascending") for key in self._keys]
        plain = self._plain.merge().sort_by(order)
        sums: dict[int, pa.Table] = {}
        for i, state in self._sums.items():
            grouped = state.merge().group_by(self._keys, use_threads=False)
            sums[i] = grouped.aggregate([("power", "list"), ("integer", "list")]).sort_by(order)
        names = [*self._export.group_by, *(measure.name for measure in self._export.measures)]
        for start in range(0, plain.num_rows, rows):
            columns = [plain[key].slice(start, rows) for key in self._keys[: len(self._export.group_by)]]
            for i in range(len(self._export.measures)):
                if i not in sums:
                    columns.append(plain[f"m{i}"].slice(start, rows))
                    continue
                piece = sums[i].slice(start, rows)
                integers, powers = (piece[name].to_pylist() for name in ("integer_list", "power_list"))
                totals = [total(zip(*pair, strict=True)) for pair in zip(integers, powers, strict=True)]
                columns.append(pa.array(totals, pa.float64()))
            flat = [each.combine_chunks() if isinstance(each, pa.ChunkedArray) else each for each in columns]
            yield pa.RecordBatch.from_arrays(flat, names)


def _result_type(export: Export, measure: Measure, kinds: dict[str, types.IcebergType]) -> types.IcebergType:
    if measure.function == "count":
        return types.LongType()
    if measure.column is None:
        raise _bad_column(export, f"{measure.function} needs a column")
    kind = kinds[measure.column]
    if measure.function == "sum":
        match kind:
            case types.IntegerType() | types.LongType():
                return types.DecimalType(38, 0)
            case types.DecimalType():
                return types.DecimalType(38, kind.scale)
            case types.FloatType() | types.DoubleType():
                return types.DoubleType()
        raise _bad_column(export, f"cannot sum {measure.column}, which is a {kind}")
    if not isinstance(kind, types.PrimitiveType):
        raise _bad_column(export, f"cannot compare values of {measure.column}, which is a {kind}")
    return kind


def _partial(measure: Measure, batch: pa.RecordBatch) -> Any:
    """A column of values to merge into the measure; integers and decimals in types that cannot overflow."""
    if measure.column is None:
        return pa.repeat(pa.scalar(1, pa.int64()), batch.num_rows)
    column = batch.column(measure.column)
    if measure.function == "count":
        return pc.cast(pc.is_valid(column), pa.int64())
    if measure.function != "sum":
        return column
    if not pa.types.is_decimal(column.type):
        return pc.cast(column, WHOLE)
    scale, narrow = column.type.scale, column.type.precision <= NARROW_DIGITS
    return pc.cast(column, pa.decimal128(38, scale) if narrow else pa.decimal256(76, scale))


def _bad_column(export: Export, why: str) -> ExportFailed:
    return ExportFailed(
        "bad_column",
        f"the export {why}",
        fix=f"correct group_by and measures of exports.{export.name}",
    )
