"""Real Iceberg tables without a server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.metadata import new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortOrder
from pyiceberg.table.update import update_table_metadata

if TYPE_CHECKING:
    from pathlib import Path

    from pyiceberg.schema import Schema


class FolderCatalog(NoopCatalog):
    """Real Iceberg tables in a local folder, without a server."""

    def __init__(self, folder: Path) -> None:
        super().__init__("folder")
        self._folder = folder
        self._tables: dict[Any, Table] = {}

    def make(
        self,
        name: tuple[str, str],
        schema: Schema,
        *,
        partitioning: PartitionSpec = UNPARTITIONED_PARTITION_SPEC,
        order: SortOrder = UNSORTED_SORT_ORDER,
        properties: dict[str, str] | None = None,
    ) -> Table:
        location = str(self._folder / name[1])
        metadata = new_table_metadata(schema, partitioning, order, location, properties or {})
        self._tables[name] = Table(name, metadata, f"{location}/metadata", PyArrowFileIO(), self)
        return self._tables[name]

    def list_tables(self, namespace: Any) -> list[Any]:
        return [name for name in self._tables if name[0] == namespace]

    def load_table(self, identifier: Any) -> Table:
        if identifier not in self._tables:
            raise NoSuchTableError(str(identifier))
        return self._tables[identifier]

    def commit_table(self, table: Table, requirements: Any, updates: Any) -> CommitTableResponse:
        for requirement in requirements:
            requirement.validate(table.metadata)
        metadata = update_table_metadata(table.metadata, updates)
        return CommitTableResponse.model_construct(
            metadata=metadata, metadata_location=table.metadata_location
        )
