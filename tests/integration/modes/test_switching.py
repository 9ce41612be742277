"""Tables that hold every record become ones of the newest record of each key, and back: in one commit, whatever happens."""

from __future__ import annotations

import json
import random
from contextlib import suppress
from typing import Any

import pytest

from calve.errors import LostRace, Retryable
from calve.modes.history import History
from calve.modes.upsert import Deduplicate, Upsert
from cli.lake import ancestors
from tests.integration.modes.test_history import BY_MADE, Accounts, folded
from tests.integration.modes.test_history import BY_RECORD_KEY as BY_OFFSET
from tests.integration.modes.test_upsert import ORDERS, notes, order
from tests.integration.support.crashing import Died, dying, open_catalog
from tests.integration.support.engine import DATABASE, Engine, at, suspended, trades
from tests.integration.support.events import assert_as_documented
from tests.integration.support.proofs import assert_proved, proof
from tests.integration.support.records.keyed import BY_RECORD_KEY, Users

POINTS = (
    *("switch.begin", "switch.staged", "switch.marked", "switch.held", "switch.committed"),
    *("dead_letters.rewritten", "release.appended", "branch.dropped", "switch.end"),
)


def appended(users: Users) -> Any:
    return users.target(upsert=None)


def changed(engine: Engine, seed: int = 1) -> Users:
    """A table that was appended to, in several rounds, with tombstones among its dead letters."""
    users, dice = Users(engine), random.Random(seed)
    for _ in range(2):
        users.scramble(dice, 40, keys=15)
        engine.drain(appended(users))
    return users


@pytest.mark.full
@pytest.mark.parametrize("version", [2, 3])
def test_a_table_of_all_records_becomes_one_of_the_newest_and_back(engine: Engine, version: int) -> None:
    users, dice = Users(engine), random.Random(version)
    for _ in range(2):
        users.scramble(dice, 40, keys=15)
        engine.drain(users.target(upsert=None, format_version=version))
    assert_proved(proof(engine, users.topic))
    engine.drain(users.target())
    assert users.held() == users.state
    assert_proved(proof(engine, users.topic))
    users.scramble(dice, 40, keys=15)
    engine.drain(users.target())
    assert users.held() == users.state
    assert_proved(proof(engine, users.topic))

    before = engine.offsets(users.topic)
    for _ in range(2):
        users.scramble(dice, 20, keys=15)
        (outcome,) = engine.drain(appended(users))
        assert outcome.ledger.rows_deleted == 0
    assert len(engine.offsets(users.topic)) > len(before)
    assert set(before) < set(engine.offsets(users.topic))
    assert_proved(proof(engine, users.topic))
    engine.drain(users.target())
    assert users.held() == users.state
    assert_proved(proof(engine, users.topic))


@pytest.mark.full
def test_no_snapshot_is_between_the_modes(engine: Engine, capsys: pytest.CaptureFixture[str]) -> None:
    users = changed(engine)
    table = open_catalog(engine).load_table((DATABASE, users.topic))
    before, before_rows = {each.id for each in ancestors(table)}, engine.offsets(users.topic)
    engine.drain(users.target())
    table = open_catalog(engine).load_table((DATABASE, users.topic))
    (made,) = (each for each in ancestors(table) if each.id not in before)
    assert made.total("records") is not None
    assert table.scan(snapshot_id=made.id).to_arrow().num_rows == len(users.state)
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    (switched,) = (each for each in events if each["event"] == "table.switched")
    assert_as_documented([switched])
    assert switched["rows_deleted"] == len(before_rows) - len(users.state)


@pytest.mark.full
def test_an_order_of_its_own_holds_over_the_modes(engine: Engine) -> None:
    """Also against rows that were folded before the table was appended to again."""
    topic = engine.topic(partitions=2, schema=ORDERS)
    by_version = Upsert(("of",), order_by="version", bucketed=True)
    phases = [
        (None, [(0, order(1, 5, "a")), (1, order(1, 7, "b")), (0, order(2, None, "c"))], {}),
        (by_version, [(0, order(1, 6, "late")), (1, order(2, 1, "d"))], {1: "b", 2: "d"}),
        (None, [(0, order(1, 3, "late")), (0, order(2, 9, "e")), (1, order(3, 1, "f"))], {}),
        (by_version, [(1, order(3, 0, "late"))], {1: "b", 2: "e", 3: "f"}),
    ]
    for mode, batch, wanted in phases:
        for partition, row in batch:
            engine.produce(topic, [row], partition=partition)
        engine.drain(engine.target(topic, upsert=mode))
        assert not wanted or notes(engine, topic) == wanted
        assert_proved(proof(engine, topic))


@pytest.mark.parametrize(
    "mode", [pytest.param(BY_OFFSET, marks=pytest.mark.long), BY_MADE], ids=["by offset", "by a column"]
)
def test_a_table_of_all_records_becomes_a_history(engine: Engine, mode: History) -> None:
    """Tombstones waited among the dead letters."""
    accounts, dice = Accounts(engine), random.Random(41)
    for _ in range(2):
        accounts.scramble(dice, 30, keys=6, late=0.4)
        engine.drain(engine.target(accounts.topic))
    for _ in range(2):
        target = accounts.target(mode)
        engine.drain(target)
        assert accounts.held() == folded(accounts.sent, mode)
        assert_proved(proof(engine, accounts.topic))
        accounts.scramble(dice, 30, keys=6, late=0.4)


@pytest.mark.full
def test_jobs_that_die_on_the_way_to_a_history_leave_the_one_or_the_other(engine: Engine) -> None:
    accounts, dice = Accounts(engine), random.Random(42)
    accounts.scramble(dice, 30, keys=6, late=0.4)
    engine.drain(engine.target(accounts.topic))
    rows = engine.offsets(accounts.topic)
    for point in POINTS:
        with dying(point), pytest.raises(Died):
            engine.drain(accounts.target())
        if POINTS.index(point) < POINTS.index("switch.committed"):
            assert engine.offsets(accounts.topic) == rows
        else:
            assert accounts.held() == folded(accounts.sent, BY_OFFSET)
    engine.drain(accounts.target())
    assert accounts.held() == folded(accounts.sent, BY_OFFSET)
    assert_proved(proof(engine, accounts.topic))


def test_what_the_rows_cannot_tell_suspends_the_table_and_changes_nothing(engine: Engine) -> None:
    users = Users(engine, partitions=1)
    users.put(b"a")
    engine.send(users.topic, engine.encode(users.topic, trades(1)[0]), partition=0)
    engine.flush()
    engine.drain(appended(users))
    with suspended("key_unusable"):
        engine.drain(users.target())
    with suspended("mode_changed"):
        engine.drain(users.target(upsert=None, deduplicate=Deduplicate(("id",))))
    engine.drain(appended(users))
    assert_proved(proof(engine, users.topic))


def test_tombstones_that_were_skipped_are_missed(engine: Engine) -> None:
    users = Users(engine, partitions=1)
    users.put(b"a")
    users.delete(b"a")
    engine.flush()
    engine.drain(users.target(upsert=None, on_error="skip"))
    with suspended("mode_changed"):
        engine.drain(users.target(on_error="skip"))


def test_a_table_that_has_read_nothing_is_of_any_mode(engine: Engine) -> None:
    users = Users(engine, partitions=1)
    for mode in (None, Deduplicate(("id",))):
        engine.drain(users.target(upsert=None, deduplicate=mode))
    users.put(b"a")
    users.put(b"a")
    engine.flush()
    engine.drain(users.target())
    assert users.held() == users.state
    assert_proved(proof(engine, users.topic))


@pytest.mark.full
def test_jobs_that_die_on_the_way_leave_the_one_or_the_other(engine: Engine) -> None:
    users = changed(engine)
    for point in POINTS:
        with dying(point), pytest.raises(Died):
            engine.drain(users.target())
        held = len(engine.offsets(users.topic))
        assert held == len(users.state) or POINTS.index(point) < POINTS.index("switch.committed")
    engine.drain(users.target())
    assert users.held() == users.state
    assert_proved(proof(engine, users.topic))


@pytest.mark.full
@pytest.mark.parametrize("point", POINTS)
def test_a_job_that_was_overtaken_on_the_way_changes_nothing_any_more(engine: Engine, point: str) -> None:
    users = changed(engine)

    def other(_: str) -> None:
        users.scramble(random.Random(7), 20, keys=15)
        engine.drain(users.target())

    with at(point, other), suppress(LostRace, Retryable):
        engine.drain(users.target())
    engine.drain(users.target())
    assert users.held() == users.state
    assert_proved(proof(engine, users.topic))


@pytest.mark.full
def test_a_rollback_takes_the_mode_along(engine: Engine) -> None:
    users = changed(engine)
    before = engine.table(users.topic).head
    assert before is not None
    rows = engine.offsets(users.topic)
    engine.drain(users.target())
    engine.rollback(users.topic, before)
    engine.drain(appended(users))
    assert engine.offsets(users.topic) == rows
    assert_proved(proof(engine, users.topic))
    engine.drain(users.target(upsert=BY_RECORD_KEY))
    assert users.held() == users.state
    assert_proved(proof(engine, users.topic))
