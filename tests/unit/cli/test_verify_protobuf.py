"""Verification refuses what is no Protobuf: texts that are no UTF-8, in every version of the language, and files in a circle."""

from __future__ import annotations

import base64

import pyarrow as pa
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from calve.registry import Schema
from cli.verify.formats.decoding import Values
from cli.verify.formats.fields import Unreadable
from cli.verify.formats.protobuf_schema import compiled

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
