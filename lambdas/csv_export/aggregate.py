"""Group by, with sums, counts, least and greatest values: exact, whatever the order of the rows, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.types import (
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    PrimitiveType,
)

from calve.config.export import Export, Measure
from lambdas.csv_export import exact_sum
from lambdas.csv_export.failure import ExportFailed
from lambdas.csv_export.scan import Column

STATE_BYTES = 128 * 1024 * 1024
"""What the groups and their sums may take; merging and sorting them takes about as much again, twice."""

MERGE_ROWS = 100_000
NARROW_DIGITS = 18


def columns_read(export: Export) -> tuple[str, ...]:
    """The columns that an aggregating export needs, each once; at least one, for there are rows to count."""
    measured = [measure.column for measure in export.measures if measure.column]
    return tuple(dict.fromkeys([*export.group_by, *measured])) or (export.time_column,)


def columns_written(export: Export, read: tuple[Column, ...]) -> tuple[Column, ...]:
    """The columns of the file: the groups, then the measures.

    Raises:
        ExportFailed: `bad_column`, where a function does not suit a column.
    """
    types = {column.name: column.type for column in read}
    for name in export.group_by:
        if not isinstance(types[name], PrimitiveType):
            raise _bad_column(export, f"cannot group by {name}, which is a {types[name]}")
    keys = [Column(name, types[name]) for name in export.group_by]
    return (*keys, *(Column(each.name, _result_type(export, each, types)) for each in export.measures))


@dataclass(slots=True)
class _State:
    """Partial results: one row per group so far, and what came in since they were last merged."""

    keys: list[str]
    functions: list[tuple[str, str]]
    merged: pa.Table | None = None
    pending: list[pa.Table] = field(default_factory=list)

    def add(self, rows: pa.Table) -> None:
        self.pending.append(self._grouped(rows))
        if sum(each.num_rows for each in self.pending) >= max(MERGE_ROWS, self.rows):
            self.merge()

    def merge(self) -> None:
        if self.pending:
            known = [self.merged] if self.merged is not None else []
            self.merged = self._grouped(pa.concat_tables([*known, *self.pending]))
            self.pending = []

    @property
    def rows(self) -> int:
        return self.merged.num_rows if self.merged is not None else 0

    @property
    def size_bytes(self) -> int:
        held = [*self.pending, *([self.merged] if self.merged is not None else [])]
        return sum(table.nbytes for table in held)

    def _grouped(self, rows: pa.Table) -> pa.Table:
        grouped = rows.group_by(self.keys, use_threads=False).aggregate(self.functions)
        return grouped.rename_columns([*self.keys, *(name for name, _ in self.functions)])


class Aggregation:
    """Takes batches, gives one row per group, sorted by the group."""

    def __init__(self, export: Export, *, state_bytes: int = STATE_BYTES) -> None:
        self._export = export
        self._state_bytes = state_bytes
        self._keys = [f"k{i}" for i in range(len(export.group_by))] or ["all"]
        self._plain: _State | None = None
        self._sums: dict[int, _State] = {}

    def add(self, batch: pa.RecordBatch) -> None:
        """Take in one batch.

        Raises:
            ExportFailed: `too_many_groups`.
        """
        keys = [batch.column(name) for name in self._export.group_by]
        keys = keys or [pa.repeat(pa.scalar(0, pa.int8()), batch.num_rows)]
        floats = {i for i, measure in enumerate(self._export.measures) if _sums_floats(measure, batch)}
        plain = [i for i in range(len(self._export.measures)) if i not in floats]
        if self._plain is None:
            functions = [(f"m{i}", _merging(self._export.measures[i])) for i in plain]
            self._plain = _State(self._keys, functions)
            self._sums = {i: _State([*self._keys, "power"], [("integer", "sum")]) for i in floats}
        values = [_partial(self._export.measures[i], batch) for i in plain]
        self._plain.add(pa.table([*keys, *values], names=[*self._keys, *(f"m{i}" for i in plain)]))
        for i, state in self._sums.items():
            integer, power = exact_sum.taken_apart(batch.column(self._export.measures[i].column))
            state.add(pa.table([*keys, power, integer], names=[*self._keys, "power", "integer"]))
        self._check()

    def batches(self, rows: int) -> Iterator[pa.RecordBatch]:
        """The result, `rows` at a time."""
        if self._plain is None:
            return
        order = [(key, "ascending") for key in self._keys]
        self._plain.merge()
        assert self._plain.merged is not None  # noqa: S101 - something was added
        plain = self._plain.merged.sort_by(order)
        sums = {i: self._totals(state).sort_by(order) for i, state in self._sums.items()}
        names = [*self._export.group_by, *(measure.name for measure in self._export.measures)]
        for start in range(0, plain.num_rows, rows):
            columns = [plain[key].slice(start, rows) for key in self._keys[: len(self._export.group_by)]]
            for i in range(len(self._export.measures)):
                if i in sums:
                    columns.append(_rounded(sums[i].slice(start, rows)))
                else:
                    columns.append(plain[f"m{i}"].slice(start, rows))
            yield pa.RecordBatch.from_arrays([_flat(column) for column in columns], names)

    def _totals(self, state: _State) -> pa.Table:
        state.merge()
        grouped = state.merged.group_by(self._keys, use_threads=False)  # type: ignore[union-attr]
        return grouped.aggregate([("power", "list"), ("integer", "list")])

    def _check(self) -> None:
        states = [*self._sums.values(), *([self._plain] if self._plain else [])]
        if sum(state.size_bytes for state in states) <= self._state_bytes:
            return
        for state in states:
            state.merge()
        if sum(state.size_bytes for state in states) > self._state_bytes:
            groups = self._plain.rows if self._plain else 0
            raise ExportFailed(
                "too_many_groups",
                f"the groups do not fit {self._state_bytes // (1024 * 1024)} MB: there are more than {groups:,}",
                fix=f"group by fewer columns in exports.{self._export.name}, or export a shorter window",
            )


def _result_type(export: Export, measure: Measure, types: dict[str, IcebergType]) -> IcebergType:
    if measure.function == "count":
        return LongType()
    if measure.column is None:
        raise _bad_column(export, f"{measure.function} needs a column")
    kind = types[measure.column]
    if measure.function == "sum":
        match kind:
            case IntegerType() | LongType():
                return DecimalType(38, 0)
            case DecimalType():
                return DecimalType(38, kind.scale)
            case FloatType() | DoubleType():
                return DoubleType()
        raise _bad_column(export, f"cannot sum {measure.column}, which is a {kind}")
    if not isinstance(kind, PrimitiveType):
        raise _bad_column(export, f"cannot compare values of {measure.column}, which is a {kind}")
    return kind


def _sums_floats(measure: Measure, batch: pa.RecordBatch) -> bool:
    return measure.function == "sum" and pa.types.is_floating(batch.column(measure.column).type)


def _merging(measure: Measure) -> str:
    return "sum" if measure.function == "count" else measure.function


def _partial(measure: Measure, batch: pa.RecordBatch) -> Any:
    """A column that, merged by `_merging`, gives the measure; integers and decimals in types that cannot overflow."""
    if measure.column is None:
        return pa.repeat(pa.scalar(1, pa.int64()), batch.num_rows)
    column = batch.column(measure.column)
    if measure.function == "count":
        return pc.cast(pc.is_valid(column), pa.int64())
    if measure.function != "sum":
        return column
    if not pa.types.is_decimal(column.type):
        return pc.cast(column, exact_sum.WHOLE)
    wide = pa.decimal256(76, column.type.scale)
    return pc.cast(
        column,
        pa.decimal128(38, column.type.scale) if column.type.precision <= NARROW_DIGITS else wide,
    )


def _rounded(sums: pa.Table) -> Any:
    pairs = zip(sums["integer_list"].to_pylist(), sums["power_list"].to_pylist(), strict=True)
    return pa.array([exact_sum.total(zip(*pair, strict=True)) for pair in pairs], pa.float64())


def _flat(column: Any) -> Any:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _bad_column(export: Export, why: str) -> ExportFailed:
    return ExportFailed(
        "bad_column",
        f"the export {why}",
        fix=f"correct group_by and measures of exports.{export.name}",
    )
