"""The index against a dict: whatever happens to the table, a look and reading what it asks for makes it right again."""

from __future__ import annotations

import errno
from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule
from numpy.typing import NDArray

from calve.errors import Suspended
from glue_jobs.index import runs
from glue_jobs.index.hashing import Hashes
from glue_jobs.index.key_index import DeleteFiles, KeyIndex, LiveRows

KEYS = st.integers(0, 40)


def hashed(keys: list[int]) -> Hashes:
    """Hashes whose high halves collide often."""
    found = np.array(keys, np.uint64)
    return Hashes(found % np.uint64(7), found)


def orders_of(path: str, positions: NDArray[np.int64]) -> NDArray[np.int64]:
    """An order for each row, which falls and rises."""
    return (positions * 37 + int(path.removeprefix("file-")) * 11) % 50


def place_of(live: Mapping[str, set[int]], path: str) -> DeleteFiles:
    """One delete file for each set of deleted positions."""
    return frozenset({(repr(sorted(live[path])), 0)} if live[path] else ())


class Histories(RuleBasedStateMachine):
    """files: the keys of each file ever written. live: the data files of the head, with their deleted positions."""

    snapshots = Bundle("snapshots")

    def __init__(self) -> None:
        super().__init__()
        self.files: dict[str, list[int]] = {}
        self.live: dict[str, set[int]] = {}
        self.index = KeyIndex()

    def write(self, keys: list[int]) -> str:
        path = f"file-{len(self.files)}"
        self.files[path] = keys
        return path

    def rows(self) -> list[tuple[int, str, int]]:
        return [
            (key, path, position)
            for path, deleted in self.live.items()
            for position, key in enumerate(self.files[path])
            if position not in deleted
        ]

    def look(self) -> None:
        deletes = {path: place_of(self.live, path) for path in self.live}
        for path in self.index.look(deletes):
            kept = [n for n in range(len(self.files[path])) if n not in self.live[path]]
            keys = hashed([self.files[path][n] for n in kept])
            positions, size = np.array(kept, np.int64), len(self.files[path])
            rows = LiveRows(path, deletes[path], keys, positions, size, orders_of(path, positions))
            self.index.cover([rows])

    @initialize(keys=st.lists(KEYS, max_size=30))
    def begin(self, keys: list[int]) -> None:
        self.live = {self.write(keys): set()}

    @rule(keys=st.lists(KEYS, min_size=1, max_size=20), happens=st.booleans(), told=st.booleans())
    def upsert(self, keys: list[int], *, happens: bool, told: bool) -> None:
        """A round of our own, which deletes losers from its own file. It may fail after the index expected it."""
        self.look()
        live = dict(self.live)
        for path, positions in self.index.find(hashed(keys)).items():
            live[path] = live[path] | set(positions)
            self.index.expect(path, place_of(live, path), self.index.deleted(path) | positions)
        path = self.write(keys)
        live[path] = {n for n, key in enumerate(keys) if key in keys[n + 1 :]}
        kept = np.array([n for n in range(len(keys)) if n not in live[path]])
        found = hashed([keys[n] for n in kept])
        rows = LiveRows(path, place_of(live, path), found, kept, len(keys), orders_of(path, kept))
        self.index.expect_added([rows] if told else [])
        if happens:
            self.live = live

    @rule(keys=st.lists(KEYS, min_size=1, max_size=20))
    def foreign_append(self, keys: list[int]) -> None:
        self.live[self.write(keys)] = set()

    @rule(data=st.data())
    def foreign_delete(self, data: st.DataObject) -> None:
        for _, path, position in (
            data.draw(st.lists(st.sampled_from(self.rows()), max_size=9)) if self.rows() else ()
        ):
            self.live[path] = self.live[path] | {position}

    @rule(data=st.data())
    def foreign_compaction(self, data: st.DataObject) -> None:
        chosen = data.draw(st.sets(st.sampled_from(sorted(self.live)))) if self.live else set()
        keys = [key for key, path, _ in self.rows() if path in chosen]
        self.live = {path: each for path, each in self.live.items() if path not in chosen}
        self.live[self.write(keys)] = set()

    @rule(target=snapshots)
    def remember(self) -> dict[str, set[int]]:
        return dict(self.live)

    @rule(snapshot=snapshots)
    def roll_back(self, snapshot: dict[str, set[int]]) -> None:
        self.live = dict(snapshot)

    @rule()
    def restart(self) -> None:
        self.index = KeyIndex()

    @invariant()
    def index_finds_the_live_rows(self) -> None:
        self.look()
        for keys in (range(0, 42, 2), range(1, 42, 2)):
            expected = {(path, position) for key, path, position in self.rows() if key in keys}
            found = self.index.find(hashed(list(keys)))
            assert {(path, n) for path, positions in found.items() for n in positions} == expected
        held = {key for key, _, _ in self.rows()}
        assert self.index.held(hashed(list(range(42)))).tolist() == [key in held for key in range(42)]
        numbers, orders = self.index.orders(hashed(list(range(42))))
        assert sorted(zip(numbers.tolist(), orders.tolist(), strict=True)) == sorted(
            (key, int(orders_of(path, np.array([position]))[0])) for key, path, position in self.rows()
        )


TestHistories = Histories.TestCase
TestHistories.settings = settings(max_examples=60, stateful_step_count=20, deadline=None)


def test_the_keys_of_our_own_files_are_not_read_again() -> None:
    index, rows = KeyIndex(), hashed([1, 2])
    index.expect_added([LiveRows("ours", frozenset(), rows, np.arange(2), 2)])
    assert index.look({"ours": frozenset(), "theirs": frozenset()}) == ["theirs"]
    assert index.held(hashed([1, 3])).tolist() == [True, False]
    index.expect_added([LiveRows("refused", frozenset(), rows, np.arange(2), 2)])
    assert index.look({"ours": frozenset(), "theirs": frozenset()}) == ["theirs"]
    assert index.look({"refused": frozenset()}) == ["refused"]


def test_a_large_run_lies_in_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "MAPPED_KEYS", 100)
    index = KeyIndex()
    for n in range(5):
        covered(index, f"file-{n}", list(range(n * 60, n * 60 + 120)))
    for key in range(360):
        holders = {f"file-{n}": {key - n * 60} for n in range(5) if 0 <= key - n * 60 < 120}
        assert {path: set(each) for path, each in index.find(hashed([key])).items()} == holders
    assert any(is_mapped(each.high) for each in index._runs.runs)


def is_mapped(values: object) -> bool:
    return isinstance(values, np.memmap) or (values is not None and is_mapped(getattr(values, "base", None)))


def covered(index: KeyIndex, path: str, keys: list[int]) -> None:
    index.cover([LiveRows(path, frozenset(), hashed(keys), np.arange(len(keys)), len(keys))])


def test_a_disk_without_room_is_no_end_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page of a file without blocks, on a full disk, would end it."""

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(runs, "MAPPED_KEYS", 4)
    monkeypatch.setattr("os.posix_fallocate", full)
    with pytest.raises(Suspended, match=r"needs 0\.0 GB more in") as caught:
        covered(KeyIndex(), "file-0", list(range(5)))
    assert caught.value.code == "no_disk"
    assert "`worker`" in (caught.value.fix or "")


def test_entries_of_deleted_rows_do_not_heap_up() -> None:
    index, keys = KeyIndex(), list(range(50))
    deletes: dict[str, DeleteFiles] = {}
    for n in range(100):
        for path, positions in index.find(hashed(keys)).items():
            deletes[path] = frozenset({(f"{path}-deletes", n)})
            index.expect(path, deletes[path], positions)
        deletes[f"file-{n}"] = frozenset()
        index.look(deletes)
        covered(index, f"file-{n}", keys)
    assert sum(len(each.high) for each in index._runs.runs) < len(keys) * 8
    assert list(index.find(hashed(keys))) == ["file-99"]
