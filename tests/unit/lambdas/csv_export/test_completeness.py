"""Up to when a table says that it is complete, and what follows."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from pyiceberg.table import Table

from calve.table.summary import COMPLETE_ROUND, COMPLETE_UNTIL
from lambdas.csv_export.export import ingested_until
from tests.unit.lambdas.csv_export.lake import MONDAY, World, at, export, trades

END = at(16, 0)
DEADLINE = MONDAY + timedelta(hours=2)


@pytest.mark.parametrize(
    ("until", "now", "again_at", "complete"),
    [
        (END, MONDAY, None, True),
        (END - timedelta(seconds=1), MONDAY, MONDAY + timedelta(minutes=5), False),
        (None, DEADLINE - timedelta(minutes=2), DEADLINE, False),
        (None, DEADLINE, None, False),
        (END, DEADLINE, None, True),
    ],
)
def test_a_window_is_complete_waited_for_or_incomplete(lake: World, until, now, again_at, complete) -> None:
    lake.made(trades(at(9)), complete_until=until)
    lake.now = now
    outcome, *_ = lake.run(export(wait_s=int((DEADLINE - MONDAY).total_seconds())))
    assert outcome.status == ("waiting" if again_at else "written")
    assert (outcome.again_at, outcome.complete) == (again_at, complete)
    assert lake.waits == ([again_at] if again_at else [])


def test_the_nearest_commit_that_says_so_counts(lake: World) -> None:
    lake.made(trades(at(9)), complete_until=at(10))
    lake.append(trades(at(10)), complete_until=at(11))
    table = lake.append(trades(at(10)), complete_until=None)
    assert ingested_until(table) == at(11)


def test_a_silent_topic_is_complete_by_the_table_s_properties(lake: World) -> None:
    table = lake.made(trades(at(9)), complete_until=at(10))
    assert ingested_until(noted(table, at(12))) == at(12)


def test_a_rollback_takes_back_what_commit_and_properties_said(lake: World) -> None:
    table = lake.made(trades(at(9)), complete_until=at(10))
    (first,) = (snapshot.snapshot_id for snapshot in table.snapshots())
    table = noted(lake.append(trades(at(9)), complete_until=at(20)), at(22))
    table.manage_snapshots().set_current_snapshot(snapshot_id=first).commit()
    assert ingested_until(table) == at(10)


def noted(table: Table, until: datetime) -> Table:
    """The table with the note of its newest round that it was idle."""
    newest = table.current_snapshot()
    assert newest
    assert newest.summary
    with table.transaction() as change:
        change.set_properties(
            {COMPLETE_UNTIL: str(until.timestamp()), COMPLETE_ROUND: newest.summary["calve.round"]}
        )
    return table


def test_a_table_of_another_writer_says_nothing(lake: World) -> None:
    table = lake.table(trades(at(9)))
    assert ingested_until(table) is None
    table.append(trades(at(9)))
    assert ingested_until(table) is None
