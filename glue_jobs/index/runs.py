"""Sorted runs of keys: arrays of hashes and places, 24 bytes a key. Large ones are mapped from files.

A place is a file's number and a position in it. Equal high halves lie together; their low halves are compared one by one,
because of 4 billion keys only some two share a high half.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from array import array
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numba import types
from numpy.typing import NDArray

from calve.errors import Suspended
from glue_jobs.columns.kernels import LONGS, LONGS_OUT, kernel
from glue_jobs.index.hashing import WORDS, Hashes, Words

Places = NDArray[np.int64]
NO_ORDER = np.iinfo(np.int64).min
"""The order of a null, which is the least."""
POSITION_BITS, WORD = 32, 8
POSITIONS = np.int64((1 << POSITION_BITS) - 1)
MAPPED_KEYS = 1_000_000
"""Runs of so many keys are kept in files."""
RATIO = 4
"""A run is merged with the older one before it unless that is so many times larger."""
GONE = -1
"""Where a file's flags begin if it is not covered any more."""
FLAGS = types.Array(types.boolean, 1, "C")


class Rows:
    """Which rows of the covered files live: a flag for each, those of a file together. A file's number is never used again."""

    def __init__(self) -> None:
        self._starts = array("q")
        self._sizes = array("q")
        self._dead = np.zeros(0, bool)
        self._used = 0

    def add(self, size: int, positions: Places) -> int:
        """A file's number. positions: of its rows that live."""
        if self._used + size > len(self._dead):
            self._make_room(size)
        its = self._dead[self._used : self._used + size]
        its[:] = len(positions) < size
        if len(positions) < size:
            its[positions] = False
        self._starts.append(self._used)
        self._sizes.append(size)
        self._used += size
        return len(self._starts) - 1

    def drop(self, number: int) -> None:
        """None of the file's rows lives any more."""
        self._starts[number] = GONE

    def delete(self, number: int, positions: Places) -> None:
        """These rows of the file do not live any more."""
        self._dead[self._starts[number] + positions] = True

    def living(self, places: Places) -> NDArray[np.bool_]:
        found = np.empty(len(places), bool)
        _living(places, np.frombuffer(self._starts, np.int64), self._dead, found)
        return found

    def _make_room(self, size: int) -> None:
        """For twice the rows. The flags of dropped files go."""
        files = [(number, start) for number, start in enumerate(self._starts) if start != GONE]
        rows = sum(self._sizes[number] for number, _ in files)
        dead = _room(2 * (rows + size) // WORD + 1, 1)[0].view(bool)
        self._used = 0
        for number, start in files:
            end = self._used + self._sizes[number]
            dead[self._used : end] = self._dead[start : start + self._sizes[number]]
            self._starts[number], self._used = self._used, end
        self._dead = dead


class Run(NamedTuple):
    """Sorted by `high`."""

    high: Words
    low: Words
    places: Places

    @classmethod
    def of(cls, parts: Sequence[Run]) -> Run:
        """A run of parts that are not sorted."""
        high, low, places = (np.concatenate(column) for column in zip(*parts, strict=True))
        order = np.argsort(high)
        return cls(high[order], low[order], places[order])

    def find(self, keys: Hashes) -> Iterator[tuple[NDArray[np.intp], Places]]:
        """All entries of these keys, which are sorted by `high`: the number of the key, and the place."""
        at = np.empty(len(keys.high), np.int64)
        _begins(self.high, keys.high, at)
        number = np.arange(len(at))
        while len(at):
            there = at < len(self.high)
            there[there] = self.high[at[there]] == keys.high[number[there]]
            at, number = at[there], number[there]
            equal = self.low[at] == keys.low[number]
            yield number[equal], np.asarray(self.places[at[equal]])
            at = at + 1


def places_in(file: int, positions: Places) -> Places:
    """The places of positions in a file."""
    return np.int64(file << POSITION_BITS) | positions


def files_of(places: Places) -> Places:
    return places >> POSITION_BITS


def positions_of(places: Places) -> Places:
    return places & POSITIONS


class Runs:
    """The runs of an index, the oldest and largest first."""

    def __init__(self) -> None:
        self.runs: list[Run] = []

    def add(self, run: Run, rows: Rows) -> None:
        """Add a run, and merge runs of like sizes. A merge keeps the entries of rows that live."""
        self.runs.append(_mapped(run))
        while len(self.runs) > 1 and len(self.runs[-2].high) < RATIO * len(self.runs[-1].high):
            newer, older = self.runs.pop(), self.runs.pop()
            self.runs.append(_merged(older, newer, rows))

    def find(self, keys: Hashes) -> tuple[NDArray[np.intp], Places]:
        """As `Run.find`, of keys in any order."""
        order = np.argsort(keys.high)
        ordered = keys.take(order)
        found = [(order[:0], np.empty(0, np.int64))]
        found += [(order[number], places) for run in self.runs for number, places in run.find(ordered)]
        numbers, places = zip(*found, strict=True)
        return np.concatenate(numbers), np.concatenate(places)


def _merged(older: Run, newer: Run, rows: Rows) -> Run:
    stay, come = rows.living(older.places), rows.living(newer.places)
    found = _run(int(np.count_nonzero(stay) + np.count_nonzero(come)))
    _merge(*older, stay, *newer, come, *found)
    return found


@kernel(types.void(LONGS, LONGS, FLAGS, FLAGS))
def _living(
    places: Places, starts: NDArray[np.int64], dead: NDArray[np.bool_], found: NDArray[np.bool_]
) -> None:
    for n in range(places.size):
        start = starts[places[n] >> POSITION_BITS]
        found[n] = start != GONE and not dead[start + (places[n] & POSITIONS)]


@kernel(types.void(WORDS, WORDS, LONGS_OUT))
def _begins(run: Words, keys: Words, at: NDArray[np.int64]) -> None:
    """Where each of the keys begins in a run, both sorted: each search begins where the last one ended, with growing steps."""
    low, usual = 0, run.size // max(1, keys.size) + 1
    for n in range(keys.size):
        high, step = low, usual
        while high < run.size and run[high] < keys[n]:
            low, high, step = high + 1, high + step, 2 * step
        high = min(high, run.size)
        while low < high:
            middle = (low + high) >> 1
            if run[middle] < keys[n]:
                low = middle + 1
            else:
                high = middle
        at[n] = low


_RUN = WORDS, WORDS, LONGS_OUT


@kernel(types.void(*_RUN, FLAGS, *_RUN, FLAGS, *_RUN))
def _merge(
    high: Words, low: Words, places: Places, stays: NDArray[np.bool_],
    new_high: Words, new_low: Words, new_places: Places, comes: NDArray[np.bool_],
    to_high: Words, to_low: Words, to_places: Places,
) -> None:  # fmt: skip
    """Two sorted runs as one, without the entries that do not stay or come."""
    a, b = 0, 0
    for n in range(to_high.size):
        while a < high.size and not stays[a]:
            a += 1
        while b < new_high.size and not comes[b]:
            b += 1
        if b == new_high.size or (a < high.size and high[a] <= new_high[b]):
            to_high[n], to_low[n], to_places[n] = high[a], low[a], places[a]
            a += 1
        else:
            to_high[n], to_low[n], to_places[n] = new_high[b], new_low[b], new_places[b]
            b += 1


def filled(size: int, positions: Places, orders: NDArray[np.int64]) -> NDArray[np.int64]:
    """The orders of a file of `size` rows by position, of which some are given."""
    found: NDArray[np.int64] = _room(size, 1)[0].view(np.int64)
    found[:] = NO_ORDER
    found[positions] = orders
    return found


def _mapped(run: Run) -> Run:
    if len(run.high) < MAPPED_KEYS:
        return run
    found = _run(len(run.high))
    for target, each in zip(found, run, strict=True):
        target[:] = each
    return found


def _run(keys: int) -> Run:
    high, low, places = _room(keys, 3)
    return Run(high, low, places.view(np.int64))


def _room(size: int, columns: int) -> NDArray[np.uint64]:
    """Columns of 64-bit words to fill. Large ones are in a file without a name, which is freed with them.

    Raises Suspended: `no_disk`. A file without its blocks would end the process when a page finds no room.
    """
    if size < MAPPED_KEYS:
        return np.empty((columns, size), np.uint64)
    with tempfile.TemporaryFile(prefix="calve-keys-") as file:
        wanted = columns * size * WORD
        try:
            os.posix_fallocate(file.fileno(), 0, wanted)
        except OSError:
            raise _no_disk(wanted) from None
        return np.asarray(np.memmap(file, np.uint64, "r+", shape=(columns, size)))


def _no_disk(wanted: int) -> Suspended:
    place = tempfile.gettempdir()
    free = shutil.disk_usage(place).free
    return Suspended(
        "no_disk",
        f"the index of the table's keys needs {wanted / 1e9:,.1f} GB more in {place}, which has {free / 1e9:,.1f} GB left",
        fix="give the job workers with more disk: set `worker` of the job in calve.yaml to a larger one",
    )
