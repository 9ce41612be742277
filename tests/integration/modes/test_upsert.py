"""Tables that hold the newest record of each key: what rounds make of them, against a fold one record after the other."""

from __future__ import annotations

import json
import random
import threading
import time
from typing import Any

import pytest

from calve.config.job import Source
from calve.modes.upsert import Upsert
from cli.lake import rows
from cli.look.query.answer import connect
from glue_jobs.iceberg.delete_files import LiveFiles
from glue_jobs.rounds.loop import TableLoop
from glue_jobs.table.opening import Opener
from tests.integration.support.crashing import open_catalog
from tests.integration.support.engine import DATABASE, Engine, suspended, trades
from tests.integration.support.proofs import assert_proved, proof
from tests.integration.support.records.keyed import BY_ID, Users
from tests.integration.support.running import run


@pytest.mark.parametrize("version", [2, pytest.param(3, marks=pytest.mark.full)])
def test_the_newest_record_of_each_key_is_its_row(engine: Engine, version: int) -> None:
    users, dice = Users(engine), random.Random(version)
    target = users.target(format_version=version)
    for keys in (30, 3, 10):
        users.scramble(dice, 60, keys=keys)
        (outcome,) = engine.drain(target)
        assert outcome.ledger.applied == 60
        assert users.held() == users.state
    assert_knows_its_files(target)
    assert_proved(proof(engine, users.topic))
    engine.compact(users.topic)
    users.scramble(dice, 60, keys=30)
    engine.drain(target)
    assert users.held() == users.state
    assert_proved(proof(engine, users.topic))


def assert_knows_its_files(target: Opener) -> None:
    """A job's own commits tell it which files are live, as a plan that reads the manifests would."""
    index, main = target.opened.index, target.opened.main
    main.refresh()
    assert index._live_at == main.head
    known, planned = (
        {path: (each.format, each.rows, set(each.deletes)) for path, each in files.files.items()}
        for files in (index._live, LiveFiles.of(main))
    )
    assert known == planned != {}


@pytest.mark.parametrize(
    "version", [pytest.param(2, marks=pytest.mark.long), pytest.param(3, marks=pytest.mark.full)]
)
def test_all_readers_see_the_same_rows_before_and_after_a_compaction(engine: Engine, version: int) -> None:
    users, dice = Users(engine), random.Random(40 + version)
    target = users.target(format_version=version)
    for _ in range(2):
        users.scramble(dice, 50, keys=20)
        engine.drain(target)
    for _ in range(2):
        expected = sorted((*place, price) for place, price in users.state.values())
        assert by_spark(engine, users.topic) == expected
        assert by_pyiceberg(engine, users.topic) == expected
        assert by_duckdb(engine, users.topic) == expected
        engine.compact(users.topic)


def by_spark(engine: Engine, topic: str) -> list[tuple[int, ...]]:
    found = engine.rows(topic).select("_kafka.partition", "_kafka.offset", "price").collect()
    return sorted(tuple(row) for row in found)


def by_pyiceberg(engine: Engine, topic: str) -> list[tuple[int, ...]]:
    table = open_catalog(engine).load_table((DATABASE, topic))
    found = table.scan(selected_fields=("_kafka", "price")).to_arrow().to_pylist()
    return sorted((row["_kafka"]["partition"], row["_kafka"]["offset"], row["price"]) for row in found)


def by_duckdb(engine: Engine, topic: str) -> list[tuple[int, ...]]:
    table = open_catalog(engine).load_table((DATABASE, topic))
    query = "SELECT _kafka.partition, _kafka.offset, price FROM iceberg_scan(?)"
    with connect(engine.job().lake) as connection:
        return sorted(connection.execute(query, [table.metadata_location]).fetchall())


@pytest.mark.full
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


@pytest.mark.full
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


LATER = [order(1, 4, "earlier"), order(2, 6, "later")]


def notes(engine: Engine, topic: str) -> dict[int, str]:
    return {row[0]: row[1] for row in engine.rows(topic).select("of.number", "note").collect()}


@pytest.mark.full
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


@pytest.mark.full
def test_columns_of_the_key_and_the_order_may_be_renamed(engine: Engine) -> None:
    topic = engine.topic(partitions=1, schema=ORDERS)
    engine.produce(topic, [order(1, 5, "a"), order(2, 5, "b")])
    engine.drain(engine.target(topic, upsert=Upsert(("of",), order_by="version", bucketed=True)))
    renamed = json.loads(ORDERS.replace('"version"', '"revision"').replace('"of"', '"id"'))
    for place, old in ((0, "of"), (1, "version")):
        renamed["fields"][place]["aliases"] = [old]
    engine.register(topic, json.dumps(renamed))
    rows = [{"id": row["of"], "revision": row["version"], "note": row["note"]} for row in LATER]
    engine.produce(topic, rows)
    engine.drain(engine.target(topic, upsert=Upsert(("id",), order_by="revision", bucketed=True)))
    held = engine.rows(topic).select("id.number", "note").collect()
    assert sorted(tuple(row) for row in held) == [(1, "a"), (2, "later")]
    assert_proved(proof(engine, topic))


def test_a_tombstone_of_a_topic_of_several_types_is_every_tables(engine: Engine) -> None:
    users = Users(engine, partitions=1)
    users.put(b"a")
    users.put(b"b")
    other = engine.register(f"{users.topic}-other", json.dumps(json.loads(ORDERS) | {"name": "Other"}))
    engine.send(users.topic, b"\0" + other.to_bytes(4, "big"), key=b"a", partition=0)
    users.delete(b"b")
    engine.flush()
    own = Source(subject=f"{users.topic}-value")
    target = users.target(value=own)
    ledgers = [each.ledger for each in engine.drain(target)]
    assert (sum(each.filtered for each in ledgers), sum(each.applied for each in ledgers)) == (1, 3)
    assert users.held() == users.state
    assert_proved(proof(engine, users.topic, value=own))


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


def test_a_key_that_changed_suspends_the_table(engine: Engine) -> None:
    users = Users(engine, partitions=1)
    users.put(b"a")
    engine.flush()
    engine.drain(users.target())
    with suspended("mode_changed"):
        engine.drain(users.target(upsert=BY_ID))
    with suspended("key_unusable"):
        engine.drain(engine.target(users.topic, table=f"{users.topic}_x", upsert=Upsert(("nothing",))))


@pytest.mark.full
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


@pytest.mark.full
def test_a_table_whose_history_others_compact_and_expire_keeps_its_position(engine: Engine) -> None:
    users, dice = Users(engine), random.Random(9)
    target = users.target()
    for _ in range(2):
        users.scramble(dice, 40, keys=10)
        engine.drain(target)
    target.opened.mark_idle()
    for _ in range(2):
        engine.compact(users.topic)
    engine.expire_history(users.topic)
    users.scramble(dice, 40, keys=10)
    engine.drain(users.target())
    assert users.held() == users.state
    assert rows(open_catalog(engine).load_table((DATABASE, users.topic))) == len(users.state)


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


@pytest.mark.full
@pytest.mark.parametrize("seed", [1, 2])
def test_changes_that_come_shuffled_doubled_and_again_give_the_same_table(engine: Engine, seed: int) -> None:
    """Each change has a version of its own, so no order of arrival, no partition and no repetition may matter."""
    dice = random.Random(seed)
    changes = [order(dice.randrange(8), version, f"change {version}") for version in range(60)]
    newest = {each["of"]["number"]: each["note"] for each in changes}
    mode = Upsert(("of",), order_by="version", bucketed=True)
    for _ in range(2):
        topic = engine.topic(partitions=2, schema=ORDERS)
        arriving = [*changes, *dice.sample(changes, 20)]
        dice.shuffle(arriving)
        for batch in (arriving[:30], arriving[30:55], arriving[55:], changes):
            for each in batch:
                value = engine.encode(topic, each)
                engine.send(topic, value, partition=dice.randrange(2))
            engine.flush()
            engine.drain(engine.target(topic, upsert=mode))
        assert notes(engine, topic) == newest
        assert_proved(proof(engine, topic))


@pytest.mark.full
@pytest.mark.parametrize("seconds", [75])
def test_rounds_go_on_beside_others_that_compact_and_expire_all_the_time(
    engine: Engine, seconds: int
) -> None:
    """apache/iceberg #7627: MERGE beside a compaction fails for good there. Here a round writes its deletes again."""
    users, dice = Users(engine), random.Random(seconds)
    users.scramble(dice, 40, keys=15)
    engine.drain(users.target())
    until, compactions = time.monotonic() + seconds, 0
    stop, failed = threading.Event(), []

    def maintain() -> None:
        nonlocal compactions
        while not stop.is_set():
            try:
                engine.compact(users.topic)
                compactions += 1
                engine.expire_history(users.topic, retain=10)
            except Exception as error:  # noqa: BLE001 a round was faster: that is the other half of the race
                failed.append(error)

    other = threading.Thread(target=maintain)
    other.start()
    rounds, given_up = 0, []
    target = users.target()
    while time.monotonic() < until:
        users.scramble(dice, 20, keys=15)
        loop = TableLoop(target, threading.Event(), drain=True)
        while run(loop) == "failed":  # as often as one in a job would: another's turn comes, too
            given_up.append(loop.code)
            loop = TableLoop(target, threading.Event(), drain=True)
        assert loop.state == "running"
        rounds += 1
    stop.set()
    other.join()
    engine.drain(target)
    assert users.held() == users.state
    print(f"{rounds} rounds, of which failed: {given_up}; {compactions} compactions, {len(failed)} given up")  # noqa: T201 for whoever looks
    assert compactions > 0
    assert rounds > 0
    assert proof(engine, users.topic).findings == ()
