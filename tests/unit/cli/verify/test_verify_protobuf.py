"""Verification refuses what is no Protobuf: texts that are no UTF-8, in every version of the language, or cannot check it."""

from __future__ import annotations

import base64

import pyarrow as pa
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from calve.errors import CalveError
from calve.schema.protobuf.files import load
from calve.schema.wire import Schema
from cli.verify.formats.decoding import Values
from cli.verify.formats.fields import Unreadable
from cli.verify.formats.protobuf import compiled

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


UNKNOWN, WRONG, RIGHT = (
    b"\x12\x07\x0a\x01k\x10\x01\x38\x05",
    b"\x12\x06\x0a\x01k\x12\x01\x01",
    b"\x12\x05\x0a\x01k\x10\x01",
)


@pytest.mark.parametrize("text", [PROTO2, PROTO3])
@pytest.mark.parametrize(
    ("value", "verdict"),
    [
        (UNKNOWN, None),
        (UNKNOWN + RIGHT, None),
        (WRONG, "malformed"),
        (RIGHT + WRONG, "malformed"),
        (WRONG + RIGHT, None),
    ],
)
def test_an_entry_of_a_map_may_have_fields_that_nobody_knows_and_counts_where_it_is_the_last_of_its_key(
    text: str, value: bytes, verdict: str | None
) -> None:
    values = Values(COLUMNS, {1: Schema(1, text, "PROTOBUF")}.get)
    assert values.verdict(b"\0\0\0\0\1\0" + value) == verdict


def test_files_that_need_each_other_are_not_checked() -> None:
    def needing(name: str) -> str:
        return base64.b64encode(FileDescriptorProto(dependency=[name]).SerializeToString()).decode()

    circle = {"b.proto": needing("c.proto"), "c.proto": needing("b.proto")}
    with pytest.raises(CalveError, match="could not check"):
        compiled(Schema(1, needing("b.proto"), "PROTOBUF", circle))


ABSENT = 'syntax = "proto3"; import "gone.proto"; message M { string text = 1 [(gone.rule) = 1]; }'


def test_a_schema_that_only_protoc_refuses_is_not_checked() -> None:
    """The job needs no import that no field's type is of."""
    assert load(Schema(7, ABSENT, "PROTOBUF")).messages[0].name == "M"
    with pytest.raises(CalveError, match=r"could not check .* schema 7") as refused:
        compiled(Schema(7, ABSENT, "PROTOBUF"))
    assert "imports" in str(refused.value.fix)


def test_a_type_of_an_import_that_nobody_gave_is_incompatible() -> None:
    used = ABSENT.replace("string text", "gone.Thing text")
    with pytest.raises(Unreadable, match="incompatible_schema"):
        compiled(Schema(7, used, "PROTOBUF"))


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
    text = (
        'syntax = "proto3"; import "confluent/type/decimal.proto"; import "confluent/meta.proto";'
        " message M { confluent.type.Decimal d = 1 [(confluent.field_meta) = {params: ["
        '{key: "precision" value: "38"}, {key: "scale" value: "9"}]}]; }'
    )
    values = Values(pa.schema([("d", pa.decimal128(38, 9))]), {1: Schema(1, text, "PROTOBUF")}.get)
    payload = b"\0\0\0\0\1\0\x0a" + bytes([len(written)]) + written
    assert values.verdict(payload) == verdict
