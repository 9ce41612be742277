"""Several versions of a schema in one topic: what fits evolves the table, what does not makes dead letters."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date

import pytest
from confluent_kafka.schema_registry import Schema

from calve.names import TableName
from tests.integration.support.engine import DATABASE, Engine, suspended
from tests.integration.support.records.avro_records import (
    Avro,
    Row,
    logical,
    nullable,
    optional,
    read,
    record,
)


def evolved(engine: Engine, topic: str, schema: Avro, row: Row) -> None:
    """Register a version and produce one record of it."""
    engine.register(topic, json.dumps(schema))
    engine.produce(topic, [row])


def test_several_versions_in_one_batch_become_one_table(engine: Engine) -> None:
    first = record("Order", id="int", price="float", item=record("Item", name="string"))
    first["fields"].append({"name": "lines", "type": {"type": "array", "items": record("Line", n="int")}})
    second = json.loads(json.dumps(first))
    second["fields"][0]["type"] = "long"
    second["fields"][1]["type"] = "double"
    second["fields"][2]["type"]["fields"].append(optional("origin", record("Origin", country="string")))
    second["fields"][3]["type"]["items"]["fields"] = [
        {"name": "n", "type": "long"},
        optional("tags", {"type": "map", "values": "int"}),
    ]
    third = json.loads(json.dumps(second))
    third["fields"].insert(0, optional("note", "string"))
    del third["fields"][2]
    topic = engine.topic(partitions=1, schema=json.dumps(first))
    engine.produce(topic, [{"id": 1, "price": 0.1, "item": {"name": "a"}, "lines": [{"n": -1}]}])
    origin = {"name": "b", "origin": {"country": "LT"}}
    lines: list[Row] = [{"n": 2**40, "tags": {"t": 1}}, {"n": 1, "tags": None}]
    evolved(engine, topic, second, {"id": 2**40, "price": 0.1, "item": origin, "lines": lines})
    evolved(engine, topic, third, {"note": "x", "id": 3, "item": origin | {"origin": None}, "lines": []})
    (outcome,) = engine.drain(engine.target(topic))
    assert outcome.ledger.applied == 3
    lines[0]["tags"] = [("t", 1)]
    assert read(engine, topic) == [
        {
            "id": 1,
            "price": 0.10000000149011612,
            "item": {"name": "a", "origin": None},
            "lines": [{"n": -1, "tags": None}],
            "note": None,
        },
        {"id": 2**40, "price": 0.1, "item": origin, "lines": lines, "note": None},
        {"id": 3, "price": None, "item": {"name": "b", "origin": None}, "lines": [], "note": "x"},
    ]


def test_a_table_with_rows_evolves_in_nested_fields(engine: Engine) -> None:
    first = record(
        "Order", id="int", item=record("Item", n="int"), by={"type": "map", "values": record("V", n="int")}
    )
    topic = engine.topic(partitions=1, schema=json.dumps(first))
    engine.produce(topic, [{"id": 1, "item": {"n": 1}, "by": {"k": {"n": 1}}}])
    target = engine.target(topic)
    engine.drain(target)
    second = json.loads(json.dumps(first))
    second["fields"][1]["type"]["fields"] = [
        optional("at", logical("int", "date")),
        {"name": "n", "type": "long"},
    ]
    second["fields"][2]["type"]["values"]["fields"].append(optional("m", "bytes"))
    later = {"id": 2, "item": {"at": date(2026, 1, 2), "n": 2**40}, "by": {"k": {"n": 2, "m": b"m"}}}
    evolved(engine, topic, second, later)
    engine.drain(target)
    assert read(engine, topic) == [
        {"id": 1, "item": {"n": 1, "at": None}, "by": [("k", {"n": 1, "m": None})]},
        {"id": 2, "item": later["item"], "by": [("k", {"n": 2, "m": b"m"})]},
    ]


def test_comments_and_the_owner_follow_what_is_said_last(engine: Engine) -> None:
    def order(amount: str, street: str) -> Avro:
        address = record("Address", street="string")
        address["fields"][0]["doc"] = street
        made = record("Order", amount="long", address=address)
        made["fields"][0]["doc"] = amount
        return made

    topic = engine.topic(partitions=1, schema=json.dumps(order("in cents", "with number")))
    engine.drain(engine.target(topic, owner="sales"))
    engine.register(topic, json.dumps(order("in euro", "with number")))
    engine.drain(engine.target(topic, owner="finance"))
    table = engine.table(topic)
    fields = {each["name"]: each for each in table.schema["fields"]}
    assert fields["amount"]["doc"] == "in euro"
    assert fields["address"]["type"]["fields"][0]["doc"] == "with number"
    assert table.properties["owner"] == "finance"
    head = table.head
    engine.drain(engine.target(topic, owner="finance"))
    assert engine.table(topic).head == head


@contextmanager
def any_schema(engine: Engine) -> Iterator[None]:
    """The registry takes versions that are not compatible with the ones before."""
    engine.registry.set_compatibility(level="NONE")
    try:
        yield
    finally:
        engine.registry.set_compatibility(level="BACKWARD")


def test_a_version_that_does_not_fit_makes_dead_letters_and_the_table_goes_on(engine: Engine) -> None:
    first = record("Order", id="long")
    topic = engine.topic(partitions=1, schema=json.dumps(first))
    engine.produce(topic, [{"id": 1}])
    target = engine.target(topic)
    engine.drain(target)
    with any_schema(engine):
        evolved(engine, topic, record("Order", id="string"), {"id": "two"})
        json_id = engine.registry.register_schema(f"{topic}-value", Schema('{"properties": {}}', "JSON"))
        engine.send(topic, b"\x00" + int(json_id).to_bytes(4, "big") + b"{}")
        evolved(engine, topic, record("Order", id=record("Id", number="long")), {"id": {"number": 2}})
        third = record("Order", id="long")
        third["fields"].append(optional("note", "string"))
        evolved(engine, topic, third, {"id": 3, "note": "three"})
    (outcome,) = engine.drain(target)
    assert outcome.ledger.rejected == {"incompatible_schema": 3}
    assert engine.letter_offsets(topic) == [(0, 1), (0, 2), (0, 3)]
    assert read(engine, topic) == [{"id": 1, "note": None}, {"id": 3, "note": "three"}]


def test_a_subject_that_was_replaced_by_another_schema_makes_dead_letters(engine: Engine) -> None:
    topic = engine.topic(partitions=1, schema=json.dumps(record("Order", id="long")))
    engine.produce(topic, [{"id": 1}])
    engine.drain(engine.target(topic))
    engine.registry.delete_subject(f"{topic}-value")
    evolved(engine, topic, record("Order", id={"type": "array", "items": "string"}), {"id": ["two"]})
    (outcome,) = engine.drain(engine.target(topic))
    assert outcome.ledger.rejected == {"incompatible_schema": 1}
    assert read(engine, topic) == [{"id": 1}]


UNSUPPORTED: dict[str, Avro] = {
    "no record": "string",
    "recursive": record("Node", next=nullable("Node")),
    "always null": record("Order", id="null"),
    "differ only by case": record("Order", id="long", ID="long"),
    "reserved": record("Order", _kafka="long"),
    "no columns": record("Order", none=record("Nothing")),
}


@pytest.mark.parametrize("schema", UNSUPPORTED.values(), ids=UNSUPPORTED)
def test_a_schema_that_no_table_can_hold_suspends_before_there_is_a_table(
    engine: Engine, schema: Avro
) -> None:
    topic = f"t{uuid.uuid4().hex[:12]}"
    engine.create(topic, partitions=1)
    engine.register(topic, json.dumps(schema))
    target = engine.target(topic)
    with suspended("schema_unsupported"):
        engine.round(target)
    assert engine.lake.load(TableName(DATABASE, topic)) is None
