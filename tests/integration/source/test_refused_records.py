"""Records that the source refuses, whatever their values say: each is a dead letter, in both engines, and the table goes on."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from kafka.protocol.producer import ProduceRequest

from calve.modes.upsert import Upsert
from calve.requests.redrive import Result
from calve.schema.columns import LARGEST_RECORD, MOST_MILLIS
from glue_jobs.kafka.client import client_of, settings_of
from glue_jobs.kafka.fetching import uuid_of
from tests.integration.requests.test_redrive import Scene
from tests.integration.support.engine import Engine
from tests.integration.support.proofs import assert_proved, proof
from tests.record_batches import Record, large, sealed, written, zeros

ANY_TIME = {
    "max.message.bytes": "50000000",
    "message.timestamp.before.max.ms": str(2**63 - 1),
    "message.timestamp.after.max.ms": str(2**63 - 1),
}
ENGINES = pytest.mark.parametrize("choice", ["columnar", pytest.param("rows", marks=pytest.mark.long)])
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def append(engine: Engine, topic: str, batch: bytes) -> None:
    """To partition 0, as it is: the broker says what it does not take."""
    client = client_of(settings_of(engine.cluster.connection))
    topic_id = uuid_of(engine.cluster.state(topic).key.topic_id)
    data = ProduceRequest.TopicProduceData
    sent = data(
        name=topic,
        topic_id=topic_id,
        partition_data=[data.PartitionProduceData(index=0, records=batch)],
    )
    request = ProduceRequest(transactional_id=None, acks=-1, timeout_ms=20_000, topic_data=[sent])
    answer = client.answer(client.ask(client.leaders(topic, topic_id).of[0][0], request))
    assert [each.error_code for one in answer.responses for each in one.partition_responses] == [0]


def redriven(engine: Engine, topic: str) -> Result:
    """What a redrive of all letters answers."""
    scene = Scene(engine)
    scene.topic = topic
    return scene.redrive()


def letters(engine: Engine, topic: str) -> dict[int, Any]:
    return {row["offset"]: row for row in engine.letters(topic).collect()}


@ENGINES
def test_a_timestamp_that_no_column_holds_is_a_dead_letter_and_any_other_is_kept(
    engine: Engine, choice: str
) -> None:
    topic = engine.topic(partitions=1, config=ANY_TIME)
    row = engine.encode(topic, {"id": 1, "side": "BUY", "price": 2})
    kept = [MOST_MILLIS, -MOST_MILLIS, -62_135_596_800_000, -12_219_292_800_001, -1, 1_763_877_600_000]
    wild = [2**63 - 1, -(2**62), MOST_MILLIS + 1, -MOST_MILLIS - 1]
    for timestamp in (*kept[:3], *wild, *kept[3:]):
        append(engine, topic, written([Record(0, row, b"key", (("a", b"b"),), timestamp=timestamp)]))
    append(engine, topic, written([Record(0, b"bad", timestamp=2**62)]))
    (outcome,) = engine.drain(engine.target(topic, engine=choice))
    assert outcome.ledger.rejected == {"bad_timestamp": 5}
    found = engine.rows(topic).selectExpr("_kafka.offset", "unix_micros(_kafka.timestamp)").collect()
    assert sorted(map(tuple, found)) == [
        (offset, millis * 1000) for offset, millis in zip((0, 1, 2, 7, 8, 9), kept, strict=True)
    ]
    held = letters(engine, topic)
    assert sorted(held) == [3, 4, 5, 6, 10]
    assert {row["reason"] for row in held.values()} == {"bad_timestamp"}
    assert {row["timestamp"] for row in held.values()} == {None}
    assert (held[3]["value"], held[3]["key"], held[3]["headers"][0]["value"]) == (row, b"key", b"b")
    assert (held[10]["value"], held[10]["timestamp_type"]) == (b"bad", 0)
    assert_proved(proof(engine, topic))
    answer = redriven(engine, topic)
    assert (answer.selected, answer.redriven, answer.refused) == (5, 0, {"bad_timestamp": 5})
    assert_proved(proof(engine, topic))


@ENGINES
def test_a_record_that_is_too_large_is_a_dead_letter_without_its_value(engine: Engine, choice: str) -> None:
    topic = engine.topic(partitions=1, config=ANY_TIME)
    row = engine.encode(topic, {"id": 1, "side": "BUY", "price": 2})
    bomb = Record(1, bytes(LARGEST_RECORD), b"key", (("a", b"b"),))
    append(engine, topic, large([Record(0, row), bomb, Record(2, row)], "zstd"))
    append(engine, topic, zeros([1_200_000_000]))
    append(engine, topic, large([Record(0, row)], "none"))
    (outcome,) = engine.drain(engine.target(topic, engine=choice))
    assert engine.offsets(topic) == [(0, 0), (0, 2), (0, 4)]
    assert outcome.ledger.rejected == {"record_too_large": 2}
    held = letters(engine, topic)
    assert [(row["value"], row["key"]) for row in held.values()] == [(None, b"key"), (None, None)]
    assert held[1]["timestamp"].replace(tzinfo=UTC) == EPOCH + timedelta(milliseconds=5)
    assert_proved(proof(engine, topic))
    assert redriven(engine, topic).refused == {"record_too_large": 2}


@ENGINES
def test_a_large_batch_of_small_records_is_read(engine: Engine, choice: str) -> None:
    topic = engine.topic(partitions=1, config=ANY_TIME)
    row = engine.encode(topic, {"id": 1, "side": "x" * 1000, "price": 2})
    append(engine, topic, large([Record(n, row) for n in range(20_000)], "zstd"))
    (outcome,) = engine.drain(engine.target(topic, engine=choice, flush_bytes=10**9))
    assert (outcome.ledger.consumed, outcome.ledger.applied) == (20_000, 20_000)
    assert_proved(proof(engine, topic))


class NoUtf8(str):
    """The name of a header whose bytes are no UTF-8."""

    __slots__ = ()

    def encode(self, *_: str) -> bytes:
        return b"a\xffb\xc3"


@ENGINES
def test_what_is_no_utf_8_in_the_name_of_a_header_is_replaced(engine: Engine, choice: str) -> None:
    topic = engine.topic(partitions=1)
    row = engine.encode(topic, {"id": 1, "side": "BUY", "price": 2})
    records = [Record(n, row, headers=((NoUtf8() if n % 3 == 1 else "plain", b"v"),)) for n in range(5)]
    append(engine, topic, written(records))
    append(engine, topic, written([Record(0, b"bad", headers=((NoUtf8(), None),))]))
    engine.drain(engine.target(topic, engine=choice))
    found = engine.rows(topic).orderBy("_kafka.offset").selectExpr("_kafka.headers[0].key").collect()
    wrong = "a\N{REPLACEMENT CHARACTER}b\N{REPLACEMENT CHARACTER}"
    assert [row[0] for row in found] == ["plain", wrong, "plain", "plain", wrong]
    proved = proof(engine, topic)
    assert_proved(proved)
    coverage = next(check.figures for check in proved.checks if check.name == "coverage")
    assert coverage["partitions read by the job's fetch"] == 1
    engine.sql("UPDATE {t} SET side = 'x' WHERE _kafka.offset = 1", topic)
    assert [each.where for each in proof(engine, topic).findings] == ["partition 0 offset 1"]


@ENGINES
def test_the_name_of_a_header_may_be_any_bytes(engine: Engine, choice: str) -> None:
    topic = engine.topic(partitions=1)
    row = engine.encode(topic, {"id": 1, "side": "BUY", "price": 2})
    names = [b"\xff", b"a\xc3(b", b"\xe2\x82", "\u20ac".encode(), b""]
    batch = large([Record(0, row, None, tuple((f"name {n}", b"v") for n in range(len(names))))], "none")
    for number, name in enumerate(names):
        batch = batch.replace(b"name %d" % number, name.ljust(6, b"."))
    append(engine, topic, sealed(bytearray(batch)))
    engine.drain(engine.target(topic, engine=choice))
    [(found,)] = engine.rows(topic).select("_kafka.headers").collect()
    assert [each["key"] for each in found] == [name.ljust(6, b".").decode(errors="replace") for name in names]


def test_a_tombstone_without_a_time_deletes_nothing(engine: Engine) -> None:
    topic = engine.topic(partitions=1, config=ANY_TIME)
    row = engine.encode(topic, {"id": 1, "side": "BUY", "price": 2})
    target = engine.target(topic, upsert=Upsert(("_kafka.key",), deletes=True), engine="auto")
    for record in (Record(0, row, b"k"), Record(0, None, b"k", timestamp=2**62), Record(0, row, b"other")):
        append(engine, topic, written([record]))
    (outcome,) = engine.drain(target)
    assert outcome.ledger.rejected == {"bad_timestamp": 1}
    assert engine.offsets(topic) == [(0, 0), (0, 2)]
    assert_proved(proof(engine, topic))
