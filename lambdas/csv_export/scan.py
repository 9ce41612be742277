"""What is read for a window: one snapshot, the rows of the window that pass the export's filter, only the columns asked for."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import And, BooleanExpression, GreaterThanOrEqual, LessThan
from pyiceberg.expressions.parser import parse
from pyiceberg.expressions.visitors import bind
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask, Table
from pyiceberg.types import (
    DateType,
    IcebergType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
)

from calve.config.export import Export
from calve.names import nearest
from lambdas.csv_export.batches import read
from lambdas.csv_export.failure import ExportFailed
from lambdas.csv_export.window import Period

SYSTEM_COLUMN = "_kafka"
_NO_COLUMN = re.compile(r"find field with name ([\w.]+)")
RESERVE_S = 45.0
"""What must be left of the function's time to finish the uploads, or to abort them."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the file. `name` is a path in the table's schema, such as `price` or `_kafka.timestamp`."""

    name: str
    type: IcebergType


@dataclass(frozen=True, slots=True)
class Scan:
    """A planned read, pinned to the table's current snapshot."""

    table: Table
    columns: tuple[Column, ...]
    row_filter: BooleanExpression
    tasks: tuple[FileScanTask, ...]
    remaining_s: Callable[[], float]

    @property
    def rows_at_most(self) -> int:
        """Rows of the files that may hold some of the window."""
        return sum(task.file.record_count for task in self.tasks)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Batches with one column per `columns`, named alike; the same order whenever the snapshot is the same.

        Raises:
            ExportFailed: `out_of_time`.
        """
        schema = self.table.schema().select(*(column.name for column in self.columns))
        paths = [self._path(column.name) for column in self.columns]
        for batch in read(self.table, self.tasks, schema, self.row_filter):
            if self.remaining_s() < RESERVE_S:
                raise ExportFailed(
                    "out_of_time",
                    "the window holds more than can be written in the time that a function has",
                    fix="export a shorter window, fewer columns, or an aggregation",
                )
            yield pa.RecordBatch.from_arrays(
                [_at(batch, path) for path in paths], [column.name for column in self.columns]
            )

    def _path(self, name: str) -> list[str]:
        schema = self.table.schema()
        top = next(f for f in schema.fields if f.name == name or name.startswith(f"{f.name}."))
        rest = name.removeprefix(top.name).removeprefix(".")
        return [top.name, *(rest.split(".") if rest else [])]


def plan(
    table: Table, export: Export, period: Period, names: tuple[str, ...], remaining_s: Callable[[], float]
) -> Scan:
    """The read of `names` (all columns where empty) in a window.

    Raises:
        ExportFailed: `missing_column`, `bad_time_column`, `bad_window`, `bad_filter`, `unreadable_table`.
    """
    schema = table.schema()
    columns = tuple(column_of(schema, export, name) for name in names or _all(schema, export))
    row_filter = in_window(schema, export, period)
    if export.filter:
        row_filter = And(row_filter, filter_of(schema, export.filter))
    return Scan(table, columns, row_filter, _tasks(table, row_filter), remaining_s)


def _tasks(table: Table, row_filter: BooleanExpression) -> tuple[FileScanTask, ...]:
    snapshot = table.current_snapshot()
    if snapshot is None:
        return ()
    scan = table.scan(row_filter=row_filter, snapshot_id=snapshot.snapshot_id)
    try:
        return tuple(sorted(scan.plan_files(), key=lambda task: task.file.file_path))
    except ValueError as error:
        raise ExportFailed(
            "unreadable_table",
            f"PyIceberg cannot read this table: {error}",
            fix="compact the table, so that it has no equality deletes",
        ) from error


def _all(schema: Schema, export: Export) -> tuple[str, ...]:
    names = (field.name for field in schema.fields)
    return tuple(name for name in names if export.csv.system_columns or name != SYSTEM_COLUMN)


def column_of(schema: Schema, export: Export, name: str) -> Column:
    """A column of the table.

    Raises:
        ExportFailed: `missing_column`.
    """
    try:
        return Column(name, schema.find_field(name).field_type)
    except ValueError:
        raise ExportFailed(
            "missing_column",
            f"the table {export.database}.{export.table} has no column {name}{_meant(schema, name)}",
            fix=f"correct the columns of exports.{export.name}, or wait until the table has it",
        ) from None


def _meant(schema: Schema, name: str) -> str:
    near = nearest(name, schema.column_names)
    return f"; did you mean {near}?" if near else ""


def in_window(schema: Schema, export: Export, period: Period) -> BooleanExpression:
    """The rows of the window.

    Raises:
        ExportFailed: `missing_column`, `bad_time_column`, `bad_window`.
    """
    column = column_of(schema, export, export.time_column)
    start, end = _bounds(column, export, period)
    # mypy reads pydantic's fields, not the constructors.
    after = GreaterThanOrEqual(column.name, start)  # type: ignore[call-arg, arg-type]
    before = LessThan(column.name, end)  # type: ignore[call-arg, arg-type]
    return And(after, before)


def _bounds(column: Column, export: Export, period: Period) -> tuple[str, str]:
    match column.type:
        case TimestamptzType() | TimestamptzNanoType():
            return period.start.isoformat(), period.end.isoformat()
        case TimestampType() | TimestampNanoType():
            # Without a zone it is what a clock showed: in the export's zone, as nothing else is known.
            return tuple(at.replace(tzinfo=None).isoformat() for at in (period.local_start, period.local_end))  # type: ignore[return-value]
        case DateType():
            if not period.whole_days:
                raise ExportFailed(
                    "bad_window",
                    f"the column {column.name} holds dates, and the window does not begin and end at midnight",
                    fix="ask for whole days",
                )
            return period.local_start.date().isoformat(), period.local_end.date().isoformat()
    raise ExportFailed(
        "bad_time_column",
        f"the time column {column.name} is of type {column.type}, neither a timestamp nor a date",
        fix=f"name another time_column in exports.{export.name}, or make it a timestamp by a logical type in the schema",
    )


def filter_of(schema: Schema, text: str) -> BooleanExpression:
    """The rows that an export's filter takes.

    Raises:
        ExportFailed: `bad_filter`.
    """
    try:
        expression = parse(text)
        bind(schema, expression, case_sensitive=True)
    except Exception as error:
        absent = _NO_COLUMN.search(str(error))
        why = f": there is no column {absent[1]}{_meant(schema, absent[1])}" if absent else ""
        raise ExportFailed(
            "bad_filter",
            f"the export's filter does not fit the table{why}",
            fix="write it in PyIceberg's notation, with columns of this table: side = 'BUY' and price > 0",
        ) from error
    return expression


def _at(batch: pa.RecordBatch, path: list[str]) -> Any:
    column = batch.column(path[0])
    return pc.struct_field(column, path[1:]) if path[1:] else column
