"""Tables of a database's changes: what rounds make of Debezium's events, against the rows that the database has."""

from __future__ import annotations

import random
import time

import pytest

from calve.config.job import Source
from calve.modes.upsert import ChangeData
from calve.schema.change_events import UNAVAILABLE
from tests.integration.support.engine import Engine, suspended
from tests.integration.support.proofs import assert_proved, proof
from tests.integration.support.records.database import BY_ID, BY_LSN, BY_RECORD_KEY, KEPT, Database

full = pytest.mark.full
by_key, by_id = pytest.param(BY_RECORD_KEY, id="key"), pytest.param(BY_ID, id="id", marks=full)
kept, by_lsn = pytest.param(KEPT, id="kept", marks=full), pytest.param(BY_LSN, id="lsn", marks=full)
modes = pytest.mark.parametrize("mode", [by_key, by_id, kept, by_lsn])


@modes
@pytest.mark.parametrize(
    "encoding", ["avro", pytest.param("json", marks=full), pytest.param("connect", marks=full)]
)
def test_the_table_is_that_of_the_database(engine: Engine, mode: ChangeData, encoding: str) -> None:
    database, dice = Database(engine, encoding=encoding), random.Random(5)
    target = database.target(mode)
    for _ in range(3):
        database.churn(dice, 60)
        database.message()
        engine.drain(target)
        assert database.kept() == database.expected()
    assert target.opened.dead_letters.table is None
    assert_proved(proof(engine, database.topic, value=database.value))


@full
@modes
def test_a_truncation_ends_all_rows_before_it(engine: Engine, mode: ChangeData) -> None:
    database, dice = Database(engine), random.Random(6)
    target = database.target(mode)
    database.churn(dice, 40)
    engine.drain(target)
    database.churn(dice, 10)
    database.truncate()
    engine.drain(target)
    assert database.kept() == {}
    time.sleep(0.01)
    database.churn(dice, 20)
    time.sleep(0.01)
    database.truncate()
    time.sleep(0.01)
    database.churn(dice, 20)
    engine.drain(target)
    assert database.kept() == database.expected() != {}
    assert_proved(proof(engine, database.topic))


@full
def test_events_that_come_again_change_nothing_in_the_end(engine: Engine) -> None:
    """By the connector, which begins before what it wrote last, and by a rollback, after which calve reads once more."""
    database, dice = Database(engine, full=True), random.Random(7)
    target = database.target()
    snapshots = []
    for count in (40, 60):
        database.churn(dice, 60)
        database.snapshot()
        database.redeliver(count)
        snapshots += [each.snapshot for each in engine.drain(target)]
        assert database.kept() == database.expected()
    engine.rollback(database.topic, snapshots[0] or 0)
    assert database.kept() != database.expected()
    engine.drain(database.target())
    assert database.kept() == database.expected()
    assert_proved(proof(engine, database.topic))


@full
@pytest.mark.parametrize("rounds", [1, 4])
def test_events_out_of_order_come_to_the_same_by_their_position(engine: Engine, rounds: int) -> None:
    database, dice = Database(engine, held=True), random.Random(8)
    target = database.target(BY_LSN)
    for key in range(12):
        database.insert(key)
    for _ in range(150):
        database.rewrite(dice)
    for _ in database.release(dice, rounds):
        engine.drain(target)
    assert database.kept() == database.expected()
    assert_proved(proof(engine, database.topic))


@pytest.mark.full
def test_a_schema_changes_while_events_come(engine: Engine) -> None:
    database, dice = Database(engine), random.Random(9)
    target = database.target()
    database.churn(dice, 30)
    engine.drain(target)
    database.churn(dice, 30)
    database.add_column("email", ["null", "string"])
    database.update(min(database.rows), email="a@b.c")
    database.churn(dice, 30)
    engine.drain(target)
    assert database.kept() == database.expected()
    assert_proved(proof(engine, database.topic))


@full
def test_the_key_may_be_a_column_of_its_own(engine: Engine) -> None:
    database, dice = Database(engine), random.Random(10)
    key = Source(column="pk")
    target = database.target(ChangeData(("pk",), deletes=True, bucketed=True), key=key)
    for _ in range(2):
        database.churn(dice, 40)
        engine.drain(target)
        assert database.kept() == database.expected()
    keys = engine.rows(database.topic).select("pk.id", "id").collect()
    assert keys
    assert all(row[0] == row[1] for row in keys)
    assert_proved(proof(engine, database.topic, key=key))


def test_an_update_after_a_deletion_knows_no_row_before_it(engine: Engine) -> None:
    database = Database(engine, partitions=1)
    database.insert(1)
    database.delete(1)
    database.write("u", 1, None, {"id": 1, "name": "n", "note": UNAVAILABLE, "tags": None})
    engine.flush()
    engine.drain(database.target())
    assert database.kept()[1]["note"] == UNAVAILABLE
    assert_proved(proof(engine, database.topic))


@pytest.mark.long
def test_a_round_without_rows_is_counted_where_updates_lack_values(engine: Engine) -> None:
    database = Database(engine, partitions=1)
    target = database.target()
    database.insert(1)
    database.update(1, name="n")
    engine.flush()
    engine.drain(target)
    database.message()
    engine.flush()
    (outcome,) = engine.drain(target)
    assert (outcome.ledger.consumed, outcome.ledger.rows_appended) == (1, 0)
    assert database.kept() == database.expected()
    assert_proved(proof(engine, database.topic))


def test_events_that_are_none_are_dead_letters(engine: Engine) -> None:
    database = Database(engine, partitions=1)
    target = database.target()
    database.insert(1)
    for op, after in (("x", database.rows[1]), ("u", None), ("c", None)):
        database.write(op, 1, None, after)
    database.insert(2)
    engine.flush()
    engine.drain(target)
    assert database.kept() == database.expected()
    reasons = {row["reason"] for row in engine.letters(database.topic).collect()}
    assert reasons == {"bad_change"}
    assert_proved(proof(engine, database.topic))


@pytest.mark.full
def test_a_topic_that_was_made_again_goes_on_with_the_rows_that_are_there(engine: Engine) -> None:
    database, dice = Database(engine), random.Random(11)
    database.churn(dice, 40)
    engine.drain(database.target())
    engine.recreate(database.topic, partitions=2)
    for key in database.rows:
        database.update(key, name="later", note=None, tags=None)
    engine.flush()
    engine.drain(database.target(on_data_loss="continue"))
    assert database.kept() == database.expected()
    found = proof(engine, database.topic)
    assert found.findings == ()
    assert {each.name for each in found.checks if each.state == "not verifiable"} == {"earlier topic"}


@pytest.mark.long
def test_without_tombstones_a_compacted_topic_is_refused(engine: Engine) -> None:
    database = Database(engine, config={"cleanup.policy": "compact"})
    database.insert(1)
    engine.flush()
    for mode in (KEPT, BY_ID):
        with suspended("topic_compacted"):
            engine.drain(database.target(mode))
    engine.drain(database.target())
    assert database.kept() == database.expected()
