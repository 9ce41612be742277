"""The rows of a table, read file by file with PyIceberg, and the rows that were deleted for their age or a person (ADR 24)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import ArrowScan, schema_to_pyarrow

from calve.config.maintenance import retained
from calve.names import SYSTEM_COLUMN
from calve.requests.forget import Entry, Places, united
from calve.schema.columns import CHANGE, HISTORY
from calve.table.position import Offsets, TopicKey
from cli import lake
from cli.verify.claim import Bounds, Claim
from cli.verify.columns import SHIFT, column_at, column_hashes, number, only_keys, row_hashes, within
from cli.verify.keyed.modes import Mode

if TYPE_CHECKING:
    from pyiceberg.schema import Schema
    from pyiceberg.table import FileScanTask, Table

ByFile = dict[tuple[str, int], list[int]]
"""Offsets of rows by their file and partition."""


@dataclass(frozen=True, slots=True)
class Aged:
    """Rows whose `column` is before a moment, with offsets below `to`, may be deleted and are not compared.

    rows: how many were deleted.
    """

    column: str
    before: datetime
    to: Offsets
    rows: int

    @classmethod
    def of(cls, table: Table | None, topic: TopicKey) -> Aged | None:
        """The retention that a table noted for a topic's incarnation; None: nothing was deleted for its age."""
        if table is None:
            return None
        line = lake.ancestors(table)
        newest = retained(line, table.properties)
        if newest is None:
            return None
        before = datetime.fromtimestamp(0, UTC) + timedelta(microseconds=newest.before_us)
        return cls(newest.column, before, dict(newest.to.get(topic, {})), newest.rows)

    def mask(self, batch: pa.RecordBatch, partitions: Any, offsets: Any) -> Any:
        values = column_at(batch, self.column)
        limit = self.before.date() if pa.types.is_date(values.type) else self.before
        if pa.types.is_timestamp(values.type) and values.type.tz is None:
            limit = self.before.replace(tzinfo=None)
        old = pc.less(values, pa.scalar(limit, values.type))
        below = within(partitions, offsets, {partition: (0, to) for partition, to in self.to.items()})
        return pc.fill_null(pc.and_(old, below), False)  # noqa: FBT003 a value

    def may_be(self, partition: int, offset: int, timestamp_ms: int) -> bool:
        """Whether a record may have been a dead letter that was deleted: it is older than its rejection."""
        return offset < self.to.get(partition, 0) and timestamp_ms < self.before.timestamp() * 1000


class Spots:
    """Ranges of places of one incarnation of a topic."""

    def __init__(self, places: Places | None = None, topic: TopicKey | None = None) -> None:
        partitions = places.get(str(topic), {}) if places else {}
        ranges = sorted(
            (number(int(p), a), number(int(p), b)) for p, each in partitions.items() for a, b in each
        )
        self._starts, self._ends = np.array(ranges, np.int64).reshape(-1, 2).T
        self.count = int((self._ends - self._starts).sum())

    def masks(self, partitions: Any, offsets: Any) -> Any:
        numbers = number(partitions.astype(np.int64), offsets)
        at = np.searchsorted(self._starts, numbers, side="right") - 1
        return numbers < np.append(self._ends, 0)[at]

    def spans(self) -> Iterator[tuple[int, int, int]]:
        """Partition, first offset, and the one after the last."""
        for first, end in zip(self._starts.tolist(), self._ends.tolist(), strict=True):
            partition = first >> SHIFT
            yield partition, first - number(partition, 0), end - number(partition, 0)

    def within(self, spans: Mapping[int, Bounds]) -> Iterator[dict[int, Bounds]]:
        """The ranges one by one, cut to the spans of their partitions."""
        for partition, start, to in self.spans():
            first, end = spans.get(partition, (0, 0))
            if max(start, first) < min(to, end):
                yield {partition: (max(start, first), min(to, end))}


@dataclass(frozen=True, slots=True)
class Forgotten:
    """Rows and dead letters deleted by `forget`. since: the table's first offsets, noted when its history was deleted; empty if
    unknown.
    """

    requests: int = 0
    rows: Spots = field(default_factory=Spots)
    dead_letters: Spots = field(default_factory=Spots)
    since: Offsets = field(default_factory=dict)

    @classmethod
    def of(cls, properties: Mapping[str, str], topic: TopicKey) -> Forgotten:
        """The deletions that a table's properties list for a topic's incarnation."""
        entries = [each for each in Entry.all(properties) if each.problem is None]
        rows = reduce(united, (each.row_places for each in entries), Places())
        dead_letters = reduce(united, (each.letter_places for each in entries), Places())
        since = next((each.since for each in reversed(entries) if each.since), {}).get(str(topic), {})
        return cls(len(entries), Spots(rows, topic), Spots(dead_letters, topic), since)


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of one data file: the place of each, and the hash of each column.

    With a key also the digest of each row's key, its order value, and its record's timestamp. `tombstones`: they delete rows.
    `idle`: they make no row; `t`: they truncate all rows before them. `batch`: values to aggregate. `aged`: which rows may be
    deleted for their age; None: none. `deleted`: of versions, which of them delete their row.
    """

    file: str
    partitions: Any
    offsets: Any
    columns: list[Any]
    keys: Any = None
    orders: Any = None
    timestamps: Any = None
    tombstones: bool = False
    idle: str | None = None
    batch: Any = None
    aged: Any = None
    deleted: Any = None

    @property
    def hashes(self) -> Any:
        return row_hashes(self.columns)

    def places(self) -> Iterator[tuple[int, int]]:
        yield from zip(self.partitions.to_pylist(), self.offsets.to_pylist(), strict=True)

    @property
    def staying(self) -> Rows:
        return self if self.aged is None else self.where(pc.invert(self.aged))

    def where(self, mask: Any) -> Rows:
        filtered: dict[str, Any] = {
            name: None if (each := getattr(self, name)) is None else each.filter(mask)
            for name in ("partitions", "offsets", "keys", "orders", "timestamps", "aged", "deleted")
        }
        columns = [column.filter(mask) for column in self.columns]
        return replace(self, **filtered, columns=columns, batch=None)


class MainRows:
    """The rows of a table, without files of the claim's `others`; None: all files.

    former: the number of rows that a former writer left, once all are read. These rows are left out.
    """

    def __init__(
        self, table: Table, *, others: Claim | None, mode: Mode | None = None, aged: Aged | None = None
    ) -> None:
        self.former = 0
        self._adopted = others.start if others and others.adopted is not None else None
        self.mode = mode
        self.aged = aged
        scan = table.scan()
        self._table = table
        self._schema = scan.projection()
        columns = schema_to_pyarrow(self._schema, include_field_ids=False)
        own = columns if mode is None or not mode.versions else without_history(columns)
        self.of_records: pa.Schema = own
        """The columns that the records have. When they are valid is in a column behind them."""
        self.columns: pa.Schema = pa.schema([*own, *(each for each in columns if each.name not in own.names)])
        left_out = _of_others(table, others) if others and others.mixed else set()
        tasks = list(scan.plan_files())
        self.tasks = [task for task in tasks if task.file.file_path not in left_out]
        self._left_out = [task for task in tasks if task.file.file_path in left_out]
        self.rows_left_out = sum(task.file.record_count for task in self._left_out)

    def read(self, files: Collection[str] | None = None) -> Iterator[Rows]:
        """The rows, without deleted ones. files: only of these."""
        for file, batch in self.batches(files):
            yield rows_of(batch, file, self.mode, self.aged)

    def batches(self, files: Collection[str] | None = None) -> Iterator[tuple[str, pa.RecordBatch]]:
        for task in self.tasks:
            if files is None or task.file.file_path in files:
                for batch in batches_of(self._table, self._schema, task):
                    own = self._own(batch, count=files is None)
                    yield task.file.file_path, own.select(self.columns.names).cast(self.columns)

    def _own(self, batch: pa.RecordBatch, *, count: bool) -> pa.RecordBatch:
        """The batch without rows of a former writer."""
        if self._adopted is None:
            return batch
        spans = {partition: (offset, 1 << SHIFT) for partition, offset in self._adopted.items()}
        own = batch.filter(within(*place_in(batch), spans))
        self.former += batch.num_rows - own.num_rows if count else 0
        return own

    @property
    def count(self) -> int:
        """Rows in the data files, before position deletes."""
        return sum(task.file.record_count for task in self.tasks)

    def keys(self, mode: Mode) -> Iterator[tuple[Rows, bool]]:
        """The keys of all rows, and whether they are of the incarnation that is proved; reads only key columns."""
        fields = (*mode.key, *(f"{SYSTEM_COLUMN}.{name}" for name in ("partition", "offset", "timestamp")))
        schema = self._table.scan(selected_fields=fields).projection()
        columns = schema_to_pyarrow(schema, include_field_ids=False)
        tasks = (*((task, True) for task in self.tasks), *((task, False) for task in self._left_out))
        for task, own in tasks:
            for batch in batches_of(self._table, schema, task):
                cast = batch.cast(columns)
                place, moments = place_in(cast), cast.column(SYSTEM_COLUMN).field("timestamp")
                rows = Rows(task.file.file_path, *place, [], mode.digests(cast), timestamps=moments)
                yield rows, own

    def lowest(self) -> dict[int, int]:
        """The lowest offset held, by partition; reads two columns."""
        names = (f"{SYSTEM_COLUMN}.partition", f"{SYSTEM_COLUMN}.offset")
        schema = self._table.scan(selected_fields=names).projection()
        return lowest_of(
            place_in(batch) for task in self.tasks for batch in batches_of(self._table, schema, task)
        )


def place_in(batch: pa.RecordBatch) -> tuple[Any, Any]:
    """Partition and offset of each row."""
    kafka = batch.column(SYSTEM_COLUMN)
    return kafka.field("partition"), kafka.field("offset")


def rows_of(
    batch: pa.RecordBatch,
    file: str = "",
    mode: Mode | None = None,
    aged: Aged | None = None,
    *,
    tombstones: bool = False,
    idle: str | None = None,
) -> Rows:
    """The rows of a batch with all columns of the table. mode: their keys decide which of them count, or are aggregated."""
    place = place_in(batch)
    if mode is None:
        columns = column_hashes(batch.columns)
        return Rows(file, *place, columns, aged=aged.mask(batch, *place) if aged else None)
    if mode.totals:
        return Rows(file, *place, [], batch=batch)
    if mode.versions:
        return _versions_of(batch, file, mode, tombstones=tombstones, idle=idle)
    orders = column_at(batch, mode.order_by) if mode.order_by else pa.nulls(batch.num_rows)
    moments = batch.column(SYSTEM_COLUMN).field("timestamp")
    columns = column_hashes(batch.columns)
    return Rows(file, *place, columns, mode.digests(batch), orders, moments, tombstones, idle)


def without_history(columns: pa.Schema) -> pa.Schema:
    return pa.schema([each for each in columns if each.name != HISTORY["name"]])


def _versions_of(batch: pa.RecordBatch, file: str, mode: Mode, *, tombstones: bool, idle: str | None) -> Rows:
    """Rows of the table, or of the topic: those have no `_history`. A version that deletes has nothing but its key."""
    if HISTORY["name"] in batch.schema.names:
        history = batch.column(HISTORY["name"])
        times, deleted = history.field("valid_from"), history.field("deleted")
    else:
        times = pc.coalesce(*(column_at(batch, each) for each in mode.times))
        deleted = pa.repeat(pa.scalar(tombstones), batch.num_rows)
        if mode.changes is not None and not tombstones:
            deleted = pc.coalesce(column_at(batch, f"{CHANGE['name']}.deleted"), deleted)
    keys, place = mode.digests(batch), place_in(batch)
    if tombstones:
        batch = only_keys(batch, mode.key)
    return Rows(file, *place, column_hashes(batch.columns), keys, times, idle=idle, deleted=deleted)


def _of_others(table: Table, claim: Claim) -> set[str]:
    """The data files with rows of other incarnations of the topic."""
    head, known, (first, end) = table.current_snapshot(), claim.of_snapshots, claim.own
    entries = (
        entry
        for manifest in (head.manifests(table.io) if head else ())
        for entry in manifest.fetch_manifest_entry(table.io)
    )
    return {
        entry.data_file.file_path
        for entry in entries
        if not known.get(entry.snapshot_id or 0, first <= (entry.sequence_number or 0) < end)
    }


def batches_of(table: Table, schema: Schema, task: FileScanTask) -> Iterable[pa.RecordBatch]:
    return ArrowScan(table.metadata, table.io, schema, AlwaysTrue()).to_record_batches([task])


def lowest_of(places: Iterable[tuple[Any, Any]]) -> dict[int, int]:
    found: dict[int, int] = {}
    for partitions, offsets in places:
        by_partition = pa.table({"partition": partitions, "offset": offsets}).group_by("partition")
        for row in by_partition.aggregate([("offset", "min")]).to_pylist():
            found[row["partition"]] = min(row["offset_min"], found.get(row["partition"], row["offset_min"]))
    return found
