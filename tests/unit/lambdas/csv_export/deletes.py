"""Delete files as engines that merge on read write them, which PyIceberg reads and does not write."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestWriter,
    ManifestWriterV2,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update.snapshot import _FastAppendFiles
from pyiceberg.typedef import Record

PATH = pa.field("file_path", pa.string(), nullable=False, metadata={"PARQUET:field_id": "2147483546"})
POSITION = pa.field("pos", pa.int64(), nullable=False, metadata={"PARQUET:field_id": "2147483545"})


def delete_positions(table: Table, file: str, positions: Sequence[int]) -> None:
    """Commit a file of position deletes: the rows of a data file with these numbers."""
    rows = pa.table([[file] * len(positions), list(positions)], schema=pa.schema([PATH, POSITION]))
    _commit(table, rows, DataFileContent.POSITION_DELETES)


def delete_equal(table: Table, column: str, values: Sequence[Any]) -> None:
    """Commit a file of equality deletes: the rows whose column has one of these values."""
    field = table.schema().find_field(column)
    metadata = {"PARQUET:field_id": str(field.field_id)}
    rows = pa.table([values], schema=pa.schema([pa.field(column, pa.int64(), metadata=metadata)]))
    _commit(table, rows, DataFileContent.EQUALITY_DELETES, equality_ids=[field.field_id])


def _commit(table: Table, rows: pa.Table, content: DataFileContent, **more: Any) -> None:
    path = f"{table.location()}/data/{uuid.uuid4()}-deletes.parquet"
    with table.io.new_output(path).create() as file:
        pq.write_table(rows, file)
    deletes = DataFile.from_args(
        content=content,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=len(rows),
        file_size_in_bytes=len(table.io.new_input(path)),
        **more,
    )
    deletes.spec_id = table.spec().spec_id
    with table.transaction() as transaction:
        commit = _Deletes(operation=Operation.OVERWRITE, transaction=transaction, io=table.io)
        commit.append_data_file(deletes)
        commit.commit()


class _Manifest(ManifestWriterV2):
    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return super()._meta | {"content": "deletes"}


class _Deletes(_FastAppendFiles):
    def new_manifest_writer(self, spec: PartitionSpec) -> ManifestWriter:
        return _Manifest(
            spec, self.schema(), self.new_manifest_output(), self._snapshot_id, self._compression
        )
