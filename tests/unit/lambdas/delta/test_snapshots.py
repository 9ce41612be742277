"""Columns and bounds of an Iceberg table as Delta has them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pyiceberg import types
from pyiceberg.conversions import to_bytes
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, NestedField

from calve.errors import Fatal
from lambdas.delta.snapshots import reader_features, renamed, schema_string, stats_of


def field(id: int, name: str, kind: IcebergType, **more: Any) -> NestedField:
    return NestedField(id, name, kind, **{"required": False} | more)


def test_types_comments_and_nulls() -> None:
    inner = types.StructType(field(4, "x", types.FixedType(3)))
    schema = Schema(
        field(1, "id", types.LongType(), required=True, doc="the id"),
        field(2, "list", types.ListType(3, inner, element_required=False)),
        field(
            5, "map", types.MapType(6, types.StringType(), 7, types.DecimalType(9, 2), value_required=True)
        ),
        field(8, "at", types.TimestampType()),
    )
    struct = {"type": "struct", "fields": [{"name": "x", "type": "binary", "nullable": True, "metadata": {}}]}
    assert [each["type"] for each in json.loads(schema_string(schema))["fields"]] == [
        "long",
        {"type": "array", "elementType": struct, "containsNull": True},
        {"type": "map", "keyType": "string", "valueType": "decimal(9,2)", "valueContainsNull": False},
        "timestamp_ntz",
    ]
    first = json.loads(schema_string(schema))["fields"][0]
    assert (first["nullable"], first["metadata"]) == (False, {"comment": "the id"})
    assert reader_features(schema_string(schema), vectors=False) == {"timestampNtz"}
    assert reader_features(schema_string(Schema(schema.fields[0])), vectors=True) == {"deletionVectors"}


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (field(2, "time", types.TimeType()), "column of.time: Delta has no type for time"),
        (field(2, "n", types.LongType(), initial_default=1), "column of.n has a default"),
    ],
)
def test_a_column_that_delta_cannot_have_is_named(wrong: NestedField, why: str) -> None:
    with pytest.raises(Fatal, match=why):
        schema_string(Schema(field(1, "of", types.StructType(wrong))))


BEFORE = Schema(
    field(1, "a", types.LongType()), field(2, "s", types.StructType(field(3, "x", types.LongType())))
)


@pytest.mark.parametrize(
    ("now", "is_renamed"),
    [
        (BEFORE, False),
        (Schema(*BEFORE.fields, field(4, "b", types.LongType())), False),
        (Schema(BEFORE.fields[0]), False),
        (Schema(field(1, "b", types.LongType()), BEFORE.fields[1]), True),
        (Schema(field(4, "a", types.LongType()), BEFORE.fields[1]), True),
        (Schema(BEFORE.fields[0], field(2, "s", types.StructType(field(3, "y", types.LongType())))), True),
    ],
)
def test_another_name_of_a_column_and_another_column_of_a_name_are_seen(
    now: Schema, is_renamed: bool
) -> None:
    assert renamed([BEFORE, now], now) is is_renamed


def bounds(kind: IcebergType, low: Any, high: Any) -> tuple[Any, Any]:
    """The bounds that are written for a column below a struct."""
    schema = Schema(field(1, "of", types.StructType(field(2, "x", kind))))
    low, high = ({2: to_bytes(kind, each)} for each in (low, high))  # type: ignore[arg-type]
    file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path="f",
        file_format=FileFormat.PARQUET,
        record_count=7,
        file_size_in_bytes=1,
        null_value_counts={2: 3},
        lower_bounds=low,
        upper_bounds=high,
    )
    said = json.loads(stats_of(file, schema))
    assert (said["numRecords"], said["nullCount"], said["tightBounds"]) == (7, {"of": {"x": 3}}, False)
    return tuple(said.get(side, {}).get("of", {}).get("x") for side in ("minValues", "maxValues"))


@pytest.mark.parametrize(
    ("kind", "low", "high", "written"),
    [
        (types.LongType(), -5, 2**60, (-5, 2**60)),
        (types.StringType(), "a", "ä", ("a", "ä")),
        (types.DateType(), -1, 20_000, ("1969-12-31", "2024-10-04")),
        (types.TimestampType(), 1_999, 2_001, ("1970-01-01T00:00:00.001", "1970-01-01T00:00:00.003")),
        (types.TimestamptzType(), -1, 0, ("1969-12-31T23:59:59.999Z", "1970-01-01T00:00:00.000Z")),
        (types.TimestamptzType(), -(2**62), 2**62, (None, None)),
        (types.DoubleType(), 1.5, 2.5, (None, None)),
        (types.BinaryType(), b"a", b"b", (None, None)),
    ],
)
def test_bounds_are_never_narrower_than_the_values(
    kind: IcebergType, low: Any, high: Any, written: Any
) -> None:
    assert bounds(kind, low, high) == written
