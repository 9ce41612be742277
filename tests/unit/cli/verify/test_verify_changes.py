"""Verification reads Debezium's types by their names in a table of changes, and by what they are in any other."""

from __future__ import annotations

import json
from io import BytesIO
from typing import Any

import pyarrow as pa
import pytest
from fastavro import parse_schema, schemaless_writer

from calve.decoding.formats import Top
from calve.schema.wire import Schema
from cli.verify.formats.decoding import Values
from cli.verify.formats.fields import Unreadable
from tests.change_types import CONNECT, TIME, avro
from tests.change_types import json as json_type
from tests.debezium import around, event, json_around

FRAME = b"\0\0\0\0\1"
MOMENT, LOCAL = pa.timestamp("us", tz="UTC"), pa.timestamp("us")
CHANGE = pa.struct([("op", pa.string()), ("at", MOMENT), ("position", pa.string()), ("deleted", pa.bool_())])
DAY_1 = 86_400_000_000
SAMPLES = [
    ("int32", f"{TIME}Date", pa.date32(), 1, 1),
    ("int64", f"{TIME}Timestamp", LOCAL, 86_400_000, DAY_1),
    ("int64", f"{TIME}MicroTimestamp", LOCAL, -1, -1),
    ("string", f"{TIME}ZonedTimestamp", MOMENT, "1970-01-01T22:00:00-02:00", DAY_1),
    ("string", f"{TIME}ZonedTimestamp", MOMENT, "1970-01-01T00:00:00", "malformed"),
    ("string", f"{TIME}ZonedTimestamp", MOMENT, "1970-01-01T00:00:00.0000001Z", "malformed"),
    ("int64", f"{TIME}NanoTimestamp", pa.int64(), 7, 7),
    ("string", f"{TIME}ZonedTime", pa.string(), "10:00:00Z", "10:00:00Z"),
]


def read(schema: Any, column: pa.DataType, value: bytes, kind: str, *, changes: bool) -> Any:
    columns = [("x", column), *([("_change", CHANGE)] if changes else [])]
    registered = Schema(1, json.dumps(schema), kind)
    values = Values(pa.schema(columns), lambda _: registered, Top(changes=changes))
    array, *_ = values.project(FRAME + value)
    number = pa.int32() if pa.types.is_date(array.type) else pa.int64()
    return array.cast(number)[0].as_py() if pa.types.is_temporal(array.type) else array[0].as_py()


def in_avro(kind: Any, column: pa.DataType, written: Any, *, changes: bool = True) -> Any:
    row = {"type": "record", "name": "R", "fields": [{"name": "x", "type": ["null", kind]}]}
    schema, found = (around(row), event("c", after={"x": written})) if changes else (row, {"x": written})
    value = BytesIO()
    schemaless_writer(value, parse_schema(schema), found)
    return read(schema, column, value.getvalue(), "AVRO", changes=changes)


def in_json(kind: Any, column: pa.DataType, written: Any, *, changes: bool = True) -> Any:
    row = {"type": "object", "properties": {"x": {"oneOf": [{"type": "null"}, kind]}}}
    schema, found = (json_around(row), event("c", after={"x": written})) if changes else (row, {"x": written})
    return read(schema, column, json.dumps(found).encode(), "JSON", changes=changes)


@pytest.mark.parametrize(("kind", "name", "column", "written", "expected"), SAMPLES)
def test_a_value_of_a_change_is_what_its_name_says(
    kind: str, name: str, column: pa.DataType, written: Any, expected: Any
) -> None:
    for reads, schema in ((in_avro, avro(kind, name)), (in_json, json_type(kind, name))):
        if expected == "malformed":
            with pytest.raises(Unreadable, match="malformed"):
                reads(schema, column, written)
        else:
            assert reads(schema, column, written) == expected


@pytest.mark.parametrize(("kind", "name", "column"), [(k, n, c) for k, n, c, *_ in SAMPLES[:4]])
def test_without_changes_a_name_of_debezium_makes_no_other_column(
    kind: str, name: str, column: pa.DataType
) -> None:
    with pytest.raises(Unreadable, match="incompatible_schema"):
        in_avro(avro(kind, name), column, "x" if kind == "string" else 1, changes=False)


@pytest.mark.parametrize("name", ["Timestamp", "MicroTimestamp"])
def test_a_local_time_is_no_moment(name: str) -> None:
    for reads, schema in ((in_avro, avro("int64", TIME + name)), (in_json, json_type("int64", TIME + name))):
        with pytest.raises(Unreadable, match="incompatible_schema"):
            reads(schema, MOMENT, 1)


def test_a_decimal_of_base64_is_one_in_a_table_of_changes_and_bytes_in_any_other() -> None:
    decimal = json_type("bytes", f"{CONNECT}Decimal", **{"connect.parameters": {"scale": "2"}})
    assert str(in_json(decimal, pa.decimal128(9, 2), "MDk=")) == "123.45"
    assert in_json(decimal, pa.binary(), "MDk=", changes=False) == b"09"
    with pytest.raises(Unreadable, match="incompatible_schema"):
        in_json(decimal, pa.decimal128(9, 2), "MDk=", changes=False)
