"""The way back of a table: which snapshot, what is read again, and when there is no way."""

from __future__ import annotations

from typing import Any

import pytest

from calve.errors import CalveError
from calve.requests.requests import HISTORY_KEPT, Entry, outdated
from calve.requests.time_travel import RollbackRequest, at_moment, before_offsets, journey, require_readable
from calve.table.position import Ledger, Offsets
from calve.table.protocol import Begin, Commit
from calve.table.summary import encode
from tests.unit.calve.protocol_model.says import FOREIGN, TOPIC, position


def commit(number: int, start: Offsets, to: Offsets, **ledger: Any) -> Commit:
    summary = encode(
        position=position(f"r{number}", to),
        topic=TOPIC,
        start={TOPIC: start},
        ledger=Ledger(**ledger),
        metrics={},
    )
    return Commit(number, number - 1, summary, float(number))


ROOT = Commit(1, None, encode(position=position("r1"), topic=TOPIC, start={}, ledger=Ledger(), metrics={}), 1)
LINE = (
    commit(5, {0: 4, 1: 0}, {0: 6, 1: 3}, rows_appended=4, dead_lettered=1),
    Commit(4, 3, FOREIGN, 4.0),
    commit(3, {0: 2}, {0: 4}, rows_appended=2),
    commit(2, {0: 0}, {0: 2}, rows_appended=2),
    ROOT,
)


def test_a_way_back_says_what_is_read_again_and_what_goes() -> None:
    way = journey(LINE, 2)
    assert (way.to.id, way.position.round, way.reread) == (2, "r2", 2 + 2 + 3)
    assert (way.ledger.rows_appended, way.ledger.dead_lettered, way.others) == (6, 1, 1)
    assert journey(LINE, 4).position.round == "r3"
    assert journey(LINE, 5).left == ()
    assert journey(LINE, 1).begun == {TOPIC: {0: 0, 1: 0}}


@pytest.mark.parametrize(("line", "snapshot"), [(LINE, 9), ((), 1), ((Commit(4, 3, FOREIGN),), 4)])
def test_there_is_no_way_out_of_the_history_or_to_where_no_position_is_proved(
    line: tuple[Commit, ...], snapshot: int
) -> None:
    with pytest.raises(CalveError) as refused:
        journey(line, snapshot)
    assert refused.value.fix


def test_a_moment_is_the_newest_snapshot_that_was_there() -> None:
    found = [at_moment(LINE, when) for when in (9.0, 4.5, 1.0, 0.5)]
    assert [each and each.id for each in found] == [5, 4, 1, None]


def test_a_place_is_the_newest_round_that_holds_nothing_from_there_on() -> None:
    places: list[Offsets] = [{0: 6}, {0: 5}, {0: 4}, {0: 3}, {0: 0}, {1: 2}, {1: 0, 0: 9}]
    found = [before_offsets(LINE, TOPIC, wanted) for wanted in places]
    assert [each and each.id for each in found] == [5, 3, 3, 2, 1, 3, 3]
    assert before_offsets(LINE[:-1], TOPIC, {0: 1}) is None


def test_what_would_not_be_read_again_refuses_the_way() -> None:
    way = journey(LINE, 1)
    require_readable(way, TOPIC, Begin({0: 0, 1: 0, 2: 7}))
    with pytest.raises(CalveError, match=r"partition 0 \[0, 3\)"):
        require_readable(way, TOPIC, Begin({0: 3, 1: 0}))


def test_a_request_is_what_it_was_written_as_or_none() -> None:
    request = RollbackRequest("id", "at", "ann", "rewind", 2)
    assert RollbackRequest.pending({"calve.travel": request.to_json()}) == request
    assert RollbackRequest.pending({}) is None
    for unknown in ('{"id": "x"}', "[]", "no json"):
        with pytest.raises(ValueError, match=r"."):
            RollbackRequest.pending({"calve.travel": unknown})


def test_the_history_keeps_the_newest_entries() -> None:
    properties: dict[str, str] = {"other": "x"}
    for number in range(HISTORY_KEPT + 3):
        entry = Entry(f"e{number}", f"2026-01-01T00:00:{number:02}+00:00", "pause", "by ann")
        for gone in outdated(properties):
            del properties[gone]
        properties |= entry.property()
    found = Entry.all(properties)
    assert len(found) == HISTORY_KEPT
    assert (found[0].id, found[-1].id) == ("e3", f"e{HISTORY_KEPT + 2}")
    assert Entry.of(properties, "e3") == found[0]
    assert Entry.of(properties, "e2") is None
