"""Duplicates, found without the job's code: a record makes no row if the table has a row of its key that was read earlier.

No two rows of a key lie within the window. Both rules leave one correct table: in reading order, each record is kept that has no
kept one near it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from cli.verify.claim import Claim, Round, numbers_of
from cli.verify.columns import number
from cli.verify.rows import ByFile, Rows

EVER = np.iinfo(np.int64).max
UNKNOWN = -1.0
"""The number of an expired commit: it came before all that are left."""
OTHER_TOPIC = -2.0
FORGOTTEN = ""
"""The file of forgotten rows."""
Key = tuple[int, int]


class Order:
    """Ascending numbers of the commits that read the records of a topic; a redrive reads its dead letters at its commit."""

    def __init__(self, claim: Claim, redriven: Mapping[Key, str]) -> None:
        self._rounds = [each for each in reversed(claim.rounds) if each.topic == claim.topic]
        numbers = self._of_redrives([each for each in reversed(claim.redrives) if each.topic == claim.topic])
        places = sorted((number(*key), numbers.get(name, UNKNOWN)) for key, name in redriven.items())
        self._places = np.array([each for each, _ in places], np.int64)
        self._numbers = np.array([each for _, each in places], np.float64)

    def numbers(self, partitions: Any, offsets: Any) -> Any:
        """The commit's number of each record."""
        found = numbers_of(self._rounds, partitions, offsets).astype(np.float64)
        if len(self._places):
            places = number(partitions.astype(np.int64), offsets)
            nearest = np.minimum(np.searchsorted(self._places, places), len(self._places) - 1)
            found = np.where(self._places[nearest] == places, self._numbers[nearest], found)
        return found

    def _of_redrives(self, redrives: list[Round]) -> dict[str, float]:
        """Each redrive lies between two rounds; several between the same two keep their order."""
        found: dict[str, float] = {}
        for n, each in enumerate(redrives):
            before = sum(all(each.to.get(p, 0) >= o for p, o in other.to.items()) for other in self._rounds)
            found[each.round or ""] = before - 0.5 + (n + 1) / (2 * len(redrives) + 2)
        return found


class Firsts:
    """The rows of a table by key. Call `hold` for all before `duplicates`. `several`: a record may have made several rows."""

    def __init__(self, window_us: int | None, order: Order, *, several: bool = False) -> None:
        self._several = several
        self._windowed = window_us is not None
        self._window = EVER if window_us is None else window_us
        self._order = order
        self._files: list[str] = []
        self._held: list[Any] = []
        self._rows: Any = None
        self._come_to: dict[tuple[int, int, float], int] = {}
        self._judged: dict[Key, bool] = {}

    def hold(self, held: Rows, *, own: bool) -> None:
        """Add rows of the table; `own`: of the incarnation that is proved."""
        if not self._files or self._files[-1] != held.file:
            self._files.append(held.file)
        rows = np.empty(len(held.keys), ROW)
        rows["key"], rows["at"] = _numpy(held.keys), _numpy(held.timestamps)
        rows["partition"], rows["offset"] = _numpy(held.partitions), _numpy(held.offsets)
        rows["number"] = OTHER_TOPIC
        if own:
            rows["number"] = self._order.numbers(rows["partition"], rows["offset"])
        rows["file"] = len(self._files) - 1
        self._held.append(rows)

    def remember(self, forgotten: Iterable[Rows]) -> None:
        """Add rows that the table had: their duplicates make no rows, either."""
        for rows in (each for each in forgotten if each.keys is not None):
            self.hold(replace(rows, file=FORGOTTEN), own=True)

    @property
    def keys(self) -> int:
        """The number of keys."""
        return len(np.unique(self._there["key"]))

    @property
    def _there(self) -> Any:
        """The rows that the table has."""
        there = np.array([each != FORGOTTEN for each in self._files], bool)
        return self._sorted[there[self._sorted["file"]]] if len(self._sorted) else self._sorted

    def doubled(self) -> ByFile:
        """Offsets of rows with another row of their key too near, by file and partition."""
        rows = self._there
        near = (np.diff(rows["key"]) == 0) & (np.diff(rows["at"]) < self._window)
        found: ByFile = {}
        for row in rows[np.r_[near, False] | np.r_[False, near]] if len(rows) else ():
            place = self._files[row["file"]], int(row["partition"])
            found.setdefault(place, []).append(int(row["offset"]))
        return found

    def duplicates(self, rows: Rows) -> pa.Array:
        """True for records that make no row. Call it in the order of offsets, partition by partition; then in any order."""
        wanted = np.empty(len(rows.offsets), ROW)
        wanted["key"], wanted["at"] = _numpy(rows.keys), _numpy(rows.timestamps)
        wanted["partition"], wanted["offset"] = _numpy(rows.partitions), _numpy(rows.offsets)
        wanted["number"] = self._order.numbers(wanted["partition"], wanted["offset"])
        held, near, open_ = self._against_rows(wanted)
        found = near & ~held
        for place in np.flatnonzero(open_):
            found[place] |= self._in_one_round(wanted[place]) and not held[place]
        return pa.array(found)

    def _against_rows(self, wanted: Any) -> tuple[Any, Any, Any]:
        """For each record: is it a row, is an earlier row near, and is a near row of its round in another partition?"""
        first, last = self._near(wanted)
        counts = last - first
        of = np.repeat(np.arange(len(wanted)), counts)
        within = np.arange(len(of)) - np.repeat(np.cumsum(counts) - counts, counts)
        row, record = self._sorted[np.repeat(first, counts) + within], wanted[of]
        same_number = row["number"] == record["number"]
        same_partition = row["partition"] == record["partition"]
        earlier = same_partition & (row["offset"] < record["offset"])
        # Unprovable cases count as correct.
        unprovable = ~same_partition & (self._windowed | (record["number"] == UNKNOWN))
        before = (row["number"] < record["number"]) | (same_number & (earlier | unprovable))
        itself = same_number & same_partition & (row["offset"] == record["offset"])
        found = np.zeros((3, len(wanted)), bool)
        for n, each in enumerate((itself, before, same_number & ~same_partition & ~unprovable)):
            found[n, of[each]] = True
        return found[0], found[1], found[2]

    def _near(self, wanted: Any) -> tuple[Any, Any]:
        """For each record the rows of its key within the window: the first, and the one after the last."""
        keys = self._sorted["key"]
        first, last = (np.searchsorted(keys, wanted["key"], side=side) for side in ("left", "right"))
        if not self._windowed:
            return first, last
        begin, end = wanted["at"] - self._window, wanted["at"] + self._window - 1
        return self._after(first, last, begin), self._after(first, last, end)

    def _after(self, first: Any, last: Any, moments: Any) -> Any:
        """For each record the first row of its key later than a moment."""
        times, low, high = self._sorted["at"], first.copy(), last.copy()
        while (open_ := low < high).any():
            middle = (low + high) // 2
            over = open_ & (times[np.minimum(middle, len(times) - 1)] <= moments)
            low, high = np.where(over, middle + 1, low), np.where(open_ & ~over, middle, high)
        return low

    def _in_one_round(self, record: Any) -> bool:
        """Whether a row of another partition, read by the same commit, comes before the record.

        Partitions are merged by the latest timestamp that each has reached, among records of the key; a row is the first of its
        own.
        """
        place = int(record["partition"]), int(record["offset"])
        if place not in self._judged:
            group = int(record["key"]), place[0], float(record["number"])
            self._come_to[group] = max(self._come_to.get(group, 0), int(record["at"]))
            rank = self._come_to[group], place[0]
            keys = self._sorted["key"]
            first, last = (np.searchsorted(keys, record["key"], side=side) for side in ("left", "right"))
            rows = self._sorted[first:last]
            rivals = rows[(rows["number"] == record["number"]) & (rows["partition"] != place[0])]
            self._judged[place] = any((int(row["at"]), int(row["partition"])) < rank for row in rivals)
        return self._judged[place]

    @property
    def _sorted(self) -> Any:
        if self._rows is None:
            rows = np.concatenate(self._held) if self._held else np.empty(0, ROW)
            if self._several:
                rows = rows[np.unique(rows[["key", "partition", "offset", "number"]], return_index=True)[1]]
            self._rows = rows[np.lexsort((rows["offset"], rows["at"], rows["key"]))]
            self._held = []
        return self._rows


ROW = np.dtype(
    [
        *(("key", np.uint64), ("at", np.int64), ("partition", np.int32)),
        *(("offset", np.int64), ("number", np.float64), ("file", np.int32)),
    ]
)


def _numpy(column: Any) -> Any:
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    return column.to_numpy(zero_copy_only=False)
