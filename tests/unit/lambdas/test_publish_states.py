"""The rows of what is published, and their leases, in DynamoDB."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from moto import mock_aws

from lambdas.publish_states import PublishState, PublishStates, State, Target
from tests.unit.lambdas.states_table import make_states_table

TRADES = PublishState(Target.ICEBERG_REST, "trading.trades", State.PENDING, since_ms=1000)
REST = Target.ICEBERG_REST


@pytest.fixture
def states() -> Iterator[PublishStates]:
    with mock_aws():
        yield make_states_table()


def test_a_row_is_read_as_it_was_put(states: PublishStates) -> None:
    synced = TRADES.become(
        State.SYNCED, 2000, uuid="6f1c", metadata_location="s3://m", snapshot_id="5", lag_s=1.25
    )
    for each in (synced, synced.become(State.FAILED, 3000, "not allowed", metadata_location=None)):
        assert states.put(each)
        assert states.find(REST, TRADES.table) == each
        assert list(states.all()) == [each]
    assert states.remove(REST, TRADES.table)
    assert states.find(REST, TRADES.table) is None


def test_a_state_began_when_the_table_came_into_it() -> None:
    failed = TRADES.become(State.FAILED, 2000, "first")
    assert failed.become(State.FAILED, 3000, "second") == replace(failed, reason="second")
    assert failed.become(State.SYNCED, 3000).since_ms == 3000


def test_targets_are_apart(states: PublishStates) -> None:
    states.put(TRADES)
    states.put(replace(TRADES, target=Target.SNOWFLAKE, state=State.SYNCED))
    assert [each.state for each in states.all(Target.SNOWFLAKE)] == [State.SYNCED]
    assert len(list(states.all())) == 2


def test_one_holder_at_a_time_until_its_lease_ends(states: PublishStates) -> None:
    take = states.take
    assert take(REST, TRADES.table, "a", now_ms=0, until_ms=100)
    for each in ("a", "b"):
        assert not take(REST, TRADES.table, each, now_ms=100, until_ms=200)
    assert take(REST, "trading.users", "b", now_ms=0, until_ms=100)
    assert take(REST, TRADES.table, "b", now_ms=101, until_ms=200)
    assert not states.put(TRADES, "a")
    assert not states.remove(REST, TRADES.table, "a")
    assert states.put(TRADES, "b")
    states.release(REST, TRADES.table, "a")
    assert not take(REST, TRADES.table, "c", now_ms=150, until_ms=250)
    states.release(REST, TRADES.table, "b")
    assert take(REST, TRADES.table, "c", now_ms=150, until_ms=250)
    assert states.find(REST, TRADES.table) == TRADES


def test_a_lease_alone_is_no_state(states: PublishStates) -> None:
    states.take(REST, TRADES.table, "a", now_ms=0, until_ms=100)
    assert states.find(REST, TRADES.table) is None
    assert list(states.all()) == []
