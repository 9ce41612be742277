"""Which records of a batch stay in a table by key, on arrays: the newest of each key, or the first (docs/modes.md).

Of the records of one partition the offset decides. Between partitions the timestamp of what each of them would keep decides,
then the partition. So it does not matter in how many parts a batch is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from calve.names import SYSTEM_COLUMN
from glue_jobs.columns.arrow_types import column_at
from glue_jobs.index.hashing import Hashes, hashes

PLACE = ("partition", "offset", "timestamp")
"""Fields of `_kafka` that decide between records of a key."""


class KeyedRecords(NamedTuple):
    """Records with a key, 36 bytes each: arrays of one length. timestamp: microseconds since epoch."""

    high: NDArray[np.uint64]
    low: NDArray[np.uint64]
    partition: NDArray[np.int32]
    offset: NDArray[np.int64]
    timestamp: NDArray[np.int64]

    @classmethod
    def of(cls, rows: pa.Table, key: Sequence[str]) -> KeyedRecords:
        """Those of rows of the table, in their order. key: paths of columns, which have no null."""
        place = (column_at(rows, f"{SYSTEM_COLUMN}.{name}") for name in PLACE)
        partition, offset, timestamp = (_numbers(each) for each in place)
        return cls(*hashes([column_at(rows, path) for path in key]), partition, offset, timestamp)

    @classmethod
    def together(cls, parts: Iterable[KeyedRecords]) -> KeyedRecords:
        columns = (np.concatenate(column) for column in zip(NO_RECORDS, *parts, strict=True))
        return cls._make(columns)

    @property
    def keys(self) -> Hashes:
        return Hashes(self.high, self.low)

    def take(self, places: NDArray[Any]) -> KeyedRecords:
        """places: numbers of records, or a mask."""
        return KeyedRecords._make(column[places] for column in self)


NO_RECORDS = KeyedRecords._make(np.empty(0, each) for each in ("u8", "u8", "i4", "i8", "i8"))


@dataclass(frozen=True, slots=True)
class KeyRule:
    """How a mode chooses among the records of a key. key: paths of columns. newest: keep the newest, not the first.

    deletes: records without a value delete the row of their key.
    """

    key: tuple[str, ...]
    newest: bool
    deletes: bool

    def kept(self, records: KeyedRecords) -> NDArray[np.bool_]:
        """Which of all records of a batch stay: one of each key."""
        in_partition = np.flatnonzero(self.kept_in_partition(records))
        best = records.take(in_partition)
        places = self._chosen((best.high, best.low), (best.timestamp, best.partition))
        found = np.zeros(len(records.high), bool)
        found[in_partition[places]] = True
        return found

    def kept_in_partition(self, records: KeyedRecords) -> NDArray[np.bool_]:
        """Which of some records may stay: one of each key and partition.

        The best of a part between partitions need not be that of the batch, because a later record may replace what it lost to.
        """
        found = np.zeros(len(records.high), bool)
        found[self._chosen((records.high, records.low, records.partition), (records.offset,))] = True
        return found

    def _chosen(self, group: Sequence[NDArray[Any]], by: Sequence[NDArray[Any]]) -> NDArray[np.intp]:
        """The number of one record of each group: the last in this order, or the first."""
        order = np.lexsort((*reversed(by), *reversed(group)))
        if not len(order):
            return order
        columns = (column[order] for column in group)
        differs = reduce(np.logical_or, (each[1:] != each[:-1] for each in columns))
        edge = np.append(differs, True) if self.newest else np.insert(differs, 0, True)
        found: NDArray[np.intp] = order[edge]
        return found


@dataclass(frozen=True, slots=True)
class KeyedFiles:
    """The records of staged data files, by file and position, and those that delete the rows of their keys."""

    rule: KeyRule
    records: tuple[KeyedRecords, ...]
    deletions: KeyedRecords


def without_key(rows: pa.Table, key: Sequence[str]) -> NDArray[np.bool_] | None:
    """Which rows have a null in their key; None: no row."""
    found = [pc.is_null(each) for path in key if (each := column_at(rows, path)).null_count]
    return reduce(pc.or_, found).to_numpy(zero_copy_only=False) if found else None


def _numbers(column: pa.Array) -> NDArray[Any]:
    found: NDArray[Any] = (
        column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column
    ).to_numpy()
    return found
