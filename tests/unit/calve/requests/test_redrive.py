"""The request and the answer of a redrive, and the position after it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from calve.requests.redrive import Request, Result, RoundsSince, done_before, is_level, position_after
from calve.table.position import NO_DEAD_LETTERS, DeadLetterRound, Ledger
from calve.table.protocol import next_position
from calve.table.summary import REDRIVE, REDRIVE_RESULT, encode, published_dead_letters
from tests.unit.calve.protocol_model.says import TOPIC, data, history, position, topic

HELD = DeadLetterRound("x1", 7, 3)
REJECTS = DeadLetterRound("r1", 5, 9)
UPSERT = json.dumps({"mode": "upsert", "key": [1], "order_by": None})


def test_a_request_is_read_as_it_was_written() -> None:
    request = Request("a", "2026-01-01T00:00:00+00:00", reason="malformed", schema_id=4)
    assert Request.pending({REDRIVE: request.to_json()}) == request
    assert Request.pending({}) is None


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"id": "a", "at": "b", "where": 1}'])
def test_what_is_no_request_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match=r".*"):
        Request.pending({REDRIVE: text})


def test_an_answer_to_another_request_is_none() -> None:
    result = Result("a", "now", 3, 2, 0, {"malformed": 1})
    assert Result.of({REDRIVE_RESULT: result.to_json()}, "a") == result
    assert Result.of({REDRIVE_RESULT: result.to_json()}, "b") is None
    assert Result.of({}, "a") is None


def test_a_redrive_moves_no_offset_and_names_its_letters_after_those_before() -> None:
    base = position("r2", {0: 5}, dead_letters=REJECTS)
    after = position_after(base, round_id="x1", writer="w2", held=HELD)
    assert (after.offsets, after.round, after.writer, after.redrives) == (base.offsets, "x1", "w2", 1)
    assert after.dead_letters == DeadLetterRound("x1", 7, 3, previous="r1", redriven=True)


def test_every_later_round_says_that_the_table_was_redriven() -> None:
    base = position_after(position("r2", {0: 5}), round_id="x1", writer="w", held=HELD)
    state = topic({0: 0}, {0: 9})
    later = next_position(base, state, {0: 9}, round_id="r3", writer="w", dead_letters=None)
    assert (later.redrives, later.dead_letters) == (1, base.dead_letters)


def test_letters_are_selected_only_where_they_are_what_the_table_stands_for() -> None:
    base = position("r2", {0: 5}, dead_letters=REJECTS)
    assert is_level(base, history(published_dead_letters(base, "r1")))
    for other in ("r0", "x1", NO_DEAD_LETTERS):
        assert not is_level(base, history(published_dead_letters(base, other)))
    assert is_level(position("r2", {0: 5}), history(published_dead_letters(base, NO_DEAD_LETTERS)))


def test_commits_of_the_same_request_are_counted_once() -> None:
    def commit(round_id: str, request: str, redriven: int) -> dict[str, str]:
        ledger = Ledger(selected=redriven, redriven=redriven)
        summary = encode(position=position(round_id), topic=TOPIC, start={}, ledger=ledger, metrics={})
        return summary | {REDRIVE: request}

    mine = commit("x2", "a", 2)
    found = done_before(history(mine, mine, commit("x1", "a", 3), commit("x0", "b", 9), data("r1")), "a")
    assert found.redriven == 5
    assert json.loads(mine["calve.from"]) == {}


def rounds(
    *ends: dict[int, int], mode: str | None = UPSERT, first: dict[int, int] | None = None
) -> list[Any]:
    """The ancestors of main: rounds that end at these offsets."""
    starts = [first or {0: 0}, *ends]
    summaries = [
        encode(
            position=replace(position(f"r{number}", to), mode=mode),
            topic=TOPIC,
            start={TOPIC: start},
            ledger=Ledger(),
            metrics={},
        )
        for number, (start, to) in enumerate(zip(starts, ends, strict=False))
    ]
    return list(history(*reversed(summaries)))


def test_a_replay_begins_with_the_round_that_read_the_earliest_dead_letter() -> None:
    line = rounds({0: 5, 1: 2}, {0: 9, 1: 2}, {0: 9, 1: 7})
    found = RoundsSince.of(line, TOPIC, {0: 6, 1: 4})
    assert found == RoundsSince({0: 5, 1: 2}, ({0: 9, 1: 2}, {0: 9, 1: 7}))
    assert RoundsSince.of(line, TOPIC, {1: 4}).start == {0: 9, 1: 2}
    assert RoundsSince.of(line, TOPIC, {0: 4}).start == {0: 0}


def test_rounds_that_appended_count_as_one() -> None:
    """They were folded together when the table got its key."""
    appended, keyed = rounds({0: 5}, {0: 9}, mode=None), rounds({0: 12}, first={0: 9})
    found = RoundsSince.of([*keyed, *appended], TOPIC, {0: 6})
    assert found == RoundsSince({0: 0}, ({0: 9}, {0: 12}))


def test_the_start_of_rounds_that_others_expired_is_unknown() -> None:
    found = RoundsSince.of(rounds({0: 9}, {0: 12}, first={0: 5}), TOPIC, {0: 3})
    assert found == RoundsSince(None, ({0: 9}, {0: 12}))
