"""Verification takes from Protobuf what a job takes, also without imports that nobody gave, and refuses what is no Protobuf."""

from __future__ import annotations

import base64

import pyarrow as pa
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from calve.evolution import SchemaProblem
from calve.protobuf.linking import load
from calve.registry import Schema
from cli.verify.conversion import Unreadable
from cli.verify.decoding import Values
from cli.verify.protobuf_schema import compiled

COLUMNS = pa.schema(
    [("text", pa.string()), ("counts", pa.map_(pa.string(), pa.int32())), ("side", pa.string())]
)
BODY = "map<string, int32> counts = 2; enum Side { A = 0; B = 1; }"
PROTO2 = f'syntax = "proto2"; message M {{ optional string text = 1; {BODY} optional Side side = 3 [default = B]; }}'
PROTO3 = f'syntax = "proto3"; message M {{ string text = 1; {BODY} Side side = 3; }}'
BAD, GOOD = b"\x0a\x01\xff", b"\x0a\x01a"


@pytest.mark.parametrize("text", [PROTO2, PROTO3])
@pytest.mark.parametrize(
    ("value", "verdict"),
    [
        (GOOD, None),
        (GOOD + GOOD + b"\x18\x07", None),
        (BAD, "malformed"),
        (BAD + GOOD, "malformed"),
        (GOOD + b"\x12\x05\x0a\x01\xff\x10\x01", "malformed"),
        (GOOD + b"\x12\x05\x0a\x01k\x10\x01", None),
    ],
)
def test_a_text_that_is_no_utf_8_is_malformed(text: str, value: bytes, verdict: str | None) -> None:
    values = Values(COLUMNS, {1: Schema(1, text, "PROTOBUF")}.get)
    assert values.verdict(b"\0\0\0\0\1\0" + value) == verdict


def test_files_that_need_each_other_are_no_schema() -> None:
    def needing(name: str) -> str:
        return base64.b64encode(FileDescriptorProto(dependency=[name]).SerializeToString()).decode()

    circle = {"b.proto": needing("c.proto"), "c.proto": needing("b.proto")}
    with pytest.raises(Unreadable):
        compiled(Schema(1, needing("b.proto"), "PROTOBUF", circle))


ABSENT = """syntax = "proto3"; package p;
import "buf/validate.proto"; import 'a/b.proto'; import public "gone.proto"; // import "c.proto";
import "google/protobuf/descriptor.proto";
option (gone.file) = { text: "};" list: [1, 2]; inner { n: 1 } }; option java_package = "import [(x)]";
extend gone.Thing { string more = 100; }
service S { option (gone.s) = 1; rpc F(gone.In) returns (stream gone.Out) { option (http) = { get: "/{id}" }; } }
/* service T { */ message M {
  option (gone.m).part = true; option deprecated = true;
  string text = 1 [(buf.validate.field).string = {min_len: 1, in: ["a]", "b"]}, json_name = "[(t)", (gone.f) = -1e+5];
  map<string, int32> counts = 2 [(gone.f) = 'x'];
  enum Side { option (gone.e) = 1; A = 0 [(gone.v) = true]; B = 1; } Side side = 3;
  extend google.protobuf.FieldOptions { Missing mine = 50001; }
}"""
USED = 'syntax = "proto3"; import "gone.proto"; message M { string text = 1; gone.Thing thing = 2; }'


def binary(file: FileDescriptorProto) -> str:
    return base64.b64encode(file.SerializeToString()).decode()


def described() -> FileDescriptorProto:
    file = FileDescriptorProto(syntax="proto3", dependency=["gone.proto", "google/type/date.proto"])
    file.public_dependency.extend([0, 1])
    message = file.message_type.add(name="M")
    message.field.add(name="text", number=1, type=9, label=1)
    file.service.add(name="S").method.add(name="F", input_type=".gone.In", output_type=".gone.Out")
    return file


@pytest.mark.parametrize("text", [ABSENT, binary(described())])
def test_imports_that_nobody_gave_are_missed_only_where_a_value_needs_them(text: str) -> None:
    schema = Schema(1, text, "PROTOBUF")
    values = Values(COLUMNS, {1: schema}.get)
    assert load(schema).messages[0].fields[0].name == "text"
    assert [values.verdict(b"\0\0\0\0\1\0" + each) for each in (GOOD, BAD)] == [None, "malformed"]


def test_a_file_that_others_import_may_miss_imports_too() -> None:
    inner = 'syntax = "proto3"; import "gone.proto"; message In { string text = 1 [(gone.f) = 1]; }'
    outer = 'syntax = "proto3"; import "inner.proto"; message M { In text = 1; }'
    schema = Schema(1, outer, "PROTOBUF", {"inner.proto": inner})
    assert [each.name for each in compiled(schema).messages] == [load(schema).messages[0].name] == ["M"]


def test_a_type_of_an_import_that_nobody_gave_is_incompatible() -> None:
    file = described()
    file.message_type[0].field.add(name="thing", number=2, type=11, label=1, type_name=".gone.Thing")
    for text in (USED, binary(file)):
        schema = Schema(1, text, "PROTOBUF")
        assert Values(COLUMNS, {1: schema}.get).verdict(b"\0\0\0\0\1\0" + GOOD) == "incompatible_schema"
        with pytest.raises(SchemaProblem):
            load(schema)


@pytest.mark.parametrize(
    ("written", "verdict"),
    [
        (b"\x0a\x01\x00\x18\xe9\x07", None),
        (b"\x18\xff\xff\xff\xff\x07", None),
        (b"\x18\x80\x80\x80\x80\xf8\xff\xff\xff\xff\x01", None),
        (b"\x0a\x01\x01\x18\xe9\x07", "malformed"),
        (b"\x0a\x11" + b"\0" * 17, "malformed"),
    ],
)
def test_a_decimal_of_zero_is_zero_wherever_its_point_is(written: bytes, verdict: str | None) -> None:
    text = 'syntax = "proto3"; import "confluent/type/decimal.proto"; message M { confluent.type.Decimal d = 1; }'
    values = Values(pa.schema([("d", pa.decimal128(38, 9))]), {1: Schema(1, text, "PROTOBUF")}.get)
    payload = b"\0\0\0\0\1\0\x0a" + bytes([len(written)]) + written
    assert values.verdict(payload) == verdict
