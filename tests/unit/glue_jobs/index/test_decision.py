"""Which records of a batch stay, against the rules of docs/modes.md, followed record by record."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from glue_jobs.index.decision import NO_RECORDS, KeyedRecords, KeyRule, order_of, ranks, resets
from glue_jobs.index.runs import NO_ORDER
from tests.keyed import Record, by_the_rules


@st.composite
def batches(draw: st.DrawFn, *, deletes: bool = True, ordered: bool = True) -> list[Record]:
    """Records of few keys, partitions and times, in any order. Keys with equal high halves are among them."""
    few = st.integers(0, 3)
    order = st.one_of(st.none(), few) if ordered else st.none()
    deletion = st.booleans() if deletes else st.just(False)
    ends = [0, 0, 0]
    records = []
    for key, partition, timestamp, rank, empty in draw(
        st.lists(st.tuples(few, st.integers(0, 2), few, order, deletion), max_size=30)
    ):
        records.append(Record(key, partition, ends[partition], timestamp, None if empty else rank, empty))
        ends[partition] += 1
    return draw(st.permutations(records))


def arrays(records: list[Record]) -> KeyedRecords:
    if not records:
        return NO_RECORDS
    keys, partitions, offsets, timestamps, _, deletes = (
        np.array(each) for each in zip(*records, strict=True)
    )
    halves = (keys // 2).astype(np.uint64), (keys % 2).astype(np.uint64)
    order = np.array([each.rank for each in records])
    return KeyedRecords(*halves, partitions.astype(np.int32), offsets, timestamps, order, deletes)


def only(records: list[Record], kept: NDArray[np.bool_]) -> list[Record]:
    return [each for each, stays in zip(records, kept, strict=True) if stays]


NEWEST, FIRST = (
    KeyRule(("id",), newest=True, order_by="version"),
    KeyRule(("id",), newest=False),
)
RULES = [
    pytest.param(NEWEST, batches(), id="newest"),
    pytest.param(FIRST, batches(deletes=False, ordered=False), id="first"),
]


@pytest.mark.parametrize(("rule", "batch"), RULES)
@given(data=st.data())
def test_one_record_of_each_key_stays(
    rule: KeyRule, batch: st.SearchStrategy[list[Record]], data: st.DataObject
) -> None:
    records = data.draw(batch)
    assert set(only(records, rule.kept(arrays(records)))) == by_the_rules(records, newest=rule.newest)


@pytest.mark.parametrize(("rule", "batch"), RULES)
@given(data=st.data(), cuts=st.lists(st.integers(0, 30), max_size=3))
def test_choosing_in_parts_first_changes_nothing(
    rule: KeyRule, batch: st.SearchStrategy[list[Record]], data: st.DataObject, cuts: list[int]
) -> None:
    """A part has a range of offsets of each partition, as tasks read them."""
    records = sorted(data.draw(batch), key=lambda record: record.offset)
    parts = [records[begin:end] for begin, end in pairwise([0, *sorted(cuts), len(records)])]
    left = [each for part in parts for each in only(part, rule.kept_in_part(arrays(part)))]
    assert set(only(left, rule.kept(arrays(left)))) == by_the_rules(records, newest=rule.newest)
    assert {each.key for each in left if each.deletes} == {each.key for each in records if each.deletes}


@given(records=batches())
def test_a_deletion_of_a_key_resets_its_order(records: list[Record]) -> None:
    every = arrays(records)
    best = NEWEST.kept(every)
    deleted = {each.key for each in records if each.deletes}
    found = resets(every, every.take(best)).tolist()
    assert found == [each.key in deleted for each in only(records, best)]


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([None, -(2**63), -5, 0, 7, 2**63 - 1], pa.int64()),
        ([None, False, True], pa.bool_()),
        ([None, -3, 0, 4], pa.date32()),
        ([None, -3, 0, 4], pa.timestamp("us", "UTC")),
        ([None, -math.inf, -1.5, -1e-300, 0.0, 1e-300, 2.5, math.inf, math.nan], pa.float64()),
        ([None, -math.inf, -1.5, 0.0, 2.5, math.nan], pa.float32()),
    ],
)
def test_numbers_are_ordered_as_their_values(values: list[Any], kind: pa.DataType) -> None:
    found = order_of(
        pa.array(values).cast(kind) if kind != pa.date32() else pa.array(values, pa.int32()).cast(kind)
    )
    assert found[0] == NO_ORDER
    assert (np.diff(found[1:]) > 0).all()
    assert len(values) < 3 or found[1] > NO_ORDER


def test_both_zeros_have_one_order() -> None:
    assert len(set(order_of(pa.array([0.0, -0.0])).tolist())) == 1


@given(st.lists(st.none() | st.text(max_size=2)))
def test_ranks_are_ordered_as_their_values(values: list[str | None]) -> None:
    found = ranks(pa.array(values, pa.string()))
    for (one, first), (other, second) in pairwise(zip(values, found.tolist(), strict=True)):
        if one is None or other is None:
            assert (first == NO_ORDER, second == NO_ORDER) == (one is None, other is None)
        else:
            assert (first < second, first == second) == (one.encode() < other.encode(), one == other)
