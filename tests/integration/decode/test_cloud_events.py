"""CloudEvents, binary and structured, as the official SDK writes them: rows of their data, with the attributes beside."""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from cloudevents.core.bindings.kafka import KafkaMessage, to_binary, to_structured
from cloudevents.core.formats.json import JSONFormat
from cloudevents.core.v1.event import CloudEvent

from calve.config.job import EngineChoice, Source
from calve.config.steps import Mask, Rule
from calve.modes.upsert import Deduplicate, Upsert
from calve.requests.redrive import Request
from calve.schema.columns import Transform
from calve.schema.inference import Infer
from calve.table.summary import REDRIVE
from tests.integration.support.crashing import Died, dying
from tests.integration.support.engine import Engine
from tests.integration.support.proofs import assert_proved, proof

Headers = list[tuple[str, str | bytes | None]]
SCHEMA = json.dumps(
    {"type": "object", "properties": {"item": {"type": "string"}, "price": {"type": "number"}}}
)
SOURCE = Source(format="json", prefix="none", schema=SCHEMA, cloudevents="event")
BINARY: Headers = [
    ("ce_specversion", b"1.0"),
    ("ce_id", b"e"),
    ("ce_source", b"/s"),
    ("ce_type", b"t"),
]
Sent = KafkaMessage | tuple[bytes | None, Headers]


def event(number: int, data: Any, **more: Any) -> CloudEvent:
    at = datetime(2026, 11, 2, 10, number, tzinfo=UTC)
    given = {"id": f"e{number}", "source": "/shop", "type": "sold", "time": at, "specversion": "1.0"}
    return CloudEvent(given | more, data)


def binary(number: int, data: Any, **more: Any) -> KafkaMessage:
    return to_binary(event(number, data, **more), JSONFormat())


def structured(number: int, data: Any, **more: Any) -> KafkaMessage:
    return to_structured(event(number, data, **more), JSONFormat())


def headers_of(message: KafkaMessage) -> Headers:
    return list(message.headers.items())


BOTH: list[Callable[..., KafkaMessage]] = [binary, structured]


def sale(number: int) -> dict[str, Any]:
    return {"item": f"i{number}", "price": number + 0.5}


class Topic:
    """A topic of one partition; by default a new one."""

    def __init__(self, engine: Engine, name: str | None = None) -> None:
        self.name = name or f"t{uuid.uuid4().hex[:12]}"
        self._engine = engine
        if name is None:
            engine.create(self.name, partitions=1)

    def send(self, *records: Sent, key: bytes | None = None) -> None:
        for each in records:
            value, headers = (each.value, headers_of(each)) if isinstance(each, KafkaMessage) else each
            self._engine.producer.produce(self.name, value, key, headers=headers, partition=0)
        self._engine.flush()


def rows(engine: Engine, table: str, *columns: str) -> list[tuple[Any, ...]]:
    found = engine.rows(table).orderBy("_kafka.offset").selectExpr(*columns).collect()
    return [tuple(each) for each in found]


@pytest.fixture
def masking(tmp_path: Path) -> str:
    secret = tmp_path / "keys.json"
    listed = [{"id": "k1", "from": "2020-01-01T00:00:00Z", "key": base64.b64encode(bytes(32)).decode()}]
    secret.write_text(json.dumps({"keys": listed}))
    return f"file:{secret}"


@pytest.mark.parametrize("choice", ["columnar", "rows"])
def test_both_kinds_in_one_topic(engine: Engine, choice: EngineChoice) -> None:
    topic = Topic(engine)
    good = [
        binary(0, sale(0), subject="s0", traceparent="00-1", datacontenttype="application/json"),
        structured(1, sale(1), subject="s1", traceparent="00-2"),
        structured(2, {}),
        binary(3, sale(3)),
        structured(4, json.dumps(sale(4)).encode()),  # as Base64
    ]
    text = structured(6, {"price": "7"}).value
    bad: list[tuple[str, str, Sent]] = [
        ("bad_event", "it has no header ce_id", (json.dumps(sale(4)).encode(), [])),
        ("bad_event", '"time" is not a time by RFC 3339', (b"{}", [*BINARY, ("ce_time", b"noon")])),
        ("bad_event", "not one JSON object", (text[:-1], headers_of(structured(6, {})))),
        ("malformed", "price: expected a double, found a string", structured(6, {"price": "7"})),
        ("malformed", "price: expected a double, found a string", (b'{"price": "7"}', BINARY)),
        ("null_value", "the value is null", structured(7, None)),
        ("null_value", "the value is null", (None, BINARY)),
        ("null_value", "the value is null", (None, [])),
    ]
    topic.send(*good[:2], *(each for _, _, each in bad), *good[2:])
    engine.drain(engine.target(topic.name, value=SOURCE, engine=choice))
    assert rows(engine, topic.name, "item", "price", "event.id", "event.subject", "event.extensions") == [
        ("i0", 0.5, "e0", "s0", {"traceparent": "00-1"}),
        ("i1", 1.5, "e1", "s1", {"traceparent": "00-2"}),
        (None, None, "e2", None, None),
        ("i3", 3.5, "e3", None, None),
        ("i4", 4.5, "e4", None, None),
    ]
    first = ("/shop", "sold", datetime(2026, 11, 2, 10, 0, tzinfo=UTC), "1.0", "application/json")
    columns = ("source", "type", "time", "specversion", "datacontenttype")
    [found, *_] = rows(engine, topic.name, *(f"event.{each}" for each in columns))
    assert tuple(each.astimezone(UTC) if isinstance(each, datetime) else each for each in found) == first
    letters = engine.letters(topic.name).orderBy("offset").select("reason", "message", "value").collect()
    values = [each.value if isinstance(each, KafkaMessage) else each[0] for _, _, each in bad]
    assert [each[2] and bytes(each[2]) for each in letters] == values
    for letter, (reason, message, _) in zip(letters, bad, strict=True):
        assert (letter[0], message in letter[1]) == (reason, True), letter
    assert_proved(proof(engine, topic.name, value=SOURCE))


def test_events_of_the_registry_are_binary(engine: Engine) -> None:
    topic = Topic(engine, engine.topic(partitions=1))
    topic.send(
        (engine.encode(topic.name, {"id": 1, "side": "BUY", "price": 2}), BINARY), structured(1, {"id": 2})
    )
    source = Source(cloudevents="event")
    (outcome,) = engine.drain(engine.target(topic.name, value=source))
    assert outcome.ledger.rejected == {"bad_event": 1}
    assert rows(engine, topic.name, "id", "event.id") == [(1, "e")]
    [message] = engine.letters(topic.name).select("message").collect()
    assert "only binary events" in message[0]
    assert_proved(proof(engine, topic.name, value=source))


@pytest.mark.parametrize("choice", ["columnar", "rows"])
def test_attributes_are_columns_for_modes_and_steps(
    engine: Engine, masking: str, choice: EngineChoice
) -> None:
    """Producers send an event again under its id; the subject is a person."""
    topic = Topic(engine)
    for number in (1, 2, 1, 3, 2):
        topic.send(BOTH[number % 2](number, sale(number), subject="ann", tenant="t1"))
    steps = (Mask(fields={"event.subject": Rule("hash"), "item": Rule("null")}),)
    settings: dict[str, Any] = {
        "value": SOURCE,
        "deduplicate": Deduplicate(("event.source", "event.id")),
        "partition_by": (Transform("event.time", "day"),),
        "steps": steps,
        "engine": choice,
        "masking": masking,
    }
    engine.drain(engine.target(topic.name, **settings))
    columns = ("event.id", "item", "event.extensions['tenant']", "length(event.subject) > 20")
    assert rows(engine, topic.name, *columns) == [(f"e{number}", None, "t1", True) for number in (1, 2, 3)]
    assert_proved(proof(engine, topic.name, value=SOURCE, steps=steps, masking=masking))


@pytest.mark.parametrize("choice", ["columnar", "rows"])
def test_only_a_record_without_a_value_deletes(engine: Engine, masking: str, choice: EngineChoice) -> None:
    topic = Topic(engine)
    for number in (1, 2):
        topic.send(structured(number, sale(number), tenant="t1"), key=f"k{number}".encode())
    topic.send((None, BINARY), key=b"k1")
    topic.send(structured(3, None), key=b"k2")
    steps = (Mask(fields={"event.extensions": Rule("null")}, key="keep"),)
    settings: dict[str, Any] = {
        "upsert": Upsert(("_kafka.key",), deletes=True),
        "steps": steps,
        "engine": choice,
        "masking": masking,
    }
    (outcome,) = engine.drain(engine.target(topic.name, value=SOURCE, **settings))
    assert outcome.ledger.rejected == {"null_value": 1}
    assert rows(engine, topic.name, "item", "event.id", "event.extensions") == [("i2", "e2", None)]
    assert_proved(proof(engine, topic.name, value=SOURCE, steps=steps, masking=masking))


def test_events_of_inferred_columns(engine: Engine) -> None:
    """A field of the data that has the name of the attributes' column stays in the rest column."""
    topic = Topic(engine)
    source = Source(format="json", prefix="none", rest="rest", infer=Infer(), cloudevents="event")
    topic.send(structured(1, {"a": 1, "event": 2}), binary(2, {"a": "x", "b": True}), structured(3, [1]))
    (outcome,) = engine.drain(engine.target(topic.name, value=source))
    assert outcome.ledger.rejected == {"malformed": 1}
    assert rows(engine, topic.name, "a", "b", "event.id", "rest") == [
        (1, None, "e1", '{"event":2}'),
        (None, True, "e2", '{"a":"x"}'),
    ]
    assert_proved(proof(engine, topic.name, value=source))


@pytest.mark.long
def test_a_table_takes_attributes_from_now_on_and_dead_letters_come_back_with_theirs(engine: Engine) -> None:
    """Earlier rows have none, and stay proved; a structured event was no row before, as its `data` is no text."""
    topic, schema = Topic(engine), json.loads(SCHEMA)
    schema["properties"]["data"] = {"type": "string"}
    source, plain = (
        Source(None, "json", "none", json.dumps(schema), cloudevents=each) for each in ("event", None)
    )
    topic.send(binary(0, sale(0)), structured(1, sale(1)))
    (outcome,) = engine.drain(engine.target(topic.name, value=plain))
    assert outcome.ledger.rejected == {"malformed": 1}
    topic.send(structured(2, sale(2)))
    engine.table(topic.name).set_properties(
        {REDRIVE: Request(uuid.uuid4().hex, "2026-01-01T00:00:00+00:00").to_json()}
    )
    engine.drain(engine.target(topic.name, value=source))
    assert rows(engine, topic.name, "item", "event.id") == [("i0", None), ("i1", "e1"), ("i2", "e2")]
    assert_proved(proof(engine, topic.name, value=source))


@pytest.mark.long
@pytest.mark.parametrize("choice", ["columnar", "rows"])
@pytest.mark.parametrize("point", ["stage.end", "reject.end", "publish.end"])
def test_a_job_that_dies_anywhere_writes_each_event_once(
    engine: Engine, choice: EngineChoice, point: str
) -> None:
    topic = Topic(engine)
    topic.send(*(BOTH[number % 2](number, sale(number)) for number in range(6)), (b"{}", []))
    with pytest.raises(Died), dying(point):
        engine.drain(engine.target(topic.name, value=SOURCE, engine=choice))
    engine.drain(engine.target(topic.name, value=SOURCE, engine=choice))
    assert rows(engine, topic.name, "event.id") == [(f"e{number}",) for number in range(6)]
    assert engine.letters(topic.name).count() == 1
    assert_proved(proof(engine, topic.name, value=SOURCE))
