"""Records that cannot be read become dead letters, byte for byte; the records around them become rows."""

from __future__ import annotations

import json
import struct
import time
import uuid
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest

from calve.config.job import Budget, Registry
from calve.schema.columns import REASONS, UNDELIVERED
from calve.table.position import Ledger
from glue_jobs.table.counts import MAX_UNKNOWN_IDS
from glue_jobs.table.open_table import TableMemory
from tests.integration.support.engine import TRADE, Engine, at, everything, trades
from tests.integration.support.servers.gate import Answer, Gate, Request

BAD = b"\x01no magic byte"
TWO_GIGABYTES = b"\xfe\xff\xff\xff\x0f"
"""The length 2,147,483,647 as Avro writes it."""
OF_OTHERS = (
    "null_key",
    "bad_change",
    "bad_event",
    "truncation",
    "no_route",
    "step_failed",
    "expectation_unmet",
    "value_unavailable",
    "lookup_missing",
)
"""Reasons that only tables with a mode or with steps know."""
ANY_TIME = {"retention.ms": "-1", "message.timestamp.after.max.ms": str(2**63 - 1)}


@dataclass(frozen=True)
class Sent:
    """A record as it was produced to partition 0; `reason` None for one that can be read. `why`: its own message."""

    reason: str | None
    value: bytes | None
    key: bytes | None = None
    headers: list[tuple[str, str | bytes | None]] = field(default_factory=list)
    timestamp_ms: int = field(default_factory=lambda: int(time.time() * 1000))
    why: str | None = None


AT_END, TEXT = "found the end of the value", "a string of at most 16,777,216 bytes"


def more(count: int) -> str:
    return f"the value: expected the end, found {count} more bytes"


def send(engine: Engine, topic: str, records: list[Sent]) -> None:
    for each in records:
        engine.producer.produce(
            topic,
            each.value,
            key=each.key,
            headers=each.headers,
            partition=0,
            timestamp=each.timestamp_ms,
        )
    engine.flush()


def reject(engine: Engine, topic: str, *partitions: int) -> None:
    """One reject to each of these partitions."""
    for partition in partitions:
        engine.send(topic, BAD, partition=partition)
    engine.flush()


def schema(*fields: dict[str, Any]) -> str:
    """A schema that no other subject has, and so an id that no other subject has."""
    return json.dumps({"type": "record", "name": "Own", "doc": uuid.uuid4().hex, "fields": fields})


def framed(schema_id: int, payload: bytes) -> bytes:
    return struct.pack(">bI", 0, schema_id) + payload


def next_id(engine: Engine) -> int:
    """The id that the registry will give to the next new schema."""
    return engine.register(f"t{uuid.uuid4().hex}", schema({"name": "x", "type": "int"})) + 1


def own_schema(number: str = "long") -> str:
    return schema({"name": "id", "type": number}, {"name": "side", "type": "string"})


def reasons(engine: Engine, topic: str) -> list[tuple[int, str]]:
    """(offset, reason) of every dead letter, sorted."""
    found = engine.letters(topic).select("offset", "reason").collect()
    return sorted((row[0], row[1]) for row in found)


def test_every_kind_of_reject_can_be_rebuilt_byte_for_byte(engine: Engine) -> None:
    topic = engine.topic(partitions=1, config=ANY_TIME)
    first, second = (engine.encode(topic, row) for row in trades(2))
    foreign = engine.register(f"{topic}-other", own_schema("string"))
    own = int.from_bytes(first[1:5], "big")
    both: list[tuple[str, str | bytes | None]] = [("trace", b"\x00\xff"), ("trace", b""), ("none", None)]
    sent = [
        Sent(None, first, b"good", both),
        Sent("null_value", None, b"deleted"),
        Sent("truncated", b"", b""),
        Sent("truncated", b"\x00\x00\x00\x01", None),
        Sent("bad_magic", b"\x01" + first[1:], b"\x00\x01", both),
        Sent("bad_magic", b'{"id": 1}'),
        Sent("unknown_schema_id", b"\x00\x7f\xff\xff\xff" + first[5:]),
        Sent("unknown_schema_id", b"\x00\xff\xff\xff\xff" + first[5:], timestamp_ms=1),
        Sent("incompatible_schema", framed(foreign, first[5:])),
        Sent("malformed", first[:-1], why=f"price: expected an int, {AT_END}"),
        Sent("malformed", first[:5], b"k", both, why=f"id: expected a long, {AT_END}"),
        Sent(
            "malformed",
            framed(own, b"\x00" + TWO_GIGABYTES + b"x"),
            why=f"side: expected {TEXT}, found a greater length",
        ),
        Sent("trailing_bytes", first + b"\x00", why="the value: expected the end, found 1 more byte"),
        Sent("trailing_bytes", first + second[5:], why=more(len(second) - 5)),
        Sent(
            "trailing_bytes",
            first + second,
            b"k",
            both,
            timestamp_ms=253_402_300_799_999,
            why=more(len(second)),
        ),
        Sent(None, second, b"good"),
    ]
    assert {each.reason for each in sent} == {
        *(each for each in REASONS if not each.startswith("key_") and each not in (*OF_OTHERS, *UNDELIVERED)),
        None,
    }
    send(engine, topic, sent)
    (outcome,) = engine.drain(engine.target(topic))
    assert engine.offsets(topic) == [(0, 0), (0, len(sent) - 1)]
    rows = {row["offset"]: row for row in engine.letters(topic).collect()}
    assert sorted(rows) == list(range(1, len(sent) - 1))
    key = engine.cluster.state(topic).key
    for offset, row in rows.items():
        record = sent[offset]
        assert (row["value"], row["key"]) == (record.value, record.key), offset
        assert [(each["key"], each["value"]) for each in row["headers"] or []] == record.headers, offset
        assert (row["reason"], row["message"]) == (record.reason, record.why or REASONS[str(record.reason)])
        assert row["timestamp"].timestamp() == record.timestamp_ms / 1000, offset
        assert (row["timestamp_type"], row["topic"], row["partition"]) == (0, topic, 0)
        assert (row["cluster_id"], row["topic_id"]) == (key.cluster_id, key.topic_id)
        assert (row["stage"], row["attempt"], row["round"]) == ("decode", 1, outcome.position.round)
    counted: dict[str, int] = {}
    for record in sent[1:-1]:
        counted[str(record.reason)] = counted.get(str(record.reason), 0) + 1
    assert outcome.ledger == Ledger(
        span=16, consumed=16, applied=2, rows_appended=2, dead_lettered=14, rejected=counted
    )


def test_absurd_lengths_do_no_harm(engine: Engine) -> None:
    fields: list[dict[str, Any]] = [
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "blob", "type": "bytes"},
        {"name": "counts", "type": {"type": "map", "values": "long"}},
    ]
    topic = engine.topic(partitions=1, schema=schema(*fields))
    row = {"tags": ["a"], "blob": b"b", "counts": {"c": 1}}
    good = engine.encode(topic, row)
    huge = b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f"
    payloads = [
        TWO_GIGABYTES,
        huge,
        b"\x02" + TWO_GIGABYTES,
        b"\x01",
        b"\x01" + huge,
        b"\x02\x01",
        b"\x00" + TWO_GIGABYTES,
        b"\x00\x01",
        b"\x00\x00" + TWO_GIGABYTES,
        b"\x00\x00" + huge,
        b"\x00\x00\x02" + TWO_GIGABYTES,
    ]
    send(engine, topic, [Sent("malformed", good[:5] + payload) for payload in payloads])
    engine.produce(topic, [row])
    began = time.monotonic()
    engine.drain(engine.target(topic))
    assert time.monotonic() - began < 60
    assert reasons(engine, topic) == [(offset, "malformed") for offset in range(len(payloads))]
    assert engine.offsets(topic) == [(0, len(payloads))]


class Counting(Gate):
    """The registry, and how many schemas were asked for by their id."""

    asked = 0

    def answer(self, request: Request) -> Answer:
        self.asked += "/schemas/ids/" in request.path
        return self.pass_on(request)


@pytest.mark.long
def test_a_flood_of_schema_ids_asks_the_registry_a_thousand_times_at_most(engine: Engine) -> None:
    topic = engine.topic(partitions=1)
    value = engine.encode(topic, trades(1)[0])
    flood = 2 * MAX_UNKNOWN_IDS
    for number in range(flood):
        engine.send(topic, b"\0" + (0x7000_0000 + number).to_bytes(4, "big") + value[5:], partition=0)
    engine.send(topic, value, partition=0)
    engine.flush()
    with Counting(engine.stack.registry_url) as gate:
        target = engine.target(
            topic, registry=Registry(gate.url), dead_letter_budget=Budget(records=2 * flood)
        )
        (outcome,) = engine.drain(target, memory=TableMemory(bytes_per_record=1_000))
    assert (outcome.ledger.applied, outcome.ledger.rejected) == (1, {"unknown_schema_id": flood})
    assert 0 < gate.asked <= MAX_UNKNOWN_IDS + 1


def test_an_id_registered_between_rounds_is_decoded_from_then_on(engine: Engine) -> None:
    topic = engine.topic(partitions=1, schema=own_schema("int"))
    value = framed(next_id(engine), engine.encode(topic, {"id": 7, "side": "BUY"})[5:])
    target = engine.target(topic)
    send(engine, topic, [Sent("unknown_schema_id", value)])
    engine.drain(target)
    assert reasons(engine, topic) == [(0, "unknown_schema_id")]
    assert engine.register(topic, own_schema()) == int.from_bytes(value[1:5], "big")
    send(engine, topic, [Sent(None, value)])
    engine.drain(target)
    assert engine.offsets(topic) == [(0, 1)]
    assert reasons(engine, topic) == [(0, "unknown_schema_id")]


def test_an_id_registered_while_its_record_is_read_is_decoded_at_once(engine: Engine) -> None:
    topic = engine.topic(partitions=1, schema=own_schema())
    evolved = json.loads(own_schema())
    evolved["fields"].append({"name": "note", "type": ["null", "string"], "default": None})
    payload = engine.encode(topic, {"id": 7, "side": "BUY"})[5:]
    value = framed(next_id(engine), payload + b"\x02\x08late")
    engine.produce(topic, [{"id": 1, "side": "SELL"}])
    send(engine, topic, [Sent(None, value), Sent("bad_magic", BAD)])
    with at("stage.end", lambda _: engine.register(topic, json.dumps(evolved))):
        (outcome,) = engine.drain(engine.target(topic))
    assert outcome.ledger == Ledger(
        span=3, consumed=3, applied=2, rows_appended=2, dead_lettered=1, rejected={"bad_magic": 1}
    )
    rows = engine.rows(topic).select("id", "note").orderBy("id").collect()
    assert [tuple(row) for row in rows] == [(1, None), (7, "late")]
    assert reasons(engine, topic) == [(2, "bad_magic")]


def test_an_id_learnt_while_it_is_read_leaves_no_empty_round_of_dead_letters(engine: Engine) -> None:
    topic = engine.topic(partitions=1, schema=own_schema("int"))
    value = framed(next_id(engine), engine.encode(topic, {"id": 7, "side": "BUY"})[5:])
    send(engine, topic, [Sent(None, value)])
    target = engine.target(topic)
    with at("stage.end", lambda _: engine.register(topic, own_schema())):
        (outcome,) = engine.drain(target)
    assert outcome.ledger.applied == 1
    assert outcome.position.dead_letters is None
    assert target.opened.dead_letters.table is None


@pytest.mark.full
def test_rounds_of_rejects_only_move_the_position(engine: Engine) -> None:
    topic = engine.topic(partitions=2)
    target = engine.target(topic)
    for _ in range(2):
        reject(engine, topic, 0, 0, 1)
        (outcome,) = engine.drain(target)
        assert outcome.ledger == Ledger(span=3, consumed=3, dead_lettered=3, rejected={"bad_magic": 3})
        assert engine.round(target).snapshot is None
    assert engine.offsets(topic) == []
    assert engine.letter_offsets(topic) == everything(4, 2)


@pytest.mark.full
def test_rejects_are_found_in_every_partition(engine: Engine) -> None:
    topic = engine.topic(partitions=10)
    for partition in range(10):
        engine.produce(topic, partition, partition=partition)
    reject(engine, topic, 0, 3, 8, 9)
    for partition in range(10):
        engine.produce(topic, 4, partition=partition)
    reject(engine, topic, 1, 1, 8)
    engine.drain(engine.target(topic))
    bad = [(0, 0), (1, 5), (1, 6), (3, 3), (8, 8), (8, 13), (9, 9)]
    held = everything(5, 7, 6, 8, 8, 9, 10, 11, 14, 14)
    assert engine.letter_offsets(topic) == bad
    assert engine.offsets(topic) == [each for each in held if each not in bad]


def test_rejects_among_aborted_transactions_are_counted_alone(engine: Engine) -> None:
    topic = engine.topic(partitions=1)
    reject(engine, topic, 0)
    with engine.transaction(topic, [BAD, *(engine.encode(topic, row) for row in trades(2))]):
        pass
    with engine.transaction(topic, [BAD, BAD]) as producer:
        producer.commit_transaction(30)
    (outcome,) = engine.drain(engine.target(topic))
    assert outcome.ledger == Ledger(span=8, consumed=3, gaps=5, dead_lettered=3, rejected={"bad_magic": 3})
    assert engine.letter_offsets(topic) == [(0, 0), (0, 5), (0, 6)]


def test_a_table_evolves_in_a_round_that_has_rejects(engine: Engine) -> None:
    topic = engine.topic(partitions=1)
    target = engine.target(topic)
    engine.produce(topic, 2)
    reject(engine, topic, 0)
    engine.drain(target)
    evolved = json.loads(TRADE)
    evolved["fields"].append({"name": "note", "type": ["null", "string"], "default": None})
    engine.produce(topic, 1)
    engine.register(topic, json.dumps(evolved))
    reject(engine, topic, 0)
    engine.produce(topic, [{"id": 9, "side": "BUY", "price": 1, "note": "late"}])
    engine.drain(target)
    notes = engine.rows(topic).orderBy("_kafka.offset").select("note").collect()
    assert [row[0] for row in notes] == [None, None, None, "late"]
    assert engine.letter_offsets(topic) == [(0, 2), (0, 4)]


def test_dead_letters_say_when_their_round_was(engine: Engine) -> None:
    topic = engine.topic(partitions=1)
    before = datetime.now(UTC).timestamp()
    reject(engine, topic, 0)
    engine.drain(engine.target(topic))
    (row,) = engine.letters(topic).collect()
    assert before <= row["rejected_at"].timestamp() <= datetime.now(UTC).timestamp()
    assert row["schema_id"] is None
