"""The values and keys of a table: their columns, their changes, and what reads them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from calve.config.job import Source, Table
from calve.decoding.formats import Top, columns
from calve.decoding.record_schemas import RecordSchemas, record_schemas_of
from calve.errors import Suspended
from calve.registry.registry import Declared, identity
from calve.schema.columns import struct
from calve.schema.evolution import Rule, SchemaProblem
from calve.schema.wire import Schema
from calve.schema.writers import AvroWriter, JsonWriter, PlainWriter


def avro(**fields: Any) -> str:
    named = [{"name": name, "type": each} for name, each in fields.items()]
    return json.dumps({"type": "record", "name": "R", "fields": named})


def json_schema(**properties: Any) -> str:
    return json.dumps({"type": "object", "properties": properties})


def parts(value: Source, key: Source | None = None) -> RecordSchemas:
    return record_schemas_of(Table("t", "t", value=value, key=key), None)


def made(value: Source, key: Source | None = None) -> Any:
    found = parts(value, key)
    return {each["name"]: each["type"] for each in found.first_columns(found.versions())["fields"]}


LONG, TEXT = {"type": "integer"}, {"type": "string"}
VALUE = Source(format="avro", schema=avro(a="int"))


@pytest.mark.parametrize(
    ("key", "column"),
    [
        (Source(format="string"), "string"),
        (Source(format="bytes"), "binary"),
        (Source(format="avro", schema='"string"'), "string"),
        (Source(format="avro", schema='{"type": "long", "logicalType": "timestamp-millis"}'), "timestamptz"),
        (Source(format="avro", schema='["null", "long"]'), "long"),
        (Source(format="json", schema=json.dumps(LONG)), "long"),
        (Source(format="json", schema=json.dumps(TEXT | {"format": "date"})), "date"),
    ],
)
def test_a_plain_key_is_a_plain_column_in_front(key: Source, column: str) -> None:
    assert list(made(VALUE, key).items()) == [("key", column), ("a", "int")]


@pytest.mark.parametrize(
    "key",
    [Source(format="avro", schema=avro(id="long")), Source(format="json", schema=json_schema(id=LONG))],
)
def test_a_key_of_fields_is_a_struct(key: Source) -> None:
    assert [(each["name"], each["type"]) for each in made(VALUE, key)["key"]["fields"]] == [("id", "long")]


MAP = {"type": "object", "additionalProperties": TEXT}


@pytest.mark.parametrize("schema", [{}, {"type": "array", "items": TEXT}, MAP])
def test_a_json_key_without_a_form_is_refused(schema: Any) -> None:
    with pytest.raises(Suspended, match="an object with properties, or one plain value"):
        made(VALUE, Source(format="json", schema=json.dumps(schema)))


def test_writers_have_no_prefix_and_read_the_only_version() -> None:
    kinds = []
    for value, key in (
        (VALUE, Source(format="string")),
        (Source(format="bytes"), Source(format="avro", schema='"long"')),
        (VALUE, Source(format="json", schema=json_schema(id=LONG))),
        (VALUE, Source(format="json", schema=json.dumps(TEXT))),
    ):
        found = parts(value, key)
        versions = found.versions()
        decoding = found.decoding(found.first_columns(versions), versions)
        assert decoding.key
        [writer], [reader] = decoding.writers, decoding.key.writers
        assert (writer.prefix, reader.prefix) == (b"", b"")
        kinds.append((type(writer), type(reader), getattr(reader, "whole", None)))
    assert kinds == [
        (AvroWriter, PlainWriter, None),
        (PlainWriter, AvroWriter, None),
        (AvroWriter, JsonWriter, "key"),
        (AvroWriter, JsonWriter, None),
    ]


def test_a_changed_schema_adds_and_keeps_columns_of_keys_and_values() -> None:
    before = parts(
        Source(format="avro", schema=avro(a="int", gone="string")),
        Source(format="avro", schema=avro(id="int")),
    )
    table = before.first_columns(before.versions())
    after = parts(
        Source(format="avro", schema=avro(a="long")), Source(format="avro", schema=avro(id="int", n="long"))
    )
    changes = [str(each) for _, wanted in after.evolution(table, after.versions()) for each in wanted]
    assert changes == ["add key.n", "widen a"]


@pytest.mark.parametrize("where", ["value", "key"])
def test_a_schema_that_does_not_fit_suspends_with_path_and_rule(where: str) -> None:
    old, new = (Source(format="avro", schema=avro(x=kind)) for kind in ("long", "string"))
    table = parts(VALUE if where == "key" else old, old)
    changed = parts(new if where == "value" else VALUE, new if where == "key" else old)
    path = "key.x" if where == "key" else "x"
    with pytest.raises(
        Suspended, match=f"the avro schema of calve.yaml: {path}: .*UNSUPPORTED_TYPE_CHANGE"
    ) as caught:
        changed.decoding(table.first_columns(table.versions()), changed.versions())
    assert caught.value.code == "schema_unsupported"


def test_the_name_of_the_keys_column_is_taken() -> None:
    clashing = Source(format="avro", schema=avro(Key="int"))
    with pytest.raises(Suspended, match=r"key: \{column: NAME\}"):
        made(clashing, Source(format="string"))
    assert list(made(clashing, Source(format="string", column="id"))) == ["id", "Key"]
    alone = parts(clashing)
    both = parts(clashing, Source(format="string"))
    with pytest.raises(Suspended, match="FIELD_NAME_RESERVED"):
        both.decoding(alone.first_columns(alone.versions()), both.versions())


def test_the_rest_is_a_column_unless_the_schema_declares_it() -> None:
    schema = json_schema(a=LONG)
    assert made(Source(format="json", schema=schema, rest="more")) == {"a": "long", "more": "string"}
    with pytest.raises(SchemaProblem) as caught:
        columns(Schema(0, schema, "JSON"), Top(rest="A"))
    assert caught.value.rule is Rule.FIELD_NAME_RESERVED


def test_what_a_new_file_would_do_is_proposed_for_values_and_keys() -> None:
    found = parts(VALUE, Source(format="avro", schema='"int"'))
    versions = found.versions()
    table = found.first_columns(versions)
    wider = found.proposal("value", table, versions.values, Schema(0, avro(a="long", b="int")))
    assert [str(each) for each in wider.changes] == ["widen a", "add b"]
    assert [
        str(each) for each in found.proposal("key", table, versions.keys, Schema(0, '"long"')).changes
    ] == ["widen key"]
    refused = found.proposal("key", table, versions.keys, Schema(0, '"string"')).problem
    assert refused
    assert (refused.path, refused.rule) == ("key", Rule.UNSUPPORTED_TYPE_CHANGE)


def test_what_no_frame_names_is_named_by_id_or_digest() -> None:
    assert identity(Schema(7, "{}")) == "7"
    one, other = (
        Declared(Source(format="avro", schema=each)).versions()[0] for each in (avro(a="int"), avro(a="long"))
    )
    assert identity(one) != identity(other)
    found = parts(VALUE, Source(format="string"))
    assert found.read_with(found.versions()).keys() == {"value", "key"}


def test_a_table_of_another_shape_has_no_key_part() -> None:
    found = parts(VALUE)
    assert (
        found.decoding(struct({"name": "a", "required": False, "type": "int"}), found.versions()).key is None
    )
