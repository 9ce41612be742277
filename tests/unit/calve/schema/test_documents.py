"""MongoDB's documents: which columns a schema declares, and the plain form of values of MongoDB's types."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calve.decoding.formats import Top, columns
from calve.schema.documents import AS_TEXT, PLAIN, declared
from calve.schema.evolution import SchemaProblem, show
from calve.schema.wire import Schema
from cli.verify.formats.json_values import FORMS, plain, read
from tests.debezium import COLUMNS, DOCUMENTS, OF_DRIVER, envelope

VALIDATOR = {
    "bsonType": "object",
    "required": ["_id"],
    "properties": {
        "_id": {"bsonType": "objectId"},
        "name": {"bsonType": "string", "description": "full name", "x-tags": ["personal"]},
        "age": {"bsonType": ["int", "null"]},
        "visits": {"bsonType": ["int", "long"]},
        "score": {"bsonType": "double"},
        "price": {"bsonType": "decimal"},
        "joined": {"bsonType": "date"},
        "active": {"bsonType": "bool"},
        "photo": {"bsonType": "binData"},
        "address": {"bsonType": "object", "properties": {"city": {"bsonType": "string"}}},
        "tags": {"bsonType": "array", "items": {"bsonType": "string"}},
        "re": {"bsonType": "regex"},
        "bsonType": {"bsonType": "string"},
        "plain": {"type": "integer"},
    },
}
EVENTS = Schema(7, DOCUMENTS)


def of(document: Any, rest: str | None = None) -> Top:
    text = document if isinstance(document, str) else json.dumps(document)
    return Top(changes=True, rest=rest, document=declared(text))


def test_the_columns_are_those_that_a_validator_declares() -> None:
    found = columns(EVENTS, of(VALIDATOR, "more"))
    assert {each["name"]: show(each["type"]) for each in found["fields"]} == {
        "_id": "string",
        "name": "string",
        "age": "int",
        "visits": "long",
        "score": "double",
        "price": "string",
        "joined": "timestamptz",
        "active": "boolean",
        "photo": "binary",
        "address": "struct",
        "tags": "list",
        "re": "string",
        "bsonType": "string",
        "plain": "long",
        "more": "string",
    }
    assert found["fields"][1]["doc"] == "full name"
    by_name = {each["name"]: each["type"] for each in found["fields"]}
    assert [each["type"] for each in by_name["address"]["fields"]] == ["string"]
    assert by_name["tags"]["element"] == "string"


def test_a_document_may_stay_a_text() -> None:
    found = columns(EVENTS, of(AS_TEXT))
    assert {each["name"]: each["type"] for each in found["fields"]} == {"document": "string"}


@pytest.mark.parametrize(
    ("schema", "top", "says"),
    [
        (EVENTS, Top(changes=True), r"Declare its columns, with `value: \{document: FILE\}`"),
        (Schema(7, envelope(COLUMNS)), of(VALIDATOR), "Remove `value.document`"),
        (EVENTS, of({"bsonType": "array"}), "an object with properties"),
        (EVENTS, of({"properties": {"_kafka": {"bsonType": "string"}}}), "_kafka: calve uses this name"),
        (EVENTS, of({"properties": {"more": {"bsonType": "string"}}}, "more"), "rest: NAME"),
    ],
)
def test_what_makes_no_table_is_refused(schema: Schema, top: Top, says: str) -> None:
    with pytest.raises(SchemaProblem, match=says):
        columns(schema, top)


def by_expressions(text: str) -> Any:
    found = pa.array([text])
    for expression, value in PLAIN:
        found = pc.replace_substring_regex(found, expression, value)
    return json.loads(found[0].as_py())


def test_a_document_of_the_driver_has_plain_values() -> None:
    found = by_expressions(OF_DRIVER)
    assert found == plain(read(OF_DRIVER.encode()))
    assert found == {
        "_id": "596e275826f08b2730779e1f",
        "name": 'O\'"Neil" {"$oid" : "596e275826f08b2730779e1f"} é\n',
        "age": 41,
        "visits": 9007199254740993,
        "score": 2.5,
        "whole": 3.0,
        "tiny": 1e-300,
        "price": "12.340",
        "nan": "NaN",
        "joined": 1700000000123,
        "born": -86400000,
        "active": True,
        "nothing": None,
        "photo": "AQID",
        "address": {"city": "Bern", "zip": 3000},
        "tags": ["a", "b"],
        "stamp": {"$timestamp": {"t": 5, "i": 6}},
        "re": {"$regex": "^a", "$options": "i"},
        "sym": "x",
        "min": {"$minKey": 1},
        "empty": {},
        "none": [],
    }


HOSTILE = st.sampled_from(
    ['{"$oid": "596e275826f08b2730779e1f"}', '{"$date": 1}', "{", '"', "\\", "$oid", "é"]
)
TEXTS = st.text(max_size=5) | HOSTILE
TYPED = st.one_of(
    st.integers(-(2**63), 2**63 - 1).map(lambda each: {"$numberLong": str(each)}),
    st.integers(-(2**40), 2**40).map(lambda each: {"$date": each}),
    st.floats(allow_nan=False, allow_infinity=False).map(lambda each: {"$numberDouble": str(each)}),
    st.sampled_from(["1.50", "-Infinity", "1E+3"]).map(lambda each: {"$numberDecimal": each}),
    st.binary(max_size=4).map(lambda each: {"$oid": each.hex().zfill(24)}),
    st.just({"$binary": "AQI=", "$type": "0a"}),
    TEXTS.map(lambda each: {"$symbol": each}),
    st.just({"$date": {"$numberLong": "5"}}),
    st.just({"$oid": "short"}),
)
DOCUMENT = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXTS | TYPED,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(TEXTS, inner, max_size=3)
        | st.dictionaries(st.sampled_from([*FORMS, "$type"]), inner, min_size=1, max_size=2)
    ),
    max_leaves=8,
)


@given(DOCUMENT, st.sampled_from([None, 1]))
def test_any_document_has_the_same_plain_form_by_both_ways(document: Any, indent: int | None) -> None:
    text = json.dumps(document, ensure_ascii=False, indent=indent)
    assert by_expressions(text) == plain(read(text.encode()))
