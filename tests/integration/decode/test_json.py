"""JSON Schema topics: every type, every way to be wrong, versions, references; and the same rows as Avro makes."""

from __future__ import annotations

import base64
import json
import re
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

import pytest
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from calve.names import TableName
from calve.schema.columns import REASONS
from tests.integration.decode.test_evolution import any_schema
from tests.integration.support.engine import DATABASE, Engine, suspended
from tests.integration.support.records.avro_records import logical, nullable, read, record, same
from tests.integration.support.records.json_records import (
    DECIMAL,
    EVERY_TYPE,
    MOMENT,
    REFUSED,
    REFUSED_BYTES,
    ROWS,
    at_utc,
)
from tests.integration.support.records.json_topics import json_topic, proved, register, send
from tests.integration.support.records.protobuf_topics import protobuf_topic
from tests.integration.support.records.protobuf_topics import serializer as protobuf_serializer
from tests.protobuf_classes import message_class

DRAFT_7 = "http://json-schema.org/draft-07/schema#"
TRADE = """
syntax = "proto3";
import "confluent/meta.proto"; import "confluent/type/decimal.proto";
import "google/protobuf/timestamp.proto"; import "google/type/date.proto";
enum Side { BUY = 0; SELL = 1; }
message Trade {
  int64 id = 1; optional double price = 2; float single = 3; bool flag = 4; Side side = 5;
  google.type.Date day = 6; google.protobuf.Timestamp at = 7;
  confluent.type.Decimal money = 8 [(confluent.field_meta).params = {key: "precision", value: "20"},
    (confluent.field_meta).params = {key: "scale", value: "4"}];
  bytes raw = 9; Place place = 10; map<string, int64> counts = 11;
}
message Place { string name = 1; repeated string lines = 2; }
"""
SETTINGS = {"auto.register.schemas": False, "use.latest.version": False}


def test_every_value_is_its_row_and_every_other_payload_a_dead_letter(engine: Engine) -> None:
    topic = json_topic(engine, EVERY_TYPE)
    schema_id = engine.registry.get_latest_version(f"{topic}-value").schema_id
    assert schema_id is not None
    frame = b"\x00" + schema_id.to_bytes(4, "big")
    refused = [*(each.encode() for each in REFUSED), *REFUSED_BYTES]
    for payload in [*refused[:20], *(text.encode() for text, _ in ROWS), *refused[20:]]:
        engine.send(topic, frame + payload, partition=0)
    engine.flush()
    (outcome,) = engine.drain(engine.target(topic))
    rows = read(engine, topic)
    assert outcome.ledger.rejected == {"malformed": len(refused)}
    messages = [row[0] for row in engine.letters(topic).orderBy("offset").select("message").collect()]
    assert messages[0] == "i: expected a whole number, found a number with a fraction"
    assert "w.lo[0].at: expected a date-time, found another string" in messages
    assert messages.count(REASONS["malformed"]) == 4
    assert len(rows) == len(ROWS)
    for row, (text, expected) in zip(rows, ROWS, strict=True):
        if expected is not None:
            found = {name: value for name, value in row.items() if value is not None}
            assert same(found) == same(expected), text
    proved(engine, topic)
    assert engine.letter_offsets(topic) == [
        (0, n) for n in range(len(refused) + len(ROWS)) if not 20 <= n < 20 + len(ROWS)
    ]


def test_versions_in_one_batch_become_one_table_and_what_does_not_fit_dead_letters(engine: Engine) -> None:
    def version(**properties: Any) -> Any:
        return {"type": "object", "properties": properties, "additionalProperties": False}

    small, text = {"type": "integer", "connect.type": "int32"}, {"type": "string"}
    first = version(id=small, item=version(name=text), by={"type": "object", "additionalProperties": small})
    second = version(
        id={"type": "integer"},
        item=version(at=MOMENT, name=text),
        by={"type": "object", "additionalProperties": {"type": "integer"}},
        note=text,
    )
    third = version(id=text)
    topic = json_topic(engine, first)
    with any_schema(engine):
        ids = [register(engine, topic, each) for each in (first, second, third)]
    for n in range(4):
        send(engine, topic, ids[0], {"id": n, "item": {"name": "a"}, "by": {"k": n}, "note": "not declared"})
        send(engine, topic, ids[1], {"id": 2**40, "item": {"at": "2026-01-01T00:00:00Z"}, "note": str(n)})
        send(engine, topic, ids[2], {"id": "x"})
    (outcome,) = engine.drain(engine.target(topic))
    assert outcome.ledger.rejected == {"incompatible_schema": 4}
    none: dict[str, Any] = {"item": None, "by": None, "note": None}
    expected = []
    for n in range(4):
        expected += [
            none | {"id": n, "item": {"name": "a", "at": None}, "by": [("k", n)]},
            none | {"id": 2**40, "item": {"name": None, "at": at_utc(2026, 1, 1)}, "note": str(n)},
        ]
    assert read(engine, topic) == expected
    proved(engine, topic)


def test_the_same_records_in_every_format_are_the_same_table(engine: Engine) -> None:
    avro = record(
        "Trade",
        id="long",
        price=nullable("double"),
        single="float",
        flag="boolean",
        side={"type": "enum", "name": "Side", "symbols": ["BUY", "SELL"]},
        day=logical("int", "date"),
        at=logical("long", "timestamp-micros"),
        money=logical("bytes", "decimal", precision=20, scale=4),
        raw="bytes",
        place=nullable(record("Place", name="string", lines={"type": "array", "items": "string"})),
        counts={"type": "map", "values": "long"},
    )
    text, number = {"type": "string"}, {"type": "number"}
    money = DECIMAL | {"connect.parameters": {"scale": "4", "connect.decimal.precision": "20"}}
    place = {
        "type": "object",
        "properties": {
            "name": text,
            "lines": {"type": "array", "items": text},
        },
    }
    schema = {
        "$schema": DRAFT_7,
        "type": "object",
        "properties": {
            "id": {"type": "integer"},
            "price": {"type": ["number", "null"]},
            "single": number | {"connect.type": "float32"},
            "flag": {"type": "boolean"},
            "side": {"type": "string", "enum": ["BUY", "SELL"]},
            "day": text | {"format": "date"},
            "at": MOMENT,
            "money": money,
            "raw": text | {"connect.type": "bytes"},
            "place": {"anyOf": [{"type": "null"}, place]},
            "counts": {"type": "object", "additionalProperties": {"type": "integer"}},
        },
    }
    rows = [
        {
            "id": (-1) ** n * 3**n,
            "price": None if n % 3 == 0 else n / 7,
            "single": float(n) / 4,
            "flag": n % 2 == 0,
            "side": ["BUY", "SELL"][n % 2],
            "day": date(1969, 12, 1) + timedelta(days=n),
            "at": at_utc(1, 1, 1) + timedelta(days=18_000 * n, microseconds=n),
            "money": Decimal("-1234567890123456.0789") + n,
            "raw": bytes([n, 255 - n]) * n,
            "place": None if n % 4 == 0 else {"name": "ą" * n, "lines": ["1", "", "true"][: n % 4]},
            "counts": {str(k): k**n for k in range(n % 5)},
        }
        for n in range(40)
    ]
    kind = message_class(TRADE, "Trade")
    topics = [engine.topic(partitions=1, schema=json.dumps(avro)), json_topic(engine, schema)]
    topics.append(protobuf_topic(engine))
    written = AvroSerializer(engine.registry, json.dumps(avro), conf=SETTINGS)
    other = JSONSerializer(json.dumps(schema), engine.registry, conf=SETTINGS, json_encode=_encode)
    third = protobuf_serializer(engine, topics[2], kind)
    makers = [
        lambda row, context: written(row, context),
        lambda row, context: other(_json(row), context),
        lambda row, _: third(_message(kind, row)),
    ]
    for topic, make in zip(topics, makers, strict=True):
        for row in rows:
            engine.send(topic, make(row, SerializationContext(topic, MessageField.VALUE)))
        engine.flush()
        (outcome,) = engine.drain(engine.target(topic))
        assert outcome.ledger.applied == len(rows)
    found = [[row | {"counts": dict(row["counts"])} for row in read(engine, topic)] for topic in topics]
    assert same(found[0]) == same(found[1]) == same(found[2])
    assert same(found[1]) == same([row | {"single": float(row["single"])} for row in rows])
    assert len({str(engine.rows(topic).drop("_kafka").schema) for topic in topics}) == 1
    for topic in topics[1:]:
        proved(engine, topic)


def _message(kind: Any, row: dict[str, Any]) -> Any:
    """A row as its producer hands it to the Protobuf serializer."""
    plain = ("id", "price", "single", "flag", "raw", "place", "counts")
    message = kind(**{name: row[name] for name in plain if row[name] is not None}, side=row["side"])
    message.at.FromDatetime(row["at"])
    message.day.year, message.day.month, message.day.day = row["day"].timetuple()[:3]
    unscaled = int(row["money"].scaleb(4))
    message.money.value, message.money.scale = unscaled.to_bytes(10, "big", signed=True), 4
    return message


def _json(row: dict[str, Any]) -> dict[str, Any]:
    """A row as its producer hands it to the JSON serializer."""
    text = {"day": row["day"].isoformat(), "at": row["at"].isoformat()}
    return row | text | {"raw": base64.b64encode(row["raw"]).decode()}


def _encode(row: dict[str, Any]) -> str:
    """JSON with decimals as numbers of all their digits, which the json module cannot write."""
    return re.sub(r'"decimal ([^"]+)"', r"\1", json.dumps(row, default=lambda each: f"decimal {each}"))


UNSUPPORTED = {
    "no object": {"$schema": DRAFT_7, "type": "string"},
    "recursive": {"type": "object", "properties": {"next": {"$ref": "#"}}},
    "nowhere": {"type": "object", "properties": {"x": {"$ref": "#/definitions/none"}}},
    "reserved": {"type": "object", "properties": {"_kafka": {"type": "string"}}},
}


@pytest.mark.parametrize("schema", UNSUPPORTED.values(), ids=UNSUPPORTED)
def test_a_schema_that_no_table_can_hold_suspends_before_there_is_a_table(
    engine: Engine, schema: Any
) -> None:
    topic = json_topic(engine, schema)
    with suspended("schema_unsupported"):
        engine.round(engine.target(topic))
    assert engine.lake.load(TableName(DATABASE, topic)) is None
