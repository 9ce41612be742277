"""Schemas of Kafka Connect's JSON converter as JSON Schemas, and the columns that they make."""

from __future__ import annotations

import json
from typing import Any

import pytest

from calve.decoding.formats import Top, columns, writer
from calve.schema.columns import Json, list_of, map_of
from calve.schema.evolution import SchemaProblem
from calve.schema.json_scalars import as_json_schema, is_connect_schema
from calve.schema.wire import BARE, Schema
from calve.schema.writers import JsonWriter

CONNECT = "org.apache.kafka.connect.data."
TIME = "io.debezium.time."


def struct(*fields: Any, **more: Any) -> Any:
    return {"type": "struct", "fields": list(fields), "optional": False} | more


def named(field: str, kind: str, /, **more: Any) -> Any:
    return {"field": field, "type": kind, "optional": False} | more


def schema_of(node: Any, schema_id: int = 0) -> Schema:
    return Schema(schema_id, json.dumps(node), "JSON")


def made(node: Any, top: Top | None = None) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = columns(schema_of(node), top or Top())["fields"]
    return found


@pytest.mark.parametrize("optional", [True, False])
@pytest.mark.parametrize(
    ("kind", "more", "column"),
    [
        ("boolean", {}, "boolean"),
        ("int8", {}, "int"),
        ("int16", {}, "int"),
        ("int32", {}, "int"),
        ("int64", {}, "long"),
        ("float", {}, "float"),
        ("double", {}, "double"),
        ("string", {}, "string"),
        ("bytes", {}, "binary"),
        ("int32", {"name": f"{CONNECT}Date", "version": 1}, "date"),
        ("int32", {"name": f"{CONNECT}Time"}, "int"),
        ("int64", {"name": f"{CONNECT}Timestamp"}, "timestamptz"),
        ("bytes", {"name": f"{CONNECT}Decimal", "parameters": {"scale": "2"}}, "decimal(38, 2)"),
        (
            "bytes",
            {
                "name": f"{CONNECT}Decimal",
                "parameters": {"scale": "2", "connect.decimal.precision": "9"},
            },
            "decimal(9, 2)",
        ),
        ("array", {"items": {"type": "int64", "optional": True}}, list_of("long")),
        ("map", {"keys": {"type": "string"}, "values": {"type": "float"}}, map_of("float")),
        ("int64", {"name": f"{TIME}MicroTimestamp", "version": 1}, "long"),
        ("string", {"default": "x", "name": f"{TIME}ZonedTimestamp"}, "string"),
    ],
)
def test_a_type_of_connect_has_one_column_type(kind: str, more: Any, column: Json, *, optional: bool) -> None:
    [found] = made(struct(named("x", kind, **more, optional=optional, doc="as it says")))
    assert (found["type"], found["doc"]) == (column, "as it says")


def test_structs_nest_and_their_fields_keep_their_order() -> None:
    inner = struct(named("z", "string"), named("a", "int32"), field="inner", optional=True)
    outer, last = made(struct(inner, named("b", "int32")))
    assert [outer["name"], last["name"]] == ["inner", "b"]
    assert [each["name"] for each in outer["type"]["fields"]] == ["z", "a"]


def test_in_a_table_of_changes_the_types_of_debezium_are_columns_of_their_own() -> None:
    fields = [
        named("day", "int32", name=f"{TIME}Date"),
        named("at", "int64", name=f"{TIME}MicroTimestamp", optional=True),
        named("moment", "string", name=f"{TIME}ZonedTimestamp", optional=True),
        named("took", "int64", name=f"{TIME}MicroDuration", optional=True),
    ]
    parts = [{"field": name} | struct(*fields) for name in ("before", "after")]
    found = made(struct(*parts, named("op", "string")), Top(changes=True))
    assert [each["type"] for each in found] == ["date", "timestamp", "timestamptz", "long"]
    assert found[3]["doc"] == "microseconds"


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        (struct(), True),
        ({"type": "struct", "fields": []}, True),
        ({"type": "int32"}, True),
        ({"type": "bytes"}, True),
        ({"type": "string", "optional": False}, True),
        ({"type": "boolean", "optional": True}, True),
        ({"type": "string"}, False),
        ({"type": "object", "optional": True}, False),
        ({"type": ["string", "null"]}, False),
        ({"properties": {}}, False),
        (True, False),
        ({"type": "integer"}, False),
    ],
)
def test_a_schema_of_connect_is_told_from_a_json_schema(node: Any, *, expected: bool) -> None:
    assert is_connect_schema(json.dumps(node)) is expected


@pytest.mark.parametrize(
    ("node", "path", "why"),
    [
        (struct(named("m", "map", keys={"type": "int32"}, values={"type": "string"})), "m", "list of pairs"),
        (struct(named("m", "map", keys={"type": "string"})), "m{}", "no schema of Kafka Connect"),
        (struct(named("a", "array")), "a[]", "no schema of Kafka Connect"),
        (struct(named("a", "decimal")), "a", '"decimal" is no type'),
        (struct({"type": "int32"}), "", "has no name"),
        (struct("x"), "", "has no name"),
        (struct(named("a", "int32"), named("a", "string")), "a", "two fields"),
        (struct(named("a", "struct")), "a", "list of fields"),
        ({"type": "struct", "fields": {}}, "", "list of fields"),
        (struct(struct(struct(named("b", "int128")) | {"field": "y"}) | {"field": "x"}), "x.y.b", "int128"),
        (struct(named("a", "int32"), named("A", "int32")), "A", "only by case"),
        (struct(named("a-b", "int32")), "a-b", "letters"),
        ({"type": "int32"}, "", "needs an object"),
        (
            struct(named("d", "bytes", name=f"{CONNECT}Decimal", parameters={"scale": "40"})),
            "d",
            "is not between",
        ),
        (struct(named("d", "bytes", name=f"{CONNECT}Decimal", parameters=["x"])), "d", "whole numbers"),
    ],
)
def test_what_no_column_holds_is_refused_with_its_path(node: Any, path: str, why: str) -> None:
    with pytest.raises(SchemaProblem, match=why) as caught:
        made(node)
    assert caught.value.path == path


def test_a_schema_that_is_too_deep_is_refused() -> None:
    node: Any = {"type": "int32"}
    for _ in range(200):
        node = {"type": "array", "items": node}
    with pytest.raises(SchemaProblem, match="nested"):
        made(struct(named("a", "array", items=node)))
    text = '{"type": "array", "items": ' * 5_000 + '{"type": "int32"}' + "}" * 5_000
    with pytest.raises(SchemaProblem, match="deep"):
        as_json_schema(text)


def test_values_are_read_from_the_payload_and_only_where_a_file_says_so() -> None:
    value, key = struct(named("a", "int32")), {"type": "string", "optional": False}
    written = writer(schema_of(value), columns(schema_of(value), Top()), BARE, Top())
    assert isinstance(written, JsonWriter)
    assert written.member == "payload"
    top = Top(column="id")
    for node in (value, key):
        found = writer(schema_of(node), columns(schema_of(node), top), BARE, top)
        assert isinstance(found, JsonWriter)
        assert found.member == "payload"
        assert (found.whole, found.scalar) == (("id", None) if node is value else (None, "id"))
    plain = schema_of({"type": "object", "properties": {"a": {"type": "integer"}}})
    assert writer(plain, columns(plain), BARE, Top()).member is None  # type: ignore[union-attr]
    with pytest.raises(SchemaProblem):
        columns(schema_of(value, schema_id=1))
