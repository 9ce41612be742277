"""The fold of a topic, without the job's code: which record of each key is the row of an upsert table.

Within a partition: a tombstone deletes all records before it; then the greatest order counts, then the greatest offset. Keys of
several partitions are folded in the order of the rounds that read them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from calve.modes.switch import kind_of
from calve.schema.change_events import UNAVAILABLE
from cli.verify.claim import Round, numbers_of
from cli.verify.columns import column_hashes, is_bytes, is_list, is_text, row_hashes
from cli.verify.rows import ByFile, Rows, Spots

STATES = 2_000_000
"""Records to collect before a fold."""

TRUNCATES = "t"
Key = tuple[int, int]
Blanks = Mapping[int, int]
"""Index of a column that a database's updates may leave out -> the hash of its placeholder."""


@dataclass(slots=True)
class Fold:
    """Add records in the order of their offsets, partition by partition.

    `blanks`: values that updates may lack. `forgotten`: places whose records are deleted. `ambiguous`: keys of several partitions
    with tombstones, whose order cannot be known afterwards.
    """

    rounds: Sequence[Round]
    ordered: bool
    blanks: Blanks = field(default_factory=dict)
    forgotten: Spots = field(default_factory=Spots)
    ambiguous: int = 0
    _truncations: list[_Truncation] = field(default_factory=list)
    _held: list[pa.Table] = field(default_factory=list)
    _newest: pa.Table | None = None

    def add(self, found: Iterable[Rows]) -> None:
        """Add all rows and tombstones, with their keys, of the next offsets.

        Later calls must not have earlier offsets: a replaced record would count again if a tombstone lay between them.
        """
        truncations: list[_Truncation] = []
        for rows in found:
            if rows.idle is None and len(rows.offsets):
                self._held.append(_states(rows, whole=bool(self.blanks)))
            elif rows.idle == TRUNCATES:
                truncations += _truncations(rows)
        for each in truncations:
            self._held = [held.filter(pc.invert(each.ends_here(held))) for held in self._held]
        self._truncations += truncations
        if sum(each.num_rows for each in self._held) >= STATES:
            self._held = [self._folded()]

    def newest(self) -> pa.Table:
        """The one record of each key that counts, or its tombstone: all columns of `add`."""
        if self._newest is None:
            if not self._held:
                return _nothing()
            folded = self._folded()
            for each in self._truncations:
                folded = folded.filter(pc.invert(each.ends_elsewhere(folded)))
            self._newest = self._across(folded)
            self._held = []
        return self._newest

    def _folded(self) -> pa.Table:
        held = pa.concat_tables(self._held)
        if self.blanks and held.num_rows:
            held = filled(held, self.blanks, ordered=self.ordered)
        return _newest_of(held)

    def overtaken(self, keys: set[int]) -> None:
        """Remove keys whose row has a greater order, and whose record Kafka has deleted."""
        if keys:
            newest = self.newest()
            wanted = pa.array(sorted(keys), pa.uint64())
            self._newest = newest.filter(pc.invert(pc.is_in(newest["key"], wanted)))

    def rows(self) -> tuple[Any, Any, Any]:
        """Partition, offset and hash of every row that the table must have."""
        alive = self.newest()
        alive = alive.filter(pc.invert(alive["dead"].cast(pa.bool_())))
        if self.forgotten.ranges:
            places = alive["partition"].to_numpy(), alive["offset"].to_numpy()
            alive = alive.filter(pa.array(~self.forgotten.masks(*places)))
        return tuple(alive[name].combine_chunks() for name in ("partition", "offset", "hash"))

    def places(self) -> set[Key]:
        """The places of these rows."""
        partitions, offsets, _ = self.rows()
        return set(zip(partitions.to_pylist(), offsets.to_pylist(), strict=True))

    def filled(self) -> dict[Key, tuple[int, ...]]:
        """The places of rows with values from earlier rows, and the hashes of their columns."""
        if not self.blanks or not self.newest().num_rows:
            return {}
        found = self.newest().filter(self.newest()["filled"])
        places = zip(found["partition"].to_pylist(), found["offset"].to_pylist(), strict=True)
        return dict(zip(places, map(tuple, found["columns"].to_pylist()), strict=True))

    def figures(self) -> Mapping[str, int]:
        """The number of keys, and of those that a tombstone deleted."""
        newest = self.newest()
        dead = pc.sum(newest["dead"].cast(pa.int64())).as_py() or 0
        return {"keys": newest.num_rows - dead, "deleted": dead}

    def _across(self, newest: pa.Table) -> pa.Table:
        """Of each key the record that counts, among all partitions."""
        if not newest.num_rows:
            return newest
        names = ("key", "partition", "offset", "timestamp", "reset")
        key, partition, offset, timestamp, reset = (newest[name].to_numpy() for name in names)
        read_by = self._read_by(partition, offset)
        order = np.lexsort((partition, timestamp, read_by, _ranks(newest["order"]), key))
        starts = np.flatnonzero(np.r_[True, np.diff(key[order]) != 0])
        ends = np.r_[starts[1:], len(order)]
        if self.ordered:
            resets = np.logical_or.reduceat(reset[order], starts)
            self.ambiguous += int((resets & (ends - starts > 1)).sum())
        return newest.take(pa.array(np.sort(order[ends - 1])))

    def _read_by(self, partitions: Any, offsets: Any) -> Any:
        """The numbers of the rounds that read these records; -1 if the snapshot has expired.

        Rounds that appended, before the mode was upsert, count as one: they were folded together.
        """
        appended = [kind_of(each.mode) == "append" for each in self.rounds]
        folded = [each for n, each in enumerate(self.rounds) if not (n and appended[n] and appended[n - 1])]
        found = numbers_of(folded[::-1], partitions, offsets)
        return np.maximum(found, 0) if folded and folded[-1].mode is None else found


@dataclass(frozen=True, slots=True)
class _Truncation:
    """Deletes earlier offsets in its partition, and older records in others; with an order, lesser ones."""

    partition: int
    offset: int
    timestamp: int
    order: Any

    def ends_here(self, records: pa.Table) -> Any:
        here = pc.equal(records["partition"], self.partition)
        return pc.and_(pc.and_(here, pc.less(records["offset"], self.offset)), self._older(records))

    def ends_elsewhere(self, records: pa.Table) -> Any:
        elsewhere = pc.not_equal(records["partition"], self.partition)
        older = pc.less(records["timestamp"], self.timestamp)
        return pc.and_(elsewhere, older if self.order is None else self._older(records))

    def _older(self, records: pa.Table) -> Any:
        if self.order is None:
            return pa.repeat(pa.scalar(True), records.num_rows)  # noqa: FBT003 a value
        return pc.fill_null(pc.less(records["order"], self.order), True)  # noqa: FBT003 a value


def _truncations(rows: Rows) -> list[_Truncation]:
    columns = rows.partitions, rows.offsets, rows.timestamps.cast(pa.int64()), rows.orders
    return [_Truncation(*each) for each in zip(*(column.to_pylist() for column in columns), strict=True)]


def _states(rows: Rows, *, whole: bool) -> pa.Table:
    size = len(rows.offsets)
    columns = {
        "key": rows.keys,
        "partition": rows.partitions.cast(pa.int64()),
        "offset": rows.offsets.cast(pa.int64()),
        "timestamp": rows.timestamps.cast(pa.int64()),
        "hash": rows.hashes,
        "order": rows.orders,
        "dead": pa.repeat(pa.scalar(rows.tombstones), size),
        "reset": pa.repeat(pa.scalar(rows.tombstones), size),
    }
    if whole:
        by_row = np.stack([each.to_numpy(zero_copy_only=False) for each in rows.columns], axis=1)
        columns["columns"] = pa.FixedSizeListArray.from_arrays(pa.array(by_row.reshape(-1)), by_row.shape[1])
        columns["filled"] = pa.repeat(pa.scalar(False), size)  # noqa: FBT003 a value
    return pa.table(columns)


def _nothing() -> pa.Table:
    numbers = dict.fromkeys(("key", "hash"), pa.uint64()) | dict.fromkeys(("partition", "offset"), pa.int64())
    kinds = numbers | {"order": pa.null()} | dict.fromkeys(("dead", "reset"), pa.bool_())
    return pa.schema(list(kinds.items())).empty_table()


def _newest_of(records: pa.Table) -> pa.Table:
    """Of each key and partition the record that counts, with `reset` if a tombstone lies at it or before it."""
    if not records.num_rows:
        return records
    offset, dead, reset = (records[name].to_numpy() for name in ("offset", "dead", "reset"))
    order, starts = by_key(records)
    group = np.repeat(np.arange(len(starts)), np.diff(np.r_[starts, len(order)]))
    last_dead = np.maximum.reduceat(np.where(dead[order], offset[order], -1), starts)
    was_reset = np.logical_or.reduceat(reset[order], starts)
    counts = offset[order] >= last_dead[group]
    places, group = order[counts], group[counts]
    rank = _ranks(records["order"])[places]
    final = np.lexsort((offset[places], rank, ~dead[places], group))
    last = np.r_[np.flatnonzero(np.diff(group[final])), len(final) - 1]
    chosen = records.take(pa.array(places[final][last]))
    return chosen.set_column(chosen.schema.get_field_index("reset"), "reset", pa.array(was_reset))


def _ranks(orders: Any) -> Any:
    """Integers in the order of the values; null is the least."""
    if pa.types.is_null(orders.type):
        return np.zeros(len(orders), np.int64)
    values = orders.combine_chunks()
    ranks = pc.rank(values, sort_keys="ascending", tiebreaker="dense").to_numpy().astype(np.int64)
    return np.where(values.is_valid().to_numpy(zero_copy_only=False), ranks, 0)


def blanks_in(columns: pa.Schema) -> dict[int, int]:
    """The blanks of a table of a database's changes."""
    found: dict[int, int] = {}
    for place, each in enumerate(columns):
        for blank in (UNAVAILABLE, UNAVAILABLE.encode(), [UNAVAILABLE], [(UNAVAILABLE, UNAVAILABLE)]):
            if _is_of(blank, each.type):
                found[place] = column_hashes([pa.array([blank], each.type)])[0][0].as_py()
    return found


def filled(records: pa.Table, blanks: Blanks, *, ordered: bool) -> pa.Table:
    """Records with the hashes of their columns (`columns`), with blanks filled in; `filled`: it had any.

    `ordered`: a record with a lesser `order` than the row changes nothing.
    """
    before = records["columns"].combine_chunks().flatten().to_numpy().reshape(records.num_rows, -1)
    lacking = (before[:, list(blanks)] == np.array(list(blanks.values()), np.uint64)).any(axis=1)
    if not lacking.any():
        return records
    columns = before.copy()
    order, starts = by_key(records)
    some = np.logical_or.reduceat(lacking[order], starts)
    for start, end in zip(starts[some], np.r_[starts[1:], len(order)][some], strict=True):
        group = order[start:end]
        _fill(columns, group, records.take(pa.array(group)), blanks, ordered=ordered)
    changed = (columns != before).any(axis=1)
    hashes = row_hashes([pa.array(np.ascontiguousarray(column)) for column in columns.T])
    made = {
        "columns": pa.FixedSizeListArray.from_arrays(pa.array(columns.reshape(-1)), columns.shape[1]),
        "hash": hashes,
        "filled": pa.array(changed | records["filled"].to_numpy()),
    }
    for name, array in made.items():
        records = records.set_column(records.schema.get_field_index(name), name, array)
    return records


def by_key(records: pa.Table) -> tuple[Any, Any]:
    """The record indexes sorted by key, partition and offset, and the start of each key and partition."""
    key, partition, offset = (records[name].to_numpy() for name in ("key", "partition", "offset"))
    order = np.lexsort((offset, partition, key))
    return order, np.flatnonzero(np.r_[True, (np.diff(key[order]) != 0) | (np.diff(partition[order]) != 0)])


def _fill(columns: Any, places: Any, records: pa.Table, blanks: Blanks, *, ordered: bool) -> None:
    row = None
    held: tuple[Any, ...] = (False,)
    dead, orders = records["dead"].to_pylist(), records["order"].to_pylist()
    for place, deletes, order in zip(places, dead, orders, strict=True):
        if deletes:
            row, held = None, (False,)
            continue
        rank = (False,) if order is None else (True, order)
        if ordered and rank < held:
            continue
        for column, blank in blanks.items():
            if row is not None and columns[place, column] == np.uint64(blank):
                columns[place, column] = columns[row, column]
        row, held = place, rank


def _is_of(value: Any, kind: Any) -> bool:
    """Whether a value has the type without conversion."""
    if isinstance(value, list):
        pair = isinstance(value[0], tuple)
        if pa.types.is_map(kind):
            return pair and _is_of(value[0][0], kind.key_type) and _is_of(value[0][1], kind.item_type)
        return not pair and is_list(kind) and _is_of(value[0], kind.value_type)
    return is_bytes(kind) if isinstance(value, bytes) else is_text(kind)


class KeyCheck:
    """Compares the keys of the table's rows with the fold: no duplicate keys, and no outdated rows."""

    def __init__(self, fold: Fold) -> None:
        self._fold = fold
        self._held: list[pa.Table] = []

    def take(self, rows: Rows, provable: Any) -> None:
        """Add rows; `provable`: Kafka still has their records."""
        files = pa.repeat(pa.scalar(rows.file), len(rows.offsets)).dictionary_encode()
        columns = [rows.keys, rows.partitions, rows.offsets, rows.orders, files, provable]
        names = ["key", "partition", "offset", "order", "file", "provable"]
        self._held.append(pa.table(columns, names=names))

    def judge(self) -> tuple[ByFile, ByFile]:
        """Rows whose key another row has, and rows that later records have changed: by file and partition."""
        if not self._held:
            return {}, {}
        held = pa.concat_tables(self._held)
        counts = held.group_by("key").aggregate([("key", "count")])
        doubled = counts.filter(pc.greater(counts["key_count"], 1))["key"]
        unprovable = held.filter(pc.invert(held["provable"]))
        stale: ByFile = {}
        if unprovable.num_rows:
            newest = self._fold.newest().select(["key", "order", "reset"])
            known = unprovable.join(newest, "key", join_type="inner", right_suffix="_now").to_pylist()
            greater = {row["key"] for row in known if self._overtakes(row)}
            self._fold.overtaken(greater)
            stale = _by_file([row for row in known if row["key"] not in greater])
        return _by_file(held.filter(pc.is_in(held["key"], doubled)).to_pylist()), stale

    def _overtakes(self, row: dict[str, Any]) -> bool:
        """Whether the row stands against all records of its key that Kafka still has."""
        if not self._fold.ordered or row["reset"] or row["order"] is None:
            return False
        return row["order_now"] is None or row["order"] > row["order_now"]


def _by_file(rows: list[dict[str, Any]]) -> ByFile:
    found: ByFile = {}
    for row in rows:
        found.setdefault((row["file"], row["partition"]), []).append(row["offset"])
    return found
