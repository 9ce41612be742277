"""Where the live rows of a table lie, by key: a cache that the table corrects each time (ADR 45).

The index covers data files. A file is covered with its delete files: the index has an entry for each row that these leave.
To use it at a snapshot, read the keys of those live files that it does not cover with the deletes that they have there.
So a start, a foreign compaction, a rollback and another writer's append or delete are one case.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from pyroaring import BitMap64

from glue_jobs.index.hashing import Hashes
from glue_jobs.index.runs import NO_ORDER, Places, Rows, Run, Runs, files_of, filled, places_in, positions_of

DeleteFiles = frozenset[tuple[str, int]]
"""The delete files of a data file: the location of each, and the offset in it."""


Held = tuple[NDArray[np.intp], NDArray[np.int64]]
"""The number of the key of each row, and its order."""


class LiveRows(NamedTuple):
    """The live rows of a data file of `size` rows, with its delete files: the keys of the rows, and their positions.

    orders: as `glue_jobs.index.decision.order_of`, if the table's mode has an order.
    """

    path: str
    deletes: DeleteFiles
    keys: Hashes
    positions: Places
    size: int
    orders: NDArray[np.int64] | None = None


@dataclass(slots=True)
class _File:
    """A covered data file. deleted: positions of rows that its delete files delete. orders: by position.

    expected: the same after a commit of our own, if that takes place.
    """

    path: str
    number: int
    deletes: DeleteFiles
    deleted: BitMap64
    orders: NDArray[np.int64] | None
    expected: tuple[DeleteFiles, BitMap64] | None = None


class KeyIndex:
    """The live rows of one table at one snapshot."""

    def __init__(self) -> None:
        self._runs, self._rows = Runs(), Rows()
        self._files: dict[str, _File] = {}
        self._by_number: list[_File | None] = []
        self._added: list[LiveRows] = []

    def look(self, live: Mapping[str, DeleteFiles]) -> list[str]:
        """Move to a snapshot with these data files; returns those to `cover` first."""
        for path, file in list(self._files.items()):
            if file.expected is not None and live.get(path) == file.expected[0]:
                self._rows.delete(file.number, _array(file.expected[1] - file.deleted))
                file.deletes, file.deleted = file.expected
            file.expected = None
            if live.get(path) != file.deletes:
                del self._files[path]
                self._by_number[file.number] = None
                self._rows.drop(file.number)
        added, self._added = self._added, []
        self.cover(each for each in added if live.get(each.path) == each.deletes)
        return [path for path in live if path not in self._files]

    def cover(self, files: Iterable[LiveRows]) -> None:
        """Add live data files."""
        runs = []
        for path, deletes, keys, positions, size, orders in files:
            deleted = BitMap64() if len(positions) == size else BitMap64(range(size)) - bitmap(positions)
            by_position = None if orders is None else filled(size, positions, orders)
            file = _File(path, self._rows.add(size, positions), deletes, deleted, by_position)
            self._by_number.append(file)
            self._files[path] = file
            runs.append(Run(*keys, places_in(file.number, positions)))
        if runs:
            self._runs.add(Run.of(runs), self._rows)

    def find(self, keys: Hashes) -> dict[str, BitMap64]:
        """The positions of all live rows with these keys, by the path of their file."""
        return {path: bitmap(positions) for path, _, positions in self.places(keys)}

    def held(self, keys: Hashes) -> NDArray[np.bool_]:
        """Which of these keys a live row has."""
        found = np.zeros(len(keys.high), bool)
        found[self._found(keys)[0]] = True
        return found

    def orders(self, keys: Hashes) -> tuple[NDArray[np.intp], NDArray[np.int64]]:
        """The live rows of these keys: the number of the key of each, and its order, `NO_ORDER` if it is unknown."""
        numbers, places = self._found(keys)
        return numbers, self._orders(places)

    def chosen(self, keys: Hashes, choose: Callable[[Held], NDArray[np.bool_]]) -> dict[str, Places]:
        """The positions of those live rows of these keys that are chosen by the number of their key and their order, by file."""
        numbers, places = self._found(keys)
        if len(places):
            places = places[choose((numbers, self._orders(places)))]
        return {file.path: positions_of(places[here]) for file, here in self._grouped(places)}

    def places(self, keys: Hashes) -> Iterator[tuple[str, NDArray[np.intp], Places]]:
        """The live rows of these keys by file: its path; the number of the key of each row; the positions, in ascending order."""
        numbers, places = self._found(keys)
        for file, here in self._grouped(places):
            yield file.path, numbers[here], positions_of(places[here])

    def deleted(self, path: str) -> BitMap64:
        """The positions of the deleted rows of a covered file."""
        return self._files[path].deleted

    def expect(self, path: str, deletes: DeleteFiles, deleted: BitMap64) -> None:
        """Note the delete files that a covered file has, and all rows that they delete, if our commit takes place."""
        self._files[path].expected = deletes, deleted

    def expect_added(self, files: Iterable[LiveRows]) -> None:
        """Note the live rows of data files that our next commit adds, if it takes place. Those noted before are dropped."""
        self._added = list(files)

    def _found(self, keys: Hashes) -> tuple[NDArray[np.intp], Places]:
        """All live rows of these keys: the number of the key of each, and its place."""
        numbers, places = self._runs.find(keys)
        living = self._rows.living(places)
        return numbers[living], places[living]

    def _orders(self, places: Places) -> NDArray[np.int64]:
        found = np.full(len(places), NO_ORDER)
        for file, here in self._grouped(places):
            if file.orders is not None:
                found[here] = file.orders[positions_of(places[here])]
        return found

    def _grouped(self, places: Places) -> Iterator[tuple[_File, NDArray[np.intp]]]:
        """Each live file of these places, and which places it has."""
        order = np.argsort(places)
        numbers, starts = np.unique(files_of(places[order]), return_index=True)
        for number, here in zip(numbers.tolist(), np.split(order, starts)[1:], strict=True):
            if file := self._by_number[number]:
                yield file, here


def bitmap(positions: Places) -> BitMap64:
    """The same as `BitMap64(positions)`, which would take each one as a Python number."""
    return BitMap64(array("Q", positions.tobytes()))


def _array(positions: BitMap64) -> Places:
    return np.asarray(positions.to_array(), np.int64)
