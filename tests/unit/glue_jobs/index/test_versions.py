"""From when to when versions are valid, on arrays: any rounds make of records what one fold over all of them makes."""

from __future__ import annotations

from itertools import groupby

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from calve.modes.history import History
from glue_jobs.index.decision import KeyedRecords
from glue_jobs.index.versions import NEVER, Versions, as_versions

Record = tuple[int, int, int, int, bool]
"""Key, partition, offset, time, and whether it deletes."""
Version = tuple[Record, int, int]
RECORDS = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 1), st.integers(0, 6), st.booleans()), max_size=24
)


def numbered(drawn: list[tuple[int, int, int, bool]]) -> list[Record]:
    """Offsets follow one another in each partition."""
    ends = [0, 0]
    found = []
    for key, partition, at, deletes in drawn:
        found.append((key, partition, ends[partition], at, deletes))
        ends[partition] += 1
    return found


def folded(records: list[Record], *, by_offset: bool) -> list[Version]:
    found: list[Version] = []
    for _, group in groupby(sorted(records), key=lambda each: each[0]):
        line, reached = [], {0: 0, 1: 0}
        for each in group:
            at = reached[each[1]] = max(each[3], reached[each[1]]) if by_offset else each[3]
            line.append((at, each[1], each[2], each))
        line.sort()
        for (at, _, _, each), after in zip(line, [*line[1:], None], strict=True):
            found.append((each, at, at if each[4] else after[0] if after else NEVER))
    return sorted(found)


def placed(held: list[Version], records: list[Record], *, by_offset: bool) -> list[Version]:
    """A round, for which all rows of the table are at hand."""
    every = [*held, *((each, each[3], NEVER) for each in records)]
    keys, partitions, offsets, _, deletes = zip(*(each for each, _, _ in every), strict=True)
    columns = [np.array(each) for each in (keys, keys, partitions, offsets, offsets, [False] * len(every))]
    begin, end = (np.array([each[place] for each in every], np.int64) for place in (1, 2))
    versions = Versions(
        KeyedRecords._make([*columns, pa.nulls(len(every))]),
        np.arange(len(every)) >= len(held),
        begin,
        end,
        np.array(deletes),
    )
    found = versions.with_times(by_offset=by_offset)
    times = zip(found.begin.tolist(), found.end.tolist(), strict=True)
    return [(each, *time) for (each, _, _), time in zip(every, times, strict=True)]


@given(RECORDS, st.integers(1, 24), st.booleans())
def test_rounds_make_the_versions_of_all_records(
    drawn: list[tuple[int, int, int, bool]],
    size: int,
    by_offset: bool,
) -> None:
    records, held = numbered(drawn), list[Version]()
    for begin in range(0, len(records), size):
        held = placed(held, records[begin : begin + size], by_offset=by_offset)
    assert sorted(held) == folded(records, by_offset=by_offset)


def test_nothing_is_valid_in_the_time_of_a_forgotten_version() -> None:
    """The version from 3 to 6 was forgotten. One that begins at 2 ends at 3, one that begins at 4 at 6."""
    held = [((0, 0, 0, 1, False), 1, 3), ((0, 0, 2, 6, False), 6, NEVER)]
    found = placed(held, [(0, 0, 3, 2, False), (0, 0, 4, 4, False)], by_offset=False)
    assert [each[1:] for each in found] == [(1, 2), (6, NEVER), (2, 3), (4, 6)]


def test_a_value_comes_from_the_version_before_unless_that_deletes() -> None:
    lacks = np.array([False, True, False, True, True])
    deleted = np.array([False, False, True, False, False])
    numbers = np.arange(5)
    records = KeyedRecords._make([*[np.zeros(5)] * 3, *[numbers] * 2, deleted, pa.nulls(5)])
    versions = Versions(records, deleted, numbers, numbers, deleted)
    [(name, same, found)] = versions.known_before({"note": lacks})
    assert (name, same is lacks, found.tolist()) == ("note", True, [0, 0, -1, -1, -1])


def test_a_record_that_deletes_keeps_nothing_but_its_key() -> None:
    time = pa.array([5], pa.timestamp("us", "UTC"))
    row = {"pk": [{"id": 7, "name": "a"}], "name": ["b"], "_kafka": [{"offset": 3}]}
    rows = pa.table(row)
    kafka = pa.StructArray.from_arrays([pa.array([3]), time], ["offset", "timestamp"])
    rows = rows.set_column(2, "_kafka", kafka)
    found = as_versions(rows, History(("pk.id",), deletes=True), gone=True).to_pylist()
    assert [(each["pk"], "name" in each, each["_kafka"]["offset"]) for each in found] == [
        ({"id": 7, "name": None}, False, 3)
    ]
    assert found[0]["_history"]["deleted"]
    assert found[0]["_history"]["valid_from"] == found[0]["_kafka"]["timestamp"]
