"""The .proto language: what calve reads in a text is what protoc says of it."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

from calve.schema.evolution import SchemaProblem
from calve.schema.protobuf import descriptor, text
from calve.schema.protobuf.files import load
from calve.schema.protobuf.model import KNOWN_FILES, File, Message
from calve.schema.wire import Schema
from cli.verify.formats.protobuf import known_files
from tests.protobuf_classes import descriptors

PROTO2 = """
syntax = 'proto2'; // a comment
package old; /* and another
   one */
import public "google/protobuf/descriptor.proto";
option (loud) = { text: "a" 'b', list: [1, -2.5e3, inf], inner < deep: true > };
extend google.protobuf.FileOptions { optional Loud loud = 50000; }
message Loud { optional string text = 1; repeated double list = 2; optional Inner inner = 3;
  message Inner { optional bool deep = 1; } }
message optional {
  required int32 message = 0x01;
  optional string required = 017 [default = "a\\"\\x41\\101;", deprecated = false];
  repeated group Many = 5 { optional int32 repeated = 1; }
  oneof oneof { int32 oneof_a = 7; group One = 8 { optional bool x = 1; } }
  enum enum { option allow_alias = true; A = 0; B = -1 [deprecated = true]; C = 0x10; AA = 0; reserved 5, 7 to 9; reserved "D"; }
  optional enum package = 9 [default = B];
  map<string, .old.optional.enum> map = 10;
  map<int32, optional> camel_case_2map = 11;
  extensions 100 to 199, 500 to max [verification = UNVERIFIED];
  extend optional { optional int32 inside = 100; }
  reserved 300, 400 to 450; reserved "x", "y";
  optional .old.optional.Many again = 12;;
  message Empty {}
}
service S { rpc Do(optional) returns (stream optional) { option deprecated = true; } }
"""
EDITION = """
edition = "2023";
package new.er;
option features.field_presence = IMPLICIT;
option features.utf8_validation = VERIFY;
message A {
  int32 implicit = 1;
  int32 explicit = 2 [features.field_presence = EXPLICIT];
  int32 required = 3 [features = { field_presence: LEGACY_REQUIRED }];
  B b = 4 [features.message_encoding = DELIMITED];
  B c = 5;
  repeated int32 list = 6 [features.repeated_field_encoding = EXPANDED];
  oneof choice { int32 d = 7; string e = 8; }
  map<string, B> m = 9;
  reserved gone, other;
  enum E { Z = 0; reserved Y; }
  E e1 = 10;
}
message B { string x = 1 [features.utf8_validation = NONE]; }
"""
PROTO3 = """
syntax = "proto3";
message A {
  optional int32 a = 1; int32 b = 2; .A.B c = 3; oneof o { B d = 4; } repeated B e = 5 [json_name = "x"];
  map<string, bytes> f_g = 6; optional B h = 7;
  message B { message B { int32 x = 1; } B b = 1; }
  stream.of.X i = 8;
}
message stream { message of { message X { int32 a = 1; } } }
"""
WITH_OPTIONS = """
syntax = "proto3"; import "confluent/meta.proto";
message A {
  int32 a = 1 [(confluent.field_meta) = {doc: "one" params: {key: "k" value: "v"} tags: ["x"] tags: "y"}];
  int32 c = 3 [(confluent.field_meta).tags = "p", (confluent.field_meta).tags = "q"];
  int32 b = 2 [(confluent.field_meta).doc = "two", (confluent.field_meta).params = {key: "p", value: "1"},
               (confluent.field_meta).params = {key: "q", value: "2"}];
}
"""
OWN = {"proto2": PROTO2, "edition": EDITION, "proto3": PROTO3, "options": WITH_OPTIONS}
GOOGLE = {
    each.relative_to(folder).as_posix(): each.read_text()
    for folder in known_files()
    for each in sorted(Path(folder, "google").rglob("*.proto"))
    if each.parent.name in ("protobuf", "type", "compiler")
}


@pytest.mark.parametrize("source", OWN.values(), ids=OWN)
def test_own_texts_are_read_as_protoc_reads_them(source: str) -> None:
    assert shown(text.parse(source)) == shown(compiled({"test.proto": source}, "test.proto"))
    written = linked(source)
    assert written == linked(base64.b64encode(serialized({"test.proto": source}, "test.proto")).decode())
    assert written


def test_googles_own_files_are_read_as_protoc_reads_them() -> None:
    assert len(GOOGLE) > 20
    for name, source in GOOGLE.items():
        assert shown(text.parse(source)) == shown(compiled({}, name)), name


def test_the_files_that_everyone_knows_are_those_that_they_stand_for() -> None:
    for name, source in KNOWN_FILES.items():
        own = shown(text.parse(source))
        assert own == shown(text.parse(GOOGLE[name])) if name in GOOGLE else name.startswith("confluent/"), (
            name
        )


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("message A {\n int32 a 1;\n}", '"int32 a 1" is not expected in line 2'),
        ("message A {\n int32 a = 1\n}", '"}" is not expected in line 3'),
        ("message A {\n int32 a = 1;\n", "it ends too early in line 3"),
        ("message A { int32 a = 08; }", '"int32 a = 08" is not expected in line 1'),
        ("message A { map<string> a = 1; }", '"map < string > a = 1" is not expected in line 1'),
        ("message A { int32 a = 1 [(x) = ]; }", '"int32 a = 1 [ ( x ) = ]" is not expected in line 1'),
        ("message A { oneof { int32 a = 1; } }", '"oneof" is not expected in line 1'),
        ("enum E { A; }", '"A" is not expected in line 1'),
        ("import a;", '"import a" is not expected in line 1'),
        ("message A {}\n}", '"}" is not expected in line 2'),
        ("\n\0", "an unexpected character in line 2"),
    ],
)
def test_a_text_that_is_no_schema_is_refused_with_the_words_and_their_line(source: str, why: str) -> None:
    with pytest.raises(SchemaProblem) as caught:
        text.parse(source)
    assert caught.value.why == f"this is no Protobuf schema: {why}"


NESTED = ("message A { " * 70 + "}" * 70, "message A { int32 a = 1 [x = " + "[" * 99 + "]" * 99 + "]; }")


@pytest.mark.parametrize("source", NESTED, ids=["messages", "options"])
def test_what_is_nested_too_deep_is_refused(source: str) -> None:
    with pytest.raises(SchemaProblem, match="deep"):
        text.parse(source)


def test_names_with_spaces_between_their_parts_are_read_as_protoc_reads_them() -> None:
    source = """syntax = "proto2"; package a . b; message X { optional . a . b . Y far = 1; repeated Y near = 2; }
        message Y { extensions 5; } extend . a . b . Y { optional int32 z = 5; }"""
    assert shown(text.parse(source)) == shown(compiled({"test.proto": source}, "test.proto"))


def compiled(files: dict[str, str], name: str) -> File:
    return descriptor.parse(serialized(files, name))


def serialized(files: dict[str, str], name: str) -> bytes:
    wanted = files or {"test.proto": f'syntax = "proto3"; import "{name}";'}
    return next(each for each in descriptors(wanted) if each.name == name).SerializeToString()


def shown(file: File) -> Any:
    """All that says what bytes mean, but for the types that names lead to: those are looked up later."""
    enums = [(each.name, each.values) for each in file.enums]
    return file.package, sorted(file.imports), enums, [_shown(each) for each in file.messages]


def _shown(message: Message) -> Any:
    fields = [
        (
            *(each.name, each.number, each.repeated, each.oneof, dict(each.params), each.tags),
            None if each.repeated or message.is_map_entry else each.presence,
            each.kind if each.kind not in ("message", "enum", "group") else "",
        )
        for each in message.fields
    ]
    enums = [(each.name, each.values) for each in message.enums]
    inside = [_shown(each) for each in message.messages]
    return message.name, message.is_map_entry, message.oneofs, fields, enums, inside


def linked(source: str) -> Any:
    """The types that all names of a schema lead to."""
    descriptor_file = GOOGLE["google/protobuf/descriptor.proto"]
    file = load(Schema(1, source, "PROTOBUF", {"google/protobuf/descriptor.proto": descriptor_file}))
    found, waiting = [], list(file.messages)
    while waiting:
        message = waiting.pop()
        waiting += message.messages
        found += [
            (message.name, each.name, each.kind, each.type and each.type.name) for each in message.fields
        ]
    return found
