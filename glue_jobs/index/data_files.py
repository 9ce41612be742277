"""Data files, which tasks read by Arrow: keys, values, sums of rows, and whole rows as the table has them now.

The driver gets 24 bytes for a row's key, however long it is. Files name columns as they were once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pyspark import SparkContext

from calve.schema.columns import Json
from calve.schema.evolution import column_at
from calve.table.digests import Sums, together
from glue_jobs.columns.arrow_types import FIELD_ID, arrow_type
from glue_jobs.columns.arrow_types import column_at as values_at
from glue_jobs.columns.digest import sums_of
from glue_jobs.decode.machines.cells import Items
from glue_jobs.iceberg.delete_files import LiveFile, deleted_positions
from glue_jobs.iceberg.storage import Storage, failures
from glue_jobs.index.decision import order_of, ranks
from glue_jobs.index.hashing import Hashes, hashes
from glue_jobs.process.workers import TaskError, cpu_since_last_s

V = TypeVar("V")
FEW, FEW_KEYS, FEW_VALUES = 8, 500_000, 5_000_000
"""The driver itself reads so many files, if they have no more rows together: a Spark job takes longer. Keys are hashed."""
SUMMED_AT_ONCE = 65_536
"""Rows whose hashes are made at once."""


READABLE = ("POSITION_DELETES PARQUET", "POSITION_DELETES PUFFIN")


class Keys(NamedTuple):
    """The keys of a data file's live rows, their positions, and their orders, if the table's mode has one."""

    keys: Hashes
    positions: NDArray[np.int64]
    orders: NDArray[np.int64] | None


class Unreadable(Exception):
    """A data file that only Iceberg knows how to read."""


@dataclass(frozen=True, slots=True)
class KeyColumns:
    """The columns of a key and of an order, by field id and Arrow type. A file names columns as they were when it was written."""

    key: tuple[tuple[int, pa.DataType], ...]
    order: tuple[int, pa.DataType] | None

    @classmethod
    def of(cls, table: Json, key: Sequence[str], order_by: str | None) -> KeyColumns | None:
        """table: Iceberg's struct type. key, order_by: paths of columns. None: Arrow cannot read one of them.

        Arrow casts structs by the names of their fields: a field that was renamed since would become null.
        """
        found = [column_at(table, path) for path in (*key, *filter(None, [order_by]))]
        try:
            columns = [(each["id"], _without_struct(arrow_type(each["type"]))) for each in found if each]
        except KeyError:
            return None
        if len(columns) < len(found) or any("initial-default" in each for each in found if each):
            return None
        return cls(tuple(columns[: len(key)]), columns[-1] if order_by else None)

    def read(self, file: LiveFile, storage: Storage) -> Keys:
        """Raises Retryable: the object store failed. Unreadable."""
        with failures():
            try:
                return self._read(file, storage)
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError):  # whose text may quote a value
                raise Unreadable from None

    def values(self, file: LiveFile, positions: NDArray[np.int64], storage: Storage) -> pa.Table:
        """The columns of the key at positions in ascending order. Raises as `read`."""
        with failures():
            try:
                return self._values(file, positions, storage)
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
                raise Unreadable from None

    def _values(self, file: LiveFile, positions: NDArray[np.int64], storage: Storage) -> pa.Table:
        with storage.open(file.path) as source, pq.ParquetFile(source, pre_buffer=True) as parquet:
            paths = dict(_paths(parquet.schema_arrow))
            if not paths:
                raise Unreadable
            columns = [paths[number] for number, _ in self.key if number in paths]
            names = [str(each) for each, _ in self.key]
            return pa.concat_tables(
                pa.table([_column(rows, paths, each).take(here) for each in self.key], names)
                for rows, here in groups_at(parquet, positions, columns)
            )

    def _read(self, file: LiveFile, storage: Storage) -> Keys:
        high, low, orders = [], [], []
        with storage.open(file.path) as source, pq.ParquetFile(source, pre_buffer=True) as parquet:
            paths = dict(_paths(parquet.schema_arrow))
            if not paths:
                raise Unreadable
            wanted = [column for column in (*self.key, self.order) if column]
            names = [paths[number] for number, _ in wanted if number in paths]
            for number in range(parquet.num_row_groups):
                rows = parquet.read_row_group(number, columns=names)
                found = hashes([_column(rows, paths, each) for each in self.key])
                high.append(found.high)
                low.append(found.low)
                if self.order:
                    orders.append(ranks(order_of(_column(rows, paths, self.order))))
        keys = Hashes(_together(high, np.uint64), _together(low, np.uint64))
        positions = np.arange(len(keys.high))
        order = _together(orders, np.int64) if self.order else None
        if not file.deletes:
            return Keys(keys, positions, order)
        alive = np.ones(len(positions), bool)
        for each in file.deletes:
            alive[deleted_positions(each, file.path, storage)] = False
        positions = np.flatnonzero(alive)
        return Keys(keys.take(positions), positions, None if order is None else order[positions])


def groups_at(
    parquet: pq.ParquetFile, positions: NDArray[np.int64], columns: list[str] | None = None
) -> Iterator[tuple[pa.Table, pa.Array]]:
    """Each row group with one of the positions, which ascend, and these in it. columns: None: all."""
    start = 0
    for number in range(parquet.num_row_groups):
        end = start + parquet.metadata.row_group(number).num_rows
        here = positions[slice(*np.searchsorted(positions, (start, end)))] - start
        start = end
        if len(here):
            yield parquet.read_row_group(number, columns=columns), pa.array(here)


def _without_struct(kind: pa.DataType) -> pa.DataType:
    """Raises KeyError: the type is or contains a struct."""
    if pa.types.is_struct(kind):
        raise KeyError(str(kind))
    if pa.types.is_map(kind):  # whose only field is a struct of keys and values
        _without_struct(kind.key_type)
        _without_struct(kind.item_type)
    elif pa.types.is_list(kind):
        _without_struct(kind.value_type)
    return kind


def is_readable(file: LiveFile) -> bool:
    """Whether Arrow knows the formats of a data file and its delete files."""
    return file.format == "PARQUET" and all(each.kind in READABLE for each in file.deletes)


def read_keys(
    context: SparkContext, columns: KeyColumns, files: Sequence[LiveFile], storage: Storage
) -> tuple[dict[str, Keys], float]:
    """The keys of data files by path, without the unreadable ones, and the CPU seconds of workers.

    Raises Retryable: the object store failed.
    """
    return read_each(context, files, FEW_KEYS, lambda file: columns.read(file, storage))


def read_values(
    context: SparkContext,
    columns: KeyColumns,
    files: Sequence[LiveFile],
    positions: Mapping[str, NDArray[np.int64]],
    storage: Storage,
) -> tuple[dict[str, pa.Table], float]:
    """The same for the values at positions in the files, by path."""
    return read_each(
        context, files, FEW_VALUES, lambda file: columns.values(file, positions[file.path], storage)
    )


def read_each(
    context: SparkContext, files: Sequence[LiveFile], few_rows: int, read: Callable[[LiveFile], V]
) -> tuple[dict[str, V], float]:
    """What is read from each file, by path, without the unreadable ones; and the CPU seconds of workers.

    few_rows: the driver itself reads files that have no more rows together.
    """

    def each(files: Iterable[LiveFile]) -> Iterator[tuple[str, V]]:
        for file in files:
            with suppress(Unreadable):
                yield file.path, read(file)

    if len(files) <= FEW and sum(each.rows for each in files) <= few_rows:
        return dict(each(files)), 0.0
    large_first = sorted(files, key=lambda each: -each.rows)
    tasks = min(len(files), context.defaultParallelism)

    def task(number: int) -> tuple[dict[str, V], float] | TaskError:
        try:
            found = dict(each(large_first[number::tasks]))
        except Exception as error:  # noqa: BLE001 returned as a value
            return TaskError.of(error)
        return found, cpu_since_last_s()

    found: dict[str, V] = {}
    cpu_s = 0.0
    for done in context.parallelize(range(tasks), tasks).map(task).collect():
        if isinstance(done, TaskError):
            raise done.error()
        found |= done[0]
        cpu_s += done[1]
    return found, cpu_s


def sums_of_files(
    context: SparkContext, staged: Sequence[Any], storage: Storage
) -> tuple[Sums | None, float]:
    """The sums of the rows of Iceberg's new data files, and the CPU seconds of workers; None: a file is not Parquet.

    Raises Retryable: the object store failed.
    """

    def read(file: LiveFile) -> Sums:
        with failures(), storage.open(file.path) as source, pq.ParquetFile(source) as found:
            return together(map(sums_of, found.iter_batches(SUMMED_AT_ONCE)))

    files = [
        LiveFile(
            n,
            str(each.location()),
            str(each.format()),
            int(each.recordCount()),
            int(each.fileSizeInBytes()),
            (),
        )
        for n, each in enumerate(staged)
    ]
    if any(each.format != "PARQUET" for each in files):
        return None, 0.0
    found, cpu_s = read_each(context, files, FEW_KEYS, read)
    return together(found.values()), cpu_s


def _paths(fields: Iterable[pa.Field], way: tuple[str, ...] = ()) -> Iterator[tuple[int, str]]:
    """The field ids of columns and fields of structs, with their paths."""
    for each in fields:
        here = (*way, each.name)
        if FIELD_ID in (each.metadata or {}):
            yield int(each.metadata[FIELD_ID]), ".".join(here)
        if pa.types.is_struct(each.type):
            yield from _paths(each.type, here)


def _column(rows: pa.Table, paths: Mapping[int, str], column: tuple[int, pa.DataType]) -> pa.Array:
    """A column as the table has it now; null if the file is older than the column."""
    number, kind = column
    return values_at(rows, paths[number]).cast(kind) if number in paths else pa.nulls(len(rows), kind)


def _together(parts: list[NDArray[Any]], kind: type) -> NDArray[Any]:
    return np.concatenate([np.empty(0, kind), *parts])


Places = Mapping[str, NDArray[np.int64]]


def read_rows(
    context: SparkContext, columns: Json, files: Sequence[LiveFile], places: Places, storage: Storage
) -> tuple[dict[str, pa.Table], float]:
    """The rows at positions of files, by path, without those of unreadable files; and the CPU seconds of workers.

    columns: of the table, as Iceberg's struct type. Raises Retryable: the object store failed.
    """
    return read_each(
        context, files, FEW_VALUES, lambda file: rows_at(columns, file, places[file.path], storage)
    )


def rows_at(columns: Json, file: LiveFile, positions: NDArray[np.int64], storage: Storage) -> pa.Table:
    """The rows at positions, in ascending order. Raises Retryable: the object store failed. Unreadable."""
    if file.format != "PARQUET" or not _is_known(columns):
        raise Unreadable
    with failures():
        try:
            with storage.open(file.path) as source, pq.ParquetFile(source, pre_buffer=True) as parquet:
                return pa.concat_tables(
                    _as_now(rows.take(here), columns) for rows, here in groups_at(parquet, positions)
                )
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):  # whose text may quote a value
            raise Unreadable from None


def _is_known(columns: Json) -> bool:
    """Whether Arrow has all types, and rows that are older than a column have no value for it."""
    try:
        arrow_type(columns)
    except KeyError:
        return False
    return "initial-default" not in json.dumps(columns)


def _as_now(rows: pa.Table, columns: Json) -> pa.Table:
    arrays = [each.combine_chunks() for each in rows.columns]
    names = [each["name"] for each in columns["fields"]]
    return pa.table(_fields(list(rows.schema), arrays, columns, len(rows)), names)


def _fields(fields: Iterable[pa.Field], arrays: Iterable[Any], kind: Json, count: int) -> list[pa.Array]:
    """The fields of a struct type, found by their ids; null if the file is older than one."""
    found = {}
    for field, array in zip(fields, arrays, strict=True):
        if FIELD_ID not in (field.metadata or {}):
            raise Unreadable
        found[int(field.metadata[FIELD_ID])] = array
    return [
        _converted(found[each["id"]], each["type"])
        if each["id"] in found
        else pa.nulls(count, arrow_type(each["type"]))
        for each in kind["fields"]
    ]


def _converted(array: Any, kind: Json) -> pa.Array:
    if isinstance(kind, str):
        return array.cast(arrow_type(kind))
    if kind["type"] == "struct":
        fields = list(array.type)
        made = _fields(fields, (array.field(n) for n in range(len(fields))), kind, len(array))
        return pa.StructArray.from_arrays(made, fields=list(arrow_type(kind)), mask=pc.is_null(array))
    items = Items.of(array)
    of = kind["element"] if kind["type"] == "list" else kind["value"]
    return items.with_values(_converted(items.values, of)).cast(arrow_type(kind))
