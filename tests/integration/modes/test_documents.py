"""MongoDB's collections: documents whose columns calve.yaml declares, by both engines, masked, and proved."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from calve.config.job import Source
from calve.config.steps import Filter, Mask, Rule
from calve.modes.history import History
from calve.modes.upsert import ChangeData
from calve.schema.documents import AS_TEXT
from tests.debezium import DOCUMENT_KEY, DOCUMENTS
from tests.integration.modes.test_changes_with_steps import Twice
from tests.integration.steps.test_masked_tables import masking, token
from tests.integration.support.engine import Engine
from tests.integration.support.proofs import assert_proved, proof
from tests.integration.support.records.database import BY_RECORD_KEY

__all__ = ["masking"]
PEOPLE = {
    "bsonType": "object",
    "properties": {
        "_id": {"bsonType": "objectId"},
        "email": {"bsonType": "string"},
        "age": {"bsonType": "int"},
        "visits": {"bsonType": "long"},
        "joined": {"bsonType": "date"},
        "tags": {"bsonType": "array", "items": {"bsonType": "string"}},
    },
}
DECLARED = Source(document=json.dumps(PEOPLE), rest="more")
FIRST_ID = 0x596E275826F08B2730779E00


@dataclass
class Collection:
    """A collection of people by `_id`, whose changes go to a topic, a document's to one partition.

    images: a deletion holds the document as it was (`changeStreamPreAndPostImages`).
    """

    engine: Engine
    images: bool = False
    topic: str = ""
    people: dict[int, dict[str, Any]] = field(default_factory=dict)
    order: int = 0

    def __post_init__(self) -> None:
        self.topic = self.engine.topic(partitions=2, schema=DOCUMENTS)
        self.engine.registry.register_schema(f"{self.topic}-key", Schema(DOCUMENT_KEY, "AVRO"))
        self._keys = AvroSerializer(self.engine.registry, DOCUMENT_KEY, conf={"auto.register.schemas": False})

    def target(self, mode: ChangeData = BY_RECORD_KEY, **settings: Any) -> Any:
        return self.engine.target(self.topic, change_data=mode, **({"value": DECLARED} | settings))

    def write(self, person: int, **values: Any) -> None:
        """Insert or update: an update has the whole document as it is."""
        op = "u" if person in self.people else "c"
        self.people[person] = self.people.get(person, {}) | values
        self.event(op, person, self.text(person))

    def delete(self, person: int) -> None:
        before = self.text(person) if self.images else None
        del self.people[person]
        self.event("d", person, None, before)
        self._send(person, None)

    def text(self, person: int) -> str:
        return json.dumps({"_id": {"$oid": f"{FIRST_ID + person:x}"}} | self.people[person])

    def event(self, op: str, person: int, after: str | None, before: str | None = None) -> None:
        self.order += 1
        source = {
            "connector": "mongodb",
            "ts_ms": 1_700_000_000_000 + self.order,
            "db": "shop",
            "collection": "people",
        }
        source |= {"ord": self.order, "ts_us": None, "wallTime": None}
        told = {
            "op": op,
            "before": before,
            "after": after,
            "source": source,
            "updateDescription": None,
            "ts_ms": 1,
        }
        self._send(person, self.engine.encode(self.topic, told))

    def _send(self, person: int, value: bytes | None) -> None:
        text = json.dumps({"$oid": f"{FIRST_ID + person:x}"})
        key = self._keys({"id": text}, SerializationContext(self.topic, MessageField.KEY))
        self.engine.send(self.topic, value, key=bytes(key or b""), partition=person % 2)

    def churn(self, dice: random.Random, changes: int) -> None:
        for _ in range(changes):
            person, deed = dice.randrange(12), dice.random()
            if person in self.people and deed < 0.25:
                self.delete(person)
            else:
                self.write(person, **_values(dice, person))


def _values(dice: random.Random, person: int) -> dict[str, Any]:
    known = {
        "email": f"{person}@example.com",
        "age": dice.randrange(90),
        "visits": {"$numberLong": str(dice.randrange(2**60))},
        "joined": {"$date": dice.randrange(-(10**12), 10**12)},
        "tags": [f"t{dice.randrange(9)}"],
        "price": {"$numberDecimal": "1.50"},
        "address": {"city": f"c{dice.randrange(9)}", "since": {"$date": 5}},
    }
    return {name: known[name] for name in dice.sample(list(known), 4)}


def plain(person: int, document: dict[str, Any]) -> tuple[Any, ...]:
    """The row of a document, but for what no column declares."""
    visits, joined = document.get("visits"), document.get("joined")
    return (
        f"{FIRST_ID + person:x}",
        document.get("email"),
        document.get("age"),
        visits and int(visits["$numberLong"]),
        joined and joined["$date"],
        document.get("tags"),
    )


def rows(engine: Engine, table: str, *more: str) -> dict[str, Any]:
    found = (
        engine.rows(table)
        .selectExpr("_id", "email", "age", "visits", "unix_millis(joined)", "tags", *more)
        .collect()
    )
    assert len({each[0] for each in found}) == len(found)
    return {each[0]: tuple(each) for each in found}


@pytest.mark.long
def test_the_table_is_the_collection_masked_by_both_engines(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, masking: str
) -> None:
    """A document that does not match its schema is a dead letter; a deletion whose document does not match deletes."""
    people, dice = Collection(engine), random.Random(3)
    mask = Mask(fields={"email": Rule("hash")}, key="keep")
    settings = {"steps": (mask,), "masking": masking, "value": DECLARED}
    both = Twice(engine, people, monkeypatch, settings)
    for _ in range(2):
        people.churn(dice, 60)
        both.drain()
    people.event("u", 3, '{"_id": {"$oid": "596e275826f08b2730779e03"},"age": "old"}')
    people.event("u", 3, '{"age": Infinity}')
    people.event("u", 3, None)
    people.write(4, age=1)
    people.event("d", 4, None, before='{"age": "old"}')
    del people.people[4]
    both.drain()
    expected = {row[0]: row for row in (plain(*each) for each in people.people.items())}
    expected = {key: (row[0], row[1] and token(row[1]), *row[2:]) for key, row in expected.items()}
    found = rows(engine, both.names[1])
    assert found == expected
    assert [reason for *_, reason in both.letters()] == ["bad_change"] * 3
    both.prove()


def test_what_no_column_declares_is_kept(engine: Engine) -> None:
    people = Collection(engine)
    people.write(1, price={"$numberDecimal": "1.50"}, address={"city": "Bern", "since": {"$date": 5}}, age=3)
    people.write(2, age=4)
    engine.flush()
    engine.drain(people.target())
    kept = {row[0]: row[-1] for row in rows(engine, people.topic, "more").values()}
    assert kept == {
        f"{FIRST_ID + 1:x}": '{"address":{"city":"Bern","since":5},"price":"1.50"}',
        f"{FIRST_ID + 2:x}": None,
    }
    assert_proved(proof(engine, people.topic, value=DECLARED))


@pytest.mark.long
def test_documents_may_stay_texts_and_have_a_history(engine: Engine) -> None:
    people, dice = Collection(engine, images=True), random.Random(4)
    text, listed = Source(document=AS_TEXT), f"{people.topic}_versions"
    history = History(("_kafka.key",), changes=True, bucketed=True)
    targets = [
        people.target(value=text),
        engine.target(people.topic, table=listed, history=history, value=text),
    ]
    for _ in range(2):
        people.churn(dice, 40)
        engine.flush()
        for each in targets:
            engine.drain(each)
    expected = sorted(people.text(person) for person in people.people)
    current = engine.rows(listed).where("_history.is_current")
    for found in (engine.rows(people.topic), current):
        assert sorted(row["document"] for row in found.collect()) == expected
    deleted = engine.rows(listed).where("_history.deleted").select("document").collect()
    assert deleted
    assert all(row["document"] for row in deleted)
    for name in (people.topic, listed):
        assert_proved(proof(engine, name, value=text))


@pytest.mark.full
def test_another_document_file_adds_columns_and_rows_of_before_are_not_judged_by_it(engine: Engine) -> None:
    people, dice = Collection(engine), random.Random(5)
    people.churn(dice, 30)
    engine.flush()
    engine.drain(people.target())
    wider = json.loads(json.dumps(PEOPLE))
    wider["properties"]["price"] = {"bsonType": "decimal"}
    value = replace(DECLARED, document=json.dumps(wider))
    people.write(1, price={"$numberDecimal": "7.00"})
    engine.flush()
    filters = (Filter("age IS NULL OR age >= 0"),)
    engine.drain(people.target(value=value, steps=filters))
    [row] = engine.rows(people.topic).where(f"_id = '{FIRST_ID + 1:x}'").select("price").collect()
    assert row["price"] == "7.00"
    found = proof(engine, people.topic, value=value, steps=filters)
    assert not found.complete
    assert not [each for each in found.findings if "differ" in str(each)]
