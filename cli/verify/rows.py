"""The table as an independent reader sees it: PyIceberg reads file by file, so that every row's data file is known."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import AlwaysTrue, And, EqualTo
from pyiceberg.io.pyarrow import ArrowScan, schema_to_pyarrow

from calve.columns import DEAD_LETTERS, LATER, REDRIVEN
from calve.names import SYSTEM_COLUMN
from cli.verify.aged import Aged
from cli.verify.claim import Claim
from cli.verify.columns import arrow_columns
from cli.verify.hashing import column_hashes, row_hashes
from cli.verify.modes import Keyed, Mode
from cli.verify.seals import Seals

if TYPE_CHECKING:
    from pyiceberg.schema import Schema
    from pyiceberg.table import FileScanTask, Table

LETTER_COLUMNS = ("topic", "partition", "offset", "timestamp", "timestamp_type", "key", "value", "headers")
"""What a record is made of: these columns of a dead letter must be the record's, byte for byte."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of one data file: where each comes from, and the hash of each column.

    Where keys tell rows apart also the digest of each row's key, what orders it, and its record's timestamp; `tombstones` are no
    rows, and neither are those that are `idle` (`cli.verify.modes.Keyed`). `batch`: their values, where they are added up.
    `aged`: which of them may have left for their age; None: none.
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

    @property
    def hashes(self) -> Any:
        return row_hashes(self.columns)

    def places(self) -> Iterator[tuple[int, int]]:
        """Partition and offset of each row."""
        yield from zip(self.partitions.to_pylist(), self.offsets.to_pylist(), strict=True)

    @property
    def staying(self) -> Rows:
        """Those that have not come into the age to leave."""
        return self if self.aged is None else self.where(pc.invert(self.aged))

    def where(self, mask: Any) -> Rows:
        """The rows for which `mask` is true."""
        keys, orders, timestamps = (
            None if each is None else each.filter(mask) for each in (self.keys, self.orders, self.timestamps)
        )
        return Rows(
            self.file,
            self.partitions.filter(mask),
            self.offsets.filter(mask),
            [column.filter(mask) for column in self.columns],
            keys,
            orders,
            timestamps,
            self.tombstones,
            self.idle,
            aged=None if self.aged is None else self.aged.filter(mask),
        )


@dataclass(frozen=True, slots=True)
class HeldKeys:
    """Rows of one data file by the digest of their keys; `own`: they are of the incarnation that is proved."""

    file: str
    own: bool
    keys: Any
    partitions: Any
    offsets: Any
    timestamps: Any


class MainRows:
    """The rows of a table, but for files whose rows are `others` by a claim; None: none are."""

    def __init__(
        self, table: Table, *, others: Claim | None, mode: Mode | None = None, aged: Aged | None = None
    ) -> None:
        self.mode = mode
        self.aged = aged
        scan = table.scan()
        self._table = table
        self._schema = scan.projection()
        self.columns: pa.Schema = schema_to_pyarrow(self._schema, include_field_ids=False)
        left_out = _of_others(table, others) if others and others.mixed else set()
        tasks = list(scan.plan_files())
        self.tasks = [task for task in tasks if task.file.file_path not in left_out]
        self._left_out = [task for task in tasks if task.file.file_path in left_out]
        self.rows_left_out = sum(task.file.record_count for task in self._left_out)

    @property
    def names(self) -> list[str]:
        """The columns, in the order of their hashes."""
        return list(self.columns.names)

    def read(self, task: FileScanTask) -> Iterator[Rows]:
        """The rows of a file that position deletes have left."""
        for batch in _batches(self._table, self._schema, task):
            batch = batch.cast(self.columns)
            keyed = self.mode.keyed(batch) if self.mode else None
            yield rows_of(batch, task.file.file_path, keyed, self.aged)

    def batches(self) -> Iterator[tuple[str, pa.RecordBatch]]:
        """The rows themselves, with their file."""
        for task in self.tasks:
            for batch in _batches(self._table, self._schema, task):
                yield task.file.file_path, batch.cast(self.columns)

    @property
    def count(self) -> int:
        """Rows in the data files, before position deletes."""
        return sum(task.file.record_count for task in self.tasks)

    def keys(self, mode: Mode) -> Iterator[HeldKeys]:
        """The keys of all rows, those of other incarnations, too; reads no other columns."""
        fields = (*mode.key, *(f"{SYSTEM_COLUMN}.{name}" for name in ("partition", "offset", "timestamp")))
        schema = self._table.scan(selected_fields=fields).projection()
        columns = schema_to_pyarrow(schema, include_field_ids=False)
        for tasks, own in ((self.tasks, True), (self._left_out, False)):
            for task in tasks:
                for batch in _batches(self._table, schema, task):
                    cast = batch.cast(columns)
                    kafka = cast.column(SYSTEM_COLUMN)
                    place = (kafka.field(name) for name in ("partition", "offset", "timestamp"))
                    yield HeldKeys(task.file.file_path, own, mode.keyed(cast).keys, *place)

    def lowest(self) -> dict[int, int]:
        """The lowest offset held, by partition; reads two columns."""
        schema = self._table.scan(
            selected_fields=(f"{SYSTEM_COLUMN}.partition", f"{SYSTEM_COLUMN}.offset")
        ).projection()
        columns = (
            batch.column(SYSTEM_COLUMN)
            for task in self.tasks
            for batch in _batches(self._table, schema, task)
        )
        return _lowest((each.field("partition"), each.field("offset")) for each in columns)


def rows_of(
    batch: pa.RecordBatch, file: str = "", keyed: Keyed | None = None, aged: Aged | None = None
) -> Rows:
    """The rows of a batch with all columns of the table."""
    kafka = batch.column(SYSTEM_COLUMN)
    place = kafka.field("partition"), kafka.field("offset")
    if keyed is None:
        old = aged.mask(batch, *place) if aged else None
        return Rows(file, *place, comparable(batch), aged=old)
    timestamps = kafka.field("timestamp")
    columns = comparable(batch)
    return Rows(file, *place, columns, keyed.keys, keyed.orders, timestamps, keyed.tombstones, keyed.idle)


def unhashed(batch: pa.RecordBatch) -> Rows:
    """The rows of a batch as they are."""
    kafka = batch.column(SYSTEM_COLUMN)
    return Rows("", kafka.field("partition"), kafka.field("offset"), [], batch=batch)


class LetterRows:
    """The dead letters of one incarnation of a topic, as main of the dead-letter table or another snapshot has them.

    `marked`: places of letters that came back by a redrive whose marks are still on their branch, with its round.
    """

    def __init__(
        self,
        table: Table,
        *,
        topic: str,
        topic_id: str,
        seals: Seals,
        snapshot_id: int | None = None,
        marked: Mapping[tuple[int, int], str] = MappingProxyType({}),
    ) -> None:
        self.topic = topic
        self._marked = marked
        self._seals = seals
        later = tuple(name for name in LATER if name in table.schema().column_names)
        wanted = ("cluster_id", "topic_id", "reason", "round", *later, *LETTER_COLUMNS)
        scan = table.scan(snapshot_id=snapshot_id, selected_fields=wanted)
        self._table = table
        self._topic_id = topic_id
        self._schema = scan.projection()
        self.tasks = list(scan.plan_files())

    @property
    def names(self) -> list[str]:
        """The columns, in the order of their hashes."""
        return list(LETTER_COLUMNS)

    def lowest(self) -> dict[int, int]:
        """The lowest offset held, by partition."""
        return _lowest((rows.partitions, rows.offsets) for task in self.tasks for rows, *_ in self.read(task))

    def read(self, task: FileScanTask) -> Iterator[tuple[Rows, Any, Any, Any]]:
        """Dead letters of a file, the reason of each, the round of the redrive that brought it back, or null, and whether it is
        sealed by a key that nobody here has: its bytes are null then.
        """
        for batch in _batches(self._table, self._schema, task):
            batch = batch.filter(pc.equal(batch.column("topic_id"), self._topic_id))
            batch, unopened = self._seals.opened(batch)
            records = comparable_records(batch.select(list(LETTER_COLUMNS)).cast(letter_columns()))
            rows = Rows(task.file.file_path, batch.column("partition"), batch.column("offset"), records)
            yield rows, batch.column("reason").cast(pa.string()), self._came_back(batch), unopened

    def _came_back(self, batch: pa.RecordBatch) -> Any:
        if self._marked:
            places = zip(
                batch.column("partition").to_pylist(), batch.column("offset").to_pylist(), strict=True
            )
            pending = pa.array((self._marked.get(place) for place in places), pa.string())
        else:
            pending = pa.nulls(batch.num_rows, pa.string())
        if REDRIVEN not in batch.schema.names:
            return pending
        return pc.coalesce(batch.column(REDRIVEN).cast(pa.string()), pending)


def places_marked_by(
    table: Table, round_id: str, *, topic_id: str, snapshot_id: int
) -> dict[tuple[int, int], str]:
    """Where the letters stood that a redrive brought back, as the snapshot of its branch has them, each with that round."""
    chosen: Any = And(EqualTo(REDRIVEN, round_id), EqualTo("topic_id", topic_id))  # type: ignore[call-arg, arg-type]
    scan = table.scan(chosen, snapshot_id=snapshot_id, selected_fields=("partition", "offset"))
    found = scan.to_arrow().to_pylist()
    return {(each["partition"], each["offset"]): round_id for each in found}


def letter_columns() -> pa.Schema:
    """The Arrow schema of a record as a dead letter keeps it."""
    columns = arrow_columns(DEAD_LETTERS)
    return pa.schema([columns.field(name) for name in LETTER_COLUMNS])


def comparable(batch: pa.RecordBatch) -> list[Any]:
    """Column hashes of the table's rows; no headers and an empty list of headers are the same."""
    columns = [
        _with_plain_headers(column) if name == SYSTEM_COLUMN else column
        for name, column in zip(batch.schema.names, batch.columns, strict=True)
    ]
    return column_hashes(columns)


def comparable_records(batch: pa.RecordBatch) -> list[Any]:
    """Column hashes of records as dead letters keep them (`LETTER_COLUMNS`)."""
    return column_hashes(
        [_plain(c) if name == "headers" else c for name, c in zip(LETTER_COLUMNS, batch.columns, strict=True)]
    )


def _with_plain_headers(kafka: Any) -> Any:
    children = [
        _plain(c) if f.name == "headers" else c for f, c in zip(kafka.type, kafka.flatten(), strict=True)
    ]
    return pa.StructArray.from_arrays(children, [each.name for each in kafka.type], mask=kafka.is_null())


def _plain(headers: Any) -> Any:
    return pc.if_else(pc.equal(pc.list_value_length(headers), 0), pa.scalar(None, headers.type), headers)


def _of_others(table: Table, claim: Claim) -> set[str]:
    """The data files with rows of other incarnations of the topic."""
    head = table.current_snapshot()
    entries = (
        entry
        for manifest in (head.manifests(table.io) if head else ())
        for entry in manifest.fetch_manifest_entry(table.io)
    )
    return {
        entry.data_file.file_path
        for entry in entries
        if entry.snapshot_id in claim.others or (entry.sequence_number or 0) <= claim.others_to
    }


def _batches(table: Table, schema: Schema, task: FileScanTask) -> Iterable[pa.RecordBatch]:
    return ArrowScan(table.metadata, table.io, schema, AlwaysTrue()).to_record_batches([task])


def _lowest(places: Iterable[tuple[Any, Any]]) -> dict[int, int]:
    found: dict[int, int] = {}
    for partitions, offsets in places:
        by_partition = pa.table({"partition": partitions, "offset": offsets}).group_by("partition")
        for row in by_partition.aggregate([("offset", "min")]).to_pylist():
            found[row["partition"]] = min(row["offset_min"], found.get(row["partition"], row["offset_min"]))
    return found
