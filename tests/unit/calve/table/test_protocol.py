"""Each decision of `calve.table.protocol` by itself; how they work together is `test_protocol_model.py`."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calve.errors import Suspended
from calve.table.position import DeadLetterRound, Ledger, Offsets, Position, TopicKey
from calve.table.protocol import (
    Begin,
    Commit,
    TopicState,
    ancestry_is_cut,
    begin,
    bounded,
    bytes_per_record,
    check_gaps,
    check_ledger,
    complete_until,
    contains_round,
    locate,
    may_publish,
    nearest_position,
    next_position,
    only_rewritten,
    recheck,
)
from calve.table.summary import COMPLETE_ROUND, COMPLETE_UNTIL
from tests.unit.calve.protocol_model.says import (
    ELSEWHERE,
    FOREIGN,
    RECREATED,
    TOPIC,
    data,
    history,
    position,
    suspension,
    topic,
)


@pytest.mark.parametrize(
    ("ancestors", "round_id"),
    [
        ([], None),
        (history(FOREIGN), None),
        (history(data("r2"), data("r1")), "r2"),
        (history(FOREIGN, FOREIGN, data("r1")), "r1"),
    ],
)
def test_the_position_is_the_nearest_ancestors(ancestors: list[Commit], round_id: str | None) -> None:
    found = nearest_position(ancestors)
    assert (found and found.round) == round_id


def claiming(round_id: str, until: float | None) -> dict[str, str]:
    metrics = {"lag_records": 0} if until is None else {"complete_until": until}
    return data(round_id) | {"calve.metrics": json.dumps(metrics)}


def sized(round_id: str, records: int, size: int) -> dict[str, str]:
    ledger = Ledger(consumed=records).to_json()
    return data(round_id) | {"calve.ledger": ledger, "calve.metrics": json.dumps({"bytes_in": size})}


@pytest.mark.parametrize(
    ("ancestors", "size"),
    [
        ([], None),
        (history(FOREIGN, data("r1")), None),
        (history(sized("r1", 4, 10)), 2.5),
        (history(sized("r2", 2, 60), sized("r1", 4, 10)), 30.0),
        (history(FOREIGN, sized("r2", 0, 0), data("r2"), sized("r1", 4, 10)), 2.5),
    ],
)
def test_records_are_as_large_as_those_of_the_newest_round_that_read_any(
    ancestors: list[Commit], size: float | None
) -> None:
    assert bytes_per_record(ancestors) == size


def note(round_id: str, until: str) -> dict[str, str]:
    return {COMPLETE_ROUND: round_id, COMPLETE_UNTIL: until}


@pytest.mark.parametrize(
    ("ancestors", "properties", "until"),
    [
        ([], {}, None),
        ([], note("r1", "9.000"), None),
        (history(FOREIGN), note("r1", "9.000"), None),
        (history(claiming("r1", None)), {}, None),
        (history(claiming("r1", 5.25)), {}, 5.25),
        (history(FOREIGN, claiming("r2", None), claiming("r1", 5.25)), {}, 5.25),
        (history(claiming("r2", 7.5), claiming("r1", 5.25)), {}, 7.5),
        (history(FOREIGN, claiming("r1", None)), note("r1", "9.125"), 9.125),
        (history(claiming("r1", 5.25)), note("r1", "9.125"), 9.125),
        (history(claiming("r1", 5.25)), note("r1", "4.000"), 5.25),
        (history(claiming("r1", 5.25)), note("r2", "9.125"), 5.25),
        (history(claiming("r1", None)), note("r2", "9.125"), None),
        (history(claiming("r2", None), claiming("r1", 5.25)), note("r1", "9.125"), 5.25),
    ],
)
def test_a_table_is_complete_as_far_as_main_or_a_note_of_this_very_round_says(
    ancestors: list[Commit], properties: dict[str, str], until: float | None
) -> None:
    assert complete_until(ancestors, properties) == until


def test_a_position_knows_its_snapshot() -> None:
    found = nearest_position(history(FOREIGN, data("r1")))
    assert found is not None
    assert found.snapshot == 1


@pytest.mark.parametrize(
    ("ancestors", "cut"),
    [
        ([], False),
        (history(data("r2"), data("r1")), False),
        (history(data("r2"), data("r1"), cut=True), True),
    ],
)
def test_ancestry_is_cut_where_the_oldest_ancestor_names_a_parent(ancestors: list[Commit], cut: bool) -> None:
    assert ancestry_is_cut(ancestors) is cut


TAG = Commit(7, 6, data("r1", to=5, total_records="5"))


def test_a_position_in_the_history_is_used_before_a_tag() -> None:
    found = locate(history(data("r2"), cut=True), tagged=TAG, greatest_offsets={})
    assert found.round == "r2"


@pytest.mark.parametrize("greatest", [{}, {TOPIC: {}}, {TOPIC: {0: 4}}])
def test_the_tag_proves_the_position_where_history_was_cut(greatest: dict[TopicKey, Offsets]) -> None:
    found = locate(history(FOREIGN, cut=True), tagged=TAG, greatest_offsets=greatest)
    assert (found.round, found.snapshot) == ("r1", 7)


@pytest.mark.parametrize(
    ("ancestors", "tagged", "greatest"),
    [
        pytest.param([], TAG, {}, id="no snapshot at all"),
        pytest.param(history(FOREIGN), TAG, {}, id="replaced: the head has no parent"),
        pytest.param(history(FOREIGN, cut=True), None, {}, id="no tag"),
        pytest.param(history(FOREIGN, cut=True), TAG, None, id="offsets not looked up"),
        pytest.param(history(FOREIGN, cut=True), TAG, {TOPIC: {0: 5}}, id="a row at the tag's position"),
        pytest.param(
            history(FOREIGN, cut=True), TAG, {TOPIC: {1: 0}}, id="a partition the tag does not know"
        ),
        pytest.param(
            history(FOREIGN, cut=True), TAG, {RECREATED: {0: 0}}, id="a topic the tag does not know"
        ),
        pytest.param(history({"total-records": "4"}, cut=True), TAG, {}, id="fewer rows: rolled back"),
        pytest.param(history({}, cut=True), Commit(7, 6, data("r1")), {}, id="totals unknown"),
    ],
)
def test_an_unproved_position_suspends(
    ancestors: list[Commit], tagged: Commit | None, greatest: dict[TopicKey, Offsets] | None
) -> None:
    assert suspension(locate, ancestors, tagged=tagged, greatest_offsets=greatest) == "position_lost"


def test_a_newer_format_suspends() -> None:
    newer = data("r1") | {"calve.format": "8"}
    assert suspension(nearest_position, history(newer)) == "format_too_new"


@pytest.mark.parametrize(
    ("known", "state", "first", "expected"),
    [
        pytest.param(None, topic({0: 3}, {0: 9}), {0: 3}, Begin({0: 3}), id="earliest"),
        pytest.param(None, topic({0: 3}, {0: 9}), {0: 9}, Begin({0: 9}), id="latest"),
        pytest.param(None, topic({0: 3}, {0: 9}), {0: 1}, Begin({0: 3}), id="explicit, below the log start"),
        pytest.param({0: 5}, topic({0: 0}, {0: 9}), {}, Begin({0: 5}), id="where the table stands"),
        pytest.param({0: 9}, topic({0: 9}, {0: 9}), {}, Begin({0: 9}), id="everything read has expired"),
        pytest.param(
            {0: 5}, topic({0: 0, 1: 0}, {0: 9, 1: 2}), {}, Begin({0: 5, 1: 0}), id="a new partition"
        ),
    ],
)
def test_a_round_begins_where_nothing_is_lost(
    known: Offsets | None, state: TopicState, first: Offsets, expected: Begin
) -> None:
    assert begin(position(offsets=known), state, first=first, on_data_loss="suspend") == expected


@pytest.mark.parametrize(
    ("state", "code"),
    [
        pytest.param(topic({0: 0}, {0: 9}, RECREATED), "topic_recreated", id="another topic id"),
        pytest.param(topic({0: 0}, {0: 9}, ELSEWHERE), "cluster_changed", id="another cluster id"),
        pytest.param(topic({1: 0}, {1: 9}), "partitions_missing", id="a partition is gone"),
        pytest.param(topic({0: 0}, {0: 4}), "log_truncated", id="the log ends before the position"),
        pytest.param(topic({0: 6}, {0: 9}), "offsets_expired", id="retention passed the position"),
        pytest.param(
            topic({0: 0, 1: 2}, {0: 9, 1: 9}), "offsets_expired", id="a new partition lost its head"
        ),
    ],
)
def test_a_round_suspends_where_records_are_lost_or_changed(state: TopicState, code: str) -> None:
    at_five = position(offsets={0: 5})
    assert suspension(begin, at_five, state, first={}, on_data_loss="suspend") == code


@pytest.mark.parametrize(
    ("state", "code"),
    [
        pytest.param(topic({0: 0}, {0: 9}, RECREATED), "topic_recreated", id="another topic id"),
        pytest.param(topic({0: 0}, {0: 9}, ELSEWHERE), "cluster_changed", id="another cluster id"),
    ],
)
def test_a_table_that_has_read_nothing_notices_another_topic_than_it_was_made_for(
    state: TopicState, code: str
) -> None:
    found = suspension(begin, position(), state, first={0: 0}, on_data_loss="suspend", made_for=TOPIC)
    assert found == code
    accepted = begin(position(), state, first={0: 0}, on_data_loss="continue", made_for=TOPIC)
    assert accepted == Begin({0: 0}, {}, code)
    same = begin(position(), topic({0: 3}, {0: 9}), first={0: 7}, on_data_loss="suspend", made_for=TOPIC)
    assert same == Begin({0: 7})


def test_the_fix_for_another_cluster_says_when_records_would_be_double() -> None:
    with pytest.raises(Suspended) as caught:
        begin(position(offsets={0: 5}), topic({0: 0}, {0: 9}, ELSEWHERE), first={}, on_data_loss="suspend")
    copy, new, back = (caught.value.fix or "").split(". ")
    assert "copy of the former one: calve move" in copy
    assert new.startswith("If it holds new records only, set on_data_loss: continue")
    assert "back to the former cluster" in back


@pytest.mark.parametrize("on_data_loss", ["suspend", "continue"])
def test_a_cluster_that_a_table_has_left_is_not_read_again(on_data_loss: Any) -> None:
    moved = replace(position(offsets={0: 5}), moved=(TOPIC,))
    moved = replace(moved, offsets=moved.with_offsets(ELSEWHERE, {0: 2}))
    state = topic({0: 0}, {0: 9})
    assert suspension(begin, moved, state, first={}, on_data_loss=on_data_loss) == "cluster_changed"
    there = begin(moved, topic({0: 0}, {0: 9}, ELSEWHERE), first={}, on_data_loss=on_data_loss)
    assert there == Begin({0: 2})
    after = next_position(
        moved, topic({0: 0}, {0: 9}, ELSEWHERE), {0: 4}, round_id="r", writer="w", dead_letters=None
    )
    assert (after.moved, after.newest, after.of(TOPIC)) == ((TOPIC,), ELSEWHERE, {0: 5})


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        pytest.param(topic({0: 6}, {0: 9}), Begin({0: 6}, {0: (5, 6)}), id="retention passed the position"),
        pytest.param(
            topic({0: 0, 1: 2}, {0: 9, 1: 9}),
            Begin({0: 5, 1: 2}, {1: (0, 2)}),
            id="a new partition lost its head",
        ),
        pytest.param(
            topic({0: 0}, {0: 3}, RECREATED), Begin({0: 0}, {}, "topic_recreated"), id="another topic id"
        ),
        pytest.param(
            topic({0: 2}, {0: 3}, ELSEWHERE),
            Begin({0: 2}, {0: (0, 2)}, "cluster_changed"),
            id="another cluster, its first records gone",
        ),
    ],
)
def test_data_loss_that_is_allowed_is_recorded(state: TopicState, expected: Begin) -> None:
    assert begin(position(offsets={0: 5}), state, first={0: 99}, on_data_loss="continue") == expected


@pytest.mark.parametrize(
    ("state", "code"),
    [(topic({1: 0}, {1: 9}), "partitions_missing"), (topic({0: 0}, {0: 4}), "log_truncated")],
)
def test_no_setting_allows_a_log_that_went_backwards(state: TopicState, code: str) -> None:
    at_five = position(offsets={0: 5})
    assert suspension(begin, at_five, state, first={}, on_data_loss="continue") == code


def test_the_ledger_begins_below_what_was_lost() -> None:
    assert Begin({0: 6, 1: 4}, {0: (5, 6)}).since == {0: 5, 1: 4}


@pytest.mark.parametrize(
    ("after", "code"),
    [
        (topic({0: 0}, {0: 9}, RECREATED), "topic_recreated"),
        (topic({0: 0}, {0: 9}, ELSEWHERE), "cluster_changed"),
        (topic({0: 6}, {0: 9}), "offsets_expired"),
    ],
)
def test_a_topic_that_changed_while_it_was_read_suspends(after: TopicState, code: str) -> None:
    assert suspension(recheck, topic({0: 0}, {0: 9}), after, {0: 5}) == code


def test_a_topic_that_grew_while_it_was_read_is_fine() -> None:
    recheck(topic({0: 0}, {0: 9}), topic({0: 5, 1: 0}, {0: 20, 1: 1}), {0: 5})


@pytest.mark.parametrize(
    ("state", "records", "allowed", "gaps"),
    [
        (topic({}, {}), 7, False, 0),
        (topic({}, {}, compacted=True), 1, False, 6),
        (topic({}, {}, transactional=True), 6, False, 1),
        (topic({}, {}), 4, True, 3),
    ],
)
def test_gaps_are_counted_where_something_explains_them(
    state: TopicState, records: int, allowed: bool, gaps: int
) -> None:
    counted = check_gaps(state, span=7, records=records, allowed=allowed, missing=lambda: pytest.fail("read"))
    assert counted == gaps


def test_an_unexplained_gap_suspends_and_names_its_partitions() -> None:
    with pytest.raises(Suspended, match="1 in partition 1, 2 in partition 3") as caught:
        check_gaps(topic({}, {}), span=9, records=6, allowed=False, missing=lambda: {1: 1, 2: 0, 3: 2})
    assert caught.value.code == "offset_gap"


@pytest.mark.parametrize("state", [topic({}, {}), topic({}, {}, compacted=True)])
def test_more_records_than_offsets_suspend(state: TopicState) -> None:
    code = suspension(check_gaps, state, span=4, records=5, allowed=True, missing=dict)
    assert code == "offset_surplus"


@pytest.mark.parametrize(
    ("ancestors", "allowed"),
    [
        pytest.param(history(data("r1")), True, id="main stands at the base"),
        pytest.param(history(FOREIGN, data("r1")), True, id="compacted meanwhile"),
        pytest.param(history(data("r2"), data("r1")), False, id="another round was published"),
        pytest.param(history(data("r0")), False, id="rolled back past the base"),
        pytest.param(history(FOREIGN), False, id="replaced"),
        pytest.param([], False, id="no snapshot at all"),
    ],
)
def test_a_round_is_published_only_on_its_base(ancestors: list[Commit], allowed: bool) -> None:
    assert may_publish(ancestors, position("r1")) is allowed


@pytest.mark.parametrize(
    ("operations", "since", "expected"),
    [
        pytest.param(["append"], 0, True, id="nothing has come"),
        pytest.param(["replace", "replace", "append"], 2, True, id="compactions"),
        pytest.param(["replace", "overwrite", "append"], 2, False, id="a change below a compaction"),
        pytest.param(["append", "append"], 1, False, id="new rows"),
        pytest.param(["replace", "replace"], 7, False, id="the snapshot has expired"),
    ],
)
def test_only_compactions_leave_all_rows_as_they_were(
    operations: list[str], since: int, expected: bool
) -> None:
    ancestors = [Commit(number, None, {}, operation=each) for number, each in enumerate(operations)]
    assert only_rewritten(ancestors, since) is expected


def test_a_round_is_found_in_the_history_it_is_in() -> None:
    ancestors = history(FOREIGN, data("r2"), data("r1"))
    assert contains_round(ancestors, "r1")
    assert not contains_round(ancestors, "r3")


BALANCED = Ledger(
    span=6, consumed=4, gaps=1, lost=1, applied=3, dead_lettered=1, rows_appended=3, rejected={"bad_magic": 1}
)


def test_a_balanced_ledger_passes() -> None:
    check_ledger(BALANCED, staged_rows=3)


@pytest.mark.parametrize(
    ("ledger", "staged"),
    [
        (BALANCED, 4),
        (Ledger(span=2, consumed=1, applied=1, rows_appended=1), 1),
        (Ledger(span=1, consumed=1), 0),
        (Ledger(span=1, consumed=1, dead_lettered=1), 0),
    ],
)
def test_a_ledger_that_does_not_balance_suspends(ledger: Ledger, staged: int) -> None:
    assert suspension(check_ledger, ledger, staged_rows=staged) == "ledger_imbalance"


def test_the_next_position_keeps_other_partitions_incarnations_and_dead_letters() -> None:
    base = Position(
        {TOPIC: {0: 5, 1: 7}, RECREATED: {0: 1}},
        "r1",
        "w",
        "trades",
        dead_letters=DeadLetterRound("r0", 3, 1),
    )
    state = topic({0: 0, 1: 0}, {0: 9, 1: 9})
    after = next_position(base, state, {0: 9}, round_id="r2", writer="w2", dead_letters=None)
    assert [*after.offsets.items()] == [(RECREATED, {0: 1}), (TOPIC, {0: 9, 1: 7})]
    assert (after.round, after.writer, after.dead_letters) == ("r2", "w2", base.dead_letters)


@pytest.mark.parametrize(
    ("start", "end", "budget", "limit", "to"),
    [
        ({}, {}, 10, 10, {}),
        ({0: 5}, {0: 5}, 10, 10, {0: 5}),
        ({0: 0, 1: 0}, {0: 100, 1: 100}, 10, 100, {0: 5, 1: 5}),
        ({0: 0, 1: 0}, {0: 2, 1: 100}, 10, 100, {0: 2, 1: 8}),
        ({0: 0, 1: 0}, {0: 2, 1: 100}, 10, 3, {0: 2, 1: 3}),
        pytest.param({0: 9}, {0: 5}, 10, 10, {0: 9}, id="never backwards"),
    ],
)
def test_the_budget_is_shared_fairly(
    start: Offsets, end: Offsets, budget: int, limit: int, to: Offsets
) -> None:
    assert bounded(start, end, budget_records=budget, partition_records=limit) == to


PARTITIONS = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), max_size=6)


@given(PARTITIONS, st.integers(1, 100), st.integers(1, 100))
def test_a_round_keeps_to_its_budget_and_wastes_none_of_it(
    partitions: list[tuple[int, int]], budget: int, limit: int
) -> None:
    start = {p: begins for p, (begins, _) in enumerate(partitions)}
    end = {p: begins + more for p, (begins, more) in enumerate(partitions)}
    to = bounded(start, end, budget_records=budget, partition_records=limit)
    taken = [to[p] - start[p] for p in start]
    room = [min(end[p] - start[p], limit) for p in start]
    assert all(0 <= t <= r for t, r in zip(taken, room, strict=True))
    assert sum(taken) == min(budget, sum(room))
