import json
import zlib
from contextlib import suppress
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calve.decoding.formats import FIELDS, Top
from calve.schema.wire import Schema
from cli.verify.formats.decoding import Values
from cli.verify.formats.fields import GLUE
from cli.verify.formats.json_values import LEAVES, converter, read, written

MOMENT = pa.timestamp("us", tz="UTC")
CONNECT = "org.apache.kafka.connect.data."
MILLIS = {"type": "integer", "connect.type": "int64", "title": f"{CONNECT}Timestamp"}
DECIMAL = {
    "type": "number",
    "connect.type": "bytes",
    "title": f"{CONNECT}Decimal",
    "connect.parameters": {"scale": "2"},
}


def decoded(
    schema: Any, kind: pa.DataType, text: str | bytes, references: dict[str, Any] | None = None, **around: Any
) -> Any:
    """The value of column x, or the reason why there is no row. `around`: what else the schema says at its top."""
    texts = {name: json.dumps(each) for name, each in (references or {}).items()}
    top = {"type": "object", "properties": {"x": schema}, **around}
    registered = Schema(1, json.dumps(top), "JSON", texts)
    values = Values(pa.schema([("x", kind)]), {1: registered}.get)
    value = b"\0\0\0\0\1" + (text if isinstance(text, bytes) else text.encode())
    if reason := values.verdict(value):
        return reason
    return values.project(value)[0].to_pylist()[0]


@pytest.mark.parametrize(
    ("schema", "kind", "text", "expected"),
    [
        ({"type": "integer"}, pa.int64(), "9223372036854775807", 2**63 - 1),
        ({"type": "integer"}, pa.int64(), "9223372036854775808", "malformed"),
        ({"type": "integer"}, pa.int64(), "1.0", "malformed"),
        ({"type": "integer"}, pa.int64(), "true", "malformed"),
        ({"type": "integer", "connect.type": "int32"}, pa.int64(), "2147483648", "malformed"),
        ({"type": "number"}, pa.float64(), "1e400", "malformed"),
        ({"type": "number"}, pa.float64(), "NaN", "malformed"),
        ({"type": "number"}, pa.float64(), "3", 3.0),
        ({"type": "number", "connect.type": "float32"}, pa.float64(), "0.1", 0.10000000149011612),
        ({"type": "number", "connect.type": "float32"}, pa.float32(), "1e39", "malformed"),
        (DECIMAL, pa.decimal128(5, 2), "1.50", Decimal("1.50")),
        (DECIMAL, pa.decimal128(5, 2), "1.505", "malformed"),
        (DECIMAL, pa.decimal128(5, 2), "1234.5", "malformed"),
        (DECIMAL, pa.decimal128(5, 2), "1e1", "malformed"),
        (DECIMAL, pa.decimal128(5, 2), '"1.5"', "malformed"),
        (
            DECIMAL,
            pa.decimal128(38, 2),
            "-999999999999999999999999999999999999.99",
            Decimal("-999999999999999999999999999999999999.99"),
        ),
        ({"type": "string"}, pa.string(), '"a"', "a"),
        ({"type": "string"}, pa.string(), "1", "malformed"),
        ({"type": "string"}, pa.string(), '"\\ud800"', "malformed"),
        ({"type": "string"}, pa.string(), b'"\xff"', "malformed"),
        ({"enum": ["A"]}, pa.string(), '"A"', "A"),
        ({}, pa.string(), '{"b":1.10,"a":null}', '{"a":null,"b":1.1}'),
        (True, pa.string(), '"a"', '"a"'),
        ({}, pa.string(), '{"a":1,"a":2}', "malformed"),
        ({"type": "string", "format": "date"}, pa.date32(), '"0001-01-01"', date(1, 1, 1)),
        ({"type": "string", "format": "date"}, pa.date32(), '"2026-02-30"', "malformed"),
        (
            {"oneOf": [{"type": "null"}, {"$ref": "m.json"}]},
            MOMENT,
            '"1969-12-31T23:59:59.5-01:00"',
            datetime.fromisoformat("1970-01-01T00:59:59.5+00:00"),
        ),
        ({"$ref": "m.json"}, MOMENT, '"2026-01-01T00:00:00.1234567Z"', "malformed"),
        (MILLIS, MOMENT, "-1", datetime.fromisoformat("1969-12-31T23:59:59.999+00:00")),
        ({"type": "array", "items": {"type": "string"}}, pa.list_(pa.string()), '["a",null]', ["a", None]),
        ({"type": "array", "items": {"type": "string"}}, pa.list_(pa.string()), "[1]", "malformed"),
        (
            {"additionalProperties": {"type": "integer"}},
            pa.map_(pa.string(), pa.int64()),
            '{"a":1}',
            [("a", 1)],
        ),
        (
            {"additionalProperties": {"type": "integer"}},
            pa.map_(pa.string(), pa.int64()),
            '{"a":1,"a":1}',
            "malformed",
        ),
        (
            {"allOf": [{"properties": {"a": {"type": "string"}}}]},
            pa.struct([("a", pa.string())]),
            '{"a":"x","b":[]}',
            {"a": "x"},
        ),
        ({"type": "string"}, pa.int64(), "1", "incompatible_schema"),
        ({"$ref": "none.json"}, pa.int64(), "1", "incompatible_schema"),
    ],
)
def test_json_values_become_column_values(schema: Any, kind: pa.DataType, text: Any, expected: Any) -> None:
    text = b'{"x":' + text + b"}" if isinstance(text, bytes) else f'{{"x":{text}}}'
    moments = {"m.json": {"type": "string", "format": "date-time"}}
    assert decoded(schema, kind, text, moments) == expected


@pytest.mark.parametrize(
    "text", ["", " ", "null", "3", "[]", "{} {}", "{", "\ufeff{}", "{'x':1}", '{"x":1,}', '{"x":01}']
)
def test_what_is_no_json_object_is_malformed(text: str) -> None:
    assert decoded({"type": "integer"}, pa.int64(), text) == "malformed"


@pytest.mark.parametrize("leaf", ["double", "float"])
def test_three_texts_are_numbers_of_a_database_and_no_numbers_of_other_tables(leaf: str) -> None:
    of_changes, of_others = LEAVES[f"database_{leaf}"], LEAVES[leaf]
    assert [str(of_changes(each)) for each in ("NaN", "Infinity", "-Infinity")] == ["nan", "inf", "-inf"]
    for convert, texts in (
        (of_others, ("NaN", "-Infinity")),
        (of_changes, ("nan", "INF", "+Infinity", "1", "")),
    ):
        for each in texts:
            with pytest.raises(ValueError):
                convert(each)


def test_no_text_is_a_whole_number_or_a_decimal_of_a_database() -> None:
    for leaf in ("long", "decimal(5, 2)"):
        with pytest.raises(ValueError):
            converter(leaf, leaf)("NaN")


@pytest.mark.parametrize("depth", [998, 999])
def test_nesting_has_the_limit_of_the_engine(depth: int) -> None:
    text = '{"a":' * (depth - 1) + '"[["' + "}" * (depth - 1)
    expected = None if depth <= 998 else "malformed"
    assert decoded({"type": "integer"}, pa.int64(), f'{{"b":{text}}}') == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"b": 1, "a": [ ] }', '{"a":[],"b":1}'),
        ("[1.10, 100.0, -0.0, 0.00, 1e2, 1E-7, 12345678.5e0]", "[1.1,100,0,0,100.0,1.0E-7,1.23456785E7]"),
        ("[1e-3, 9.99e-4, 1e7, 9999999e0, -0e0]", "[0.001,9.99E-4,1.0E7,9999999.0,-0.0]"),
        ("1" * 38, "1" * 38),
        ("1" * 39, "1.111111111111111E38"),
        ('"\\u0007é\\/"', '"\\u0007é/"'),
        ('{"\\u001f":"\\\\u001f\\u000b\\n\\""}', '{"\\u001F":"\\\\u001f\\u000B\\n\\""}'),
        ("[5e-324, -4e-324, 1e-323]", "[4.9E-324,-4.9E-324,1.0E-323]"),
    ],
)
def test_json_of_any_form_has_one_text(text: str, expected: str) -> None:
    assert written(read(text.encode())) == expected


@pytest.mark.parametrize(
    ("text", "doubtful"),
    [
        ('{"x":1,"y":2}', False),
        ('{"x":1,"x":2}', True),
        ('{"x":1,"y":[{"z":1,"z":1}]}', True),
        ('{"x":"1","x":"1"}', False),
        ('{"x":1,"x":1', False),
    ],
)
def test_what_can_be_decoded_with_a_member_twice_is_doubtful(text: str, doubtful: bool) -> None:
    schema = Schema(1, json.dumps({"properties": {"x": {"type": "integer"}}}), "JSON")
    values = Values(pa.schema([("x", pa.int64())]), {1: schema}.get)
    assert values.is_doubtful(b"\0\0\0\0\1" + text.encode()) == doubtful
    packed = Values(values.columns, lambda _: schema, framing=GLUE)
    start, compressed = GLUE.magics
    assert packed.is_doubtful(compressed + bytes(16) + zlib.compress(text.encode())) == doubtful
    assert packed.is_doubtful(start + bytes(16) + text.encode()) == doubtful
    assert not values.is_doubtful(None)


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_malformed(data: bytes) -> None:
    with suppress(ValueError):
        assert written(read(data))


ROW = {"type": "struct", "optional": False, "fields": [{"field": "x", "type": "int32", "optional": True}]}
TEXT = {"type": "string", "optional": False}


@pytest.mark.parametrize(
    ("schema", "kind", "text", "expected"),
    [
        (ROW, pa.int32(), '{"schema":{},"payload":{"x":1}}', 1),
        (ROW, pa.int32(), '{"payload":{}}', None),
        (ROW, pa.int32(), '{"x":1}', "malformed"),
        (ROW, pa.int32(), '{"payload":null}', "malformed"),
        (ROW, pa.int32(), '{"payload":{"x":"1"}}', "malformed"),
        (TEXT, pa.string(), '{"payload":"k"}', "k"),
        (TEXT, pa.string(), '{"payload":null}', None),
        (TEXT, pa.string(), "{}", "malformed"),
        (TEXT, pa.string(), '"k"', "malformed"),
        ({"type": ["string", "null"]}, pa.string(), '"k"', "k"),
        ({"type": "string"}, pa.string(), '"k"', "k"),
    ],
)
def test_a_file_with_a_schema_of_connect_makes_the_payload_the_value(
    schema: Any, kind: pa.DataType, text: str, expected: Any
) -> None:
    only = Schema(0, json.dumps(schema), "JSON")
    top = FIELDS if schema is ROW else Top("x")
    values = Values(pa.schema([("x", kind)]), lambda _: None, top, only=only)
    if expected == "malformed":
        assert values.verdict(text.encode()) == expected
    else:
        writer, row = values.decode(text.encode())
        assert writer.project([row])[0].to_pylist() == [expected]


@pytest.mark.parametrize(
    "schema",
    [{"type": "null"}, {"type": ["null"]}, {"const": None}, {"enum": [None]}],
)
def test_a_value_that_is_always_null_is_json_text(schema: Any) -> None:
    assert decoded(schema, pa.string(), '{"x":null}') is None
    assert decoded(schema, pa.string(), '{"x":{"b":1,"a":2}}') == '{"a":2,"b":1}'
    assert decoded({"oneOf": [schema, {"type": "integer"}]}, pa.int64(), '{"x":1}') == 1


@pytest.mark.parametrize("base", [None, "http://x.org/root.json", "urn:x:root"])
@pytest.mark.parametrize("own", ["item.json", "http://y.org/item.json", "items/"])
@pytest.mark.parametrize("reference", ["#/definitions/d", "#there", "#/properties/z"])
def test_a_reference_begins_at_the_schema_with_the_id_around_it(
    base: str | None, own: str, reference: str
) -> None:
    inner = {"type": "integer", "$anchor": "there"}
    item = {
        "$id": own,
        "definitions": {"d": inner},
        "properties": {"y": {"$ref": reference}, "z": inner},
    }
    around: dict[str, Any] = {"definitions": {"d": {"type": "string"}}} | ({"$id": base} if base else {})
    kind = pa.struct([("y", pa.int64())])
    assert decoded(item, kind, '{"x":{"y":7}}', **around) == {"y": 7}


def test_what_stands_beside_a_reference_counts_from_draft_2019_on() -> None:
    schema = {"$ref": "#/$defs/p", "properties": {"b": {"type": "integer"}}}
    parts: dict[str, Any] = {"$defs": {"p": {"type": "object", "properties": {"a": {"type": "integer"}}}}}
    kind = pa.struct([("a", pa.int64()), ("b", pa.int64())])
    assert decoded(schema, kind, '{"x":{"a":1,"b":2}}', **parts) == {"a": 1, "b": 2}
    draft_7: dict[str, Any] = {"$schema": "http://json-schema.org/draft-07/schema#"}
    assert decoded(schema, kind, '{"x":{"a":1,"b":2}}', **parts, **draft_7) == {"a": 1, "b": None}


@pytest.mark.parametrize(
    ("alternatives", "kind", "good", "bad"),
    [
        (
            [{"type": "string"}, {"enum": ["a", "b"]}, {"type": "string", "format": "date"}],
            pa.string(),
            "c",
            1,
        ),
        ([{"enum": ["a"]}, {"const": "b"}], pa.string(), "c", 1),
        ([{"type": "integer"}, {"enum": [0, -1]}], pa.int64(), 7, "a"),
        ([{"enum": [True]}, {"type": "boolean"}], pa.bool_(), False, 1),
    ],
)
def test_listed_values_are_an_alternative_of_their_type(
    alternatives: Any, kind: pa.DataType, good: Any, bad: Any
) -> None:
    schema = {"oneOf": alternatives}
    assert [decoded(schema, kind, json.dumps({"x": each})) for each in (good, bad)] == [good, "malformed"]
