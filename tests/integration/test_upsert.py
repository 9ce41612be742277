"""Tables that hold the newest record of each key: what rounds make of them, against a fold one record after the other."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from calve.job import Source, Upsert
from tests.integration.engine import Engine, suspended, trades
from tests.integration.keyed import BY_ID, Users
from tests.integration.proofs import assert_proved, proof


@pytest.mark.parametrize("version", [2, 3])
def test_the_newest_record_of_each_key_is_its_row(engine: Engine, version: int) -> None:
    users, dice = Users(engine), random.Random(version)
    target = users.target(format_version=version)
    for keys in (30, 30, 3):
        users.scramble(dice, 60, keys=keys)
        (outcome,) = engine.drain(target)
        assert outcome.ledger.applied == 60
        assert users.held() == users.state
    assert_proved(proof(engine, users.topic))
    engine.compact(users.topic)
    users.scramble(dice, 60, keys=30)
    engine.drain(target)
    assert users.held() == users.state
    assert_proved(proof(engine, users.topic))


def test_a_key_a_thousand_times_in_a_batch_is_one_change(engine: Engine) -> None:
    users = Users(engine, partitions=1)
    target = users.target()
    for _ in range(2):
        for _ in range(1_000):
            users.put(b"same")
        engine.flush()
        ledgers = [each.ledger for each in engine.drain(target)]
        assert sum(each.applied for each in ledgers) == 1_000
        assert all(each.rows_appended == 1 for each in ledgers)
    assert ledgers[-1].rows_deleted == 1
    users.delete(b"same")
    engine.flush()
    (outcome,) = engine.drain(target)
    assert (outcome.ledger.rows_appended, outcome.ledger.rows_deleted) == (0, 1)
    assert users.held() == {}
    assert_proved(proof(engine, users.topic))


def test_records_without_a_key_are_dead_letters_and_tombstones_need_the_record_key(engine: Engine) -> None:
    """A table by a column of the values cannot tell what a tombstone is of."""
    users = Users(engine, partitions=1)
    users.put(b"a")
    engine.send(users.topic, engine.encode(users.topic, trades(1)[0]), partition=0)
    engine.send(users.topic, None, partition=0)
    engine.flush()
    (outcome,) = engine.drain(users.target())
    assert outcome.ledger.rejected == {"null_key": 2}
    by_id = f"{users.topic}_by_id"
    (outcome,) = engine.drain(engine.target(users.topic, table=by_id, upsert=BY_ID))
    assert outcome.ledger.rejected == {"null_value": 1}
    for each in (users.topic, by_id):
        assert_proved(proof(engine, each))


ORDERS = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [
            {
                "name": "of",
                "type": {
                    "type": "record",
                    "name": "Of",
                    "fields": [
                        {"name": "shop", "type": "string"},
                        {"name": "number", "type": ["null", "int"], "default": None},
                    ],
                },
            },
            {"name": "version", "type": ["null", "long"], "default": None},
            {"name": "note", "type": "string"},
        ],
    }
)


def order(number: int | None, version: int | None, note: str) -> dict[str, Any]:
    return {"of": {"shop": "x", "number": number}, "version": version, "note": note}


def notes(engine: Engine, topic: str) -> dict[int, str]:
    return {row[0]: row[1] for row in engine.rows(topic).select("of.number", "note").collect()}


def test_a_composite_key_and_an_order_of_its_own(engine: Engine) -> None:
    """The greatest version counts, in whatever partition, batch and order it comes; null is the least."""
    topic = engine.topic(partitions=2, schema=ORDERS)
    target = engine.target(topic, upsert=Upsert(("of",), order_by="version", bucketed=True))
    batches = [
        [(0, order(1, 5, "a")), (1, order(1, 7, "b")), (0, order(2, None, "c")), (0, order(3, 1, "d"))],
        [
            (0, order(1, 6, "late")),
            (1, order(2, 1, "e")),
            (0, order(3, 1, "equal")),
            (0, order(None, 1, "-")),
        ],
        [(1, order(2, None, "late")), (0, order(1, 9, "f")), (0, order(1, 8, "late"))],
    ]
    expected = [{1: "b", 2: "c", 3: "d"}, {1: "b", 2: "e", 3: "equal"}, {1: "f", 2: "e", 3: "equal"}]
    for batch, wanted in zip(batches, expected, strict=True):
        for partition, row in batch:
            engine.produce(topic, [row], partition=partition)
        engine.drain(target)
        assert notes(engine, topic) == wanted
    assert engine.letters(topic).select("reason").collect() == [("null_key",)]
    assert_proved(proof(engine, topic))


def test_a_key_that_is_read_by_a_schema_of_its_own(engine: Engine) -> None:
    users = Users(engine, partitions=1)
    key = Source(format="string", column="user")
    target = users.target(key=key, upsert=Upsert(("user",), deletes=True, bucketed=True))
    for name in (b"ann", b"bob", b"ann"):
        users.put(name)
    users.delete(b"bob")
    engine.send(users.topic, None, key=b"\xff", partition=0)
    engine.flush()
    (outcome,) = engine.drain(target)
    assert outcome.ledger.rejected == {"key_malformed": 1}
    assert [row[0] for row in engine.rows(users.topic).select("user").collect()] == ["ann"]
    assert_proved(proof(engine, users.topic, key=key))


def test_a_mode_or_a_key_that_changed_suspends_the_table(engine: Engine) -> None:
    users = Users(engine, partitions=1)
    users.put(b"a")
    engine.flush()
    engine.drain(users.target())
    for changed in (None, BY_ID):
        with suspended("mode_changed"):
            engine.drain(users.target(upsert=changed))
    with suspended("key_unusable"):
        engine.drain(engine.target(users.topic, table=f"{users.topic}_x", upsert=Upsert(("nothing",))))


def test_after_a_rollback_the_same_records_make_the_same_table(engine: Engine) -> None:
    users, dice = Users(engine), random.Random(7)
    target = users.target()
    heads = []
    for _ in range(3):
        users.scramble(dice, 40, keys=10)
        heads.append(engine.drain(target)[-1].snapshot)
    assert heads[0] is not None
    engine.rollback(users.topic, heads[0])
    engine.drain(users.target())
    assert users.held() == users.state
    assert_proved(proof(engine, users.topic))


def test_verify_finds_rows_that_should_have_been_deleted(engine: Engine) -> None:
    users = Users(engine, partitions=1)
    users.put(b"a", 1)
    users.put(b"b", 2)
    engine.flush()
    engine.drain(users.target())
    keep = engine.rows(users.topic).where("price = 1").localCheckpoint()
    users.put(b"a", 3)
    users.delete(b"b")
    engine.flush()
    engine.drain(users.target())
    keep.writeTo(f"lake.tests.{users.topic}").append()
    found = proof(engine, users.topic)
    assert {each.check for each in found.findings} == {"contents", "keys", "totals"}
