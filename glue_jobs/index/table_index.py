"""The key index of one table: reads the keys that it lacks, and writes deletes of the rows of given keys."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyroaring import BitMap64
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from calve.schema.evolution import column_at
from glue_jobs.columns.expressions import at, key_columns
from glue_jobs.iceberg.catalog import Table
from glue_jobs.iceberg.delete_files import NO_FILES, LiveFile, LiveFiles, write_deletes
from glue_jobs.iceberg.exposure import require_own_paths
from glue_jobs.iceberg.staging import FILE, POSITION, Deletes, Staged, rows_of
from glue_jobs.iceberg.storage import Storage
from glue_jobs.index.data_files import KeyColumns, Keys, is_readable, read_keys, read_rows, read_values
from glue_jobs.index.decision import KeyedRecords, order_of, ranks, starts
from glue_jobs.index.hashing import Hashes, hashes
from glue_jobs.index.key_index import DeleteFiles, Held, KeyIndex, LiveRows, bitmap
from glue_jobs.index.runs import NO_ORDER, Places
from glue_jobs.process.workers import map_in_arrow

ORDER, NUMBER = "order", "calve:number"
HASHED = T.StructType(
    [T.StructField(name, T.LongType()) for name in ("file", "position", ORDER, "high", "low")]
)
NUMBERS = ("boolean", "int", "long", "float", "double", "date", "timestamp", "timestamptz")
"""Types of orders that the index holds: 64-bit numbers."""
READ_ROWS = 4_000_000
"""Rows of files that are read together. This bounds the driver's memory."""


@dataclass(frozen=True, slots=True)
class AddedFile:
    """A data file of the commit to come, with the keys and orders of its rows by position. kept: which of them are not dead."""

    file: Any
    keys: Hashes
    orders: NDArray[np.int64] | None
    kept: NDArray[np.bool_]

    @property
    def path(self) -> str:
        return str(self.file.location())

    @property
    def dead(self) -> BitMap64:
        return bitmap(np.flatnonzero(~self.kept))

    def live_rows(self, deletes: DeleteFiles) -> LiveRows:
        positions = np.flatnonzero(self.kept)
        orders = None if self.orders is None else self.orders[positions]
        return LiveRows(self.path, deletes, self.keys.take(positions), positions, len(self.kept), orders)


class TableIndex:
    """Finds the rows of a table by its key. It may be lost at any time. compared: the column that its mode compares."""

    def __init__(self, compared: str | None = None) -> None:
        self._compared = compared
        self._index = KeyIndex()
        self._columns: tuple[str, ...] = ()
        self._snapshot: int | None = None
        self._live_at: int | None = None
        self._live = NO_FILES
        self._files_read = 0
        self._plans = 0
        self._read_cpu_s = 0.0

    def stage_deletes(
        self, table: Table, keys: DataFrame, columns: Sequence[str], stage_id: str
    ) -> Deletes | None:
        """As `delete`. `keys` has one column for each of `columns`, in their order."""
        return self.delete(table, hashed(keys.toArrow()), columns, stage_id)

    def delete(
        self,
        table: Table,
        keys: Hashes,
        columns: Sequence[str],
        stage_id: str,
        added: Sequence[AddedFile] = (),
    ) -> Deletes | None:
        """Write deletes for main's rows whose `columns` match one of the `keys`, as of its last refresh; None if there are none.

        Keys are unique and not null. added: the files of the same commit: their dead rows are deleted, too.
        Raises Suspended: `foreign_path`: other people could read the files' location.
        """
        head = self._look(table, tuple(columns)) if len(keys.high) else None
        found = {} if head is None else self._index.find(keys)
        again = partial(self.delete, table, keys, columns, f"{stage_id}-again", added)
        return self._delete(table, head, found, stage_id, again, added)

    def delete_at(
        self, table: Table, found: Mapping[str, BitMap64], stage_id: str, added: Sequence[AddedFile] = ()
    ) -> Deletes | None:
        """As `delete`, of rows at positions of main's files, where they were at the last look. Others' rewrites end the round."""
        return self._delete(table, self._snapshot, found, stage_id, lambda: None, added)

    def _delete(
        self,
        table: Table,
        head: int | None,
        found: Mapping[str, BitMap64],
        stage_id: str,
        again: Callable[[], Deletes | None],
        added: Sequence[AddedFile] = (),
    ) -> Deletes | None:
        require_own_paths(table)
        dead = {each.path: each.dead for each in added if each.dead}
        deleted = {path: self._index.deleted(path) | positions for path, positions in found.items()} | dead
        data_files = {path: self._live.file(path) for path in found}
        data_files |= {each.path: each.file for each in added}
        written = write_deletes(table, deleted, data_files, stage_id) if deleted else []
        made = dict(zip(deleted, written, strict=True))
        replaced = {path: self._live.replaceable(table, path) for path in found}
        for path in found:
            gone = _identity(replaced[path])
            self._index.expect(
                path, (_known(self._live.files[path]) - gone) | _identity([made[path]]), deleted[path]
            )
        self._index.expect_added(
            each.live_rows(_identity([made[each.path]] if each.dead else ())) for each in added
        )
        if not written:
            return None
        old, rows = tuple(each for one in replaced.values() for each in one), sum(map(len, found.values()))
        return Deletes(head, tuple(written), old, tuple(found), rows, again)

    def committed(self, table: Table, snapshot_id: int, staged: Staged) -> None:
        """Take over the files of a commit, if main had no other since the last look. Else the next look reads all manifests."""
        if self._snapshot is not None and table.java.snapshot(snapshot_id).parentId() == self._snapshot:
            deletes = staged.deletes
            changes = (deletes.files, deletes.replaced) if deletes else ((), ())
            self._live, self._live_at = self._live.changed(table, staged.files, *changes), snapshot_id

    def holds(self, table: Table, keys: Hashes, columns: Sequence[str]) -> NDArray[np.bool_]:
        """Which of the `keys` a row of main has in its `columns`, as of its last refresh."""
        if self._look(table, tuple(columns)) is None:
            return np.zeros(len(keys.high), bool)
        return self._index.held(keys)

    def orders(self, table: Table, keys: Hashes, columns: Sequence[str]) -> tuple[NDArray[np.intp], pa.Array]:
        """Main's rows of these keys, as of its last refresh: the number of the key of each, and its `order_of` `compared`.

        The index has numbers. Texts and the like are read from the rows.
        """
        assert self._compared is not None, "the mode has an order"  # noqa: S101
        if self._in_index(table) is None:
            numbers, rows = self.values(table, keys, columns, [self._compared])
            return numbers, order_of(rows[self._compared].combine_chunks())
        if self._look(table, tuple(columns)) is None:
            return np.empty(0, np.intp), pa.nulls(0)
        numbers, orders = self._index.orders(keys)
        return numbers, pa.array(orders, mask=orders == NO_ORDER)

    def near(
        self, table: Table, records: KeyedRecords, columns: Sequence[str], choose: Callable[[Held, Held], Any]
    ) -> dict[str, Places]:
        """The positions of main's rows of the keys of these records, by file.

        choose: which of the rows are wanted, by the keys and orders of rows and records.
        """
        if self._look(table, tuple(columns)) is None:
            return {}
        order = np.lexsort((records.low, records.high))
        begins = starts((records.high[order], records.low[order]))
        key_of = np.empty(len(order), np.intp)  # the number of each record's key
        key_of[order] = np.cumsum(begins) - 1
        of_records = key_of, ranks(records.order)
        keys = records.keys.take(order[begins])
        return self._index.chosen(keys, lambda rows: choose(rows, of_records))

    @contextmanager
    def rows_of_keys(
        self, table: Table, records: KeyedRecords, columns: Sequence[str], choose: Callable[[Held, Held], Any]
    ) -> Iterator[DataFrame | None]:
        """The rows that are `near`, with `FILE` and `POSITION`; None: there are none. Read them inside the block."""
        with _rows_at(table, self.near(table, records, columns, choose)) as rows:
            yield rows

    def rows_at(self, table: Table, places: Mapping[str, Places]) -> pa.Table | None:
        """The rows at positions of main's files, with `FILE` and `POSITION`; None: there are none.

        Iceberg reads the files if Arrow cannot read one of them.
        """
        files, spark = [self._live.files[path] for path in places], table.lake.spark
        found, cpu_s = read_rows(spark.sparkContext, table.schema, files, places, Storage.of(spark))
        self._files_read += len(files)
        self._read_cpu_s += cpu_s
        if len(found) == len(files):
            parts = [_with_places(found[path], path, each) for path, each in places.items()]
            return pa.concat_tables(parts) if parts else None
        with _rows_at(table, places) as rows:
            return None if rows is None else rows.toArrow()

    def bytes_at(self, places: Mapping[str, Places]) -> float:
        """The bytes of rows at positions of main's files, as of the last look: compressed, all columns."""
        return sum(self._live.files[path].bytes_of(len(each)) for path, each in places.items())

    def values(
        self, table: Table, keys: Hashes, columns: Sequence[str], wanted: Sequence[str]
    ) -> tuple[NDArray[np.intp], pa.Table]:
        """Main's rows of these keys, as of its last refresh: the number of the key of each, and its values in `wanted`.

        Reads those columns of row groups that have such rows. Iceberg reads the files if Arrow cannot read one of them.
        """
        names, numbers, positions = list(wanted), {}, {}
        if self._look(table, tuple(columns)) is not None:
            for path, of_keys, places in self._index.places(keys):
                numbers[path], positions[path] = of_keys, places
        read = KeyColumns.of(table.schema, wanted, None)
        files, parts = [self._live.files[path] for path in positions], {}
        if read is not None and all(each.format == "PARQUET" for each in files):
            parts = self.values_at(table, read, files, positions)
        if read is None or len(parts) < len(files):
            return _values_by_spark(table, numbers, positions, names)
        found = np.concatenate([np.empty(0, np.intp), *(numbers[path] for path in parts)])
        empty = pa.table([pa.array([], kind) for _, kind in read.key], names)
        return found, pa.concat_tables([empty, *(each.rename_columns(names) for each in parts.values())])

    def bytes_of(self, table: Table, keys: Hashes, columns: Sequence[str]) -> float:
        """The bytes of main's rows of these keys in their files, as of its last refresh: compressed, all columns."""
        if self._look(table, tuple(columns)) is None:
            return 0.0
        places = self._index.places(keys)
        return sum(self._live.files[path].bytes_of(len(here)) for path, _, here in places)

    def values_at(
        self,
        table: Table,
        read: KeyColumns,
        files: Sequence[LiveFile],
        positions: Mapping[str, NDArray[np.int64]],
    ) -> dict[str, pa.Table]:
        """The values at positions of Parquet files, by path; without the files that Arrow cannot read."""
        spark = table.lake.spark
        found, cpu_s = read_values(spark.sparkContext, read, files, positions, Storage.of(spark))
        self._files_read += len(files)
        self._read_cpu_s += cpu_s
        return found

    def times(
        self, table: Table, keys: Hashes, columns: Sequence[str], since: int, until: int
    ) -> tuple[NDArray[np.intp], NDArray[np.int64]]:
        """Main's rows of these keys whose timestamps are between two times: the number of the key, and the time, of each.

        Some further rows are among them. Times are in microseconds. `compared` is the timestamp.
        Keeps the keys of files with such rows only: the rest of the table does not count.
        """
        if self._look(table, tuple(columns), (since, until)) is None:
            return np.empty(0, np.intp), np.empty(0, np.int64)
        return self._index.orders(keys)

    def _look(
        self, table: Table, columns: tuple[str, ...], times: tuple[int, int] | None = None
    ) -> int | None:
        """Move the index to main's snapshot; returns its id, or None if it has no rows. times: only files with rows of these."""
        head = table.head if table.total("data-files") else None
        if columns != self._columns:
            self._index, self._columns, self._snapshot = KeyIndex(), columns, None
        if head is None or (head == self._snapshot and times is None):
            return head
        if head != self._live_at or times is not None:
            self._live = LiveFiles.of(table, times)
            self._plans += 1
        deletes = {path: _known(each) for path, each in self._live.files.items()}
        unknown = self._index.look(deletes)
        self._files_read += len(unknown)
        for paths in _chunks(unknown, self._live.files):
            self._index.cover(
                LiveRows(path, deletes[path], keys, positions, self._live.files[path].rows, orders)
                for path, (keys, positions, orders) in self._keys(table, paths)
            )
        self._snapshot = self._live_at = head if times is None else None
        return head

    def reading(self) -> tuple[int, int, float]:
        """What was read since the last call: plans, data files, and the CPU seconds of workers that read these."""
        found = self._plans, self._files_read, self._read_cpu_s
        self._plans, self._files_read, self._read_cpu_s = 0, 0, 0.0
        return found

    def _keys(self, table: Table, paths: Sequence[str]) -> Iterator[tuple[str, Keys]]:
        """The keys of data files. Iceberg reads the files that Arrow cannot read."""
        order_by = self._in_index(table)
        columns = KeyColumns.of(table.schema, self._columns, order_by)
        read: dict[str, Keys] = {}
        if columns is not None:
            files = [file for path in paths if is_readable(file := self._live.files[path])]
            spark = table.lake.spark
            read, cpu_s = read_keys(spark.sparkContext, columns, files, Storage.of(spark))
            self._read_cpu_s += cpu_s
        yield from read.items()
        if left := [each for each in paths if each not in read]:
            yield from self._keys_by_spark(table, left, order_by)

    def _in_index(self, table: Table) -> str | None:
        """The column that the mode compares, if the index has it: it has numbers alone."""
        found = column_at(table.schema, self._compared) if self._compared else None
        return self._compared if found is not None and found["type"] in NUMBERS else None

    def _keys_by_spark(
        self, table: Table, paths: Sequence[str], order_by: str | None
    ) -> Iterator[tuple[str, Keys]]:
        order = at(order_by) if order_by else F.lit(None).cast("long")
        planned = LiveFiles.of(table)
        tasks = [planned.task(path) for path in paths]
        with rows_of(table, tasks, with_places=True) as rows:
            assert rows is not None, "there are files"  # noqa: S101
            place = F.xxhash64(FILE).alias(FILE), F.col(POSITION), order.alias(ORDER)
            columns = [*place, *key_columns(self._columns)]
            read = map_in_arrow(
                rows.where(F.col(FILE).isin(paths)).select(*columns), _hash_keys, HASHED
            ).toArrow()
        named = table.lake.spark.createDataFrame([(each,) for each in paths], f"{FILE} string")
        numbers = [row[0] for row in named.select(F.xxhash64(FILE)).collect()]
        files, positions, orders, high, low = (each.to_numpy() for each in read.columns)
        keys = Hashes(high.view(np.uint64), low.view(np.uint64))
        by_file = np.lexsort((positions, files))
        grouped = files[by_file]
        for path, number in zip(paths, numbers, strict=True):
            here = by_file[slice(*(np.searchsorted(grouped, number, side) for side in ("left", "right")))]
            yield path, Keys(keys.take(here), positions[here], orders[here] if order_by else None)


def _hash_keys(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Runs in tasks: the driver gets 40 bytes for a row, however long its key is."""
    for batch in batches:
        file, position, order, *key = batch.columns
        found = (pa.array(half.view(np.int64)) for half in hashes(key))
        yield pa.RecordBatch.from_arrays(
            [file, position, pa.array(ranks(order_of(order))), *found], HASHED.names
        )


def _values_by_spark(
    table: Table, numbers: Mapping[str, NDArray[Any]], positions: Mapping[str, NDArray[Any]], names: list[str]
) -> tuple[NDArray[np.intp], pa.Table]:
    """As `TableIndex.values`, of rows at positions in files."""
    every = np.concatenate([np.empty(0, np.int64), *numbers.values()])
    with _rows_at(table, positions, {NUMBER: every}) as rows:
        held = table.rows.withColumn(NUMBER, F.lit(0)).limit(0) if rows is None else rows
        found = held.select(F.col(NUMBER), *(at(each).alias(each) for each in names)).toArrow()
    return found[NUMBER].to_numpy(), found.select(names)


@contextmanager
def _rows_at(
    table: Table, positions: Mapping[str, NDArray[Any]], beside: Mapping[str, NDArray[Any]] | None = None
) -> Iterator[DataFrame | None]:
    """The rows at positions of files, with `FILE` and `POSITION`, and the columns of `beside`, which has a value for each."""
    if not positions:
        yield None
        return
    named = np.repeat(list(positions), [len(each) for each in positions.values()]).astype(str)
    places = pa.table({FILE: named, POSITION: np.concatenate([*positions.values()]), **(beside or {})})
    wanted, planned = F.broadcast(table.lake.spark.createDataFrame(places)), LiveFiles.of(table)
    with rows_of(table, [planned.task(path) for path in positions], with_places=True) as rows:
        assert rows is not None, "there are files"  # noqa: S101
        yield rows.select("*", FILE, POSITION).join(wanted, [FILE, POSITION])


def _with_places(rows: pa.Table, path: str, positions: Places) -> pa.Table:
    named = pa.repeat(pa.scalar(path), len(rows))
    return rows.append_column(FILE, named).append_column(POSITION, pa.array(positions, pa.int64()))


def hashed(keys: pa.Table) -> Hashes:
    return hashes([each.combine_chunks() for each in keys.columns])


def _known(file: LiveFile) -> DeleteFiles:
    return frozenset((each.path, each.offset or 0) for each in file.deletes)


def _identity(deletes: Iterable[Any]) -> DeleteFiles:
    """The same for Java's delete files."""
    return frozenset((str(each.location()), int(each.contentOffset() or 0)) for each in deletes)


def _chunks(paths: Sequence[str], live: Mapping[str, LiveFile]) -> Iterator[list[str]]:
    """The paths in groups of some `READ_ROWS` rows."""
    ends = np.cumsum([live[path].rows for path in paths]) // READ_ROWS
    for number in np.unique(ends):
        yield [path for path, end in zip(paths, ends, strict=True) if end == number]
