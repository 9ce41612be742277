"""Schemas that are spread over subjects, and versions that their subject does not list any more."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from tests.integration.support.engine import Engine
from tests.integration.support.records.avro_records import nullable, optional, read, record
from tests.integration.support.records.json_topics import proved, register, send

DRAFT_7 = "http://json-schema.org/draft-07/schema#"


@pytest.fixture
def topic(engine: Engine) -> str:
    """A topic without a schema."""
    name = f"t{uuid.uuid4().hex[:12]}"
    engine.create(name, partitions=1)
    return name


def refer(
    engine: Engine, name: str, subject: str, schema: Any, kind: str, *others: SchemaReference
) -> SchemaReference:
    """Register a schema under a subject of its own, to be referred to by name."""
    engine.registry.register_schema(subject, Schema(json.dumps(schema), kind, list(others)))
    return SchemaReference(name, subject, 1)


def test_json_types_may_be_defined_in_other_subjects(engine: Engine, topic: str) -> None:
    city = {"type": "object", "properties": {"zip": {"type": "integer"}}}
    inner = {"$schema": DRAFT_7, "$id": "place.json", "definitions": {"City": city}}
    place = refer(engine, "place.json", f"{topic}-place", inner, "JSON")
    middle = {"type": "object", "properties": {"city": {"$ref": "place.json#/definitions/City"}}}
    home = refer(engine, "home.json", f"{topic}-home", middle, "JSON", place)
    outer = {"type": "object", "properties": {"home": {"$ref": "home.json"}, "id": {"type": "integer"}}}
    schema_id = register(engine, topic, outer, references=[home])
    row = {"home": {"city": {"zip": 2**33}}, "id": 1}
    send(engine, topic, schema_id, row)
    engine.drain(engine.target(topic))
    assert read(engine, topic) == [row]
    proved(engine, topic)


def test_avro_types_may_be_defined_in_other_subjects(engine: Engine, topic: str) -> None:
    suffix = uuid.uuid4().hex
    zip_code = {"type": "enum", "name": "Zip", "namespace": f"geo{suffix}", "symbols": ["A", "B"]}
    city = record("City", zip="Zip", other=nullable("Zip")) | {"namespace": f"geo{suffix}"}
    first = refer(engine, f"geo{suffix}.Zip", f"{topic}-zip", zip_code, "AVRO")
    second = refer(engine, f"geo{suffix}.City", f"{topic}-city", city, "AVRO", first)
    person = record(
        "Person", home=f"geo{suffix}.City", zip=f"geo{suffix}.Zip", work=nullable(f"geo{suffix}.City")
    )
    schema = Schema(json.dumps(person), "AVRO", [first, second])
    engine.registry.register_schema(f"{topic}-value", schema)
    settings = {"auto.register.schemas": False, "use.latest.version": False}
    serializer = AvroSerializer(engine.registry, schema, conf=settings)
    rows = [
        {"home": {"zip": "B", "other": None}, "zip": "A", "work": None},
        {"home": {"zip": "A", "other": "B"}, "zip": "B", "work": {"zip": "B", "other": "B"}},
    ]
    for row in rows:
        engine.send(topic, serializer(row, SerializationContext(topic, MessageField.VALUE)))
    engine.flush()
    engine.drain(engine.target(topic))
    assert read(engine, topic) == rows
    proved(engine, topic)


def test_records_of_a_version_that_was_deleted_softly_become_rows(engine: Engine, topic: str) -> None:
    first = record("Own", a="int") | {"doc": topic}
    engine.register(topic, json.dumps(first))
    old = engine.encode(topic, {"a": 1})
    first["fields"].append(optional("b", "string"))
    engine.register(topic, json.dumps(first))
    engine.produce(topic, [{"a": 2, "b": "x"}])
    engine.send(topic, old)
    engine.flush()
    engine.registry.delete_version(f"{topic}-value", 1)
    engine.drain(engine.target(topic))
    assert read(engine, topic) == [{"a": 2, "b": "x"}, {"a": 1, "b": None}]
    proved(engine, topic)
