"""Which records of a batch stay in a table by key, on arrays: the newest of each key, or the first (docs/modes.md).

Of the records of one partition the offset decides. Between partitions the timestamp of what each of them would keep decides,
then the partition. With `order_by`, the greatest value comes first. A deletion ends all records that its partition had before.
So it does not matter in how many parts a batch is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from calve.modes.mode import Mode
from calve.names import SYSTEM_COLUMN
from glue_jobs.columns.arrow_types import column_at, turned
from glue_jobs.index.hashing import Hashes, hashes
from glue_jobs.index.runs import NO_ORDER

PLACE = ("partition", "offset", "timestamp")
"""Fields of `_kafka` that decide between records of a key."""


class KeyedRecords(NamedTuple):
    """Records with a key, 37 bytes each and their orders: arrays of one length. timestamp: microseconds since epoch.

    order: as `order_of`; nulls in tables without `order_by`. deletes: the record deletes the row of its key.
    """

    high: NDArray[np.uint64]
    low: NDArray[np.uint64]
    partition: NDArray[np.int32]
    offset: NDArray[np.int64]
    timestamp: NDArray[np.int64]
    deletes: NDArray[np.bool_]
    order: pa.Array

    @classmethod
    def of(cls, rows: pa.Table, rule: KeyRule, *, deletes: bool = False) -> KeyedRecords:
        """Those of rows of the table, in their order. No key has a null. Records that delete may lack the column of the order."""
        place = (column_at(rows, f"{SYSTEM_COLUMN}.{name}") for name in PLACE)
        partition, offset, timestamp = (_numbers(each) for each in place)
        order = pa.nulls(len(rows))
        if rule.order_by is not None and rule.order_by.partition(".")[0] in rows.column_names:
            order = order_of(column_at(rows, rule.order_by))
        found = hashes([column_at(rows, path) for path in rule.key])
        return cls(found.high, found.low, partition, offset, timestamp, np.full(len(rows), deletes), order)

    @classmethod
    def together(cls, parts: Iterable[KeyedRecords]) -> KeyedRecords:
        *columns, orders = zip(NO_RECORDS, *parts, strict=True)
        order = pa.concat_tables([pa.table([each], ["order"]) for each in orders], promote_options="default")
        return cls._make([*map(np.concatenate, columns), order["order"].combine_chunks()])

    @property
    def keys(self) -> Hashes:
        return Hashes(self.high, self.low)

    def take(self, places: NDArray[Any]) -> KeyedRecords:
        """places: numbers of records, or a mask."""
        here = np.flatnonzero(places) if places.dtype == bool else places
        return KeyedRecords._make([*(column[here] for column in self[:-1]), self.order.take(pa.array(here))])


NO_RECORDS = KeyedRecords._make(
    [*(np.empty(0, each) for each in ("u8", "u8", "i4", "i8", "i8", "?")), pa.nulls(0)]
)


@dataclass(frozen=True, slots=True)
class KeyRule:
    """How a mode chooses among the records of a key. key, order_by: paths of columns. newest: keep the newest, not the first.

    window_ms: keep the first again after so long; None: only once. every: keep all of them.
    """

    key: tuple[str, ...]
    newest: bool
    order_by: str | None = None
    window_ms: int | None = None
    every: bool = False

    @classmethod
    def of(cls, mode: Mode) -> KeyRule:
        """The rule of a mode with a key."""
        return cls(mode.key, mode.replaces_rows, mode.order_by, mode.window_ms, mode.keeps_versions)

    def compared(self, records: KeyedRecords) -> NDArray[np.int64] | None:
        """The values that the index holds of rows (`Mode.compared`): times or numbers, if any."""
        if self.window_ms is not None:
            return records.timestamp
        return ranks(records.order) if pa.types.is_int64(records.order.type) else None

    def kept(self, records: KeyedRecords) -> NDArray[np.bool_]:
        """Which of all records of a batch stay: one of each key. With a window `glue_jobs.index.window` decides."""

        def of_shared(shared: KeyedRecords) -> NDArray[np.intp]:
            places = self._best_of_partitions(shared)
            best = shared.take(places)
            return places[
                self._chosen((best.high, best.low), (ranks(best.order), best.timestamp, best.partition))
            ]

        return _with_lone(records, of_shared)

    def kept_in_part(self, records: KeyedRecords) -> NDArray[np.bool_]:
        """Which records of a part of the batch may stay: the best of each key and partition, and the last deletion of each.

        A part has a range of offsets of each partition: a deletion in another part ends either all or none of its records.
        The best of a part between partitions need not be that of the batch, because a later record may replace what it lost to.
        With a window any record may stay.
        """
        if self.every or self.window_ms is not None:
            return np.ones(len(records.high), bool)

        def of_shared(shared: KeyedRecords) -> NDArray[np.intp]:
            return np.concatenate([self._best_of_partitions(shared), _last_deletions(shared)])

        return _with_lone(records, of_shared)

    def _best_of_partitions(self, records: KeyedRecords) -> NDArray[np.intp]:
        """The number of the best record of each key and partition; a deletion only where no record is left after it."""
        places = np.arange(len(records.high))
        if records.deletes.any():
            places = np.flatnonzero(~ended(records))
            records = records.take(places)
        group = (records.high, records.low, records.partition)
        return places[self._chosen(group, (~records.deletes, ranks(records.order), records.offset))]

    def _chosen(self, group: Sequence[NDArray[Any]], by: Sequence[NDArray[Any]]) -> NDArray[np.intp]:
        """The number of one record of each group: the last in this order, or the first."""
        return _edges(group, by, last=self.newest)


def resets(records: KeyedRecords, chosen: KeyedRecords) -> NDArray[np.bool_]:
    """Which of the chosen records have a key that some record deletes: they replace the table's row, whatever its order."""
    found: NDArray[np.bool_] = np.isin(pairs(chosen), pairs(records.take(records.deletes)))
    return found


def overtaken(records: KeyedRecords, numbers: NDArray[np.intp], orders: pa.Array) -> NDArray[np.bool_]:
    """Which records lose to rows of their keys. numbers: of the record of each row. orders: of the rows, as `order_of`."""
    ours, found = records.order.take(pa.array(numbers)), np.zeros(len(records.offset), bool)
    if pa.types.is_null(orders.type):
        return found
    greater = pc.coalesce(pc.greater(orders, ours), pc.and_(orders.is_valid(), ours.is_null()))
    found[numbers[greater.to_numpy(zero_copy_only=False)]] = True
    return found


def pairs(keys: Hashes | KeyedRecords) -> NDArray[Any]:
    """Both halves of each key as one value, which numpy's set operations know."""
    return np.rec.fromarrays([keys.high, keys.low])


def order_of(column: pa.Array) -> pa.Array:
    """Values that are ordered as those of a column, as Spark compares: 64-bit numbers, bytes or decimals. Null is the least."""
    kind = column.type
    if pa.types.is_decimal(kind):
        return column.cast(pa.decimal128(38, kind.scale))
    if not (pa.types.is_primitive(kind) or pa.types.is_null(kind)):
        return column.cast(pa.binary())
    if pa.types.is_floating(kind):
        bits = (column.cast(pa.float64()).to_numpy(zero_copy_only=False) + 0.0).view(np.int64)
        numbers = pa.array(turned(bits), mask=column.is_null().to_numpy(zero_copy_only=False))
    else:
        numbers = (column.cast(pa.int32()) if pa.types.is_date32(kind) else column).cast(pa.int64())
    return pc.max_element_wise(numbers, NO_ORDER + 1, skip_nulls=False)


def ranks(order: pa.Array) -> NDArray[np.int64]:
    """Numbers that are ordered as these values of `order_of`; equal values have one number."""
    if pa.types.is_null(order.type):
        return np.full(len(order), NO_ORDER)
    if pa.types.is_int64(order.type):
        numbers: NDArray[np.int64] = pc.fill_null(order, NO_ORDER).to_numpy()
        return numbers
    found = pc.rank(order, tiebreaker="min").to_numpy().astype(np.int64)
    return np.where(order.is_valid().to_numpy(zero_copy_only=False), found, NO_ORDER)


def _with_lone(
    records: KeyedRecords, of_shared: Callable[[KeyedRecords], NDArray[np.intp]]
) -> NDArray[np.bool_]:
    """The records whose key no other has, and those that are chosen of the others. Most keys of a batch have one record."""
    order = np.argsort(records.high)
    ordered = records.high[order]
    same = np.zeros(len(order), bool)
    same[:-1] = ordered[1:] == ordered[:-1]
    shared = np.sort(order[same | np.roll(same, 1)])
    found = np.ones(len(order), bool)
    found[shared] = False
    found[shared[of_shared(records.take(shared))]] = True
    return found


def _last_deletions(records: KeyedRecords) -> NDArray[np.intp]:
    places = np.flatnonzero(records.deletes)
    found = records.take(places)
    return places[_edges((found.high, found.low, found.partition), (found.offset,), last=True)]


def ended(records: KeyedRecords) -> NDArray[np.bool_]:
    """Which records a later deletion of their key and partition ends."""
    order = np.lexsort((records.offset, records.partition, records.low, records.high))
    ordered = records.take(order)
    number = np.arange(len(order))
    group = np.cumsum(starts((ordered.high, ordered.low, ordered.partition))) - 1
    last = np.full(len(order), -1)
    np.maximum.at(last, group[ordered.deletes], number[ordered.deletes])
    found = np.empty(len(order), bool)
    found[order] = number < last[group]
    return found


def _edges(group: Sequence[NDArray[Any]], by: Sequence[NDArray[Any]], *, last: bool) -> NDArray[np.intp]:
    """The number of the last record of each group in this order, or of the first."""
    order = np.lexsort((*reversed(by), *reversed(group)))
    begins = starts([column[order] for column in group])
    found: NDArray[np.intp] = order[np.append(begins[1:], True)[: len(order)] if last else begins]
    return found


def starts(columns: Sequence[NDArray[Any]]) -> NDArray[np.bool_]:
    """Where a new group begins, in columns whose groups lie together."""
    differs = reduce(np.logical_or, (each[1:] != each[:-1] for each in columns))
    return np.insert(differs, 0, True)[: len(columns[0])]


@dataclass(frozen=True, slots=True)
class KeyedFiles:
    """The records of staged data files, by file and position, and those that delete the rows of their keys.

    aside: rows that are in no file, because rows of their keys lack values.
    """

    rule: KeyRule
    records: tuple[KeyedRecords, ...]
    deletions: KeyedRecords
    aside: pa.Table | None = None


def without_key(rows: pa.Table, key: Sequence[str]) -> NDArray[np.bool_] | None:
    """Which rows have a null in their key; None: no row."""
    found = [pc.is_null(each) for path in key if (each := column_at(rows, path)).null_count]
    return reduce(pc.or_, found).to_numpy(zero_copy_only=False) if found else None


def _numbers(column: pa.Array) -> NDArray[Any]:
    found: NDArray[Any] = (
        column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column
    ).to_numpy()
    return found
