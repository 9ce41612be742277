"""Framed Protobuf values as Arrow columns.

A message may come in several pieces, which are merged as in Protobuf. If a field is written twice, its last value wins.
Bytes that no serializer writes make their record bad, at any depth:
a known field with another wire type, a group, or text that is not UTF-8.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from calve.schema.columns import Json, field, struct
from calve.schema.protobuf.columns import Column, Read, Struct, Value
from calve.schema.writers import ProtobufWriter
from glue_jobs.columns.arrow_types import arrow_type
from tests.numpy_protobuf import values
from tests.numpy_protobuf.scan import LENGTH, PADDING, Bytes, Flags, Found, Ints, Spans, scan


class Messages:
    """Reads the messages of one type.

    exists: which messages exist; the others represent absent ones and are not checked.
    broken: set for messages whose bytes are invalid. of_map: they are map entries, in which an absent message is an empty one.
    unfit: set for messages with a value that does not fit its field, unless a later value replaced it.
    """

    def __init__(self, plan: Struct, spans: Spans, exists: Flags, *, of_map: bool = False) -> None:
        self._plan, self._of_map = plan, of_map
        self._data = spans.data
        self._exists = exists
        self._count = exists.size
        self.broken = np.zeros(self._count, np.bool_)
        self.unfit = np.zeros(self._count, np.bool_)
        self._places = np.array([each.number for each in plan.fields], np.int64)
        self._fields = self._by_field(scan(spans, self.broken))
        for oneof in plan.oneofs:
            self._choose(oneof)

    def columns(self) -> list[Any]:
        """An array per column."""
        return [self._column(each) for each in self._plan.columns]

    def _column(self, column: Column) -> Any:
        if column.oneof:
            inside = [self._column(each) for each in column.oneof]
            absent = np.ones(self._count, np.bool_)
            for each in column.oneof:
                if each.source is not None:
                    absent[self._fields[each.source].owner] = False
            return self._struct(inside, [each.name for each in column.oneof], absent)
        if column.source is None:
            return pa.nulls(self._count, arrow_type(column.type, fixed=False))
        field, found = self._plan.fields[column.source], self._fields[column.source]
        if field.key is not None:
            return self._map(field, field.key, found)
        if not field.repeated:
            return self._single(field, found)
        made, owner = self._elements(field.value, found)
        kind = pa.list_(pa.field("element", made.type))
        return pa.ListArray.from_arrays(self._offsets(owner), made, type=kind)

    def _by_field(self, found: Found) -> list[Found]:
        """The occurrences of each field, in order. A wrong wire type makes the message unfit."""
        sort = np.argsort(self._places)
        where = np.searchsorted(self._places[sort], found.number)
        where = np.minimum(where, max(sort.size - 1, 0))
        known = self._places[sort[where]] == found.number if sort.size else np.zeros(0, np.bool_)
        place = sort[where[known]].astype(np.uint16)
        order = np.flatnonzero(known)[np.argsort(place, kind="stable")]
        ends = np.cumsum(np.bincount(place, minlength=sort.size))
        result = []
        for wanted, begin, end in zip(self._plan.fields, [0, *ends[:-1]], ends, strict=True):
            mine = found.at(order[begin:end])
            allowed = mine.wire == values.WIRES.get(wanted.value.kind, LENGTH)
            if wanted.key is not None:
                allowed = mine.wire == LENGTH
            elif wanted.repeated:
                allowed |= mine.wire == LENGTH
            if not allowed.all():
                self.unfit[mine.owner[~allowed]] = True
                mine = mine.at(allowed)
            if mine.begin.size > 1 and (np.diff(mine.begin) <= 0).any():
                mine = mine.at(np.argsort(mine.begin))
            result.append(mine)
        return result

    def _choose(self, oneof: tuple[int, ...]) -> None:
        """Keep the last written member of a oneof. The replaced ones must be valid, too."""
        sizes = [self._fields[each].owner.size for each in oneof]
        owner = np.concatenate([self._fields[each].owner for each in oneof])
        begin = np.concatenate([self._fields[each].begin for each in oneof])
        member = np.repeat(np.array(oneof), sizes)
        if np.unique(owner).size == owner.size:
            return
        order = np.argsort(begin)
        last = np.full(self._count, -1)
        last[owner[order]] = member[order]
        replaced = np.full(self._count, -1)
        other = order[member[order] != last[owner[order]]]
        replaced[owner[other]] = begin[other]
        kept = (member == last[owner]) & (begin > replaced[owner])
        for each, mine in zip(oneof, np.split(kept, np.cumsum(sizes)[:-1]), strict=True):
            found = self._fields[each]
            gone = found.at(~mine)
            if each in self._plan.shown:
                self._elements(self._plan.fields[each].value, gone, replaced=True)
            self._fields[each] = found.at(mine)

    def _single(self, field: Read, found: Found) -> Any:
        value = field.value
        absent = np.ones(self._count, np.bool_)
        absent[found.owner] = False
        if field.required:
            self.unfit |= absent & self._exists
        if value.kind not in values.WIRES and value.kind not in ("string", "bytes"):
            made, broken, unfit = self._nested(value, found, found.owner, ~absent)
            self.broken |= broken
            self.unfit |= unfit
            return made
        if values.is_sized(value.kind):
            begin, length = np.zeros(self._count, np.int64), np.zeros(self._count, np.int64)
            begin[found.owner], length[found.owner] = found.begin, found.length
            if found.owner.size > self._count - int(absent.sum()):
                self._elements(value, found, replaced=True)
            mask = None if field.implicit else absent
            made, wrong = values.texts(self._data, begin, length, value.column, mask)
            self.broken |= wrong
            return made
        raw = values.numbers(value.kind, self._data, found)
        if raw.size != self._count or absent.any():
            every = np.zeros(self._count, raw.dtype)
            every[found.owner] = raw
            raw = every
        mask = None if field.implicit or not absent.any() else absent
        return values.from_numbers(raw, value.column, value.symbols, mask)

    def _elements(self, value: Value, found: Found, *, replaced: bool = False) -> tuple[Any, Ints]:
        """An array with one value per element, and the owner of each."""
        owner = found.owner
        if value.kind in ("string", "bytes"):
            made, wrong = values.texts(self._data, found.begin, found.length, value.column, None)
            self.broken[owner[wrong]] = True
            return made, owner
        if values.is_sized(value.kind):
            alone = np.arange(owner.size)
            made, broken, unfit = self._nested(value, found, alone, np.ones(owner.size, np.bool_))
            self.broken[owner[broken]] = True
            if not replaced:
                self.unfit[owner[unfit]] = True
            return made, owner
        together = found.wire == LENGTH
        if not together.any():
            raw = values.numbers(value.kind, self._data, found)
            return values.from_numbers(raw, value.column, value.symbols, None), owner
        which, rest = np.flatnonzero(together), np.flatnonzero(~together)
        raw, piece = values.packed(value.kind, self._data, found.at(which), self.broken)
        piece = which[piece]
        if rest.size:
            raw = np.concatenate([raw, values.numbers(value.kind, self._data, found.at(rest))])
            piece = np.concatenate([piece, rest])
            order = np.argsort(piece, kind="stable")
            raw, piece = raw[order], piece[order]
        return values.from_numbers(raw, value.column, value.symbols, None), owner[piece]

    def _nested(self, value: Value, found: Found, owner: Ints, exists: Flags) -> tuple[Any, Flags, Flags]:
        """An array with one value per owner, null if absent; and the broken and the unfit owners."""
        if self._of_map:
            exists = np.ones_like(exists)
        if not exists.any():
            return pa.nulls(exists.size, arrow_type(value.column, fixed=False)), exists, exists
        plan = value.message or values.members(value)
        spans = Spans(self._data, found.begin, found.begin + found.length, owner)
        inner = Messages(plan, spans, exists)
        parts = inner.columns()
        if value.message is not None:
            made = self._struct(parts, [each.name for each in plan.columns], ~exists)
            return made, inner.broken, inner.unfit
        made, wrong = values.one_value(value, parts, ~exists)
        return made, inner.broken, inner.unfit | wrong

    def _map(self, field: Read, key: Value, found: Found) -> Any:
        """A map: of two entries with one key, the later one wins. Missing parts of an entry have their default."""
        alone = np.arange(found.owner.size)
        always = np.ones(found.owner.size, np.bool_)
        spans = Spans(self._data, found.begin, found.begin + found.length, alone)
        inner = Messages(values.entry(key, field.value), spans, always, of_map=True)
        keys, items = inner.columns()
        kept = _last_of_each(keys, found.owner)
        self.broken[found.owner[inner.broken]] = True
        self.unfit[found.owner[kept[inner.unfit[kept]]]] = True
        if kept.size < found.owner.size:
            keys, items = keys.take(pa.array(kept)), items.take(pa.array(kept))
        offsets = self._offsets(found.owner[kept])
        return pa.MapArray.from_arrays(offsets, keys, items)

    def _offsets(self, owner: Ints) -> Any:
        offsets = np.zeros(self._count + 1, np.int32)
        np.cumsum(np.bincount(owner, minlength=self._count), out=offsets[1:])
        return pa.array(offsets)

    def _struct(self, parts: list[Any], names: list[str], absent: Flags) -> Any:
        fields = [pa.field(name, part.type) for name, part in zip(names, parts, strict=True)]
        mask = values.validity(absent) if absent.any() else None
        return pa.Array.from_buffers(pa.struct(fields), absent.size, [mask], children=parts)


def _last_of_each(keys: Any, owner: Ints) -> Ints:
    """The places of entries that no later entry of the same owner replaces."""
    codes = keys.dictionary_encode().indices.to_numpy().astype(np.int64)
    both = owner * (int(codes.max(initial=0)) + 1) + codes
    if np.unique(both).size == both.size:
        return np.arange(both.size)
    _, first = np.unique(both[::-1], return_index=True)
    return np.sort(both.size - 1 - first)


VALUE, GOOD = "value", "good"
CHUNK_BYTES = 1 << 20
"""How many bytes are read at once, or one value: intermediate data takes up to 100 times as much memory."""


def row_type(writers: Sequence[ProtobufWriter]) -> Json:
    """The columns of all writers, which are the table's (Iceberg, JSON form)."""
    return struct(*(field(each.name, each.type) for each in writers[0].plan.columns))


def decode(framed: Any, writers: Sequence[ProtobufWriter]) -> Any:
    """A struct per value (binary): its row, and whether it is good. Null if no prefix matches."""
    columns = arrow_type(row_type(writers), fixed=False)
    size = len(framed)
    offsets = np.frombuffer(framed.buffers()[1], np.int32, size + 1, framed.offset * 4).astype(np.int64)
    content = framed.buffers()[2]
    held = np.frombuffer(content, np.uint8) if content is not None and content.size else np.zeros(0, np.uint8)
    present = np.ones(size, np.bool_)
    if framed.null_count:
        present = framed.is_valid().to_numpy(zero_copy_only=False)
    parts = []
    for begin, end in _chunks(offsets):
        data = np.concatenate([held[offsets[begin] : offsets[end]], np.zeros(PADDING, np.uint8)])
        starts = offsets[begin : end + 1] - offsets[begin]
        parts.append(_rows(data, starts[:-1], starts[1:], present[begin:end], writers, columns))
    kind = pa.struct([pa.field(VALUE, columns), pa.field(GOOD, pa.bool_())])
    return pa.concat_arrays([each.cast(kind) for each in parts]) if parts else pa.nulls(0, kind)


def _chunks(offsets: Ints) -> list[tuple[int, int]]:
    """Ranges of values of about `CHUNK_BYTES`."""
    found, begin, count = [], 0, offsets.size - 1
    while begin < count:
        end = int(np.searchsorted(offsets, offsets[begin] + CHUNK_BYTES, side="right")) - 1
        end = min(max(end, begin + 1), count)
        found.append((begin, end))
        begin = end
    return found


def _rows(
    data: Bytes, start: Ints, end: Ints, present: Flags, writers: Sequence[ProtobufWriter], columns: Any
) -> Any:
    made, places = [], []
    for writer in writers:
        ours = present & (end - start >= len(writer.prefix))
        for place, byte in enumerate(writer.prefix):
            ours &= data[np.minimum(start + place, data.size - 1)] == byte
        which = np.flatnonzero(ours)
        if which.size:
            made.append(_read(data, start[which] + len(writer.prefix), end[which], writer.plan))
            places.append(which)
    if len(made) == 1 and places[0].size == start.size:
        return made[0]
    if not made:
        kind = pa.struct([pa.field(VALUE, columns), pa.field(GOOD, pa.bool_())])
        return pa.nulls(start.size, kind)
    order = np.full(start.size, -1)
    order[np.concatenate(places)] = np.arange(sum(each.size for each in places))
    together = pa.concat_arrays([each.cast(made[0].type) for each in made])
    return together.take(pa.array(order, mask=order < 0))


def _read(data: Bytes, start: Ints, end: Ints, plan: Struct) -> Any:
    every = np.arange(start.size)
    messages = Messages(plan, Spans(data, start, end, every), np.ones(start.size, np.bool_))
    parts = messages.columns()
    fields = [pa.field(each.name, part.type) for each, part in zip(plan.columns, parts, strict=True)]
    row = pa.Array.from_buffers(pa.struct(fields), start.size, [None], children=parts)
    good = pa.array(~(messages.broken | messages.unfit))
    return pa.StructArray.from_arrays([row, good], names=[VALUE, GOOD])
