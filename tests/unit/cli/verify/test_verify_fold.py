"""The fold of `verify`, against one that takes records one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calve.table.position import Ledger, TopicKey
from cli.verify.claim import Round
from cli.verify.keyed.upsert import TRUNCATES, Fold
from cli.verify.rows import Rows

TOPIC = TopicKey("c", "t")
Record = tuple[int, int | None, bool]
"""Key, order, and whether it is a tombstone."""


def rows(records: Sequence[tuple[int, int, Record]], *, dead: bool, ordered: bool = True) -> Rows:
    """`records`: partition, offset and the rest."""
    chosen = [each for each in records if each[2][2] is dead]
    columns: dict[str, Any] = {
        "partitions": pa.array([p for p, _, _ in chosen], pa.int32()),
        "offsets": pa.array([o for _, o, _ in chosen], pa.int64()),
        "keys": pa.array([r[0] for _, _, r in chosen], pa.uint64()),
        "orders": pa.array([None if dead else r[1] for _, _, r in chosen], pa.int64())
        if ordered
        else pa.nulls(len(chosen)),
        "timestamps": pa.array([o for _, o, _ in chosen], pa.timestamp("us", tz="UTC")),
    }
    hashes = pa.array([1000 * p + o for p, o, _ in chosen], pa.uint64())
    return Rows("f", columns=[hashes], tombstones=dead, **columns)


def folded(records: list[Record], *, ordered: bool) -> set[int]:
    """Offsets of the rows that one partition's records leave."""
    state: dict[int, tuple[int, int | None]] = {}
    for offset, (key, order, dead) in enumerate(records):
        if dead:
            state.pop(key, None)
            continue
        _, before = state.get(key, (0, None))
        if not ordered or before is None or (order is not None and order >= before):
            state[key] = offset, order
    return {offset for offset, _ in state.values()}


def made(*reads: Sequence[tuple[int, int, Record]], ordered: bool, rounds: tuple[Round, ...] = ()) -> Fold:
    result = Fold(rounds, ordered=ordered)
    for each in reads:
        result.add([rows(each, dead=dead, ordered=ordered) for dead in (False, True)])
    return result


@pytest.mark.parametrize("ordered", [False, True])
@given(
    records=st.lists(st.tuples(st.integers(0, 3), st.none() | st.integers(0, 4), st.booleans()), max_size=25)
)
def test_the_fold_is_that_of_one_record_after_the_other(records: list[Record], *, ordered: bool) -> None:
    numbered = [(0, offset, record) for offset, record in enumerate(records)]
    halves = numbered[: len(numbered) // 2], numbered[len(numbered) // 2 :]
    found = made(*halves, ordered=ordered)
    assert found.places() == {(0, offset) for offset in folded(records, ordered=ordered)}


def test_of_several_partitions_the_later_round_counts() -> None:
    def round_of(start: dict[int, int], to: dict[int, int]) -> Round:
        return Round(TOPIC, start, to, Ledger(), snapshot=1)

    rounds = (round_of({0: 1, 1: 1}, {0: 1, 1: 2}), round_of({0: 0, 1: 0}, {0: 1, 1: 1}))
    records = [(0, 0, (7, None, False)), (1, 0, (7, None, False)), (1, 1, (8, None, False))]
    assert made(records, ordered=False, rounds=rounds).places() == {(1, 0), (1, 1)}
    later = [(1, 1, (7, None, False)), (0, 0, (7, None, False))]
    assert made(later, ordered=False, rounds=rounds).places() == {(1, 1)}
    gone = [(1, 1, (7, None, True)), (0, 0, (7, None, False))]
    found = made(gone, ordered=False, rounds=rounds)
    assert found.places() == set()
    assert found.figures() == {"keys": 0, "deleted": 1}


def test_rounds_that_appended_before_the_table_was_folded_count_as_one() -> None:
    """The earlier timestamp, which is the offset here, does not count, whichever round read it."""
    upserts = '{"mode": "upsert", "key": [1], "order_by": null}'

    def rounds(*modes: str | None) -> tuple[Round, ...]:
        ends = [{0: 9, 1: 0}, {0: 9, 1: 3}, {0: 12, 1: 3}]
        made = [
            Round(TOPIC, start, end, Ledger(), mode=mode, snapshot=n)
            for n, (start, end, mode) in enumerate(zip([{0: 0, 1: 0}, *ends], ends, modes, strict=False))
        ]
        return tuple(reversed(made))

    records = [(0, 8, (7, None, False)), (1, 2, (7, None, False))]
    assert made(records, ordered=False, rounds=rounds(None, None, upserts)).places() == {(0, 8)}
    assert made(records, ordered=False, rounds=rounds(upserts, upserts, upserts)).places() == {(1, 2)}
    assert made(records, ordered=False, rounds=rounds(None, upserts, upserts)).places() == {(1, 2)}
    expired = rounds(None, None, upserts)[:2]
    assert made(records, ordered=False, rounds=expired).places() == {(0, 8)}


def test_the_greatest_order_counts_across_partitions() -> None:
    records = [(0, 5, (7, 3, False)), (1, 0, (7, 4, False))]
    assert made(records, ordered=True).places() == {(1, 0)}
    with_tombstone = made([*records, (0, 6, (7, None, True))], ordered=True)
    with_tombstone.places()
    assert with_tombstone.ambiguous == 1


def test_a_table_that_has_a_key_twice_or_a_row_too_old_is_found() -> None:
    topic = made([(0, 8, (7, 3, False)), (0, 9, (8, None, True)), (0, 7, (9, 1, False))], ordered=True)
    held = rows([(0, 8, (7, 3, False)), (0, 1, (7, 2, False)), (0, 2, (8, 9, False))], dead=False)
    topic.hold(held, pa.array([True, False, False]))
    doubled, stale = topic.judge()
    assert doubled == {("f", 0): [8, 1]}
    assert sorted(stale["f", 0]) == [1, 2]


def test_a_row_of_a_greater_order_than_all_that_kafka_has_stays() -> None:
    topic = made([(0, 8, (7, 3, False))], ordered=True)
    topic.hold(rows([(0, 1, (7, 4, False))], dead=False), pa.array([False]))
    assert topic.judge() == ({}, {})
    assert topic.places() == set()


def test_a_truncation_may_leave_nothing() -> None:
    state = Fold((), ordered=False)
    truncation = rows([(0, 1, (0, None, True))], dead=True, ordered=False)
    state.add(
        [rows([(0, 0, (1, None, False))], dead=False, ordered=False), replace(truncation, idle=TRUNCATES)]
    )
    assert state.places() == set()
    assert state.figures() == {"keys": 0, "deleted": 0}


def test_rows_whose_keys_kafka_has_no_longer_are_no_fault_unless_they_are_two() -> None:
    state = Fold((), ordered=True)
    truncation = rows([(0, 3, (0, None, True))], dead=True)
    state.add([replace(truncation, idle=TRUNCATES, orders=pa.array(["x"]))])
    held = rows([(0, 1, (7, 2, False)), (0, 2, (7, 3, False)), (0, 0, (8, 1, False))], dead=False)
    state.hold(held, pa.array([False, False, False]))
    assert state.judge() == ({("f", 0): [1, 2]}, {})
    assert (state.places(), state.ambiguous, state.filled()) == (set(), 0, {})
