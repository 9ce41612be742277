import io
import json
from typing import Any

import fastavro
import pytest

from calve.decoding.decode_plan import decoding
from calve.decoding.formats import columns
from calve.schema.avro import columns_of, expand
from calve.schema.evolution import SchemaProblem
from calve.schema.wire import Schema
from tests.spark_decoder.resolution import resolution

CITY = {"type": "record", "name": "City", "namespace": "geo", "fields": [{"name": "zip", "type": "Zip"}]}
ZIP = {"type": "enum", "name": "geo.Zip", "symbols": ["A", "B"]}
PERSON = {
    "type": "record",
    "name": "Person",
    "namespace": "people",
    "fields": [
        {"name": "home", "type": ["null", "geo.City"]},
        {"name": "work", "type": {"type": "array", "items": "geo.City"}},
        {"name": "zip", "type": "geo.Zip"},
        {"name": "own", "type": {"type": "fixed", "name": "Own", "size": 1}},
        {"name": "again", "type": "Own"},
    ],
}
REFERENCES = {"geo.Zip": json.dumps(ZIP), "geo.City": json.dumps(CITY)}
ROW = {"home": None, "work": [{"zip": "B"}], "zip": "A", "own": b"x", "again": b"y"}


def written_by_the_producer() -> bytes:
    """The row as a serializer writes it that knows the referenced schemas."""
    named: dict[str, Any] = {}
    for each in (ZIP, CITY):
        fastavro.parse_schema(json.loads(json.dumps(each)), named)
    data = io.BytesIO()
    fastavro.schemaless_writer(data, fastavro.parse_schema(json.loads(json.dumps(PERSON)), named), ROW)
    return data.getvalue()


def test_a_schema_with_its_definitions_reads_the_same_bytes() -> None:
    schema = expand(json.dumps(PERSON), REFERENCES)
    alone = resolution(schema, columns_of(schema)).writer
    assert fastavro.schemaless_reader(io.BytesIO(written_by_the_producer()), alone, None) == ROW


def test_a_schema_with_references_has_columns_and_a_writer() -> None:
    schema = Schema(1, json.dumps(PERSON), references=REFERENCES)
    table = columns(schema)
    assert [each["name"] for each in table["fields"]] == ["home", "work", "zip", "own", "again"]
    assert table["fields"][1]["type"]["element"]["fields"][0]["type"] == "string"
    assert [writer.id for writer in decoding(table, [schema]).writers] == [1]


def test_a_reference_that_is_missing_is_a_problem() -> None:
    with pytest.raises(SchemaProblem, match=r'"geo\.City" is not defined'):
        columns(Schema(1, json.dumps(PERSON)))
    with pytest.raises(SchemaProblem, match=r'"geo\.Zip" is not defined'):
        columns(Schema(1, json.dumps(PERSON), references={"geo.City": json.dumps(CITY)}))


def test_types_without_a_namespace_keep_none() -> None:
    plain = {"type": "record", "name": "Plain", "fields": [{"name": "a", "type": "int"}]}
    outer = {
        "type": "record",
        "name": "Outer",
        "fields": [{"name": "p", "type": "Plain"}, {"name": "q", "type": "Plain"}],
    }
    schema = Schema(1, json.dumps(outer), references={"Plain": json.dumps(plain)})
    assert len(columns(schema)["fields"]) == 2


def test_a_type_of_a_namespace_may_have_references_without_one() -> None:
    inner = {"type": "enum", "name": "Plain", "symbols": ["A"]}
    outer = {"type": "record", "name": "a.Outer", "fields": [{"name": "p", "type": "Plain"}]}
    schema = Schema(1, json.dumps(outer), references={"Plain": json.dumps(inner)})
    assert columns(schema)["fields"][0]["type"] == "string"
