"""Runs the machine on many messages, and makes Arrow columns of what it has read. There is no Python per record."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from calve.schema.protobuf.columns import Column, Value
from calve.schema.writers import ProtobufWriter
from glue_jobs.columns.arrow_types import arrow_type
from glue_jobs.columns.buffers import Buffers, Spans
from glue_jobs.columns.map_keys import digest, find_repeated, last_of_each
from glue_jobs.columns.texts import NOTHING, Bytes, Longs, texts
from glue_jobs.decode.protobuf import values
from glue_jobs.decode.protobuf.machine import FRAME, run
from glue_jobs.decode.protobuf.program import CELL_COLUMNS, MARK_COLUMNS, Group, Part, Program, program

Flags = NDArray[np.bool_]
PLAIN = ("string", "bytes")
"""Kinds whose cells are places of bytes (`place << 32 | length`)."""


@dataclass(frozen=True, slots=True)
class Cells:
    """The output of the machine. rows: per level. cell_base, mark_base: where each column begins.

    `unfit` of a method: set for rows with a value that does not fit its field, unless a later value replaced it.
    """

    program: Program
    data: Bytes
    rows: Longs
    cells: Longs
    marks: Bytes
    cell_base: Longs
    mark_base: Longs

    def messages(self) -> tuple[Any, Flags]:
        """A struct for each record, and which fit."""
        root, every = self.program.root, np.ones(int(self.rows[0]), np.bool_)
        unfit = np.zeros_like(every)
        return _struct(self._columns(root, 0, every, unfit), root.plan.columns, every), ~unfit

    def _numbers(self, cell: int, level: int) -> Longs:
        base = self.cell_base[cell]
        return self.cells[base : base + self.rows[level]]

    def _marked(self, mark: int, level: int) -> Flags:
        base = self.mark_base[mark]
        return self.marks[base : base + self.rows[level]].view(np.bool_)

    def _columns(
        self, group: Group, level: int, exists: Flags, unfit: Flags, *, of_map: bool = False
    ) -> list[Any]:
        """An array per column. exists: which messages are written; the others represent absent ones.

        of_map: they are map entries, in which an absent message is an empty one.
        """
        unfit |= self._marked(group.unfit, level)
        found = dict[int, Any]()
        for place, part in enumerate(group.fields):
            if part is not None:
                found[place] = self._field(part, level, exists, unfit, of_map=of_map)
        return [self._column(each, group, found, level) for each in group.plan.columns]

    def _column(self, column: Column, group: Group, found: dict[int, Any], level: int) -> Any:
        if column.oneof:
            present = np.zeros(int(self.rows[level]), np.bool_)
            for each in column.oneof:
                if each.source is not None and (part := group.fields[each.source]) is not None:
                    present |= self._marked(part.mark, level)
            inside = [self._column(each, group, found, level) for each in column.oneof]
            return _struct(inside, column.oneof, present)
        if column.source is None:
            return pa.nulls(int(self.rows[level]), arrow_type(column.type, fixed=False))
        return found[column.source]

    def _field(self, part: Part, level: int, exists: Flags, unfit: Flags, *, of_map: bool) -> Any:
        if part.read.key is not None:
            return self._map(part, part.read.key, level, unfit)
        if part.read.repeated:
            offsets, every = self._offsets(part, level), np.ones(int(self.rows[part.level]), np.bool_)
            wrong = np.zeros_like(every)
            made = self._value(part, every, every, wrong)
            _mark(unfit, offsets, np.flatnonzero(wrong))
            kind = pa.list_(pa.field("element", made.type))
            return pa.ListArray.from_arrays(pa.array(offsets), made, type=kind)
        marked = self._marked(part.mark, level)
        if part.read.required:
            unfit |= exists & ~marked
        if part.group is not None:
            return self._value(part, np.ones_like(marked) if of_map else marked, marked, unfit)
        return self._value(part, np.ones_like(marked) if part.read.implicit else marked, marked, unfit)

    def _value(self, part: Part, valid: Flags, marked: Flags, unfit: Flags) -> Any:
        """An array with a value for each row: null where it is not valid, the default where it is not marked."""
        value, absent = part.read.value, None if valid.all() else ~valid
        if part.group is not None:
            return self._message(part.group, value, part.level, valid, unfit)
        numbers = self._numbers(part.cell, part.level)
        if value.kind not in PLAIN:
            numbers = numbers.copy() if marked.all() else np.where(marked, numbers, 0)
            return values.from_numbers(values.cut(value.kind, numbers), value.column, value.symbols, absent)
        marks = NOTHING if absent is None else valid.view(np.uint8)
        if absent is None and not marked.all():
            numbers = np.where(marked, numbers, 0)
        return texts(arrow_type(value.column, fixed=False), numbers, marks, self.data)

    def _message(self, group: Group, value: Value, level: int, exists: Flags, unfit: Flags) -> Any:
        if exists.size and not exists.any():
            return pa.nulls(exists.size, arrow_type(value.column, fixed=False))
        parts = self._columns(group, level, exists, unfit)
        if value.message is not None:
            return _struct(parts, group.plan.columns, exists)
        made, wrong = values.one_value(value, parts, ~exists)
        unfit |= wrong
        return made

    def _offsets(self, part: Part, level: int) -> NDArray[np.int32]:
        """Where the items of each row begin."""
        offsets = np.zeros(int(self.rows[level]) + 1, np.int32)
        counts, listed = self._numbers(part.count, level), self._marked(part.listed, level)
        np.cumsum(counts if listed.all() else np.where(listed, counts, 0), out=offsets[1:])
        return offsets

    def _map(self, part: Part, key: Value, level: int, unfit: Flags) -> Any:
        """A map: of two entries with one key, the later one wins. Missing parts of an entry have their default."""
        offsets, every = self._offsets(part, level), np.ones(int(self.rows[part.level]), np.bool_)
        wrong, repeated, group = np.zeros_like(every), np.empty(offsets.size - 1, np.uint8), part.group
        assert group is not None  # noqa: S101 a map entry is a message
        keys, items = self._columns(group, part.level, every, wrong, of_map=True)
        bad = np.flatnonzero(wrong)
        if find_repeated(self._digests(group, key, part.level), offsets, repeated):
            first, last, offsets = last_of_each(keys, offsets, np.flatnonzero(repeated))
            keys, items = keys.take(pa.array(first)), items.take(pa.array(last))
            bad = np.flatnonzero(wrong[last])
        _mark(unfit, offsets, bad)
        return pa.MapArray.from_arrays(pa.array(offsets), keys, items)

    def _digests(self, entry: Group, key: Value, level: int) -> Longs:
        """Numbers that are equal if the keys are equal."""
        [part, _] = entry.fields
        assert part is not None  # noqa: S101 both fields of an entry are read
        numbers = np.where(self._marked(part.mark, level), self._numbers(part.cell, level), 0)
        if key.kind != "string":
            return values.cut(key.kind, numbers).astype(np.int64)
        found = np.empty(numbers.size, np.int64)
        digest(numbers, self.data, found)
        return found


def _mark(flags: Flags, offsets: NDArray[np.int32], items: Longs) -> None:
    """Set the flags of the rows that have these items."""
    flags[np.searchsorted(offsets, items, side="right") - 1] = True


def _struct(parts: list[Any], columns: tuple[Column, ...], exists: Flags) -> Any:
    fields = [pa.field(each.name, part.type) for each, part in zip(columns, parts, strict=True)]
    mask = None if exists.all() else values.validity(~exists)
    return pa.Array.from_buffers(pa.struct(fields), exists.size, [mask], children=parts)


class Messages:
    """Reads the values of one writer. Not thread-safe: it reuses its buffers.

    It needs the cells of `Buffers`: for each repeated field as many rows as the record has items.
    """

    def __init__(self, writer: ProtobufWriter) -> None:
        self._program, self._prefix = program(writer.plan), len(writer.prefix)
        self._whole = writer.whole
        self._nodes = np.array(self._program.nodes, np.int64)
        self._fields = np.array(self._program.fields, np.int64).reshape(-1)
        self._levels = np.array(self._program.levels, np.int64)
        marks = self._program.marks
        widths = np.bincount(np.array(marks, np.int64), minlength=len(self._levels)) + 1
        self._buffers = Buffers(self._program.cells, marks, widths)
        self._frames = np.empty(self._program.depth * FRAME, np.int64)

    def read(self, spans: Spans) -> Iterator[tuple[Longs, Any]]:
        """The good values as record batches, with their records."""
        records = spans.records
        begin, space = 0, self._buffers.space(records.size)
        while begin < records.size:
            chosen = records[begin : begin + space[0]]
            good, cells, full = self._run(spans, chosen, space)
            if not good.size:
                space[full] *= 2
                continue
            self._buffers.learn(cells.rows, good.size)
            found, made = chosen[: good.size][good], cells.messages()
            rows, fits = made
            if not fits.all():
                found, rows = found[fits], rows.filter(pa.array(fits))
            if self._whole is not None:
                rows = pa.StructArray.from_arrays([rows], names=[self._whole])
            yield found, pa.RecordBatch.from_struct_array(rows)
            begin += good.size
            space = self._buffers.space(records.size - begin)

    def _run(self, spans: Spans, chosen: Longs, space: Longs) -> tuple[NDArray[np.bool_], Cells, int]:
        """Which records are messages, of those that fit; the cells of the messages, and the full level."""
        buffers = self._buffers
        cell_base, mark_base = buffers.laid_out(space)
        nodes, levels = self._nodes.copy(), self._levels.copy()
        for table, columns, base in (
            (nodes, CELL_COLUMNS, cell_base),
            (nodes, MARK_COLUMNS, mark_base),
            (levels, [1], cell_base),
            (levels, [2], mark_base),
        ):
            numbers = table[:, columns]
            table[:, columns] = np.where(numbers < 0, -1, np.append(base, 0)[numbers])
        rows, good = np.zeros(space.size, np.int64), np.empty(chosen.size, np.uint8)
        end, full = run(
            nodes.reshape(-1), self._fields, levels, spans.data, spans.places, spans.sizes, chosen, self._prefix, good, rows,
            np.empty_like(rows), np.empty_like(rows), space, buffers.cells, buffers.marks, buffers.mark_level, mark_base,
            self._frames,
        )  # fmt: skip
        cells = Cells(self._program, spans.data, rows, buffers.cells, buffers.marks, cell_base, mark_base)
        return good[:end].view(np.bool_), cells, full
