"""Whole rows are those of the table now, at any depth, whatever the file names its columns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from calve.errors import Retryable
from glue_jobs.iceberg.delete_files import LiveFile
from glue_jobs.index.data_files import Unreadable, rows_at
from tests.unit.glue_jobs.index.test_data_files import STORAGE, field, numbered, written

ITEM = {"type": "struct", "fields": [field(5, "price", "double"), field(6, "note", "string")]}
TABLE = {
    "type": "struct",
    "fields": [
        field(1, "id", "long"),
        field(2, "place", {"type": "struct", "fields": [field(3, "town", "string"), field(9, "zip", "int")]}),
        field(4, "items", {"type": "list", "element-id": 7, "element": ITEM, "element-required": False}),
        field(10, "labels", {"type": "map", "key-id": 11, "key": "string", "value-id": 12, "value": ITEM}),
        field(13, "day", "date"),
    ],
}


@pytest.fixture
def older(tmp_path: Path) -> LiveFile:
    """A file with other names and narrower types, without the fields that were added since, and with one that was dropped."""
    item = pa.struct([numbered(5, "cost", pa.float32()), numbered(20, "dropped", pa.int32())])
    items = pa.list_(numbered(7, "element", item))
    labels = pa.map_(
        pa.field("key", pa.string(), nullable=False, metadata={b"PARQUET:field_id": b"11"}),
        numbered(12, "value", item),
    )
    fields = [
        numbered(10, "labels", labels),
        numbered(2, "place", pa.struct([numbered(3, "city", pa.string())])),
        numbered(1, "number", pa.int32()),
        numbered(4, "lines", items),
    ]
    of_item = {"cost": 1.5, "dropped": 1}
    rows: dict[str, Any] = {
        "labels": [[("a", of_item)], None, [], [("b", None)], None],
        "place": [{"city": "a"}, None, {"city": None}, {"city": "d"}, None],
        "number": [1, 2, 3, 4, 5],
        "lines": [[of_item, None], [], None, [of_item], [of_item]],
    }
    return written(tmp_path, rows, fields)


def test_rows_have_the_columns_of_the_table(older: LiveFile) -> None:
    """Of row groups of two rows each, two have a position that is asked for."""
    found = rows_at(TABLE, older, np.array([0, 1, 3]), STORAGE).to_pylist()
    item = {"price": 1.5, "note": None}
    assert found == [
        {
            "id": 1,
            "place": {"town": "a", "zip": None},
            "items": [item, None],
            "labels": [("a", item)],
            "day": None,
        },
        {"id": 2, "place": None, "items": [], "labels": None, "day": None},
        {"id": 4, "place": {"town": "d", "zip": None}, "items": [item], "labels": [("b", None)], "day": None},
    ]


def test_what_only_iceberg_can_read_is_left_to_it(tmp_path: Path, older: LiveFile) -> None:
    place = np.array([0])
    plain = written(tmp_path, {"id": [1, 2]}, [pa.field("id", pa.int64())], 2)
    others = (
        (plain, TABLE),
        (older._replace(format="AVRO"), TABLE),
        (older, {"type": "struct", "fields": [field(1, "id", "uuid")]}),
        (older, {"type": "struct", "fields": [field(1, "id", "long", **{"initial-default": 7})]}),
    )
    for file, columns in others:
        with pytest.raises(Unreadable):
            rows_at(columns, file, place, STORAGE)
    with pytest.raises(Retryable):
        rows_at(TABLE, older._replace(path=f"file://{tmp_path}/gone.parquet"), place, STORAGE)
