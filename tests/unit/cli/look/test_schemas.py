"""The schema versions of a table: their first commits, and their differences."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import IntegerType, LongType, NestedField, StringType, StructType

from cli.look.status.metadata import versions
from tests.unit.cli.folder_catalog import FolderCatalog

FIRST = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "amount", IntegerType()),
    NestedField(3, "customer", StructType(NestedField(4, "name", StringType()))),
)


@pytest.fixture
def catalog(tmp_path: Path) -> FolderCatalog:
    return FolderCatalog(tmp_path)


def test_a_table_of_one_schema_has_one_version_since_its_first_commit(catalog: FolderCatalog) -> None:
    table = catalog.make(("shop", "orders"), Schema(NestedField(1, "id", LongType())))
    assert [(each.id, each.at, each.changes) for each in versions(table)] == [(0, None, ())]
    for _ in range(2):
        table.append(pa.table({"id": [1]}))
    [version] = versions(table)
    assert version.at == table.snapshots()[0].timestamp_ms / 1000
    assert version.columns == 1


def test_columns_that_come_go_widen_and_change_their_name_are_told(catalog: FolderCatalog) -> None:
    table = catalog.make(("shop", "orders"), FIRST)
    with table.update_schema() as update:
        update.add_column("note", StringType())
        update.add_column("place", StructType(NestedField(9, "country", StringType())))
        update.add_column(("customer", "age"), IntegerType())
        update.update_column("amount", LongType())
    with table.update_schema(allow_incompatible_changes=True) as update:
        update.rename_column("note", "remark")
        update.delete_column("customer")
    newest, second, first = versions(table)
    assert (first.columns, second.columns, newest.columns) == (3, 5, 4)
    assert first.changes == ()
    assert sorted(second.changes) == [
        "+ customer.age int",
        "+ note string",
        "+ place struct",
        "amount: int -> long",
    ]
    assert sorted(newest.changes) == ["- customer", "note -> remark"]
