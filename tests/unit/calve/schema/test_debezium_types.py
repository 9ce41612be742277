"""Debezium's types are columns of their own in a table of changes, and what they are without their names in any other."""

from __future__ import annotations

import json
from typing import Any

import pytest

from calve.decoding.formats import Top, columns, writer
from calve.schema.change_events import JSON_TYPES
from calve.schema.columns import Json
from calve.schema.json_scalars import CONNECT_TYPES
from calve.schema.json_schema import columns_of, shape
from calve.schema.wire import CONFLUENT, Schema
from tests.change_types import TIME, TYPES, avro, avro_schema, json_schema
from tests.debezium import around, json_around

CHANGES = Top(changes=True)
MAKERS = {"AVRO": avro_schema, "JSON": json_schema}


def written(kind: str, schema: Any, top: Top) -> Any:
    """The schema of values, events where the table is one of changes."""
    if not top.changes:
        return schema
    return around(schema) if kind == "AVRO" else json_around(schema)


def fields(kind: str, top: Top, schema: Any) -> dict[str, Any]:
    found = columns(Schema(1, json.dumps(written(kind, schema, top)), kind), top)
    return {each["name"]: each for each in found["fields"]}


@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize("nullable", [True, False])
@pytest.mark.parametrize("name", TYPES)
def test_a_type_of_debezium_is_its_column_in_a_table_of_changes(
    kind: str, name: str, *, nullable: bool
) -> None:
    each = TYPES[name]
    found = fields(kind, CHANGES, MAKERS[kind](nullable=nullable))[name]
    assert found["type"] == each.column
    assert found["doc"] == (f"{name} ({each.unit})" if each.unit else name)


@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize("nullable", [True, False])
def test_other_tables_keep_the_columns_that_they_have(kind: str, *, nullable: bool) -> None:
    found = fields(kind, Top(), MAKERS[kind](nullable=nullable))
    expected: dict[str, Json] = {name: each.otherwise for name, each in TYPES.items()}
    if kind == "JSON":
        expected["decimal"] = "binary"
    assert {name: each["type"] for name, each in found.items()} == expected
    units = {name for name, each in found.items() if each["doc"] != name}
    assert units == ({"connect_time"} if kind == "AVRO" else set())


@pytest.mark.parametrize("version", [None, 1, 2])
def test_the_version_of_a_type_means_nothing(version: int | None) -> None:
    day = avro("int32", f"{TIME}Date", **{"connect.version": version})
    schema = {"type": "record", "name": "R", "fields": [{"name": "day", "type": day}]}
    assert fields("AVRO", CHANGES, schema)["day"]["type"] == "date"


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("int64", f"{TIME}Date"),
        ("int32", f"{TIME}Timestamp"),
        ("int64", f"{TIME}ZonedTimestamp"),
        ("string", f"{TIME}MicroTimestamp"),
        ("int64", f"{TIME}Unheard"),
        ("int64", "Date"),
    ],
)
def test_a_name_means_nothing_on_another_type_than_debezium_writes(kind: str, name: str) -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "x", "type": avro(kind, name)}]}
    assert fields("AVRO", CHANGES, schema)["x"]["type"] == {"int32": "int", "int64": "long"}.get(kind, kind)


def test_texts_may_be_numbers_in_json_of_changes_and_in_no_other() -> None:
    real = {"type": "number", "connect.type": "float64"}
    single = real | {"connect.type": "float32"}
    properties = {"a": real, "b": single, "c": {"type": "number"}, "d": {"type": "integer"}}
    schema = json.dumps({"type": "object", "properties": properties})
    for named, leaves in (
        (JSON_TYPES, ["database_double", "database_float", "database_double", "long"]),
        (CONNECT_TYPES, ["double", "float", "double", "long"]),
    ):
        found = shape(schema, {}, named)
        assert [each["type"] for each in found["fields"]] == leaves
        assert [each["type"] for each in columns_of(found)["fields"]] == ["double", "float", "double", "long"]


def test_a_value_of_any_type_is_read_into_its_column() -> None:
    for kind, make in MAKERS.items():
        schema = Schema(1, json.dumps(written(kind, make(), CHANGES)), kind)
        assert writer(schema, columns(schema, CHANGES), CONFLUENT, CHANGES).id == 1
