"""The keys of data files are those of their live rows, whatever the columns were named and however rows were deleted."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyroaring import BitMap64

from calve.errors import Retryable
from glue_jobs.columns.arrow_types import FIELD_ID
from glue_jobs.iceberg.delete_files import DeleteFile, LiveFile, _parquet, _vector
from glue_jobs.iceberg.storage import Storage
from glue_jobs.index.data_files import KeyColumns, Unreadable
from glue_jobs.index.hashing import hashes

STORAGE = Storage("us-east-1")


def field(number: int, name: str, kind: Any, **more: Any) -> dict[str, Any]:
    return {"id": number, "name": name, "type": kind, "required": False, **more}


def numbered(number: int, name: str, kind: pa.DataType) -> pa.Field:
    return pa.field(name, kind, metadata={FIELD_ID: str(number).encode()})


TABLE = {
    "type": "struct",
    "fields": [
        field(1, "id", "long"),
        field(2, "place", {"type": "struct", "fields": [field(3, "town", "string")]}),
        field(4, "day", "date"),
    ],
}
KEY = ("id", "place.town")


def written(directory: Path, columns: dict[str, Any], fields: list[pa.Field], rows: int = 5) -> LiveFile:
    path = directory / "data.parquet"
    pq.write_table(pa.table(columns, schema=pa.schema(fields)), path, row_group_size=2)
    return LiveFile(0, f"file://{path}", "PARQUET", rows, 0, ())


@pytest.fixture
def older(tmp_path: Path) -> LiveFile:
    """A file from when `id` was an int named `number`, and there was no `day`."""
    town = pa.struct([numbered(3, "city", pa.string())])
    fields = [numbered(2, "place", town), numbered(1, "number", pa.int32())]
    towns = [{"city": each} for each in ("a", "b", None, "d")]
    return written(tmp_path, {"place": [*towns, None], "number": [1, 2, 3, 4, 5]}, fields)


def columns(order_by: str | None = None, table: Any = TABLE) -> KeyColumns:
    found = KeyColumns.of(table, KEY, order_by)
    assert found is not None
    return found


def expected(*rows: tuple[int, str | None]) -> list[int]:
    numbers, towns = zip(*rows, strict=True)
    return list(hashes([pa.array(numbers, pa.int64()), pa.array(towns, pa.string())]).high.tolist())


def test_columns_are_found_by_their_ids_and_widened(older: LiveFile) -> None:
    found = columns().read(older, STORAGE)
    assert found.keys.high.tolist() == expected((1, "a"), (2, "b"), (3, None), (4, "d"), (5, None))
    assert found.positions.tolist() == [0, 1, 2, 3, 4]
    assert found.orders is None


def test_rows_are_not_there_before_their_column(older: LiveFile) -> None:
    before = columns("day").read(older, STORAGE).orders
    assert before is not None
    assert set(before.tolist()) == {np.iinfo(np.int64).min}


def test_the_order_of_each_row_is_read(tmp_path: Path) -> None:
    fields = [numbered(1, "id", pa.int64()), numbered(4, "day", pa.date32())]
    file = written(tmp_path, {"id": [1, 2], "day": [date(1970, 1, 3), None]}, fields, 2)
    orders = columns("day").read(file, STORAGE).orders
    assert orders is not None
    assert orders.tolist() == [2, np.iinfo(np.int64).min]


def test_deleted_rows_are_left_out(tmp_path: Path, older: LiveFile) -> None:
    """By vectors, whatever lies around them, and by files that name rows of several data files."""
    blob, place = _vector(older.path, BitMap64([1]))
    (tmp_path / "vector.puffin").write_bytes(b"before" + blob)
    vector = DeleteFile(
        f"file://{tmp_path}/vector.puffin",
        "POSITION_DELETES PUFFIN",
        place["content-offset"] + 6,
        place["content-size-in-bytes"],
    )
    mine, _ = _parquet(older.path, BitMap64([3, 4]))
    other, _ = _parquet("s3://lake/other.parquet", BitMap64([0]))
    both = pa.concat_tables([pq.read_table(pa.BufferReader(each)) for each in (mine, other)])
    pq.write_table(both, tmp_path / "deletes.parquet")
    deletes = (vector, DeleteFile(f"file://{tmp_path}/deletes.parquet", "POSITION_DELETES PARQUET"))
    found = columns().read(older._replace(deletes=deletes), STORAGE)
    assert found.positions.tolist() == [0, 2]
    assert found.keys.high.tolist() == expected((1, "a"), (3, None))


def test_values_are_those_at_the_positions(older: LiveFile) -> None:
    """Only row groups with such a position are read: the file has two rows in each."""
    found = columns().values(older, np.array([0, 3, 4]), STORAGE)
    assert [each.to_pylist() for each in found.columns] == [[1, 4, 5], ["a", "d", None]]
    later = KeyColumns.of(TABLE, ("day",), None)
    assert later is not None
    assert later.values(older, np.array([0, 3]), STORAGE)[0].to_pylist() == [None, None]
    with pytest.raises(Unreadable):
        columns().values(older._replace(path=_without_ids(older)), np.array([0]), STORAGE)


def _without_ids(file: LiveFile) -> str:
    path = file.path.replace("data.parquet", "plain.parquet")
    pq.write_table(pa.table({"id": [1]}), path.removeprefix("file://"))
    return path


def test_what_only_iceberg_can_read_is_left_to_it(tmp_path: Path) -> None:
    plain = written(tmp_path, {"id": [1, 2]}, [pa.field("id", pa.int64())], 2)
    with pytest.raises(Unreadable):
        columns().read(plain, STORAGE)
    times = written(tmp_path, {"id": ["1", "x"]}, [numbered(1, "id", pa.string())], 2)
    with pytest.raises(Unreadable):
        columns().read(times, STORAGE)
    of_default = {"type": "struct", "fields": [field(1, "id", "long", **{"initial-default": 7})]}
    assert KeyColumns.of(of_default, ("id",), None) is None
    assert KeyColumns.of({"type": "struct", "fields": [field(1, "id", "uuid")]}, ("id",), None) is None
    assert KeyColumns.of(TABLE, ("gone",), None) is None


@pytest.mark.parametrize("name", ["place", "places", "by_name", "texts"])
def test_structs_are_left_to_iceberg(name: str) -> None:
    """Arrow would read a field that was renamed as null. Lists and maps of plain values have no such fields."""
    place = {"type": "struct", "fields": [field(3, "town", "string")]}
    of_map = {"type": "map", "key-id": 6, "key": "string", "value-id": 7, "value-required": False}
    kinds = {
        "place": place,
        "places": {"type": "list", "element-id": 5, "element": place, "element-required": False},
        "by_name": {**of_map, "value": place},
        "texts": {**of_map, "value": "string"},
    }
    found = KeyColumns.of({"type": "struct", "fields": [field(1, name, kinds[name])]}, (name,), None)
    assert (found is not None) == (name == "texts")


def test_an_object_that_is_gone_is_no_unreadable_file(tmp_path: Path) -> None:
    with pytest.raises(Retryable):
        columns().read(LiveFile(0, f"file://{tmp_path}/gone.parquet", "PARQUET", 1, 0, ()), STORAGE)
