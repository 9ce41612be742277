import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calve.names import FIELD_NAME
from calve.schema.columns import list_of
from calve.schema.evolution import SchemaProblem
from calve.schema.json_schema import MAX_PARTS, columns_of, shape

CONNECT = "org.apache.kafka.connect.data."
DECIMAL = {"type": "number", "connect.type": "bytes", "title": f"{CONNECT}Decimal"}
STRING, INTEGER, NULL = {"type": "string"}, {"type": "integer"}, {"type": "null"}


def objects(**properties: Any) -> Any:
    return {"type": "object", "properties": properties}


def columns(schema: Any, references: dict[str, Any] | None = None) -> Any:
    texts = {name: json.dumps(each) for name, each in (references or {}).items()}
    return columns_of(shape(json.dumps(schema), texts))


def types(schema: Any, references: dict[str, Any] | None = None) -> dict[str, Any]:
    return {each["name"]: each["type"] for each in columns(schema, references)["fields"]}


def one(schema: Any, **around: Any) -> Any:
    return types(objects(x=schema) | around)["x"]


@pytest.mark.parametrize(
    ("schema", "column"),
    [
        ({"type": "boolean"}, "boolean"),
        (INTEGER, "long"),
        ({"type": "number"}, "double"),
        ({"type": ["integer", "number"]}, "double"),
        *(({"type": "integer", "connect.type": f"int{bits}"}, "int") for bits in (8, 16, 32)),
        ({"type": "integer", "connect.type": "int64"}, "long"),
        ({"type": "number", "connect.type": "float32"}, "float"),
        ({"type": "number", "connect.type": "float64"}, "double"),
        ({"type": "integer", "connect.type": "int32", "title": f"{CONNECT}Date"}, "date"),
        ({"type": "integer", "connect.type": "int32", "title": f"{CONNECT}Time"}, "int"),
        ({"type": "integer", "connect.type": "int64", "title": f"{CONNECT}Timestamp"}, "timestamptz"),
        (DECIMAL | {"connect.parameters": {"scale": "2", "connect.decimal.precision": "9"}}, "decimal(9, 2)"),
        (DECIMAL | {"connect.parameters": {"scale": 2}}, "decimal(38, 2)"),
        (STRING, "string"),
        ({"type": "string", "maxLength": 4}, "string"),
        ({"type": "string", "format": "date-time"}, "timestamptz"),
        ({"type": "string", "format": "date"}, "date"),
        ({"type": "string", "format": "time"}, "string"),
        ({"type": "string", "format": "uuid"}, "string"),
        ({"type": "string", "connect.type": "bytes"}, "binary"),
        ({"enum": ["A", "B", "A", None]}, "string"),
        ({"enum": [1, 2]}, "long"),
        ({"const": True}, "boolean"),
        ({}, "string"),
        (True, "string"),
        ({"type": "object"}, "string"),
        ({"type": ["string", "null"]}, "string"),
        ({"oneOf": [NULL, INTEGER]}, "long"),
        ({"anyOf": [INTEGER, NULL]}, "long"),
        ({"anyOf": [STRING, STRING | {"format": "uuid"}]}, "string"),
        ({"type": "string", "anyOf": [{"minLength": 1}, {"pattern": "x"}]}, "string"),
        ({"allOf": [{"type": "number"}, INTEGER]}, "long"),
        ({"allOf": [STRING, {"format": "date"}]}, "date"),
    ],
)
def test_a_json_type_has_one_column_type(schema: Any, column: str) -> None:
    assert one(schema) == column


def test_objects_arrays_and_maps_nest() -> None:
    found = one({"type": "array", "items": {"type": "object", "additionalProperties": objects(a=INTEGER)}})
    assert found["type"] == "list"
    assert found["element"]["type"] == "map"
    assert found["element"]["value"]["fields"][0]["type"] == "long"


def test_fields_come_in_the_order_of_connect_and_keep_their_description() -> None:
    schema = objects(
        b=STRING | {"connect.index": 1, "description": "the b"}, c=STRING, a={"connect.index": 0}
    )
    fields = columns(schema)["fields"]
    assert [each["name"] for each in fields] == ["a", "b", "c"]
    assert fields[1]["doc"] == "the b"


def test_all_of_is_one_object_with_the_fields_of_its_parts() -> None:
    both = {"allOf": [objects(a=STRING, b={"type": "number"}), objects(b=INTEGER, c={"type": "boolean"})]}
    assert types(both) == {"a": "string", "b": "long", "c": "boolean"}


def test_references_lead_inside_the_schema_and_to_other_schemas() -> None:
    definitions = {
        "a~1b": INTEGER,
        "named": {"$anchor": "here", "type": "string"},
        "own": {"$id": "#old", "type": "number"},
    }
    schema = objects(
        p={"$ref": "#/$defs/a~01b"},
        q={"$ref": "#here"},
        r={"$ref": "#old"},
        s={"$ref": "other.json"},
        t={"$ref": "other.json#/definitions/D"},
        u={"$ref": "http://x.org/y/bundled.json"},
        v={"$ref": "bundled.json#/definitions/E"},
    )
    bundled = {"$id": "bundled.json", "type": "boolean", "definitions": {"E": INTEGER}}
    schema |= {"$id": "http://x.org/y/root.json", "$defs": definitions | {"z": bundled}}
    other = {"type": "integer", "definitions": {"D": {"$ref": "#/definitions/F"}, "F": {"type": "number"}}}
    assert types(schema, {"other.json": other}) == {
        "p": "long",
        "q": "string",
        "r": "double",
        "s": "long",
        "t": "double",
        "u": "boolean",
        "v": "long",
    }


def test_what_stands_beside_a_reference_counts_from_draft_2019_on() -> None:
    schema = {"$ref": "#/$defs/P", "properties": {"b": STRING}, "$defs": {"P": objects(a=STRING)}}
    assert list(types(schema)) == ["b", "a"]
    assert list(types(schema | {"$schema": "http://json-schema.org/draft-07/schema#"})) == ["a"]


def test_a_type_may_be_used_twice_and_below_its_own_part() -> None:
    schema = {
        "allOf": [{"$ref": "#/$defs/P"}],
        "properties": {"parent": {"$ref": "#/$defs/P"}, "other": {"$ref": "#/$defs/P"}},
        "$defs": {"P": objects(a=STRING)},
    }
    assert list(types(schema)) == ["parent", "other", "a"]


def test_conditions_on_declared_fields_change_nothing() -> None:
    schema = objects(a=STRING, b=STRING) | {
        "anyOf": [{"required": ["a"]}, {"required": ["b"]}],
        "if": {"properties": {"a": {"const": "x"}}},
        "then": {"required": ["b"]},
        "dependencies": {"a": ["b"]},
    }
    assert list(types(schema)) == ["a", "b"]


def test_what_no_column_type_holds_is_json_text_but_for_the_top() -> None:
    schema = objects(
        union={"oneOf": [NULL, STRING, INTEGER]},
        types={"type": ["string", "integer", "null"]},
        objects={"anyOf": [objects(a=STRING), objects(b=STRING)]},
        mixed={"enum": [1, "a"]},
        pair={"type": "array", "items": [STRING, INTEGER]},
        prefix={"prefixItems": [STRING]},
        items={"type": "array"},
        pattern={"patternProperties": {"^a": STRING}},
        further=objects(b=STRING) | {"additionalProperties": STRING},
        conditional=objects(a=STRING) | {"then": {"properties": {"b": STRING}}},
        moments={"oneOf": [STRING | {"format": "date"}, STRING | {"format": "date-time"}]},
        each={"type": "array", "items": {"type": ["boolean", "string"]}},
        null=NULL,
        nulls={"type": ["null"]},
        constant={"const": None},
        constants={"enum": [None]},
        nothing={"oneOf": [NULL, {"const": None}]},
    )
    text = {name: "string" for name in schema["properties"] if name != "each"}
    assert types(schema) == text | {"each": list_of("string")}
    kinds = {each["name"]: each["type"] for each in shape(json.dumps(schema), {})["fields"]}
    assert [name for name, kind in kinds.items() if kind == "string"] == ["moments"]


def test_an_annotation_names_what_a_property_was_called_before() -> None:
    [found] = columns(objects(a=STRING | {"x-aliases": ["b", "c"]}))["fields"]
    assert found["aliases"] == ["b", "c"]


def deep(levels: int) -> Any:
    return objects(x=deep(levels - 1)) if levels else STRING


BOMB = {f"d{n}": objects(**{f"f{k}": {"$ref": f"#/$defs/d{n + 1}"} for k in range(10)}) for n in range(9)}

PROBLEMS: dict[str, tuple[Any, str]] = {
    "no object": (STRING, "the schema: a table needs an object"),
    "no properties": ({"type": "object"}, "the schema: a table needs an object"),
    "false": (objects(x=False), "x: no value is allowed"),
    "recursive": (objects(next={"$ref": "#"}), r"next\.next: it contains itself"),
    "recursive items": (
        objects(t={"$ref": "#/$defs/T"})
        | {"$defs": {"T": objects(l={"type": "array", "items": {"$ref": "#/$defs/T"}})}},
        r"t\.l\[\]\.l\[\]: it contains itself|t\.l\[\]\.l: it contains itself",
    ),
    "circle": (objects(x={"$ref": "#/properties/x"}), "x: .* refers to itself"),
    "nowhere": (objects(x={"$ref": "#/$defs/x"}), "x: .* is neither in the schema"),
    "other document": (objects(x={"$ref": "http://x.org/a.json"}), "x: .* is neither in the schema"),
    "dynamic": (objects(x={"$dynamicRef": "#x"}), "x: a dynamic reference"),
    "alternatives of fields": (
        {"type": "object", "oneOf": [objects(a=STRING), objects(b=STRING)]},
        "a is declared only",
    ),
    "conditional": (
        objects(a=STRING) | {"then": {"properties": {"b": STRING}}},
        "b is declared only under",
    ),
    "pattern": (objects(a=STRING) | {"patternProperties": {"^b": STRING}}, "properties by a pattern"),
    "further": (objects(a=STRING) | {"additionalProperties": STRING}, "further properties"),
    "aliases": (objects(x=STRING | {"x-aliases": "y"}), "x: x-aliases must be a list"),
    "clash": (objects(x={"allOf": [STRING, INTEGER]}), "x: no value has the types"),
    "clash of numbers": (
        objects(x={"allOf": [STRING, {"type": ["integer", "number"]}]}),
        "x: no value has the types",
    ),
    "case": (objects(x=objects(a=STRING, A=STRING)), r'x\.A: differs from "a" only by case'),
    "name": (objects(**{"a-b": STRING}), "a-b: a column name must be"),
    "reserved": (objects(_Kafka=STRING), "_kafka: calve uses this name"),
    "connect": (objects(x={"type": "integer", "connect.type": "int7"}), 'x: "int7" is no connect.type'),
    "no decimal": (objects(x={"type": "number", "connect.type": "bytes"}), 'x: "bytes" is no connect.type'),
    "precision": (
        objects(x=DECIMAL | {"connect.parameters": {"scale": 39}}),
        "x: the scale 39 is not between 0 and the precision 38",
    ),
    "unknown type": (objects(x={"type": "text"}), 'x: "text" is no type'),
    "deep": (deep(40), "nested deeper than 32"),
    "bomb": (
        objects(x={"$ref": "#/$defs/d0"}) | {"$defs": BOMB | {"d9": STRING}},
        f"more than {MAX_PARTS} parts",
    ),
}


@pytest.mark.parametrize(("schema", "message"), PROBLEMS.values(), ids=PROBLEMS)
def test_what_has_no_column_is_refused_with_its_path(schema: Any, message: str) -> None:
    with pytest.raises(SchemaProblem, match=message):
        columns(schema)


def test_text_that_is_nested_too_deeply_is_refused() -> None:
    with pytest.raises(SchemaProblem, match="too deeply"):
        shape("[" * 200_000, {})


NAMES = st.sampled_from(["a", "A", "b", "x-y", "_kafka", "", "$ref", "type"])
REFERENCES = st.sampled_from(["#", "#/properties/a", "#/$defs/a", "#x", "other", "other#/a", "urn:x", "", 1])
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.floats()
    | st.sampled_from(["string", "object", "int32"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(NAMES, inner, max_size=2),
    max_leaves=4,
)
TYPES = st.sampled_from(["string", "integer", "number", "boolean", "object", "array", "null", "date"])


def schemas(inner: Any) -> Any:
    """A schema whose keywords hold mostly what they should."""
    listed, named = st.lists(inner, max_size=3), st.dictionaries(NAMES, inner, max_size=3)
    keywords = {
        "type": TYPES | st.lists(TYPES, max_size=3),
        "properties": named,
        "additionalProperties": inner,
        "patternProperties": named,
        "items": inner | listed,
        "oneOf": listed,
        "anyOf": listed,
        "allOf": listed,
        "enum": st.lists(VALUES, max_size=3),
        "$ref": REFERENCES,
        "$defs": named,
        "$id": st.sampled_from(["other", "#x", "http://x.org/", "http://[bad"]),
        "if": inner,
        "then": inner,
        "dependencies": named,
        "connect.type": st.sampled_from(["int32", "bytes", "map", "float32"]),
        "connect.index": st.integers(0, 3),
        "connect.parameters": VALUES,
        "title": st.sampled_from([f"{CONNECT}Decimal", f"{CONNECT}Date"]),
    }
    damaged = {name: each | VALUES for name, each in keywords.items()}
    return st.fixed_dictionaries({}, optional=keywords) | st.fixed_dictionaries({}, optional=damaged)


ANY_SCHEMA = st.recursive(
    st.booleans() | st.builds(lambda kind: {"type": kind}, TYPES), schemas, max_leaves=12
)


@given(ANY_SCHEMA, ANY_SCHEMA)
def test_any_schema_has_columns_or_a_problem(schema: Any, other: Any) -> None:
    try:
        found = columns(schema, {"other": other})
    except SchemaProblem:
        return
    names = [each["name"] for each in found["fields"]]
    assert names
    assert all(FIELD_NAME.fullmatch(name) for name in names)
    assert columns(schema, {"other": other}) == found
