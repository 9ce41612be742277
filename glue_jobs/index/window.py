"""The records of a key that lie a window apart from each other and from the table's rows, on arrays (docs/modes.md)."""

from __future__ import annotations

import numpy as np
from numba import types
from numpy.typing import NDArray

from glue_jobs.columns.kernels import LONGS, LONGS_OUT, kernel
from glue_jobs.index.decision import KeyedRecords, starts

FLAGS = types.Array(types.boolean, 1, "C")


def in_order(records: KeyedRecords) -> NDArray[np.intp]:
    """The numbers of records, key by key: by offset in a partition; between partitions by the greatest timestamp so far."""
    order = np.lexsort((records.offset, records.partition, records.low, records.high))
    found = records.take(order)
    reached = accumulated(found.timestamp, starts((found.high, found.low, found.partition)))
    return order[np.lexsort((found.offset, found.partition, reached, found.low, found.high))]


def apart(
    records: KeyedRecords, numbers: NDArray[np.intp], held: NDArray[np.int64], window: int
) -> NDArray[np.bool_]:
    """Which records stay: those with no row of their key less than a window away, before or after, when they are read.

    records: `in_order`. held: timestamps of rows of the table. numbers: the key of each, as its place among the records' keys.
    All times are in microseconds.
    """
    by_time = np.lexsort((held, numbers))
    firsts = np.append(np.flatnonzero(starts((records.high, records.low))), len(records.high))
    ends = np.searchsorted(numbers[by_time], np.arange(len(firsts)))
    kept = np.zeros(len(records.high), bool)
    _choose(records.timestamp, firsts, held[by_time], ends, window, kept)
    return kept


def accumulated(values: NDArray[np.int64], begins: NDArray[np.bool_]) -> NDArray[np.int64]:
    """The greatest value of its group so far. begins: where a group begins."""
    found = values.copy()
    _accumulate(found, begins)
    return found


@kernel(types.void(LONGS_OUT, FLAGS))
def _accumulate(values: NDArray[np.int64], begins: NDArray[np.bool_]) -> None:
    """Make each value the greatest of its group so far."""
    for n in range(1, values.size):
        if not begins[n] and values[n - 1] > values[n]:
            values[n] = values[n - 1]


@kernel(types.void(LONGS, LONGS, LONGS, LONGS, types.int64, FLAGS))
def _choose(
    times: NDArray[np.int64],
    firsts: NDArray[np.int64],
    held: NDArray[np.int64],
    ends: NDArray[np.int64],
    window: int,
    kept: NDArray[np.bool_],
) -> None:
    """Of each key, keep in order what is apart from all rows. `rows` has their times, sorted."""
    rows = np.empty(times.size + held.size, np.int64)
    for key in range(firsts.size - 1):
        size = ends[key + 1] - ends[key]
        rows[:size] = held[ends[key] : ends[key + 1]]
        for n in range(firsts[key], firsts[key + 1]):
            at = np.searchsorted(rows[:size], times[n])
            if at < size and rows[at] - times[n] < window:
                continue
            if at > 0 and times[n] - rows[at - 1] < window:
                continue
            for place in range(size, at, -1):  # most times come last
                rows[place] = rows[place - 1]
            rows[at] = times[n]
            size += 1
            kept[n] = True
