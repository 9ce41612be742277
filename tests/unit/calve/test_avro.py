import io
import json
from typing import Any

import fastavro
import pytest

from calve.avro import Change, SchemaProblem, changes, columns_of, expand
from calve.avro_reader import framed, reader_for, unframed


def record(*fields: Any, name: str = "R", **more: Any) -> dict[str, Any]:
    named = [f if isinstance(f, dict) else {"name": f[0], "type": f[1]} for f in fields]
    return {"type": "record", "name": name, "fields": named} | more


def columns(schema: dict[str, Any]) -> dict[str, Any]:
    return {f["name"]: f["type"] for f in columns_of(expand(json.dumps(schema)))["fields"]}


def one(kind: Any) -> Any:
    return columns(record(("x", kind)))["x"]


DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 3}


@pytest.mark.parametrize(
    ("avro", "column"),
    [
        ("boolean", "boolean"),
        ("int", "int"),
        ("long", "long"),
        ("float", "float"),
        ("double", "double"),
        ("bytes", "binary"),
        ("string", "string"),
        (["null", "long"], "long"),
        (["string", "null"], "string"),
        ({"type": "int", "logicalType": "date"}, "date"),
        ({"type": "long", "logicalType": "timestamp-millis"}, "timestamptz"),
        ({"type": "long", "logicalType": "timestamp-micros"}, "timestamptz"),
        ({"type": "long", "logicalType": "local-timestamp-micros"}, "timestamp"),
        ({"type": "string", "logicalType": "uuid"}, "string"),
        ({"type": "int", "logicalType": "unheard-of"}, "int"),
        (DECIMAL, "decimal(12, 3)"),
        (
            {"type": "fixed", "name": "F", "size": 6, "logicalType": "decimal", "precision": 12, "scale": 3},
            "decimal(12, 3)",
        ),
        ({"type": "fixed", "name": "F", "size": 16}, "fixed[16]"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, "string"),
    ],
)
def test_an_avro_type_has_one_column_type(avro: Any, column: str) -> None:
    assert one(avro) == column


def test_nested_types_keep_their_shape_and_their_docs() -> None:
    inner = record({"name": "n", "type": "int", "doc": "how many"}, name="Inner")
    found = one({"type": "map", "values": {"type": "array", "items": inner}})
    element = found["value"]["element"]
    assert (found["type"], found["value"]["type"], element["type"]) == ("map", "list", "struct")
    assert element["fields"] == [{"name": "n", "required": False, "type": "int", "doc": "how many"}]


@pytest.mark.parametrize(
    ("schema", "path", "why"),
    [
        (record(("a", ["int", "string"])), "a", "union"),
        (record(("a", "null")), "a", "always null"),
        (record(("a", {"type": "long", "logicalType": "timestamp-nanos"})), "a", "nanoseconds"),
        (record(("a", record(("b", ["null", "R"]), name="Inner"))), "a.b", "contains itself"),
        (record(("a", "Missing")), "a", "not defined"),
        (record(("a", "int"), ("A", "int")), "A", "only by case"),
        (record(("_kafka", "int")), "_kafka", "taken"),
        (record(("a", record(name="Empty"))), "a", "without fields"),
        (record(("a", DECIMAL | {"precision": 39})), "a", "decimal"),
        ({"type": "string"}, "", "record at the top"),
    ],
)
def test_what_has_no_column_is_refused_with_its_path(schema: Any, path: str, why: str) -> None:
    with pytest.raises(SchemaProblem, match=why) as caught:
        columns(schema)
    assert caught.value.path == path


def test_named_types_are_found_in_their_namespace() -> None:
    inner = record(("n", "int"), name="Inner")
    schema = record(("a", inner), ("b", "Inner"), ("c", "shop.Inner"), name="Outer", namespace="shop")
    found = columns(schema)
    assert found["a"] == found["b"] == found["c"]


def struct(schema: dict[str, Any]) -> Any:
    return columns_of(expand(json.dumps(schema)))


def test_new_fields_are_added_at_any_depth() -> None:
    before = record(
        ("a", record(("b", "int"), name="A")),
        ("l", {"type": "array", "items": record(("x", "int"), name="L")}),
    )
    after = record(
        ("a", record(("b", "int"), ("c", "string"), name="A")),
        ("l", {"type": "array", "items": record(("x", "int"), ("y", "int"), name="L")}),
        ("d", "long"),
    )
    assert changes(struct(before), struct(after)) == [
        Change("add", ("a",), "c", "string"),
        Change("add", ("l", "element"), "y", "int"),
        Change("add", (), "d", "long"),
    ]


def test_types_are_widened_and_never_narrowed() -> None:
    small, large = (
        struct(record(("a", "int"), ("b", "float"))),
        struct(record(("a", "long"), ("b", "double"))),
    )
    assert [change.path for change in changes(small, large)] == ["a", "b"]
    assert changes(large, small) == []


@pytest.mark.parametrize("kind", ["string", "boolean", {"type": "array", "items": "int"}, DECIMAL])
def test_any_other_change_of_type_is_refused(kind: Any) -> None:
    with pytest.raises(SchemaProblem, match="the table holds int"):
        changes(struct(record(("a", "int"))), struct(record(("a", kind))))


def read(writer: dict[str, Any], table: dict[str, Any], row: dict[str, Any]) -> Any:
    """A row written with `writer`, read as the columns of `table` by the reader schema, with Avro's own resolution."""
    schema = reader_for(expand(json.dumps(writer)), struct(table))
    data = io.BytesIO()
    outer = fastavro.parse_schema(json.loads(json.dumps(framed(writer))))
    fastavro.schemaless_writer(data, outer, {"frame": b"\0\0\0\0\1", "value": row, "end": b"endmark!"})
    data.seek(0)
    found = fastavro.schemaless_reader(
        data, outer, fastavro.parse_schema(json.loads(json.dumps(unframed(schema))))
    )
    assert isinstance(found, dict)
    assert found["end"] == b"endmark!"
    return found["value"]


def test_a_column_that_the_writer_lacks_is_null_and_one_the_table_lacks_is_left_out() -> None:
    table = record(("a", "int"), ("later", record(("x", "int"), name="Later")))
    assert read(record(("gone", "string"), ("a", "int")), table, {"gone": "x", "a": 7}) == {
        "a": 7,
        "later": None,
    }


def test_an_enum_is_read_with_the_writers_own_symbols() -> None:
    old = record(("e", {"type": "enum", "name": "E", "symbols": ["A"]}))
    new = record(("e", {"type": "enum", "name": "E", "symbols": ["A", "B"]}))
    assert read(new, old, {"e": "B"}) == {"e": "B"}


def test_a_record_type_that_is_used_twice_can_be_read_twice() -> None:
    inner = record(("n", "int"), name="Inner")
    writer = record(("a", inner), ("b", ["null", "Inner"]), ("c", {"type": "array", "items": "Inner"}))
    row = {"a": {"n": 1}, "b": {"n": 2}, "c": [{"n": 3}]}
    assert read(writer, writer, row) == row


def test_a_narrow_writer_is_read_into_a_wide_column() -> None:
    assert read(record(("a", "int")), record(("a", "long")), {"a": 2**31 - 1}) == {"a": 2**31 - 1}


def test_a_wide_writer_does_not_fit_a_narrow_column() -> None:
    with pytest.raises(SchemaProblem, match="the writer wrote long"):
        reader_for(record(("a", "long")), struct(record(("a", "int"))))
