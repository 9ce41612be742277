"""Proves where a table of another writer goes on: the records before the offsets are in it, the records behind are not (ADR 74).

A record is looked for by its place, if the table has columns with places, else by the contents of its row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io.pyarrow import schema_to_pyarrow

from calve.errors import CalveError
from calve.table.position import Offsets
from calve.table.protocol import TopicState
from cli.move.copies import WINDOW, unproved
from cli.move.former import PlaceColumns
from cli.verify.columns import Array, column_at, column_hashes, number, row_hashes
from cli.verify.counts import Filters
from cli.verify.formats.decoding import Decoding
from cli.verify.rows import batches_of, place_in
from cli.verify.topic import Reader

if TYPE_CHECKING:
    from pyiceberg.table import Table


@dataclass(frozen=True, slots=True)
class Place:
    """Where a partition goes on. compared: records before it that are in the table. missing: those that are not."""

    partition: int
    offset: int
    compared: int
    missing: int


@dataclass
class Compared:
    """Rows by the columns that table and records have in common."""

    columns: pa.Schema

    def hashes(self, rows: pa.RecordBatch) -> Array:
        found = [rows.column(each.name).cast(each.type) for each in self.columns]
        return row_hashes(column_hashes(found)).to_numpy()


@dataclass
class Source:
    """The rows that the topic's records make. filters: finds records of other tables."""

    topic: TopicState
    reader: Reader
    decoder: Decoding
    filters: Filters
    compared: Compared

    def rows(self, spans: Mapping[int, tuple[int, int]]) -> dict[int, tuple[Array, Array]]:
        """The offsets and hashes of the records that make a row, by partition, in order."""
        found: dict[int, list[tuple[Array, Array]]] = {partition: [] for partition in spans}
        for records in self.reader.read(spans):
            living = records.without(self.filters.places(records))
            for batch in self.decoder.rows(living).batches:
                partitions, offsets = (each.to_numpy() for each in place_in(batch))
                hashes = self.compared.hashes(batch)
                for partition in np.unique(partitions).tolist():
                    here = partitions == partition
                    found[partition].append((offsets[here], hashes[here]))
        return {partition: _together(each) for partition, each in found.items()}


def _together(parts: Sequence[tuple[Array, Array]]) -> tuple[Array, Array]:
    offsets = np.concatenate([np.empty(0, np.int64), *(each for each, _ in parts)])
    hashes = np.concatenate([np.empty(0, np.uint64), *(each for _, each in parts)])
    order = np.argsort(offsets, kind="stable")
    return offsets[order], hashes[order]


class RowsByPlace:
    """The table's rows by the places of their records. unplaced: the number of rows that do not say it."""

    def __init__(self, table: Table, columns: PlaceColumns, topic: str, compared: Compared) -> None:
        self._table, self._columns, self._topic, self._compared = table, columns, topic, compared
        self.next: Offsets = {}
        self.unplaced = 0
        self._held: dict[int, int] = {}
        for batch in self._read(()):
            self.unplaced += column_at(batch, columns.offset).null_count
            _, partitions, offsets = self._of_topic(batch)
            for partition in np.unique(partitions).tolist():
                greatest = int(offsets[partitions == partition].max())
                self.next[partition] = max(greatest + 1, self.next.get(partition, 0))

    def look(self, spans: Mapping[int, tuple[int, int]]) -> None:
        """Read the rows of these offsets."""
        for batch in self._read(self._compared.columns.names):
            rows, partitions, offsets = self._of_topic(batch)
            firsts = np.array([spans.get(p, (2**62,))[0] for p in partitions.tolist()], np.int64)
            near = offsets >= firsts
            hashes = self._compared.hashes(rows.filter(pa.array(near)))
            places = number(partitions[near].astype(np.int64), offsets[near])
            self._held |= dict(zip(places.tolist(), hashes.tolist(), strict=True))

    def _read(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """All rows, with their places and the columns of these names."""
        columns = self._columns
        paths = [path for path in (columns.partition, columns.offset, columns.topic) if path]
        return _batches(self._table, (*paths, *names))

    def _of_topic(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, Array, Array]:
        """The rows of the topic that have a place, with partitions and offsets."""
        columns = self._columns
        chosen = column_at(batch, columns.offset).is_valid()
        if columns.topic:
            chosen = pc.and_(chosen, pc.equal(column_at(batch, columns.topic), self._topic))
        rows = batch.filter(chosen)
        partitions, offsets = (column_at(rows, path) for path in (columns.partition, columns.offset))
        return rows, partitions.to_numpy(), offsets.to_numpy()

    def judge(self, partition: int, to: int, offsets: Array, hashes: Array) -> Place:
        """Raises CalveError: the place is not proved."""
        if self.next.get(partition, 0) > to:
            raise CalveError(f"the table has rows up to offset {self.next[partition] - 1}, behind {to}")
        held = [self._held.get(each) for each in number(partition, offsets).tolist()]
        for offset, row, wanted in zip(offsets.tolist(), held, hashes.tolist(), strict=True):
            if row is not None and row != wanted:
                raise CalveError(
                    f"the row of offset {offset} is not that of its record; name the columns to compare: --by"
                )
        return _placed(partition, to, offsets, np.array([each is not None for each in held], bool))


class RowsByContents:
    """The hashes of the table's rows, and how often each is there. exact: the former writer has noted the offsets."""

    def __init__(self, hashes: Array, *, exact: bool) -> None:
        self._hashes, self._times = np.unique(hashes, return_counts=True)
        self._exact = exact

    @classmethod
    def of(cls, table: Table, compared: Compared, *, exact: bool) -> Self:
        parts = [compared.hashes(each) for each in _batches(table, compared.columns.names)]
        return cls(np.concatenate([np.empty(0, np.uint64), *parts]), exact=exact)

    def judge(self, partition: int, to: int | None, first: int, offsets: Array, hashes: Array) -> Place:
        """to: None: it is searched. first: of the offsets that were read. Raises CalveError: the place is not proved."""
        held = self._found(hashes)
        there = held > 0
        alone = held == 1
        if to is None:
            last = np.flatnonzero(alone)
            to = int(offsets[last[-1]]) + 1 if len(last) else first
        before = offsets < to
        if (behind := offsets[there & ~before]).size:
            raise CalveError(
                f"the table has the record of offset {behind[0]}, which is not before {to}, or one like it"
            )
        if before.any() and not alone[before].any():
            raise CalveError("no record before it is in the table exactly once")
        if not before.any() and to > 0 and not self._exact:
            raise CalveError("the topic no longer holds any record that the table has")
        own, times = np.unique(hashes[before], return_counts=True)
        enough = self._found(own) >= times
        lacking = ~enough[np.searchsorted(own, hashes[before])] if len(own) else np.empty(0, bool)
        return _placed(partition, to, offsets[before], ~lacking)

    def _found(self, hashes: Array) -> Array:
        if not len(self._hashes):
            return np.zeros(len(hashes), np.int64)
        at = np.minimum(np.searchsorted(self._hashes, hashes), len(self._hashes) - 1)
        return np.where(self._hashes[at] == hashes, self._times[at], 0)


def _placed(partition: int, to: int, offsets: Array, there: Array) -> Place:
    """there: whether each record before the place is in the table. Raises CalveError: the last ones are not."""
    if len(there) and not there[-1]:
        lost = offsets[np.flatnonzero(there)[-1] + 1] if there.any() else offsets[0]
        raise CalveError(
            f"the table does not have the record of offset {lost}, and calve would begin at {to}"
        )
    return Place(partition, to, int(there.sum()), int((~there).sum()))


def _batches(table: Table, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The table's rows with the columns of these paths, file by file."""
    scan = table.scan(selected_fields=tuple(names))
    schema = scan.projection()
    columns = schema_to_pyarrow(schema, include_field_ids=False)
    for task in scan.plan_files():
        for batch in batches_of(table, schema, task):
            yield batch.cast(columns)


@dataclass
class Search:
    """Finds the place of each partition. problems: of partitions whose place is not proved."""

    source: Source
    problems: dict[int, str] = field(default_factory=dict)

    def by_place(self, table: RowsByPlace, given: Offsets | None) -> list[Place]:
        """given: the offsets to prove; None: those behind the last rows. Raises CalveError: a place is not proved."""
        topic = self.source.topic
        wanted = given or {p: table.next.get(p, first) for p, first in topic.log_start.items()}
        spans = {p: self._before(p, to) for p, to in self._within(wanted).items()}
        table.look(spans)
        rows = self.source.rows(spans)
        return self._judged({p: partial(table.judge, p, wanted[p], *rows[p]) for p in spans})

    def by_contents(self, table: RowsByContents, given: Offsets | None, since: Offsets) -> list[Place]:
        """given: the offsets to prove; None: they are searched from `since` on. Raises as `by_place`."""
        topic, wanted = self.source.topic, self._within(given or since)
        spans = {p: (self._before(p, to)[0], topic.end[p]) for p, to in wanted.items()}
        rows = self.source.rows(spans)
        to = {p: given[p] if given else None for p in spans}
        return self._judged({p: partial(table.judge, p, to[p], spans[p][0], *rows[p]) for p in spans})

    def _before(self, partition: int, to: int) -> tuple[int, int]:
        return max(to - WINDOW, self.source.topic.log_start[partition]), to

    def _within(self, wanted: Offsets) -> Offsets:
        """The offsets that the topic has; the others are problems."""
        topic = self.source.topic
        for partition, to in wanted.items():
            try:
                topic.require({partition: to})
            except CalveError as error:
                self.problems[partition] = error.message
        return {p: to for p, to in wanted.items() if p not in self.problems}

    def _judged(self, judges: Mapping[int, Callable[[], Place]]) -> list[Place]:
        found = []
        for partition, judge in sorted(judges.items()):
            try:
                found.append(judge())
            except CalveError as error:
                self.problems[partition] = error.message
        if self.problems:
            fix = "let the former writer read the topic to its end, stop it, then ask again"
            raise unproved(f"topic {self.source.topic.name}", self.problems, fix)
        return found
