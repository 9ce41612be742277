"""Tags of fields: read from every format, at every depth, and kept through all versions of a schema."""

from __future__ import annotations

import json
from typing import Any

import pytest

from calve.decoding.decode_plan import evolution, first_columns, tags
from calve.decoding.formats import Top, columns
from calve.schema.columns import tags_of
from calve.schema.evolution import plain
from calve.schema.wire import Schema

PII = {"confluent:tags": ["PII"]}
STRING, NULL = {"type": "string"}, {"type": "null"}


def avro(*fields: dict[str, Any], number: int = 1) -> Schema:
    return Schema(number, json.dumps({"type": "record", "name": f"R{number}", "fields": fields}))


def objects(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def in_json(schema: dict[str, Any]) -> dict[str, tuple[str, ...]]:
    return tags_of(columns(Schema(1, json.dumps(schema), "JSON")))


def of(**properties: Any) -> dict[str, tuple[str, ...]]:
    return in_json(objects(**properties))


def test_tags_of_avro_fields_are_found_at_every_depth() -> None:
    person = {"type": "record", "name": "P", "fields": [{"name": "mail", "type": "string"} | PII]}
    entry = {"name": "MapEntry", "type": "record"}
    entries = [{"name": "key", "type": "int"}, {"name": "value", "type": "string"} | PII]
    schema = avro(
        {"name": "a", "type": "int", "confluent:tags": ["PII", "GDPR", "PII"]},
        {"name": "b", "type": {"type": "map", "values": {"type": "array", "items": person}}},
        {"name": "c", "type": ["null", "string", "P"], "confluent:tags": "SECRET"},
        {"name": "d", "type": ["null", {"type": "array", "items": entry | {"fields": entries}}]},
        {"name": "e", "type": "int", "confluent:tags": {"PII": 1}},
    )
    found = {"a": ("PII", "GDPR"), "b.mail": ("PII",), "c": ("SECRET",), "c.P.mail": ("PII",), "d": ("PII",)}
    assert tags_of(columns(schema)) == found


def test_tags_of_json_properties_are_found_at_every_depth() -> None:
    listed = {"type": "array", "items": objects(mail=STRING | PII)}
    assert of(a=STRING | PII, b=objects(c=STRING | PII), d=listed, e=STRING) == {
        "a": ("PII",),
        "b.c": ("PII",),
        "d.mail": ("PII",),
    }


@pytest.mark.parametrize(
    "node",
    [
        {"$ref": "#/definitions/mail"},
        {"allOf": [STRING, {"$ref": "#/definitions/mail"}]},
        {"oneOf": [NULL, STRING | PII]},
        {"anyOf": [STRING, {"type": "string", "format": "date"} | PII]},
        {"type": "array", "items": {"$ref": "#/definitions/mail"}},
        {"type": "object", "additionalProperties": STRING | PII},
    ],
)
def test_a_tag_may_stand_anywhere_in_what_describes_a_value(node: dict[str, Any]) -> None:
    assert in_json(objects(x=node) | {"definitions": {"mail": STRING | PII}}) == {"x": ("PII",)}


@pytest.mark.parametrize(
    "node",
    [
        {"oneOf": [objects(mail=STRING | PII), {"type": "array", "items": STRING}]},
        {"type": "array", "items": objects(mail=STRING | PII) | {"patternProperties": {"^a": STRING}}},
        {"type": "array", "prefixItems": [objects(mail={"$ref": "#/definitions/mail"})]},
        {"patternProperties": {"^a": {"$ref": "#/definitions/none"}, "^b": STRING | PII}, "type": "object"},
    ],
)
def test_what_is_kept_as_json_text_has_the_tags_of_all_that_is_in_it(node: dict[str, Any]) -> None:
    schema = objects(x=node) | {"definitions": {"mail": STRING | PII}}
    assert in_json(schema) == {"x": ("PII",)}
    found = columns(Schema(1, json.dumps(schema), "JSON"))["fields"][0]["type"]
    assert found == "string" or found["element"] == "string"


def test_alternatives_that_differ_only_by_tags_stay_one_struct_with_the_tags_of_all() -> None:
    one, other = objects(a=STRING | PII, b=STRING), objects(a=STRING, b=STRING | {"confluent:tags": ["B"]})
    schema = Schema(1, json.dumps(objects(x={"oneOf": [one, other]})), "JSON")
    untagged = Schema(1, json.dumps(objects(x={"oneOf": [objects(a=STRING, b=STRING)] * 2})), "JSON")
    assert plain(columns(schema)) == plain(columns(untagged))
    assert tags_of(columns(schema)) == {"x.a": ("PII",), "x.b": ("B",)}


def test_tags_of_protobuf_fields_are_found_at_every_depth() -> None:
    text = """
        syntax = "proto3"; import "confluent/meta.proto";
        message A {
          string a = 1 [(confluent.field_meta).tags = "PII", (confluent.field_meta).tags = "GDPR"];
          repeated B b = 2 [(confluent.field_meta) = {tags: ["PII"] tags: "B" doc: "all of them"}];
          map<string, string> c = 3 [(.confluent.field_meta).tags = "PII"];
          oneof d { string e = 4 [(confluent.field_meta).tags = "PII"]; }
          message B { string mail = 1 [(confluent.field_meta).tags = "PII"]; string f = 2; }
        }"""
    found = {"a": ("PII", "GDPR"), "b": ("PII", "B"), "b.mail": ("PII",), "c": ("PII",), "d.e": ("PII",)}
    assert tags_of(columns(Schema(1, text, "PROTOBUF"))) == found


def test_tags_of_a_key_are_those_of_its_column() -> None:
    assert tags_of(columns(avro({"name": "a", "type": "int"} | PII), Top(column="key"))) == {
        "key.a": ("PII",)
    }


def test_tags_of_all_versions_add_up_and_follow_a_rename() -> None:
    person = {"type": "record", "name": "P", "fields": [{"name": "mail", "type": "string"} | PII]}
    versions = [
        avro({"name": "a", "type": "string"} | PII, {"name": "p", "type": person}, number=1),
        avro({"name": "a", "type": "string", "confluent:tags": ["GDPR"]}, number=2),
        avro({"name": "z", "type": "string", "aliases": ["a"]}, number=3),
        avro(
            {"name": "z", "type": {"type": "array", "items": "int"}, "confluent:tags": ["MISFIT"]}, number=4
        ),
    ]
    table = first_columns(versions[:1], "t-value")
    assert tags(table, versions) == {"z": ("PII", "GDPR"), "p.mail": ("PII",)}


def test_tags_change_no_table() -> None:
    plainly, tagged = (
        avro({"name": "a", "type": "int"}, number=1),
        avro({"name": "a", "type": "int"} | PII, number=2),
    )
    table = first_columns([tagged, plainly], "t-value")
    assert table == first_columns([plainly], "t-value")
    assert evolution(table, [plainly, tagged]) == []
