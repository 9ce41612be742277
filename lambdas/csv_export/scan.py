"""The rows of one window, read in memory that grows with neither the table nor its files.

A scan reads one snapshot, the rows that pass the export's filter, and only the columns that it needs. PyIceberg's own
`to_arrow_batch_reader` holds every batch of several files at once, and Arrow's dataset scanner reads ahead of a slow consumer.
Here one row group of one file is decoded at a time. PyIceberg resolves schemas, missing columns and deletes: only this module
uses PyIceberg's internals.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pyiceberg.io.pyarrow as internals
from pyiceberg import types
from pyiceberg.expressions import And, BooleanExpression, GreaterThanOrEqual, LessThan
from pyiceberg.expressions.parser import parse
from pyiceberg.expressions.visitors import bind, extract_field_ids, translate_column_names
from pyiceberg.manifest import FileFormat
from pyiceberg.schema import Schema, prune_columns
from pyiceberg.table import FileScanTask, Table

from calve.config.publishing import Export
from calve.names import nearest
from lambdas.csv_export.window import ExportFailed, Period

ROWS = 32_768
SIZE_BYTES = 8 * 1024 * 1024
READ_BYTES = 4 * 1024 * 1024
"""Bytes that are fetched of a column at once: more memory per column, but fewer requests to S3."""


def read(
    table: Table, tasks: Sequence[FileScanTask], schema: Schema, row_filter: BooleanExpression
) -> Iterator[pa.RecordBatch]:
    """Batches of at most `ROWS` rows and about `SIZE_BYTES`, in the order of the tasks.

    Raises:
        ExportFailed: `unreadable_table`.
    """
    # A file's text may be `string` or `large_string`; all batches of one read have the same types.
    target = internals.schema_to_pyarrow(schema, include_field_ids=False)
    bound = bind(table.schema(), row_filter, case_sensitive=True)
    for task in tasks:
        if task.file.file_format != FileFormat.PARQUET:
            raise ExportFailed(
                "unreadable_table",
                f"the table has data files in {task.file.file_format}",
                fix="rewrite the table's files as Parquet",
            )
        for batch in _rows_of(table, task, schema, bound):
            yield from slices(batch.cast(target))


def slices(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """A batch in parts of bounded size."""
    if not batch.num_rows:
        return
    row_bytes = max(1, batch.nbytes // batch.num_rows)
    rows = max(1, min(ROWS, SIZE_BYTES // row_bytes))
    for start in range(0, batch.num_rows, rows):
        yield batch.slice(start, rows)


def _rows_of(
    table: Table, task: FileScanTask, schema: Schema, row_filter: BooleanExpression
) -> Iterator[pa.RecordBatch]:
    """The rows of one data file that are neither deleted nor filtered out; as PyIceberg's `_task_to_record_batches`."""
    downcast = table.format_version <= 2
    deletes = internals._read_all_delete_files(table.io, [task]).get(task.file.file_path)
    with table.io.new_input(task.file.file_path).open() as source:
        fragment = ds.ParquetFileFormat().make_fragment(source)
        parquet = pq.ParquetFile(source, metadata=fragment.metadata, pre_buffer=False, buffer_size=READ_BYTES)
        own = internals.pyarrow_to_schema(
            parquet.schema_arrow,
            table.name_mapping(),
            downcast_ns_timestamp_to_us=downcast,
            format_version=table.format_version,
        )
        # Values of columns that the file lacks, such as partition values.
        missing = internals._get_column_projection_values(
            task.file, schema, table.schema(), table.specs().get(task.file.spec_id), own.field_ids
        )
        named = translate_column_names(row_filter, own, case_sensitive=True, projected_field_values=missing)
        selected = internals.expression_to_pyarrow(bind(own, named, case_sensitive=True), own)
        leaves = {
            each
            for each in schema.field_ids
            if not isinstance(schema.find_type(each), (types.MapType, types.ListType))
        }
        needed = prune_columns(own, leaves | extract_field_ids(row_filter), select_full_types=False)
        for batch in _kept(fragment, parquet, needed, selected, deletes):
            yield internals._to_requested_schema(
                schema,
                needed,
                batch,
                downcast_ns_timestamp_to_us=downcast,
                projected_missing_fields=missing,
                allow_timestamp_tz_mismatch=True,
            )


def _kept(
    fragment: Any, parquet: pq.ParquetFile, needed: Schema, selected: Any, deletes: Any
) -> Iterator[pa.RecordBatch]:
    """Batches of the row groups that may match, with the needed columns; of a struct only the needed fields."""
    paths = [name for field in needed.fields for name in _leaves(field)]
    matching = {group.id for group in fragment.subset(selected).row_groups}
    group_start = 0
    for group in range(parquet.num_row_groups):
        position = group_start
        group_start += parquet.metadata.row_group(group).num_rows
        if group not in matching:
            continue
        for raw in parquet.iter_batches(ROWS, row_groups=[group], columns=paths):
            kept = raw
            if deletes:
                end = position + len(raw)
                kept = raw.take(internals._combine_positional_deletes(deletes, position, end))
            position += len(raw)
            matches = pa.Table.from_batches([kept]).filter(selected).combine_chunks()
            yield from (piece for piece in matches.to_batches() if piece.num_rows)


def _leaves(field: types.NestedField, prefix: str = "") -> Iterator[str]:
    if isinstance(field.field_type, types.StructType):
        for each in field.field_type.fields:
            yield from _leaves(each, f"{prefix}{field.name}.")
    else:
        yield f"{prefix}{field.name}"


SYSTEM_COLUMN = "_kafka"
_NO_COLUMN = re.compile(r"find field with name ([\w.]+)")
RESERVE_S = 45.0
"""The rest of the function's time that finishing or aborting the uploads needs."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the file. `name`: a path in the table's schema, such as `price` or `_kafka.timestamp`."""

    name: str
    type: types.IcebergType


@dataclass(frozen=True, slots=True)
class Scan:
    """A planned read, pinned to the table's current snapshot."""

    table: Table
    columns: tuple[Column, ...]
    row_filter: BooleanExpression
    tasks: tuple[FileScanTask, ...]
    remaining_s: Callable[[], float]

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Batches with the columns of `columns`; a snapshot always has the same order. Raises ExportFailed: `out_of_time`."""
        schema = self.table.schema().select(*(column.name for column in self.columns))
        paths = []
        for name in (column.name for column in self.columns):
            tops = (field.name for field in self.table.schema().fields)
            top = next(top for top in tops if name == top or name.startswith(f"{top}."))
            paths.append((top, name.removeprefix(top).split(".")[1:]))
        for batch in read(self.table, self.tasks, schema, self.row_filter):
            if self.remaining_s() < RESERVE_S:
                raise ExportFailed(
                    "out_of_time",
                    "the window holds more than can be written in the time that a function has",
                    fix="export a shorter window, fewer columns, or an aggregation",
                )
            columns = [
                pc.struct_field(batch.column(top), below) if below else batch.column(top)
                for top, below in paths
            ]
            yield pa.RecordBatch.from_arrays(columns, [column.name for column in self.columns])


def plan(
    table: Table, export: Export, period: Period, names: tuple[str, ...], remaining_s: Callable[[], float]
) -> Scan:
    """The scan of `names` (empty: all columns) in a window.

    Raises:
        ExportFailed: `missing_column`, `bad_time_column`, `bad_window`, `bad_filter`, `unreadable_table`.
    """
    schema = table.schema()
    if not names:
        every = (field.name for field in schema.fields)
        names = tuple(name for name in every if export.csv.system_columns or name != SYSTEM_COLUMN)
    columns = tuple(column_of(schema, export, name) for name in names)
    row_filter = in_window(schema, export, period)
    if export.filter:
        row_filter = And(row_filter, filter_of(schema, export.filter))
    tasks: list[FileScanTask] = []
    if snapshot := table.current_snapshot():
        scan = table.scan(row_filter=row_filter, snapshot_id=snapshot.snapshot_id)
        try:
            tasks = sorted(scan.plan_files(), key=lambda task: task.file.file_path)
        except ValueError as error:
            raise ExportFailed(
                "unreadable_table",
                f"PyIceberg cannot read this table: {error}",
                fix="compact the table, so that it has no equality deletes",
            ) from error
    return Scan(table, columns, row_filter, tuple(tasks), remaining_s)


def column_of(schema: Schema, export: Export, name: str) -> Column:
    """A column of the table. Raises ExportFailed: `missing_column`."""
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
    """The rows of the window. Raises ExportFailed: `missing_column`, `bad_time_column`, `bad_window`."""
    column = column_of(schema, export, export.time_column)
    local = (period.local_start, period.local_end)
    match column.type:
        case types.TimestamptzType() | types.TimestamptzNanoType():
            bounds = [at.isoformat() for at in (period.start, period.end)]
        case types.TimestampType() | types.TimestampNanoType():
            # A timestamp without a zone is read in the export's zone, as nothing else is known.
            bounds = [at.replace(tzinfo=None).isoformat() for at in local]
        case types.DateType() if period.whole_days:
            bounds = [at.date().isoformat() for at in local]
        case types.DateType():
            raise ExportFailed(
                "bad_window",
                f"the column {column.name} holds dates, and the window does not begin and end at midnight",
                fix="ask for whole days",
            )
        case _:
            raise ExportFailed(
                "bad_time_column",
                f"the time column {column.name} is of type {column.type}, neither a timestamp nor a date",
                fix=f"name another time_column in exports.{export.name}, or make it a timestamp by a logical type in the schema",
            )
    # mypy reads pydantic's fields, not the constructors.
    after = GreaterThanOrEqual(column.name, bounds[0])  # type: ignore[call-arg, arg-type]
    before = LessThan(column.name, bounds[1])  # type: ignore[call-arg, arg-type]
    return And(after, before)


def filter_of(schema: Schema, text: str) -> BooleanExpression:
    """The rows that pass an export's filter. Raises ExportFailed: `bad_filter`."""
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
