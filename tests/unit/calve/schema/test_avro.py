import io
import json
from typing import Any

import fastavro
import pytest

from calve.schema.avro import columns_of, expand
from calve.schema.evolution import SchemaProblem
from tests.spark_decoder.resolution import framed, resolution


def record(*fields: Any, name: str = "R", **more: Any) -> dict[str, Any]:
    named = [f if isinstance(f, dict) else {"name": f[0], "type": f[1]} for f in fields]
    return {"type": "record", "name": name, "fields": named} | more


def columns(schema: dict[str, Any]) -> dict[str, Any]:
    return {f["name"]: f["type"] for f in columns_of(expand(json.dumps(schema)))["fields"]}


def one(kind: Any) -> Any:
    return columns(record(("x", kind)))["x"]


DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 3}
EMPTY_DECIMAL = {"type": "fixed", "name": "F", "size": 0, "logicalType": "decimal", "precision": 1}


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
        ({"type": "int", "connect.type": "int8"}, "int"),
        ({"type": "int", "connect.type": "int16"}, "int"),
        ({"type": "int", "logicalType": "time-millis"}, "int"),
        ({"type": "long", "logicalType": "time-micros"}, "long"),
        ({"type": "long", "logicalType": "timestamp-nanos"}, "long"),
        ({"type": "long", "logicalType": "local-timestamp-nanos"}, "long"),
        ({"type": "fixed", "name": "F", "size": 12, "logicalType": "duration"}, "fixed[12]"),
        ({"type": "fixed", "name": "F", "size": 16, "logicalType": "uuid"}, "fixed[16]"),
        ({"type": "bytes", "logicalType": "decimal"}, "decimal(10, 0)"),
        (["string"], "string"),
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
        (record(("a", "null")), "a", "always null"),
        (record(("a", record(("b", ["null", "R"]), name="Inner"))), "a.b", "contains itself"),
        (record(("a", "Missing")), "a", "not defined"),
        (record(("a", "int"), ("A", "int")), "A", "only by case"),
        (record(("_kafka", "int")), "_kafka", "calve uses this name"),
        (record(("a", record(name="Empty"))), "a", "without fields"),
        (record(("a", DECIMAL | {"precision": 39})), "a", "PRECISION_OUT_OF_RANGE"),
        (record(("a", DECIMAL | {"precision": "12"})), "a", "PRECISION_OUT_OF_RANGE"),
        (record(("a", DECIMAL | {"scale": 13})), "a", "SCALE_OUT_OF_RANGE"),
        (record(("a", DECIMAL | {"type": "fixed", "name": "F", "size": 2})), "a", "PRECISION_OUT_OF_RANGE"),
        (record(("a", ["null"])), "a", "always null"),
        (record(("a", {"type": "fixed", "name": "F", "size": 0})), "a", "length 0"),
        (record(("a", EMPTY_DECIMAL)), "a", "length 0"),
        (
            record(("a", [record(("x", "int"), name=name) for name in ("a.S", "b.a_S", "b.S")])),
            "a",
            "UNION_NAME_COLLISION",
        ),
        (record(("a", ["null", record(("x", ["null", "R"]), name="I"), "int"])), "a.x", "CYCLIC_TYPE"),
        (record(("a", {"type": "array", "items": ["null", "R"]})), "a[]", "CYCLIC_TYPE"),
        (record(("a", {"type": "map", "values": "R"})), "a{}", "CYCLIC_TYPE"),
        (record(("a", {"type": "enum", "name": "E", "symbols": ["A-B"]})), "a", "symbol"),
        (record(("a", {"type": "array"})), "", "UNREADABLE_SCHEMA"),
        ({"type": "string"}, "", "record at the top"),
    ],
)
def test_what_has_no_column_is_refused_with_its_path(schema: Any, path: str, why: str) -> None:
    with pytest.raises(SchemaProblem, match=why) as caught:
        columns(schema)
    assert caught.value.path == path


def struct_of(**kinds: Any) -> Any:
    fields = [{"name": name, "required": False, "type": kind} for name, kind in kinds.items()]
    return {"type": "struct", "fields": fields}


X = struct_of(x="int")
LIST = {"type": "list", "element-required": False, "element": "int"}


@pytest.mark.parametrize(
    ("union", "column"),
    [
        (["null", "int", "string"], struct_of(int="int", string="string")),
        (["long", "null", {"type": "array", "items": "int"}], struct_of(long="long", array=LIST)),
        ([record(("x", "int"), name="a.One"), record(("x", "int"), name="a.Two")], struct_of(One=X, Two=X)),
        ([record(("x", "int"), name="a.S"), record(("x", "int"), name="b.S")], struct_of(a_S=X, b_S=X)),
        ([record(("x", "int"), name="a.S"), record(("x", "int"), name="b.s")], struct_of(a_S=X, b_s=X)),
        ([record(("x", "int"), name="a.int"), "int", "string"], None),
    ],
)
def test_a_union_is_a_struct_of_its_types_by_name(union: Any, column: Any) -> None:
    assert one(union) == (column or struct_of(a_int=X, int="int", string="string"))


def entries(key: Any, name: str = "MapEntry", **more: Any) -> Any:
    return {"type": "array", "items": record(("key", key), ("value", "long"), name=name)} | more


@pytest.mark.parametrize(
    ("array", "key"),
    [
        (entries("int"), "int"),
        (entries("string", name="x.MapEntry"), "string"),
        (entries("int", name="Other", logicalType="map"), "int"),
        (entries({"type": "bytes", "logicalType": "decimal", "precision": 9}), "decimal(9, 0)"),
        (entries("int", name="Other"), None),
        (entries(["null", "int"]), None),
        (entries("double"), None),
        (entries({"type": "array", "items": "int"}), None),
    ],
)
def test_a_list_of_entries_is_a_map_where_its_keys_can_be_keys(array: Any, key: str | None) -> None:
    found = one(array)
    assert (found["type"], found.get("key")) == (("map", key) if key else ("list", None))


def test_a_comment_is_the_fields_doc_and_the_unit_that_the_type_does_not_say() -> None:
    nanos = {"type": "long", "logicalType": "timestamp-nanos"}
    schema = record({"name": "a", "type": ["null", nanos], "doc": "when"}, ("b", nanos), ("c", "int"))
    docs = [each.get("doc") for each in struct(schema)["fields"]]
    unit = "nanoseconds since 1970-01-01 UTC"
    assert docs == [f"when ({unit})", unit, None]


def test_a_schema_that_explodes_is_refused_at_once() -> None:
    kind: Any = record(("x", "int"), name="N0")
    for n in range(1, 30):
        kind = record(("a", kind), ("b", f"N{n - 1}"), name=f"N{n}")
    with pytest.raises(SchemaProblem, match="TOO_MANY_FIELDS"):
        expand(json.dumps(kind))


def test_types_nested_without_records_are_refused_before_they_exhaust_the_stack() -> None:
    text = '{"type": "array", "items": ' * 5000 + '"int"' + "}" * 5000
    with pytest.raises(SchemaProblem, match="NESTED_TOO_DEEP"):
        expand('{"type": "record", "name": "R", "fields": [{"name": "a", "type": ' + text + "}]}")


def test_named_types_are_found_in_their_namespace() -> None:
    inner = record(("n", "int"), name="Inner")
    schema = record(("a", inner), ("b", "Inner"), ("c", "shop.Inner"), name="Outer", namespace="shop")
    found = columns(schema)
    assert found["a"] == found["b"] == found["c"]


def struct(schema: dict[str, Any]) -> Any:
    return columns_of(expand(json.dumps(schema)))


def read(writer: dict[str, Any], table: dict[str, Any], row: dict[str, Any]) -> Any:
    """A row written with `writer`, read as the columns of `table` by the reader schema, with Avro's own resolution."""
    found = resolution(expand(json.dumps(writer)), struct(table))
    data = io.BytesIO()
    original = fastavro.parse_schema(json.loads(json.dumps(framed(writer, 5))))
    fastavro.schemaless_writer(data, original, {"frame": b"\0\0\0\0\1", "value": row, "end": b"endmark!"})
    data.seek(0)
    outer, inner = (json.loads(json.dumps(each)) for each in (framed(found.writer, 5), framed(found.reader)))
    value = fastavro.schemaless_reader(data, fastavro.parse_schema(outer), fastavro.parse_schema(inner))
    assert isinstance(value, dict)
    assert value["end"] == b"endmark!"
    return value["value"]


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
        resolution(record(("a", "long")), struct(record(("a", "int"))))


def test_a_field_is_read_by_the_name_that_its_writer_gave_it() -> None:
    table = struct(record(("b", "int"), ("a", "string")))
    named = [each | {"written": name} for each, name in zip(table["fields"], ("a", None), strict=True)]
    found = resolution(expand(json.dumps(record(("a", "int")))), table | {"fields": named})
    assert found.writer["fields"] == [{"name": "b", "type": "int"}]
    assert [each["name"] for each in found.reader["fields"]] == ["b", "a"]
    assert found.shape is None


def test_names_of_types_that_others_refuse_are_never_shown_to_them() -> None:
    writer = record(("e", {"type": "fixed", "name": "what-is this", "size": 2}), name="R-1")
    found = resolution(expand(json.dumps(writer)), struct(writer))
    fastavro.parse_schema(json.loads(json.dumps(found.writer)))


@pytest.mark.parametrize("kind", [DECIMAL, DECIMAL | {"type": "fixed", "name": "F", "size": 6}])
def test_a_decimal_is_read_with_its_writers_precision_and_cast_to_the_columns(kind: Any) -> None:
    table = struct(record(("a", kind)))
    wide = {"type": "struct", "fields": [table["fields"][0] | {"type": "decimal(38, 3)"}]}
    found = resolution(expand(json.dumps(record(("a", kind)))), wide)
    assert found.reader["fields"][0]["type"]["precision"] == 12
    assert found.shape == {"struct": [["a", "a", {"cast": "decimal(38, 3)"}, "decimal(38, 3)"]]}
