"""Which rows of a table of versions a batch may change, by the keys and orders of rows and records (ADR 67)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from glue_jobs.index.decision import starts
from glue_jobs.index.key_index import Held


def every_row(rows: Held, _: Held) -> NDArray[np.bool_]:
    return np.ones(len(rows[0]), bool)


def next_to(rows: Held, records: Held) -> NDArray[np.bool_]:
    """Which rows lie next to one of the records in their order: before it, beside it, or after it; all of an equal order."""
    groups, group_of = _groups(rows)
    places = np.unique(_by_order(records))
    at, wanted = np.searchsorted(groups, places), np.zeros(len(groups), bool)
    for step in (-1, 0, 1):
        here = at + step
        inside = (here >= 0) & (here < len(groups))
        here = here[inside]
        wanted[here[groups["key"][here] == places["key"][inside]]] = True
    return wanted[group_of]


def from_before(rows: Held, records: Held) -> NDArray[np.bool_]:
    """Which rows do not come before the first record of their key, and those of the greatest order before it."""
    groups, group_of = _groups(rows)
    line = _by_order(records)
    firsts = line[np.lexsort((line["order"], line["key"]))]
    firsts = firsts[starts([firsts["key"]])]
    least = np.searchsorted(groups, firsts)
    before = np.maximum(least - 1, 0)
    begins = least - ((least > 0) & (groups["key"][before] == firsts["key"]))
    ends = np.searchsorted(groups["key"], firsts["key"], side="right")
    marks = np.zeros(len(groups) + 1, np.int64)
    np.add.at(marks, begins, 1)
    np.add.at(marks, ends, -1)
    found: NDArray[np.bool_] = np.cumsum(marks)[:-1][group_of] > 0
    return found


def _by_order(held: Held) -> NDArray[Any]:
    return np.rec.fromarrays(held, dtype=[("key", "i8"), ("order", "i8")])


def _groups(rows: Held) -> tuple[NDArray[Any], NDArray[np.intp]]:
    """The orders that each key has, sorted, and the number of that of each row."""
    return np.unique(_by_order(rows), return_inverse=True)
