"""Protobuf topics: every type, every way to be wrong, versions, references; and the same rows as Avro and JSON make."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from math import inf, nan
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference

from calve.config.job import Source
from calve.names import TableName
from tests.integration.decode.test_evolution import any_schema
from tests.integration.support.engine import DATABASE, Engine, suspended
from tests.integration.support.records.avro_records import read, same
from tests.integration.support.records.json_topics import proved
from tests.integration.support.records.protobuf_topics import (
    protobuf_topic,
    register,
    send,
    serializer,
)
from tests.protobuf_classes import message_class

EVERY_TYPE = """
syntax = "proto3";
package calve.tests;
import "google/protobuf/any.proto";
import "google/protobuf/duration.proto";
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
import "google/type/date.proto";
import "google/type/timeofday.proto";
import "confluent/meta.proto";
import "confluent/type/decimal.proto";

message Every {
  int32 i32 = 1; sint32 s32 = 2; sfixed32 sf32 = 3;
  uint32 u32 = 4; fixed32 f32 = 5; int64 i64 = 6; sint64 s64 = 7; sfixed64 sf64 = 8;
  uint64 u64 = 9; fixed64 f64 = 10;
  float single = 11; double number = 12; bool flag = 13; string text = 14; bytes raw = 15;
  Side side = 16;
  optional int64 maybe = 17; optional string perhaps = 18; optional Side or_side = 19;
  google.protobuf.Timestamp at = 20;
  google.type.Date day = 21;
  google.type.TimeOfDay time = 22;
  google.protobuf.Duration took = 23;
  confluent.type.Decimal money = 24 [(confluent.field_meta) = {
    doc: "in euros"
    params: [{key: "precision", value: "38"}, {key: "scale", value: "10"}]
  }];
  google.protobuf.DoubleValue w_double = 30; google.protobuf.FloatValue w_float = 31;
  google.protobuf.Int64Value w_int64 = 32; google.protobuf.UInt64Value w_uint64 = 33;
  google.protobuf.Int32Value w_int32 = 34; google.protobuf.UInt32Value w_uint32 = 35;
  google.protobuf.BoolValue w_bool = 36; google.protobuf.StringValue w_string = 37;
  google.protobuf.BytesValue w_bytes = 38;
  google.protobuf.Any any = 39;
  Inner inner = 40;
  repeated sint64 numbers = 41; repeated string texts = 42; repeated Inner inners = 43;
  repeated bool loose = 44 [packed = false]; repeated Side sides = 45;
  repeated google.protobuf.Timestamp moments = 46; repeated google.protobuf.Int64Value boxed = 47;
  map<string, int64> by_text = 50; map<int32, string> by_int = 51; map<bool, double> by_flag = 52;
  map<uint64, Inner> by_unsigned = 53; map<sfixed64, bytes> by_fixed = 54;
  map<string, google.protobuf.Timestamp> by_moment = 55; map<string, Side> by_side = 56;
  oneof choice { string word = 60; Inner message = 61; uint64 count = 62; google.type.Date due = 63; }

  message Inner {
    string name = 1;
    optional int32 level = 2;
    repeated Inner2 deeper = 3;
    message Inner2 { map<string, Inner3> by = 1; }
    message Inner3 { repeated uint64 big = 1; oneof kind { int32 a = 2; string b = 3; } }
  }
}
enum Side { SIDE_UNSPECIFIED = 0; BUY = 1; SELL = 2; SHORT = -1; }
"""
NINES = Decimal("9999999999999999999999999999.9999999999")
SECOND = datetime(2026, 11, 20, 8, 0, 0, 123456, tzinfo=UTC)
FIRST_MOMENT, LAST_MOMENT = (
    datetime(1, 1, 1, tzinfo=UTC),
    datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
)
DEFAULTS: dict[str, Any] = {
    **dict.fromkeys(("i32", "s32", "sf32", "u32", "f32", "i64", "s64", "sf64"), 0),
    **dict.fromkeys(("u64", "f64"), Decimal(0)),
    "single": 0.0,
    "number": 0.0,
    "flag": False,
    "text": "",
    "raw": b"",
    "side": "SIDE_UNSPECIFIED",
    **{name: [] for name in ("numbers", "texts", "inners", "loose", "sides", "moments", "boxed")},
    **{f"by_{name}": [] for name in ("text", "int", "flag", "unsigned", "fixed", "moment", "side")},
}


def least(kind: Any) -> tuple[Any, dict[str, Any]]:
    """A message of the smallest values, and its row."""
    message = kind(
        i32=-(2**31), s32=-(2**31), sf32=-(2**31), i64=-(2**63), s64=-(2**63), sf64=-(2**63),
        single=-inf, number=-0.0, maybe=0, perhaps="", or_side=0, side=-1,
    )  # fmt: skip
    row = {
        **dict.fromkeys(("i32", "s32", "sf32"), -(2**31)),
        **dict.fromkeys(("i64", "s64", "sf64"), -(2**63)),
        "single": -inf,
        "number": -0.0,
        "maybe": 0,
        "perhaps": "",
        "or_side": "SIDE_UNSPECIFIED",
        "side": "SHORT",
    }
    message.at.seconds = -62_135_596_800
    message.day.year = message.day.month = message.day.day = 1
    message.money.value = (-(10**38) + 1).to_bytes(16, "big", signed=True)
    message.money.scale = 10
    for name in ("double", "float", "int64", "uint64", "int32", "uint32", "bool", "string", "bytes"):
        getattr(message, f"w_{name}").SetInParent()
    row |= {"at": FIRST_MOMENT, "day": date(1, 1, 1), "money": NINES.copy_negate()}
    row |= {
        "w_double": 0.0,
        "w_float": 0.0,
        "w_int64": 0,
        "w_uint64": Decimal(0),
        "w_int32": 0,
        "w_uint32": 0,
    }
    row |= {"w_bool": False, "w_string": "", "w_bytes": b""}
    message.inner.SetInParent()
    message.message.SetInParent()
    empty: dict[str, Any] = {"name": "", "level": None, "deeper": []}
    row |= {"inner": empty, "choice": {"word": None, "message": empty, "count": None, "due": None}}
    return message, row


def greatest(kind: Any) -> tuple[Any, dict[str, Any]]:
    """A message of the greatest values, and its row."""
    signed = dict.fromkeys(("i32", "s32", "sf32"), 2**31 - 1) | dict.fromkeys(
        ("i64", "s64", "sf64"), 2**63 - 1
    )
    short = dict.fromkeys(("u32", "f32"), 2**32 - 1)
    message = kind(
        **signed, **short, u64=2**64 - 1, f64=2**64 - 1, single=3.4028234663852886e38, number=nan, flag=True,
        text="žąsis 🧊\x00", raw=bytes(range(256)), side=77, maybe=-1, perhaps="p", or_side=2,
        numbers=[0, -1, 2**63 - 1, -(2**63)], texts=["", "a", "ą" * 300], loose=[True, False, True], sides=[1, 5, 0],
        by_text={"k": 1, "": -1}, by_int={-1: "x", 0: ""}, by_flag={True: 1.5, False: -0.0},
        by_fixed={-(2**63): b"\x00"}, by_side={"a": 1, "b": 9}, count=2**64 - 1,
    )  # fmt: skip
    message.at.FromDatetime(LAST_MOMENT)
    message.day.year, message.day.month, message.day.day = 9999, 12, 31
    message.time.hours, message.time.nanos = 23, 999_999_999
    message.took.seconds, message.took.nanos = -1, -1
    message.money.value, message.money.scale = (10**38 - 1).to_bytes(16, "big"), 10
    message.w_uint64.value = 2**64 - 1
    message.w_string.value = "w"
    message.any.type_url, message.any.value = "type/x", b"\x01"
    inner = message.inner
    inner.name, inner.level = "i", 7
    deep = inner.deeper.add().by["x"]
    deep.big.extend([1, 2**64 - 1])
    deep.b = ""
    message.inners.add().name = "first"
    message.inners.add()
    message.moments.add().FromDatetime(SECOND)
    message.moments.add()
    message.boxed.add().value = 5
    message.boxed.add()
    message.by_unsigned[2**64 - 1].name = "u"
    message.by_moment["m"].FromDatetime(SECOND)
    message.by_moment["zero"].SetInParent()
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    none: dict[str, Any] = {"name": "", "level": None, "deeper": []}
    third = {"big": [Decimal(1), Decimal(2**64 - 1)], "kind": {"a": None, "b": ""}}
    row = signed | short | {
        "u64": Decimal(2**64 - 1), "f64": Decimal(2**64 - 1), "single": 3.4028234663852886e38, "number": nan,
        "flag": True, "text": "žąsis 🧊\x00", "raw": bytes(range(256)), "side": "77", "maybe": -1, "perhaps": "p",
        "or_side": "SELL", "at": LAST_MOMENT, "day": date(9999, 12, 31),
        "time": {"hours": 23, "minutes": 0, "seconds": 0, "nanos": 999_999_999},
        "took": {"seconds": -1, "nanos": -1}, "money": NINES,
        "w_uint64": Decimal(2**64 - 1), "w_string": "w", "any": {"type_url": "type/x", "value": b"\x01"},
        "inner": {"name": "i", "level": 7, "deeper": [{"by": [("x", third)]}]},
        "numbers": [0, -1, 2**63 - 1, -(2**63)], "texts": ["", "a", "ą" * 300],
        "inners": [none | {"name": "first"}, none], "loose": [True, False, True],
        "sides": ["BUY", "5", "SIDE_UNSPECIFIED"], "moments": [SECOND, epoch], "boxed": [5, 0],
        "by_text": [("k", 1), ("", -1)], "by_int": [(-1, "x"), (0, "")], "by_flag": [(True, 1.5), (False, -0.0)],
        "by_unsigned": [(Decimal(2**64 - 1), none | {"name": "u"})], "by_fixed": [(-(2**63), b"\x00")],
        "by_moment": [("m", SECOND), ("zero", epoch)], "by_side": [("a", "BUY"), ("b", "9")],
        "choice": {"word": None, "message": None, "count": Decimal(2**64 - 1), "due": None},
    }  # fmt: skip
    return message, row


def test_every_value_is_its_row_for_spark_and_for_pyiceberg(engine: Engine) -> None:
    kind = message_class(EVERY_TYPE, "calve.tests.Every")
    topic = protobuf_topic(engine)
    serialize = serializer(engine, topic, kind)
    cases = [(kind(), {}), least(kind), greatest(kind)]
    for message, _ in cases:
        engine.send(topic, serialize(message), partition=0)
    engine.flush()
    (outcome,) = engine.drain(engine.target(topic))
    assert outcome.ledger.rejected == {}
    for row, (_, expected) in zip(read(engine, topic), cases, strict=True):
        assert by_key(row) == by_key(dict.fromkeys(row) | DEFAULTS | expected)
    proved(engine, topic)


COMMON = """
syntax = "proto3"; package shared;
message Money { int64 units = 1; string currency = 2; }
"""
HEAD = """
syntax = "proto3"; package trades;
import "shared/common.proto"; import "google/protobuf/timestamp.proto";
"""
VERSIONS = (
    HEAD
    + """
    message Trade {
      int32 id = 1; string who = 2; Item item = 3; map<string, int32> by = 4; shared.Money paid = 5;
      message Item { string name = 1; }
    }""",
    HEAD
    + """
    message Trade {
      message Item { google.protobuf.Timestamp at = 2; string title = 1; }
      optional string note = 6; map<string, int64> by = 4; shared.Money paid = 5; Item item = 3; string trader = 2;
      int64 id = 1;
      oneof extra { string memo = 7; shared.Money tip = 8; }
    }""",
    HEAD + "message Trade { string id = 1; }",
)


@pytest.mark.full
def test_versions_in_one_batch_are_one_table_in_which_a_number_keeps_its_column(engine: Engine) -> None:
    references = {"shared/common_proto": COMMON}
    kinds = [message_class(each, "trades.Trade", **references) for each in VERSIONS]
    topic = protobuf_topic(engine)
    engine.registry.register_schema(f"{topic}-common", Schema(COMMON, "PROTOBUF"))
    common = [SchemaReference("shared/common.proto", f"{topic}-common", 1)]
    with any_schema(engine):
        ids = [register(engine, topic, each, references=common) for each in VERSIONS]
    for n in range(4):
        first = kinds[0](id=n, who="a", item={"name": "i"}, by={"k": n}, paid={"units": n})
        second = kinds[1](id=2**40, trader="b", item={"title": "j"}, note="", tip={"currency": "EUR"})
        second.item.at.FromDatetime(SECOND)
        for schema_id, message in zip(ids, (first, second, kinds[2](id="x")), strict=True):
            send(engine, topic, schema_id, message)
    engine.flush()
    (outcome,) = engine.drain(engine.target(topic))
    assert outcome.ledger.rejected == {"incompatible_schema": 4}
    expected = []
    for n in range(4):
        old = {"item": {"title": "i", "at": None}, "by": [("k", n)], "paid": {"units": n, "currency": ""}}
        new: dict[str, Any] = {"item": {"title": "j", "at": SECOND}, "by": [], "paid": None, "note": ""}
        extra = {"memo": None, "tip": {"units": 0, "currency": "EUR"}}
        expected.append({"id": n, "trader": "a", "note": None, "extra": None} | old)
        expected.append({"id": 2**40, "trader": "b", "extra": extra} | new)
    assert read(engine, topic) == expected
    proved(engine, topic)


SEVERAL = """
syntax = "proto3"; package several;
import "google/protobuf/timestamp.proto";
message Trade {
  int64 id = 1; string note = 2; Inner inner = 3; repeated fixed32 sizes = 4; google.protobuf.Timestamp at = 5;
  map<string, int32> by = 6; oneof choice { string word = 8; Inner other = 9; }
  message Inner { string text = 1; repeated sint32 numbers = 2; }
}
message Other { int64 id = 1; message Nested { int32 x = 1; } }
"""
MALFORMED = [
    b"\x08",
    b"\x08" + b"\xff" * 10,
    b"\x08" + b"\x80" * 20,
    b"\x12\x05ab",
    b"\x12\xff\xff\xff\xff\x07",
    b"\x12" + b"\xff" * 9 + b"\x01",
    b"\x12\x02\xc3\x28",
    b"\x12\x03\xed\xa0\x80",
    b"\x1a\x04\x0a\x02\xff\xff",
    b"\x32\x03\x0a\x01\xff",
    b"\x0d\0\0\0\0",
    b"\x0a\x01x",
    b"\x10\x01",
    b"\x1a\x02\x08\x01",
    b"\x32\x02\x12\x00",
    b"\x22\x03abc",
    b"\x1a\x04\x12\x02\x80\x80",
    b"\x1a\x02\x12\x05",
    b"\x1a\x7f" + b"\x0a" * 20,
    b"\x0b\x0c",
    b"\x0b",
    b"\x0c",
    b"\x9b\x06" * 10_000,
    b"\x00\x01",
    b"\x0e",
    b"\x0f",
    b"\x80\x80\x80\x80\x80\x01\x01",
    b"\x2a\x06\x08\x80\xc3\x86\x83\x01\x08",
    b"\x2a\x07\x08\x80\x83\xd1\xff\xaf\x07",
    b"\x2a\x02\x10\x01",
    b"\x2a\x0b\x10" + b"\xff" * 9 + b"\x01",
    b"\x08\x01" * 50_000 + b"\x08",
]
UNINDEXED = [b"", b"\x01", b"\x02\x06", b"\x02\x00", b"\x06\x02\x00\x00", b"\xff" * 12, b"\x80"]
GOOD: list[tuple[bytes, dict[str, Any]]] = [
    (b"", {}),
    (b"\x08\x01" * 50_000 + b"\x08\x07", {"id": 7}),
    (b"\x1a\x03\x0a\x01a\x1a\x03\x12\x01\x01", {"inner": {"text": "a", "numbers": [-1]}}),
    (b"\x42\x01a\x4a\x03\x0a\x01b", {"choice": {"word": None, "other": {"text": "b", "numbers": []}}}),
    (b"\x4a\x03\x0a\x01b\x42\x01a", {"choice": {"word": "a", "other": None}}),
    (b"\x32\x05\x0a\x01k\x10\x01\x32\x05\x0a\x01k\x10\x02", {"by": [("k", 2)]}),
    (b"\x32\x00", {"by": [("", 0)]}),
    (b"\x25\x01\0\0\0\x22\x04\x02\0\0\0\x25\x03\0\0\0", {"sizes": [1, 2, 3]}),
    (b"\xa2\x06" + b"\x04" + b"\x0a\x02\x0a\x00" + b"\x08\x05", {"id": 5}),
    (b"\x08" + b"\x85" + b"\x80" * 8 + b"\x00", {"id": 5}),
]
NOTHING: dict[str, Any] = {
    "id": 0,
    "note": "",
    "inner": None,
    "sizes": [],
    "at": None,
    "by": [],
    "choice": None,
}


def test_what_is_no_message_of_the_table_is_a_dead_letter_by_name(engine: Engine) -> None:
    topic = protobuf_topic(engine, SEVERAL)
    schema_id = int(engine.registry.get_latest_version(f"{topic}-value").schema_id or 0)
    for payload in MALFORMED:
        send(engine, topic, schema_id, payload)
    for indexes in UNINDEXED:
        send(engine, topic, schema_id, b"\x08\x01" if indexes else b"", indexes)
    for indexes in (b"\x02\x02", b"\x04\x02\x00", b"\x04\x00\x00"):
        send(engine, topic, schema_id, b"\x08\x01", indexes)
    for payload, _ in GOOD:
        send(engine, topic, schema_id, payload)
    engine.flush()
    (outcome,) = engine.drain(engine.target(topic))
    refused = len(MALFORMED) + len(UNINDEXED)
    assert outcome.ledger.rejected == {"malformed": refused, "incompatible_schema": 3}
    assert engine.letter_offsets(topic) == [(0, n) for n in range(refused + 3)]
    assert read(engine, topic) == [NOTHING | expected for _, expected in GOOD]
    proved(engine, topic)


def test_a_new_table_of_the_wrong_message_stops_at_once_and_names_the_right_one(engine: Engine) -> None:
    topic = protobuf_topic(engine, SEVERAL)
    schema_id = int(engine.registry.get_latest_version(f"{topic}-value").schema_id or 0)
    for number in range(100):
        send(engine, topic, schema_id, b"\x08" + bytes([number]), b"\x02\x02")
    engine.flush()
    with suspended("nearly_all_rejected") as caught:
        engine.drain(engine.target(topic))
    found = "expected the message several.Trade, found the message several.Other"
    assert f"(incompatible_schema, schema id {schema_id}: the value: {found})" in caught.value.message
    assert "`value: {message: NAME}`" in str(caught.value.fix)
    assert engine.lake.load(TableName(DATABASE, topic).dead_letters) is None
    (outcome,) = engine.drain(engine.target(topic, value=Source(message="Other")))
    assert outcome.ledger.applied == 100


def by_key(row: Any) -> Any:
    """A row whose values can be compared, maps sorted by their keys: a serializer writes their entries in any order."""
    return same({name: _sorted(value) for name, value in row.items()})


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _sorted(each) for name, each in value.items()}
    if isinstance(value, list):
        made = [_sorted(each) for each in value]
        return sorted(made, key=lambda entry: repr(entry[0])) if made and isinstance(made[0], tuple) else made
    return tuple(map(_sorted, value)) if isinstance(value, tuple) else value
