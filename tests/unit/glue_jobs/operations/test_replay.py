"""The rows of keys after several rounds, against the rules of docs/modes.md, followed record by record."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from glue_jobs.index.decision import KeyedRecords, KeyRule
from glue_jobs.operations.replay import fold
from tests.keyed import Keyed, Record
from tests.unit.glue_jobs.index.test_decision import arrays, batches

ROUNDS = st.lists(batches(), max_size=5)


def folded(rule: KeyRule, rounds: list[list[Record]]) -> set[tuple[int, int]]:
    every = KeyedRecords.together(arrays(batch) for batch in rounds)
    number = np.repeat(np.arange(len(rounds)) - 1, [len(batch) for batch in rounds])
    shuffled = np.random.default_rng(1).permutation(len(number))
    found = fold(rule, every.take(shuffled), number[shuffled])
    rows = found.take(~found.deletes)
    return set(zip(rows.partition.tolist(), rows.offset.tolist(), strict=True))


@given(ROUNDS)
def test_the_rounds_of_a_table_make_its_rows(rounds: list[list[Record]]) -> None:
    """Offsets grow from round to round. The numbers of the rounds begin with that of older rows."""
    placed = [
        [each._replace(offset=each.offset + 100 * number) for each in batch]
        for number, batch in enumerate(rounds)
    ]
    expected = Keyed(newest=True)
    for batch in placed:
        expected.read(batch)
    rule = KeyRule(("id",), newest=True, order_by="version")
    assert folded(rule, placed) == {(each.partition, each.offset) for each in expected.kept}


@given(ROUNDS)
def test_without_an_order_the_later_round_wins(rounds: list[list[Record]]) -> None:
    placed = [
        [each._replace(offset=each.offset + 100 * number, order=None) for each in batch]
        for number, batch in enumerate(rounds)
    ]
    expected = Keyed(newest=True)
    for batch in placed:
        expected.read(batch)
    rule = KeyRule(("id",), newest=True)
    assert folded(rule, placed) == {(each.partition, each.offset) for each in expected.kept}
