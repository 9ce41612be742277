"""Sorted runs of keys: arrays of hashes and places, 24 bytes a key. Large ones are mapped from files.

A place is a file's number and a position in it. Equal high halves lie together; their low halves are compared one by one,
because of 4 billion keys only some two share a high half.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from calve.errors import Suspended
from glue_jobs.index.hashing import Hashes, Words

Places = NDArray[np.int64]
NO_ORDER = np.iinfo(np.int64).min
"""The order of a null, which is the least."""
POSITION_BITS = 32
POSITIONS = np.int64((1 << POSITION_BITS) - 1)
MAPPED_KEYS = 1_000_000
"""Runs of so many keys are kept in files."""
CHUNK_KEYS = 4_000_000
RATIO = 4
"""A run is merged with the older one before it unless that is so many times larger."""


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
        """All entries of these keys: the number of the key, and the place. Sorted keys are found fastest."""
        at = np.searchsorted(self.high, keys.high)
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

    def add(self, run: Run, stays: Callable[[Places], NDArray[np.bool_]]) -> None:
        """Add a run, and merge runs of like sizes. A merge keeps the entries for which `stays` is true."""
        self.runs.append(_mapped(run))
        while len(self.runs) > 1 and len(self.runs[-2].high) < RATIO * len(self.runs[-1].high):
            newer, older = self.runs.pop(), self.runs.pop()
            self.runs.append(self._merged(older, newer, stays))

    def find(self, keys: Hashes) -> tuple[NDArray[np.intp], Places]:
        """As `Run.find`."""
        order = np.argsort(keys.high)
        ordered = keys.take(order)
        found = [(order[:0], np.empty(0, np.int64))]
        found += [(order[number], places) for run in self.runs for number, places in run.find(ordered)]
        numbers, places = zip(*found, strict=True)
        return np.concatenate(numbers), np.concatenate(places)

    def _merged(self, older: Run, newer: Run, stays: Callable[[Places], NDArray[np.bool_]]) -> Run:
        older, newer = (self._filtered(each, stays) for each in (older, newer))
        of_newer = np.searchsorted(older.high, newer.high, side="right") + np.arange(len(newer.high))
        found = _run(len(older.high) + len(newer.high))
        of_older = np.ones(len(found.high), bool)
        of_older[of_newer] = False
        for target, one, other in zip(found, older, newer, strict=True):
            target[of_newer] = other
            target[of_older] = one
        return found

    def _filtered(self, run: Run, stays: Callable[[Places], NDArray[np.bool_]]) -> Run:
        kept = np.empty(len(run.places), bool)
        for start in range(0, len(kept), CHUNK_KEYS):
            chunk = slice(start, start + CHUNK_KEYS)
            kept[chunk] = stays(np.asarray(run.places[chunk]))
        return run if kept.all() else Run(run.high[kept], run.low[kept], run.places[kept])


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
        wanted = columns * size * np.dtype(np.uint64).itemsize
        try:
            os.posix_fallocate(file.fileno(), 0, wanted)
        except OSError:
            raise _no_disk(wanted) from None
        return np.memmap(file, np.uint64, "r+", shape=(columns, size))


def _no_disk(wanted: int) -> Suspended:
    place = tempfile.gettempdir()
    free = shutil.disk_usage(place).free
    return Suspended(
        "no_disk",
        f"the index of the table's keys needs {wanted / 1e9:,.1f} GB more in {place}, which has {free / 1e9:,.1f} GB left",
        fix="give the job workers with more disk: set `worker` of the job in calve.yaml to a larger one",
    )
