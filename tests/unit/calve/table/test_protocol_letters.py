"""The decisions of `calve.table.protocol` about dead letters, each by itself."""

from __future__ import annotations

import pytest

from calve.table.dead_letters import (
    Leftover,
    Recovery,
    WaitingBranch,
    dead_letters_round,
    leftover_by_offsets,
    leftover_dead_letters,
    may_release,
    recover_dead_letters,
    rounds_since,
    was_rolled_back,
)
from calve.table.position import NO_DEAD_LETTERS, DeadLetterRound, Position
from calve.table.protocol import Commit, next_position
from tests.unit.calve.protocol_model.says import FOREIGN, data, history, position, suspension, topic


def naming(round_id: str, previous: str = NO_DEAD_LETTERS, count: int = 2) -> Position:
    letters = DeadLetterRound(round_id, snapshot=9, count=count, previous=previous)
    return position(round_id, {0: 10}, dead_letters=letters)


MINE = WaitingBranch("calve_r2", "r2", base="r1")
RIVAL = WaitingBranch("calve_x", "x", base="r1")
NEXT = WaitingBranch("calve_y", "y", base="r2")


@pytest.mark.parametrize(
    ("main", "published", "branches", "expected"),
    [
        pytest.param(position("r1"), False, [], Recovery(), id="nothing was ever rejected"),
        pytest.param(
            position("r1"), False, [MINE, RIVAL], Recovery(), id="rounds in progress are left alone"
        ),
        pytest.param(naming("r2"), False, [MINE], Recovery(MINE), id="the named round waits"),
        pytest.param(
            naming("r2"), False, [RIVAL, MINE], Recovery(MINE, (RIVAL,)), id="a rival lost the race"
        ),
        pytest.param(
            naming("r2"), True, [MINE], Recovery(None, (MINE,)), id="published, its branch not dropped"
        ),
        pytest.param(naming("r2"), True, [NEXT], Recovery(), id="the next round's branch is left alone"),
    ],
)
def test_dead_letters_are_rolled_forward(
    main: Position, published: bool, branches: list[WaitingBranch], expected: Recovery
) -> None:
    assert recover_dead_letters(main, published=published, branches=branches) == expected


@pytest.mark.parametrize("stored", [None, 0, 1])
def test_dead_letters_that_are_nowhere_suspend(stored: int | None) -> None:
    code = suspension(recover_dead_letters, naming("r2"), published=False, branches=[RIVAL], stored=stored)
    assert code == "dead_letters_lost"


def test_dead_letters_found_in_the_table_count_as_published() -> None:
    assert recover_dead_letters(naming("r2"), published=False, branches=[], stored=2) == Recovery()


def released(round_id: str, *withdrawn: str) -> dict[str, str]:
    extra = Leftover(frozenset(withdrawn), round_id).summary if withdrawn else {}
    return data(round_id) | extra


EMPTY = released(NO_DEAD_LETTERS)


def test_the_newest_dead_letters_are_those_of_the_nearest_commit_that_says_so() -> None:
    assert dead_letters_round(history(FOREIGN, released("r1"), EMPTY)) == "r1"
    assert dead_letters_round(history(FOREIGN, cut=True)) is None


@pytest.mark.parametrize(
    ("main", "newest", "rolled_back"),
    [
        pytest.param(position("r1"), NO_DEAD_LETTERS, False, id="nothing was ever rejected"),
        pytest.param(naming("r2"), "r2", False, id="level"),
        pytest.param(naming("r2", previous="r1"), "r1", False, id="the named round waits"),
        pytest.param(naming("r2", previous="r1"), "r3", True, id="a round that main does not name"),
        pytest.param(position("r1"), "r3", True, id="main is back before its first dead letters"),
        pytest.param(naming("r2", previous="r1"), NO_DEAD_LETTERS, True, id="the dead letters are gone"),
    ],
)
def test_a_rollback_is_seen_by_the_round_of_the_newest_dead_letters(
    main: Position, newest: str, rolled_back: bool
) -> None:
    assert was_rolled_back(main, position(newest)) is rolled_back


def test_without_dead_letters_no_rollback_is_seen() -> None:
    assert not was_rolled_back(naming("r2"), None)


@pytest.mark.parametrize(
    ("main", "letters", "left"),
    [
        pytest.param(
            naming("r1"),
            history(released("r3"), FOREIGN, released("r2"), released("r1"), EMPTY),
            Leftover(frozenset({"r3", "r2"}), "r1"),
            id="two rounds above main's",
        ),
        pytest.param(
            position("r0"),
            history(released("r1"), EMPTY),
            Leftover(frozenset({"r1"}), NO_DEAD_LETTERS),
            id="back before the first dead letters",
        ),
        pytest.param(
            naming("r5", previous="r1"),
            history(released("r2"), released("r1"), EMPTY),
            Leftover(frozenset({"r2"}), "r1"),
            id="a sleeper published r5 where main had been rolled back to",
        ),
        pytest.param(
            naming("r1", previous="r0"),
            history(released(NO_DEAD_LETTERS, "r0", "r1"), released("r1"), released("r0"), EMPTY),
            None,
            id="withdrawn, then the rollback was undone",
        ),
        pytest.param(
            naming("r1"),
            history(released("r2"), released("r1"), released(NO_DEAD_LETTERS, "r1"), released("r1"), EMPTY),
            Leftover(frozenset({"r2"}), "r1"),
            id="withdrawn and published again",
        ),
        pytest.param(naming("r1"), history(released("r3"), cut=True), None, id="expired"),
    ],
)
def test_what_a_rollback_left_over_is_told_by_the_history(
    main: Position, letters: list[Commit], left: Leftover | None
) -> None:
    assert leftover_dead_letters(main, letters) == left


@pytest.mark.parametrize(
    ("main", "newest", "beyond", "stored", "left"),
    [
        (position("r0"), None, {"r1"}, {"r1": 1}, Leftover(frozenset({"r1"}), NO_DEAD_LETTERS)),
        (naming("r1"), None, set(), {"r1": 2}, Leftover(frozenset(), "r1")),
        (naming("r1"), None, set(), {}, Leftover(frozenset(), NO_DEAD_LETTERS)),
        (naming("r2", previous="r1"), None, set(), {"r1": 3}, Leftover(frozenset(), "r1")),
        (naming("r1"), "r3", {"r3"}, {"r1": 2, "r3": 1}, Leftover(frozenset({"r3"}), "r1")),
    ],
)
def test_where_the_history_is_gone_what_is_left_over_is_told_by_offsets(
    main: Position, newest: str | None, beyond: set[str], stored: dict[str, int], left: Leftover
) -> None:
    assert leftover_by_offsets(main, newest=newest, beyond=beyond, stored=stored) == left


def test_a_history_that_does_not_reach_back_to_main_holds_what_is_left_over_alone() -> None:
    """A sleeper has moved main's offsets on beyond the letters of r3, which main does not stand for."""
    main = naming("r5", previous="r1")
    since = rounds_since(main, history(released("r4"), released("r3"), cut=True))
    assert since == {"r3", "r4"}
    left = leftover_by_offsets(
        main, newest="r4", beyond={"r4"}, stored={"r1": 1, "r3": 1, "r4": 1}, since=since
    )
    assert left == Leftover(frozenset({"r3", "r4"}), "r1")
    assert rounds_since(main, history(released("r4"), EMPTY)) == set()
    assert rounds_since(main, history(released("r4"), released("r1"), cut=True)) == set()


@pytest.mark.parametrize(
    ("newest", "stored"),
    [
        pytest.param("r9", {"r2": 2}, id="a round that no rollback can have left"),
        pytest.param(None, {}, id="neither the named round nor the one before"),
    ],
)
def test_a_dead_letter_table_that_was_itself_rolled_back_suspends(
    newest: str | None, stored: dict[str, int]
) -> None:
    main = naming("r2", previous="r1")
    code = suspension(leftover_by_offsets, main, newest=newest, beyond=set(), stored=stored)
    assert code == "dead_letters_lost"


@pytest.mark.parametrize(
    ("main", "letters", "allowed"),
    [
        pytest.param(naming("r1"), history(EMPTY), True, id="the first dead letters"),
        pytest.param(naming("r2", previous="r1"), history(FOREIGN, released("r1")), True, id="the next ones"),
        pytest.param(
            naming("r2", previous="r1"), history(released("r2"), released("r1")), False, id="in already"
        ),
        pytest.param(
            naming("r2", previous="r1"), history(released("r3"), released("r1")), False, id="leftovers"
        ),
        pytest.param(naming("r2", previous="r1"), history(FOREIGN, cut=True), False, id="expired"),
        pytest.param(position("r1"), history(EMPTY), False, id="main names none"),
    ],
)
def test_dead_letters_are_published_only_after_those_before_them(
    main: Position, letters: list[Commit], allowed: bool
) -> None:
    assert may_release(main, letters) is allowed


@pytest.mark.parametrize(("base", "previous"), [(position("r1"), NO_DEAD_LETTERS), (naming("r1"), "r1")])
def test_new_dead_letters_name_those_before_them(base: Position, previous: str) -> None:
    held = DeadLetterRound("r2", 4, 1)
    after = next_position(base, topic({0: 0}, {0: 9}), {0: 9}, round_id="r2", writer="w", dead_letters=held)
    assert after.dead_letters == DeadLetterRound("r2", 4, 1, previous)
