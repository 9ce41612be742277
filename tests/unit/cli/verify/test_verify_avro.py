"""Verification reads Avro as Avro's Java does, where other readers differ."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from calve.schema.wire import Schema
from cli.verify.columns import column_hashes
from cli.verify.formats.decoding import Values
from cli.verify.formats.fields import CONFLUENT
from tests.random_avro import zigzag

FRAME = b"\0\0\0\0\1"
ENUM = {"type": "enum", "name": "E", "symbols": ["A", "B"]}
LIST = {"type": "array", "items": "int"}
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 0}
MILLIS = {"type": "long", "logicalType": "timestamp-millis"}
LEAST = zigzag(-(2**63))


def verdict(kind: Any, column: pa.DataType, value: bytes) -> Any:
    """The value, or why there is none."""
    schema = Schema(1, json.dumps({"type": "record", "name": "R", "fields": [{"name": "x", "type": kind}]}))
    values = Values(pa.schema([("x", column)]), {1: schema}.get, framing=CONFLUENT)
    if reason := values.verdict(FRAME + value):
        return reason
    writer, row = values.decode(FRAME + value)
    [array] = writer.project([row])
    return array[0].as_py()


@pytest.mark.parametrize(
    ("kind", "column", "value", "expected"),
    [
        ("boolean", pa.bool_(), b"\x02", False),
        ("boolean", pa.bool_(), b"", "malformed"),
        ("int", pa.int64(), zigzag(2**31), 0),
        ("int", pa.int64(), zigzag(2**40), "malformed"),
        ("int", pa.int32(), b"\xfe\xff\xff\xff\x7f", 2**31 - 1),
        ("long", pa.int64(), b"\xff" * 9 + b"\x03", -(2**63)),
        ("long", pa.int64(), b"\xff" * 10 + b"\x01", "malformed"),
        (ENUM, pa.string(), zigzag(-1), "malformed"),
        (ENUM, pa.string(), zigzag(2), "malformed"),
        (["null", "int"], pa.int32(), zigzag(-1) + b"\x02", "malformed"),
        (LIST, pa.list_(pa.int32()), LEAST + zigzag(0), []),
        (LIST, pa.list_(pa.int32()), zigzag(1) + b"\x02" + LEAST + zigzag(0), "malformed"),
        (LIST, pa.list_(pa.int32()), zigzag(-2) + zigzag(77) + b"\x02\x04\x00", [1, 2]),
        (LIST, pa.list_(pa.int32()), zigzag(1_000_001), "malformed"),
        ("bytes", pa.binary(), zigzag(-1), "malformed"),
        ("string", pa.string(), zigzag(2) + b"a", "malformed"),
        (DECIMAL, pa.decimal128(9, 0), zigzag(0), "malformed"),
        (DECIMAL, pa.decimal128(9, 0), zigzag(9) + b"\x01" + bytes(7) + b"\x07", "malformed"),
        (MILLIS, pa.timestamp("us", tz="UTC"), zigzag(2**62) + b"\x00", "malformed"),
        ("int", pa.int32(), b"\x02\x00", "trailing_bytes"),
    ],
)
def test_what_readers_differ_about_is_read_as_java_does(
    kind: Any, column: pa.DataType, value: bytes, expected: Any
) -> None:
    assert verdict(kind, column, value) == expected


def test_a_text_is_the_same_however_java_writes_its_doubles_and_whatever_is_no_utf_8_in_it() -> None:
    def hashes(*texts: bytes) -> list[int]:
        column = pa.array(list(texts), pa.binary()).view(pa.string())
        return list(column_hashes([column])[0].to_pylist())

    one, other, third = hashes(b'{"a":8.75E21}', b'{"a":8.750000000000001E21}', b'{"a":8.76E21}')
    assert one == other != third
    one, other, third = hashes(b"[5.0E-324]", b"[4.9E-324]", b"[9.9E-324]")
    assert one == other != third
    one, other, third = hashes(b"a\xff", "a\N{REPLACEMENT CHARACTER}".encode(), b"a?")
    assert one == other != third


FITS, OVER = b"\x07", b"\x40" + bytes(7)


@pytest.mark.parametrize(("amounts", "expected"), [((OVER, FITS), [("a", 7)]), ((FITS, OVER), "malformed")])
@pytest.mark.parametrize("as_list", [False, True])
def test_a_value_that_a_later_one_of_its_key_replaces_is_not_looked_at(
    as_list: bool, amounts: tuple[bytes, bytes], expected: Any
) -> None:
    kind = entries_of("string") if as_list else {"type": "map", "values": DECIMAL}
    written = b"".join(zigzag(1) + b"a" + zigzag(len(each)) + each for each in amounts)
    found = verdict(kind, pa.map_(pa.string(), pa.decimal128(9, 0)), zigzag(2) + written + zigzag(0))
    assert found == expected


@pytest.mark.parametrize("amounts", [(OVER, FITS), (FITS, OVER)])
@pytest.mark.parametrize(
    ("key", "column"),
    [("int", pa.int32()), ({"type": "enum", "name": "E", "symbols": ["a", "b"]}, pa.string())],
)
def test_every_entry_of_a_list_is_looked_at_where_its_bytes_are_no_map(
    key: Any, column: Any, amounts: tuple[bytes, bytes]
) -> None:
    written = b"".join(zigzag(1) + zigzag(len(each)) + each for each in amounts)
    kind, entries = entries_of(key), pa.map_(column, pa.decimal128(9, 0))
    assert verdict(kind, entries, zigzag(2) + written + zigzag(0)) == "malformed"


def entries_of(key: Any) -> Any:
    fields = [{"name": "key", "type": key}, {"name": "value", "type": DECIMAL}]
    return {"type": "array", "items": {"type": "record", "name": "n.MapEntry", "fields": fields}}
