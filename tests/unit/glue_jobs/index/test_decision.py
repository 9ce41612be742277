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

from glue_jobs.index.decision import NO_RECORDS, KeyedRecords, KeyRule, order_of, overtaken, ranks, resets
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


def arrays(records: list[Record], kind: Any = None) -> KeyedRecords:
    """kind: the order's type; a rank is its text."""
    if not records:
        return NO_RECORDS
    keys, partitions, offsets, timestamps, _, deletes = (
        np.array(each) for each in zip(*records, strict=True)
    )
    halves = (keys // 2).astype(np.uint64), (keys % 2).astype(np.uint64)
    order = order_of(pa.array([each.order for each in records], pa.int64()).cast(kind or pa.int64()))
    return KeyedRecords(*halves, partitions.astype(np.int32), offsets, timestamps, deletes, order)


def only(records: list[Record], kept: NDArray[np.bool_]) -> list[Record]:
    return [each for each, stays in zip(records, kept, strict=True) if stays]


KINDS = (pa.int64(), pa.string(), pa.decimal128(21, 2))
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
    for kind in KINDS:
        kept = rule.kept(arrays(records, kind))
        assert set(only(records, kept)) == by_the_rules(records, newest=rule.newest)


@pytest.mark.parametrize(("rule", "batch"), RULES)
@given(data=st.data(), cuts=st.lists(st.integers(0, 30), max_size=3))
def test_choosing_in_parts_first_changes_nothing(
    rule: KeyRule, batch: st.SearchStrategy[list[Record]], data: st.DataObject, cuts: list[int]
) -> None:
    """A part has a range of offsets of each partition, as tasks read them."""
    records = sorted(data.draw(batch), key=lambda record: record.offset)
    parts = [records[begin:end] for begin, end in pairwise([0, *sorted(cuts), len(records)])]
    kind = data.draw(st.sampled_from(KINDS))
    left = [each for part in parts for each in only(part, rule.kept_in_part(arrays(part, kind)))]
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
    plain = pa.int32() if kind == pa.date32() else None
    found = ranks(order_of(pa.array(values, plain).cast(kind)))
    assert (found[1:] > found[:-1]).all()


def test_both_zeros_have_one_order() -> None:
    assert len(set(order_of(pa.array([0.0, -0.0])).tolist())) == 1


@given(st.lists(st.none() | st.text(max_size=2) | st.sampled_from(["\uffff", "\U00010000"])))
def test_texts_are_ordered_by_their_utf_8(values: list[str | None]) -> None:
    """UTF-16 has the two samples the other way round."""
    order, numbers = order_of(pa.array(values, pa.string())), np.arange(max(len(values) - 1, 0))
    records = NO_RECORDS._replace(offset=numbers, order=order[:-1])
    lost = overtaken(records, numbers, order[1:]).tolist()
    known = [b"" if each is None else b"+" + each.encode() for each in values]
    for (one, first), (other, second) in pairwise(zip(known, ranks(order).tolist(), strict=True)):
        assert (first < second, first == second) == (one < other, one == other)
        assert (one < other) == lost.pop(0)


@pytest.mark.parametrize("kind", KINDS)
@given(rows=st.lists(st.tuples(st.integers(0, 2), st.none() | st.integers(0, 3))))
def test_a_record_loses_to_a_row_of_a_greater_order(
    kind: pa.DataType, rows: list[tuple[int, int | None]]
) -> None:
    """A key may have several rows. Null is the least."""
    numbers = np.array([key for key, _ in rows], np.intp)
    ours, held = (
        order_of(pa.array(each, pa.int64()).cast(kind)) for each in ((2, None, 1), [each for _, each in rows])
    )
    lost = {key for key, order in rows if order is not None and order > (2, -1, 1)[key]}
    records = NO_RECORDS._replace(offset=np.arange(3), order=ours)
    assert set(np.flatnonzero(overtaken(records, numbers, held)).tolist()) == lost


def test_records_without_an_order_lose_to_a_row_that_has_one() -> None:
    """Records that delete have none, and no type of one."""
    records = NO_RECORDS._replace(offset=np.arange(2), order=pa.nulls(2))
    for kind in KINDS:
        held = order_of(pa.array([3, None]).cast(kind))
        assert overtaken(records, np.array([0, 1]), held).tolist() == [True, False]
