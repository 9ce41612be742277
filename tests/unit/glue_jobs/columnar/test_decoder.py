"""The machine against fastavro, another reader of Avro: the same bytes are the same values."""

from __future__ import annotations

import io
import json
import uuid
import zlib
from dataclasses import replace
from decimal import Decimal
from random import Random
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calve.decoding.decode_plan import DecodePlan, decoding, first_columns
from calve.schema.avro import is_map
from calve.schema.columns import Json, field
from calve.schema.columns import struct as columns_of
from calve.schema.wire import BARE, CONFLUENT, GLUE, Schema, Wire
from calve.schema.writers import PlainWriter
from cli.verify.formats.fields import database_timestamp_us
from glue_jobs.columns import buffers
from glue_jobs.engines.columnar.decoder import Decoded, Decoder
from tests.avro_cases import AT, BAD_AT, CASES, EXACT, GOOD_AT, MANY, text
from tests.columnar import plain, records_of
from tests.integration.support.records.avro_records import entries, nullable, record
from tests.random_avro import MOMENT, Schemas, Values, zigzag

FRAME = CONFLUENT.frame(7)


def read(schema: Json, *values: bytes) -> Decoded:
    """What values, without their frames, are to a table made for their schema."""
    versions = [Schema(7, json.dumps(schema))]
    columns = first_columns(versions, "it")
    return Decoder(decoding(columns, versions), columns).decode(records_of([FRAME + each for each in values]))


def column(kind: Json, *values: bytes) -> list[Any]:
    """The values of one field; malformed ones are left out."""
    return plain(read(record("R", f=kind), *values).columns["f"])


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**64))
def test_random_values_are_what_fastavro_reads(seed: int) -> None:
    random = Random(seed)
    schema = Schemas(random, unions=False).record()
    values = [Values(random).of(schema) for _ in range(20)]
    plainer = fastavro.parse_schema(without_logical_types(schema))
    found = read(schema, *values)
    assert found.good.tolist() == list(range(20))
    rows: list[Any] = [fastavro.schemaless_reader(io.BytesIO(each), plainer, None) for each in values]
    for each in schema["fields"]:
        name = each["name"]
        assert plain(found.columns[name]) == [expected(each["type"], row[name]) for row in rows], name


def without_logical_types(node: Json) -> Json:
    if isinstance(node, list):
        return [without_logical_types(each) for each in node]
    if isinstance(node, dict):
        return {key: without_logical_types(each) for key, each in node.items() if key != "logicalType"}
    return node


def expected(schema: Json, value: Any) -> Any:
    """What a column holds, as `plain` has it."""
    if isinstance(schema, list):
        [schema] = [each for each in schema if each != "null"]
    if value is None:
        return None
    node: Json = {"type": schema} if isinstance(schema, str) else schema
    match node["type"], node.get("logicalType"):
        case "record", _:
            return {each["name"]: expected(each["type"], value[each["name"]]) for each in node["fields"]}
        case "array", _ if is_map(node):
            kinds = {each["name"]: each["type"] for each in node["items"]["fields"]}
            pairs = {
                expected(kinds["key"], each["key"]): expected(kinds["value"], each["value"]) for each in value
            }
            return sorted(pairs.items(), key=lambda each: repr(each[0]))
        case "array", _:
            return [expected(node["items"], each) for each in value]
        case "map", _:
            pairs = {key.encode(): expected(node["values"], each) for key, each in value.items()}
            return sorted(pairs.items(), key=lambda each: repr(each[0]))
        case "bytes" | "fixed", "decimal":
            return Decimal(int.from_bytes(value, "big", signed=True)).scaleb(-node["scale"], EXACT)
        case "long", "timestamp-millis" | "local-timestamp-millis":
            return value * 1000
    if isinstance(value, str):
        return database_timestamp_us(value) if node == MOMENT else value.encode()
    return repr(value) if isinstance(value, bool | float) else value


@pytest.mark.parametrize(("kind", "values", "found"), CASES)
def test_values_that_readers_differ_about(kind: Json, values: list[bytes], found: list[Any]) -> None:
    assert column(kind, *values) == found


def test_a_key_that_is_no_timestamp_makes_its_record_bad() -> None:
    kind = entries("MapEntry", AT, "int")
    assert column(kind, zigzag(1) + BAD_AT + b"\x02\x00", zigzag(1) + GOOD_AT + b"\x02\x00") == [[(0, 1)]]


def test_a_text_counts_also_where_its_column_is_not_wanted() -> None:
    versions = [Schema(7, json.dumps(record("R", a={"type": "array", "items": AT}, b="int")))]
    found = decoding(first_columns(versions, "it"), versions)
    values = [FRAME + zigzag(2) + GOOD_AT + each + b"\x00\x02" for each in (GOOD_AT, BAD_AT, GOOD_AT)]
    decoded = Decoder(found, columns_of(field("b", "int"))).decode(records_of(values))
    assert decoded.good.tolist() == [0, 2]


def test_what_is_skipped_is_looked_at_less() -> None:
    letters = {"type": "enum", "name": "E", "symbols": ["A"]}
    inside = record("I", s="string", a={"type": "array", "items": "long"}, e=letters)
    versions = [Schema(7, json.dumps(record("R", skipped=nullable(inside), kept="int")))]
    columns = columns_of(field("kept", "int"))
    found = decoding(first_columns(versions, "it"), versions, fields={"kept"})
    decoder = Decoder(found, columns)
    items = zigzag(-5) + zigzag(2) + b"\xff\xff" + zigzag(1) + zigzag(8) + zigzag(0)
    lenient = zigzag(1) + zigzag(-9) + items + zigzag(99)
    strange = [lenient, zigzag(0), zigzag(2), zigzag(1) + zigzag(1)]
    decoded = decoder.decode(records_of([FRAME + each + zigzag(4) for each in strange]))
    assert decoded.good.tolist() == [0, 1]
    assert plain(decoded.columns["kept"]) == [4, 4]


@pytest.mark.parametrize(("kind", "value", "items"), MANY)
def test_a_list_of_as_many_items_as_may_be(kind: Json, value: bytes, items: list[int]) -> None:
    found = read(record("R", f=kind), value).columns["f"]
    assert pc.list_value_length(found).to_pylist() == items


def test_room_for_few_cells_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = record(
        "R", a={"type": "array", "items": {"type": "map", "values": "string"}}, b="int", c=nullable("string")
    )
    values = [Values(Random(seed)).of(schema) for seed in range(300)]
    values[::7] = [b"\xff"] * len(values[::7])
    expected = read(schema, *values)
    monkeypatch.setattr(buffers, "ROOM", 40)
    found = read(schema, *values)
    assert found.columns.column(0).num_chunks > expected.columns.column(0).num_chunks
    assert found.good.tolist() == expected.good.tolist() == [n for n in range(300) if n % 7]
    assert all(plain(found.columns[name]) == plain(expected.columns[name]) for name in "abc")


NARROW, WIDE = record("R", a="int", b="string"), record("R", b="string", a="long", c=nullable("double"))


def versions_of(*schemas: Json) -> list[Schema]:
    return [Schema(7 + n, json.dumps(each)) for n, each in enumerate(schemas)]


def test_several_writers_in_one_chunk_keep_their_order() -> None:
    versions = versions_of(NARROW, WIDE)
    columns = first_columns(versions, "it")
    old, new = zigzag(5) + text(b"x"), text(b"y") + zigzag(2**40) + zigzag(0)
    values = [CONFLUENT.frame(8) + new, FRAME + old, CONFLUENT.frame(8) + new, FRAME + b"\x80", FRAME + old]
    found = Decoder(decoding(columns, versions), columns).decode(records_of(values))
    assert found.good.tolist() == [0, 1, 2, 4]
    assert found.rejected.tolist() == [3]
    assert found.schema_id.to_pylist() == [8, 7, 8, 7]
    assert found.columns.column_names == ["a", "b", "c"]
    assert found.columns["a"].to_pylist() == [2**40, 5, 2**40, 5]
    assert found.columns["b"].to_pylist() == ["y", "x", "y", "x"]


def test_frames_tell_rows_from_rejects_and_records_of_other_tables() -> None:
    [ours, theirs] = versions_of(NARROW, WIDE)
    columns = first_columns([ours], "it")
    others = decoding(columns, [ours], [theirs], shared=True)
    good = zigzag(5) + text(b"x")
    values = [
        FRAME + good,
        None,
        b"",
        b"\x00\x00",
        b"\x01" + FRAME[1:] + good,
        CONFLUENT.frame(8),
        CONFLUENT.frame(9) + good,
    ]
    found = Decoder(others, columns).decode(records_of(values))
    assert found.good.tolist() == [0]
    assert found.others == {0: 1}
    assert found.rejected.tolist() == [1, 2, 3, 4, 6]
    assert Decoder(DecodePlan(()), columns).decode(records_of(values)).rejected.tolist() == list(range(7))


def test_glue_s_frames_with_and_without_compression() -> None:
    identity = uuid.UUID(int=2**127 + 5).int
    version, theirs = (Schema(identity + n, json.dumps(NARROW), version=3 + n) for n in range(2))
    columns = first_columns([version], "it")
    good, frame = zigzag(5) + text(b"x"), GLUE.frame(identity)
    packed = b"\x03\x05" + frame[2:]
    deflated, foreign = packed + zlib.compress(good), b"\x03\x05" + GLUE.frame(theirs.id)[2:]
    values = [deflated, frame + good, packed + good, packed + zlib.compress(good + b"!"), deflated]
    values += [foreign + zlib.compress(good), foreign + good]
    found = decoding(columns, [version], [theirs], wire=GLUE, shared=True)
    decoded = Decoder(found, columns).decode(records_of(values))
    assert decoded.good.tolist() == [0, 1, 4]
    assert decoded.columns["b"].to_pylist() == ["x"] * 3
    assert decoded.schema_id.to_pylist() == [3, 3, 3]
    assert decoded.rejected.tolist() == [2, 3]
    assert decoded.others == {0: 2}


@pytest.mark.parametrize(
    ("is_text", "kept"),
    [(True, [b"ok", None, b""]), (False, [b"ok", None, b"\xff", b"", b"\xed\xa0\x80", b"\xf0\x8f\xbf\xbf"])],
)
def test_values_that_are_kept_as_they_are(is_text: bool, kept: list[bytes | None]) -> None:
    columns = columns_of(field("value", "string" if is_text else "binary"))
    decoder = Decoder(
        DecodePlan((PlainWriter(0, b"", "value", is_text),), wire=BARE, columns=columns), columns
    )
    values = [b"ok", None, b"\xff", b"", b"\xed\xa0\x80", b"\xf0\x8f\xbf\xbf"]
    found = decoder.decode(records_of(values))
    assert plain(found.columns["value"]) == kept
    assert [values[n] for n in found.good] == kept
    assert found.schema_id.to_pylist() == [None] * len(kept)


def test_keys_are_columns_too() -> None:
    columns = columns_of(
        field("a", "int"), field("k", "string"), field("b", "string"), field("later", "long")
    )
    values = decoding(columns_of(*columns["fields"][::2]), versions_of(NARROW))
    key = DecodePlan(
        (PlainWriter(0, b"", "k", text=True),), wire=BARE, columns=columns_of(columns["fields"][1])
    )
    good = FRAME + zigzag(5) + text(b"x")
    records = records_of([good, good, good, b"bad"], keys=[b"one", None, b"\xff", b"four"])
    found = Decoder(replace(values, key=key), columns).decode(records)
    assert found.good.tolist() == [0, 1]
    assert found.rejected.tolist() == [2, 3]
    assert found.columns.to_pylist() == [
        {"a": 5, "k": "one", "b": "x", "later": None},
        {"a": 5, "k": None, "b": "x", "later": None},
    ]


def test_rows_of_nothing_that_is_read() -> None:
    versions = versions_of(NARROW)
    found = decoding(first_columns(versions, "it"), versions, fields=())
    decoded = Decoder(found, columns_of(field("later", "int"))).decode(
        records_of([FRAME + zigzag(5) + text(b"x"), FRAME])
    )
    assert decoded.good.tolist() == [0]
    assert decoded.columns.to_pylist() == [{"later": None}]


@pytest.mark.parametrize("wire", [CONFLUENT, BARE])
def test_no_records_are_no_rows(wire: Wire) -> None:
    versions = versions_of(NARROW)
    columns = first_columns(versions, "it")
    found = Decoder(decoding(columns, versions, wire=wire), columns).decode(records_of([]))
    assert found.columns.num_rows == found.good.size == found.rejected.size == 0
    assert found.columns.schema.types == [pa.int32(), pa.string()]
