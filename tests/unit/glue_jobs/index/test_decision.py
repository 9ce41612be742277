"""Which records of a batch stay, against the rules of docs/modes.md, followed record by record."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from glue_jobs.index.decision import NO_RECORDS, KeyedRecords, KeyRule


class Record(NamedTuple):
    key: int
    partition: int
    offset: int
    timestamp: int


@st.composite
def batches(draw: st.DrawFn) -> list[Record]:
    """Records of few keys, partitions and times, in any order. Keys with equal high halves are among them."""
    few = st.integers(0, 3)
    found = draw(st.lists(st.tuples(few, st.integers(0, 2), few), max_size=30))
    ends = [0, 0, 0]
    records = []
    for key, partition, timestamp in found:
        records.append(Record(key, partition, ends[partition], timestamp))
        ends[partition] += 1
    return draw(st.permutations(records))


def arrays(records: list[Record]) -> KeyedRecords:
    if not records:
        return NO_RECORDS
    keys, partitions, offsets, timestamps = (np.array(each) for each in zip(*records, strict=True))
    halves = (keys // 2).astype(np.uint64), (keys % 2).astype(np.uint64)
    return KeyedRecords(*halves, partitions.astype(np.int32), offsets, timestamps)


def by_the_rules(records: list[Record], *, newest: bool) -> set[Record]:
    """Read each partition in offset order, then compare what they would keep."""
    kept: dict[tuple[int, int], Record] = {}
    for each in sorted(records, key=lambda record: record.offset):
        place = each.key, each.partition
        kept[place] = each if newest else kept.get(place, each)
    best: dict[int, Record] = {}
    for each in sorted(kept.values(), key=lambda record: (record.timestamp, record.partition)):
        best[each.key] = each if newest else best.get(each.key, each)
    return set(best.values())


def only(records: list[Record], kept: NDArray[np.bool_]) -> list[Record]:
    return [each for each, stays in zip(records, kept, strict=True) if stays]


@pytest.mark.parametrize("newest", [True, False])
@given(records=batches())
def test_one_record_of_each_key_stays(records: list[Record], newest: bool) -> None:
    rule = KeyRule(("id",), newest=newest, deletes=False)
    assert set(only(records, rule.kept(arrays(records)))) == by_the_rules(records, newest=newest)


@pytest.mark.parametrize("newest", [True, False])
@given(records=batches(), cuts=st.lists(st.integers(0, 30), max_size=3))
def test_choosing_in_parts_first_changes_nothing(
    records: list[Record], cuts: list[int], newest: bool
) -> None:
    rule = KeyRule(("id",), newest=newest, deletes=False)
    parts = [records[begin:end] for begin, end in pairwise([0, *sorted(cuts), len(records)])]
    left = [each for part in parts for each in only(part, rule.kept_in_partition(arrays(part)))]
    assert set(only(left, rule.kept(arrays(left)))) == by_the_rules(records, newest=newest)
