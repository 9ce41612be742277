"""The engine's reader of Protobuf against Google's: any bytes at all are the same row for both, or none."""

from __future__ import annotations

import time
import tracemalloc
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf.descriptor import FieldDescriptor

from calve.decoding.decode_plan import decoding, first_columns
from calve.schema.wire import Schema
from calve.schema.writers import ProtobufWriter
from cli.verify.formats.decoding import Values
from cli.verify.formats.fields import Unreadable
from glue_jobs.decode.protobuf.values import rescaled
from tests.judged import judged, plan_of
from tests.protobuf_classes import message_class

SCHEMA = """
syntax = "proto3";
import "google/protobuf/timestamp.proto"; import "google/protobuf/wrappers.proto";
import "google/type/date.proto"; import "confluent/type/decimal.proto"; import "confluent/meta.proto";
message Top {
  int32 a1 = 1; sint32 a2 = 2; sfixed32 a3 = 3; uint32 a4 = 4; fixed32 a5 = 5; int64 a6 = 6; sint64 a7 = 7;
  sfixed64 a8 = 8; uint64 a9 = 9; fixed64 a10 = 10; float a11 = 11; double a12 = 12; bool a13 = 13; string a14 = 14;
  bytes a15 = 15; E a16 = 16;
  optional int64 o1 = 20; optional string o2 = 21; optional E o3 = 22; optional double o4 = 23; optional bool o5 = 24;
  google.protobuf.Timestamp t1 = 30; google.type.Date t2 = 31;
  confluent.type.Decimal t3 = 32 [(confluent.field_meta) = {params: [{key: "precision" value: "20"}, {key: "scale" value: "2"}]}];
  google.protobuf.Int64Value t4 = 33; google.protobuf.StringValue t5 = 34; google.protobuf.UInt64Value t6 = 35;
  repeated sint32 r1 = 40; repeated double r2 = 41; repeated string r3 = 42; repeated bool r4 = 43 [packed = false];
  repeated uint64 r5 = 44; repeated fixed32 r6 = 300 [packed = false]; repeated E r7 = 46; repeated Inner r8 = 47;
  repeated google.protobuf.Timestamp r9 = 48; repeated google.protobuf.BytesValue r10 = 49;
  map<int32, Inner> m1 = 50; map<string, double> m2 = 51; map<bool, google.protobuf.Timestamp> m3 = 52;
  map<uint64, E> m4 = 53;
  Inner i = 60;
  oneof choice { string c1 = 61; Inner c2 = 62; int32 c3 = 63; Inner c4 = 64; E c5 = 65; google.protobuf.Timestamp c6 = 66; }
  enum E { A = 0; B = 1; NEGATIVE = -5; }
  message Inner {
    Deep d = 1; string s = 2; repeated Deep l = 3; map<int64, string> m = 4; google.protobuf.Timestamp t = 5;
    message Deep { int32 x = 1; repeated string y = 2; oneof k { int32 a = 3; string b = 4; } }
  }
}
"""
PROTO2 = """
syntax = "proto2";
message Top {
  required int64 a = 1; optional string b = 2; optional int32 c = 3 [default = 5]; repeated int32 d = 4 [packed = true];
  optional E e = 5 [default = TWO]; optional Inner f = 6; repeated E g = 7; repeated Inner h = 8;
  enum E { ONE = 1; TWO = 2; }
  message Inner { required string x = 1; optional float y = 2 [default = 1.5]; }
  extensions 100 to 200;
}
"""
PREFIX = b"\x00\x00\x00\x00\x07\x00"
INTEGERS = {
    FieldDescriptor.CPPTYPE_INT32: (0, 1, -1, 2**31 - 1, -(2**31)),
    FieldDescriptor.CPPTYPE_INT64: (0, 1, -1, 2**63 - 1, -(2**63), 1_700_000_000),
    FieldDescriptor.CPPTYPE_UINT32: (0, 1, 2**32 - 1),
    FieldDescriptor.CPPTYPE_UINT64: (0, 1, 2**63, 2**64 - 1),
}


def test_random_messages_and_what_becomes_of_them_when_bytes_are_lost_or_changed() -> None:
    counts = [0, 0]
    for text in (SCHEMA, PROTO2):
        kind = message_class(text, "Top")
        for seed in range(3):
            random = Random(seed)
            whole = [_message(kind, random) for _ in range(80)]
            if text == SCHEMA:  # of proto2 Google's library does not look at texts that later ones replace
                whole += [whole[n] + whole[-n] for n in range(10)]
            for payloads in (whole, [_damaged(each, random) for each in whole]):
                for good in agreed(text, payloads):
                    counts[good] += 1
    assert min(counts) > 100, counts


def agreed(text: str, payloads: list[bytes]) -> list[bool]:
    """Which payloads are rows, once both readers have said the same of all."""
    schema = Schema(7, text, "PROTOBUF")
    table = first_columns([schema], "subject")
    (writer,) = decoding(table, [schema]).writers
    assert isinstance(writer, ProtobufWriter)
    found = decoded([writer.prefix + each for each in payloads], [writer])
    found.validate(full=True)
    kind = found.type.field("value").type
    columns = pa.schema(list(kind))
    theirs = Values(columns, {7: schema}.get)
    for payload, mine in zip(payloads, found.to_pylist(), strict=True):
        try:
            row = pa.record_batch(theirs.project(writer.prefix + payload), columns).to_pylist()[0]
        except Unreadable:
            row = None
        assert (row is not None) == (mine["reason"] is None), payload.hex()
        if row is not None:
            assert _comparable(row) == _comparable(mine["value"]), payload.hex()
    return [each["reason"] is None for each in found.to_pylist()]


def decoded(values: list[bytes | None], writers: list[ProtobufWriter]) -> Any:
    return judged(plan_of(writers), pa.array(values, pa.binary()))


def test_frames_are_told_apart() -> None:
    schemas = [Schema(n, f'syntax = "proto3"; message A {{ int64 a = {n}; }}', "PROTOBUF") for n in (1, 2)]
    table = first_columns(schemas[:1], "subject")
    writers = [each for each in decoding(table, schemas).writers if isinstance(each, ProtobufWriter)]
    values = [
        b"\0\0\0\0\2\0\x10\5",
        None,
        b"",
        b"\0\0\0\0\1\0\x08\6",
        b"\0\0\0\0\3\0",
        b"\0\0\0\0\1",
        b"\0\0\0\0\1\0\x08",
    ]
    expected = [
        (5, None),
        (None, "null_value"),
        (None, "truncated"),
        (6, None),
        (None, "unknown_schema_id"),
        (None, "malformed"),
        (None, "malformed"),
    ]
    for array in (pa.array(values, pa.binary()), pa.array([b"x", *values], pa.binary()).slice(1)):
        found = judged(plan_of(writers), array).to_pylist()
        assert [(each["value"] and each["value"]["a"], each["reason"]) for each in found] == expected


DECIMALS = [
    (b"", 2, Decimal("0.00")),
    (b"\x00", 2, Decimal("0.00")),
    (b"\xff", 2, Decimal("-0.01")),
    (b"\x00\xff", 2, Decimal("2.55")),
    ((10**20 - 1).to_bytes(9, "big"), 2, Decimal("999999999999999999.99")),
    ((1 - 10**20).to_bytes(16, "big", signed=True), 2, Decimal("-999999999999999999.99")),
    ((10**20).to_bytes(9, "big"), 2, None),
    ((-(10**20)).to_bytes(9, "big", signed=True), 2, None),
    (bytes(17), 2, None),
    (b"\x05", 0, Decimal("5.00")),
    (b"\x05", -2, Decimal("500.00")),
    (b"\x05", 3, None),
    (b"\x32", 3, Decimal("0.05")),
    (b"\x00", 2**31 - 1, Decimal("0.00")),
    (b"\x01", -18, None),
    (b"\x01", -(2**31), None),
    ((10**29).to_bytes(16, "big"), 12, Decimal("100000000000000000.00")),
    ((10**29 + 7).to_bytes(16, "big"), 12, None),
]


@pytest.mark.parametrize(("unscaled", "scale", "expected"), DECIMALS)
def test_a_decimal_is_exact_or_refused(unscaled: bytes, scale: int, expected: Decimal | None) -> None:
    message = message_class(SCHEMA, "Top")()
    message.t3.value, message.t3.scale = unscaled, scale
    (row,) = rows(message.SerializeToString())
    assert (row["reason"] is None) == (expected is not None)
    assert expected is None or str(row["value"]["t3"]) == str(expected)
    if abs(scale) <= 1000:
        agreed(SCHEMA, [message.SerializeToString()])


@pytest.mark.parametrize(
    ("number", "places", "moved"),
    [
        (10**37 - 1, 1, 10**38 - 10),
        (10**37, 1, None),
        (-(10**35) - 7, 2, -(10**37) - 700),
        (10**37 + 7, -1, None),
        (10**38 - 100, -2, 10**36 - 1),
        (-1, 39, None),
        (0, 2**31, 0),
    ],
)
def test_every_digit_of_a_decimal_is_kept_at_another_scale(
    number: int, places: int, moved: int | None
) -> None:
    assert rescaled(number, places) == moved


@pytest.mark.parametrize(
    "day", [(1, 1, 1), (9999, 12, 31), (2024, 2, 29), (2023, 2, 29), (1900, 2, 29), (2000, 2, 29), (0, 1, 1), (2024, 0, 1),
            (2024, 13, 1), (2024, 4, 31), (2024, 1, 0), (10_000, 1, 1), (-5, 1, 1), (2**31 - 1, 1, 1)],
)  # fmt: skip
def test_a_date_is_one_of_the_calendar(day: tuple[int, int, int]) -> None:
    message = message_class(SCHEMA, "Top")()
    message.t2.year, message.t2.month, message.t2.day = day
    agreed(SCHEMA, [message.SerializeToString()])


@pytest.mark.parametrize(
    ("seconds", "nanos", "good"),
    [(-62_135_596_800, 0, True), (253_402_300_799, 999_999_000, True), (0, 1_000, True), (-1, 5_000, True),
     (-62_135_596_801, 0, False), (253_402_300_800, 0, False), (0, 1, False), (0, 1_000_000_000, False), (0, -1_000, False),
     (2**63 - 1, 0, False), (-(2**63), 0, False)],
)  # fmt: skip
def test_a_moment_is_kept_to_the_microsecond_or_refused(seconds: int, nanos: int, good: bool) -> None:
    message = message_class(SCHEMA, "Top")()
    message.t1.seconds, message.t1.nanos = seconds, nanos
    assert agreed(SCHEMA, [message.SerializeToString()]) == [good]


def test_no_payload_takes_longer_or_more_memory_than_its_length_allows() -> None:
    fields = [b"\x08\x01", b"\x72\x00", b"\xc2\x02\x00", b"\xfa\x02\x00", b"\x92\x03\x00", b"\xff", b"\x0b"]
    bombs = [each * (300_000 // len(each)) for each in fields]
    bombs.append(b"\xc2\x02\xe0\xa7\x12" + b"\x01" * 300_000)
    started = time.process_time()
    tracemalloc.start()
    for each in bombs:
        rows(each)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert time.process_time() - started < 20
    assert peak < 200 * 2**20


def rows(payload: bytes, text: str = SCHEMA) -> list[Any]:
    schema = Schema(7, text, "PROTOBUF")
    (writer,) = decoding(first_columns([schema], "subject"), [schema]).writers
    assert isinstance(writer, ProtobufWriter)
    found: list[Any] = decoded([PREFIX + payload], [writer]).to_pylist()
    return found


def _message(kind: Any, random: Random) -> bytes:
    message = kind()
    _fill(message, random, 0)
    return bytes(message.SerializePartialToString())


def _fill(message: Any, random: Random, depth: int) -> None:
    match message.DESCRIPTOR.full_name:
        case "google.type.Date":
            message.year, message.month, message.day = random.randint(1, 9999), random.randint(1, 12), 28
        case "google.protobuf.Timestamp":
            message.seconds, message.nanos = random.randint(-(10**9), 10**9), random.randrange(10**6) * 1000
        case "confluent.type.Decimal":
            message.value, message.scale = random.randbytes(random.choice((1, 5, 8))), 2
        case _:
            _fill_fields(message, random, depth)


def _fill_fields(message: Any, random: Random, depth: int) -> None:
    for each in message.DESCRIPTOR.fields:
        if random.random() < (0.5 if depth else 0.3) and not each.is_required:
            continue
        held = getattr(message, each.name)
        if each.message_type and each.message_type.GetOptions().map_entry:
            _fill_map(held, each.message_type.fields_by_name, random, depth)
        elif each.is_repeated:
            for _ in range(random.choice((0, 1, 2, 40 if depth == 0 else 1))):
                if each.message_type:
                    _fill(held.add(), random, depth + 1)
                else:
                    held.append(_scalar(each, random))
        elif each.message_type:
            held.SetInParent()
            _fill(held, random, depth + 1)
        else:
            setattr(message, each.name, _scalar(each, random))


def _fill_map(held: Any, entry: Any, random: Random, depth: int) -> None:
    for _ in range(random.choice((0, 1, 3))):
        key = _scalar(entry["key"], random)
        if entry["value"].message_type:
            _fill(held[key], random, depth + 1)
        else:
            held[key] = _scalar(entry["value"], random)


def _scalar(each: Any, random: Random) -> Any:
    kind = each.cpp_type
    if kind in INTEGERS:  # classes of verification have numbers for enums, these have enums
        return random.choice(INTEGERS[kind])
    if kind == each.CPPTYPE_ENUM:
        return random.choice([value.number for value in each.enum_type.values])
    if kind == each.CPPTYPE_BOOL:
        return random.random() < 0.5
    if kind in (each.CPPTYPE_DOUBLE, each.CPPTYPE_FLOAT):
        return random.choice((0.0, -0.0, 1.5, float("inf"), float("nan")))
    found = random.choice(("", "a", "žąsis 🧊", "x" * 200))
    return found if each.type == each.TYPE_STRING else found.encode()


def _damaged(payload: bytes, random: Random) -> bytes:
    data = bytearray(payload)
    for _ in range(random.choice((1, 1, 2, 4))):
        if data:
            place = random.randrange(len(data))
            match random.randrange(5):
                case 0 | 1:
                    data[place] = random.randrange(256)
                case 2:
                    del data[place:]
                case 3:
                    data.insert(place, random.randrange(256))
                case _:
                    del data[place]
    return bytes(data)


def _comparable(value: Any) -> Any:
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, dict):
        return {name: _comparable(each) for name, each in value.items()}
    if isinstance(value, tuple):
        return tuple(map(_comparable, value))
    if isinstance(value, list):
        made = list(map(_comparable, value))
        return sorted(made, key=repr) if made and isinstance(made[0], tuple) else made
    return value
