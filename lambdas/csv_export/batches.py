"""The rows of a scan, file by file, in memory that grows with neither the table nor its files.

PyIceberg's own `to_arrow_batch_reader` holds every batch of each file, of several files at once, and Arrow's dataset scanner
reads ahead of a slow consumer. Here one row group of one file is decoded at a time, a few thousand rows at a time. What Iceberg
says about a file's schema, its missing columns and its deletes is PyIceberg's; this module alone knows PyIceberg from inside, and
`test_batches.py` compares its rows with PyIceberg's own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pyiceberg.io.pyarrow as internals
from pyiceberg.expressions import BooleanExpression
from pyiceberg.expressions.visitors import bind, extract_field_ids, translate_column_names
from pyiceberg.manifest import FileFormat
from pyiceberg.schema import Schema, prune_columns
from pyiceberg.table import FileScanTask, Table
from pyiceberg.types import ListType, MapType, NestedField, StructType

from lambdas.csv_export.failure import ExportFailed

ROWS = 32_768
SIZE_BYTES = 8 * 1024 * 1024
READ_BYTES = 4 * 1024 * 1024
"""What is fetched of a column at once: fewer requests to S3 against memory, once for each column."""


def read(
    table: Table, tasks: Sequence[FileScanTask], schema: Schema, row_filter: BooleanExpression
) -> Iterator[pa.RecordBatch]:
    """Batches of at most `ROWS` rows and about `SIZE_BYTES`, in the order of the tasks.

    Raises:
        ExportFailed: `unreadable_table`.
    """
    # A file's texts may come as `string` or `large_string`; the batches of one read are alike.
    target = internals.schema_to_pyarrow(schema, include_field_ids=False)
    bound = bind(table.schema(), row_filter, case_sensitive=True)
    for task in tasks:
        if task.file.file_format != FileFormat.PARQUET:
            raise ExportFailed(
                "unreadable_table",
                f"the table has data files in {task.file.file_format}",
                fix="rewrite the table's files as Parquet",
            )
        for batch in _File(table, task, schema, bound).batches():
            yield from slices(batch.cast(target))


def slices(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """A batch in pieces of bounded size."""
    if not batch.num_rows:
        return
    row_bytes = max(1, batch.nbytes // batch.num_rows)
    rows = max(1, min(ROWS, SIZE_BYTES // row_bytes))
    for start in range(0, batch.num_rows, rows):
        yield batch.slice(start, rows)


@dataclass
class _File:
    """One data file, with the rows that were deleted from it."""

    table: Table
    task: FileScanTask
    schema: Schema
    row_filter: BooleanExpression

    def batches(self) -> Iterator[pa.RecordBatch]:
        read_deletes = internals._read_all_delete_files(self.table.io, [self.task])
        deletes = read_deletes.get(self.task.file.file_path)
        with self.table.io.new_input(self.task.file.file_path).open() as source:
            fragment = ds.ParquetFileFormat().make_fragment(source)
            parquet = pq.ParquetFile(
                source, metadata=fragment.metadata, pre_buffer=False, buffer_size=READ_BYTES
            )
            view = _View(self, parquet.schema_arrow)
            wanted = {group.id for group in fragment.subset(view.filter).row_groups}
            first = 0
            for group in range(parquet.num_row_groups):
                if group in wanted:
                    raw = parquet.iter_batches(ROWS, row_groups=[group], columns=view.paths)
                    yield from self._kept(view, raw, first, deletes)
                first += parquet.metadata.row_group(group).num_rows

    def _kept(
        self, view: _View, batches: Iterator[pa.RecordBatch], first: int, deletes: Any
    ) -> Iterator[pa.RecordBatch]:
        """Rows that are neither deleted nor filtered out; `first` is the number of the first row in its file."""
        for raw in batches:
            batch = raw
            if deletes:
                batch = raw.take(internals._combine_positional_deletes(deletes, first, first + len(raw)))
            first += len(raw)
            kept = pa.Table.from_batches([batch]).filter(view.filter)
            for piece in kept.combine_chunks().to_batches():
                if piece.num_rows:
                    yield view.requested(piece)


@dataclass
class _View:
    """A file's own schema, and what the scan wants of it."""

    file: _File
    physical: pa.Schema

    @cached_property
    def _downcast(self) -> bool:
        return self.file.table.format_version <= 2

    @cached_property
    def _schema(self) -> Schema:
        return internals.pyarrow_to_schema(
            self.physical,
            self.file.table.name_mapping(),
            downcast_ns_timestamp_to_us=self._downcast,
            format_version=self.file.table.format_version,
        )

    @cached_property
    def _wanted(self) -> Schema:
        schema = self.file.schema
        nested = (MapType, ListType)
        ids = {each for each in schema.field_ids if not isinstance(schema.find_type(each), nested)}
        ids |= extract_field_ids(self.file.row_filter)
        return prune_columns(self._schema, ids, select_full_types=False)

    @cached_property
    def _missing(self) -> dict[int, Any]:
        """Values of columns that the file does not have, such as those that a partition implies."""
        table, data_file = self.file.table, self.file.task.file
        spec = table.specs().get(data_file.spec_id)
        return internals._get_column_projection_values(
            data_file, self.file.schema, table.schema(), spec, self._schema.field_ids
        )

    @cached_property
    def paths(self) -> list[str]:
        """What Parquet is asked for; of a struct only the wanted fields."""
        return [name for field in self._wanted.fields for name in _leaves(field)]

    @cached_property
    def filter(self) -> Any:
        named = translate_column_names(
            self.file.row_filter,
            self._schema,
            case_sensitive=True,
            projected_field_values=self._missing,
        )
        return internals.expression_to_pyarrow(bind(self._schema, named, case_sensitive=True), self._schema)

    def requested(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return internals._to_requested_schema(
            self.file.schema,
            self._wanted,
            batch,
            downcast_ns_timestamp_to_us=self._downcast,
            projected_missing_fields=self._missing,
            allow_timestamp_tz_mismatch=True,
        )


def _leaves(field: NestedField, prefix: str = "") -> Iterator[str]:
    if isinstance(field.field_type, StructType):
        for each in field.field_type.fields:
            yield from _leaves(each, f"{prefix}{field.name}.")
    else:
        yield f"{prefix}{field.name}"
