"""Decode the values of records, or their keys, of all schemas of a plan, to Arrow columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numba import types
from numpy.typing import NDArray

from calve.decoding.avro_program import program
from calve.decoding.decode_plan import MAX_OTHERS, DecodePlan
from calve.decoding.json_program import json_program
from calve.schema.columns import Json
from calve.schema.wire import Wire
from calve.schema.writers import AvroWriter, JsonWriter, PlainWriter, ProtobufWriter, Writer
from glue_jobs.columns.arrow_types import arrow_type, not_utf_8
from glue_jobs.columns.buffers import Spans
from glue_jobs.columns.kernels import BYTES, LONGS, PLACES, PLACES_OUT, kernel
from glue_jobs.columns.texts import NOTHING, Longs, texts
from glue_jobs.decode.machines.avro_reader import Reader
from glue_jobs.decode.machines.json_reader import JsonReader, LenientReader
from glue_jobs.decode.protobuf.layout import Messages


class PlainReader:
    """Values kept unchanged in one column. Null is a value, too."""

    def __init__(self, column: str, kind: Json, *, text: bool) -> None:
        self._column, self._kind, self._text = column, arrow_type(kind), text

    def read(self, spans: Spans) -> Iterator[tuple[Longs, Any]]:
        records = spans.records
        sizes = spans.sizes[records].astype(np.int64)
        marks = (sizes >= 0).view(np.uint8)
        cells = spans.places[records].astype(np.int64) << 32 | np.maximum(sizes, 0)
        found = texts(self._kind, cells, NOTHING if marks.all() else marks, spans.data)
        if self._text and (wrong := not_utf_8(found)).any():
            records, found = records[~wrong], found.filter(pa.array(~wrong))
        yield records, pa.RecordBatch.from_arrays([found], [self._column])


AnyReader = Reader | LenientReader | PlainReader | Messages


@dataclass(frozen=True, slots=True)
class Found:
    """Decoded values or keys. columns, records, numbers: of the good ones, in record order; numbers: of their schemas.

    foreign: records of other tables, each with the index of their schema, at most `MAX_OTHERS`. rejected: by reject reason.
    """

    columns: Any
    records: Longs
    numbers: Any
    foreign: list[tuple[int, Longs]]
    rejected: list[tuple[str, Longs]]

    def places(self, records: int) -> Longs:
        """The row of each of so many records in `columns`, or -1."""
        found = np.full(records, -1)
        found[self.records] = np.arange(self.records.size)
        return found


class PartDecoder:
    """The values of records, or their keys. A writer's program is made when its first value arrives. Not thread-safe.

    Memory: the returned columns, plus `Reader`'s memory for each schema met, plus that of `inflated`.
    """

    def __init__(self, decoding: DecodePlan) -> None:
        self._decoding, self._schema = decoding, pa.schema(arrow_type(decoding.columns))
        self._event = decoding.event
        self._readers: dict[int, AnyReader] = {}
        self._plain = any(isinstance(each, PlainWriter) for each in decoding.writers)
        places = {each: min(place, MAX_OTHERS) for place, each in enumerate(decoding.other_ids)}
        self._places = [places[decoding.wire.schema_id(each)] for each in decoding.others]
        self._prefixes = Prefixes([*(each.prefix for each in decoding.writers), *decoding.others])
        messages = (each for each in decoding.writers if isinstance(each, ProtobufWriter))
        wire = decoding.wire
        own = {wire.schema_id(each.prefix) for each in decoding.writers}
        self._by_guid = Prefixes([wire.by_guid] if wire.by_guid else [])
        self._magics = Prefixes(wire.magics)
        self._misfits = Prefixes(
            [*_frames(wire, decoding.incompatible), *(one for each in messages for one in each.others)]
        )
        self._frames = Prefixes(_frames(wire, own))

    @property
    def wire(self) -> Wire:
        return self._decoding.wire

    def read(self, spans: Spans, headers: pa.Array | None = None) -> Found:
        """The spans: as `glue_jobs.kafka.records.named`. headers: of their records, which are needed of CloudEvents."""
        if self._event is None:
            return self._read(spans)
        from glue_jobs.decode.machines.cloud_events import opened  # few tables compile it

        events = opened(spans, headers, framed=self.wire.size > 0)
        found = self._read(events.spans)
        column = events.column.take(pa.array(np.searchsorted(events.spans.records, found.records)))
        columns = pa.table([*found.columns, column], [*found.columns.column_names, self._event])
        rejected = [*found.rejected, ("bad_event", events.bad)] if events.bad.size else found.rejected
        return replace(found, columns=columns, rejected=rejected)

    def _read(self, spans: Spans) -> Found:
        foreign, rejected = list[tuple[int, Longs]](), list[tuple[str, Longs]]()
        found, tables, ids = [np.zeros(0, np.int64)], [], [pa.nulls(0, pa.int32())]
        for each in inflated(spans, self._decoding.wire):
            # The index of the writer of each value, or of the other table (counted after the writers); `NOBODY` if neither.
            whose = np.zeros(each.records.size, np.int32) if self._plain else self._prefixes.find(each)
            for number in np.flatnonzero(np.bincount(whose + 1)[1:]).tolist():
                theirs = each.records[whose == number]
                place = number - len(self._decoding.writers)
                if place >= 0:
                    foreign.append((self._places[place], theirs))
                    continue
                schema_id = pa.scalar(_number(self._decoding, self._decoding.writers[number]), pa.int32())
                reader, left = self._reader(number), theirs
                for records, batch in reader.read(replace(each, records=theirs)):
                    found.append(records)
                    tables.append(pa.Table.from_batches([batch]))
                    ids.append(pa.repeat(schema_id, records.size))
                    left = _without(left, records)
                rejected += _malformed(left, reader)
            rejected += self._of_nobody(replace(each, records=each.records[whose == NOBODY]))
        records, numbers = np.concatenate(found), pa.concat_arrays(ids)
        columns = (
            pa.concat_tables(tables, promote_options="default") if tables else self._schema.empty_table()
        )
        if np.any(records[1:] < records[:-1]):
            order = np.argsort(records)
            places = pa.array(order)
            records, numbers = records[order], numbers.take(places)
            columns = columns.combine_chunks().take(places)
        return Found(columns, records, numbers, foreign, rejected)

    def of(self, spans: Spans) -> tuple[Any, Any]:
        """The columns of values that are good or null, in order, and a mask that says which these are."""
        chosen = spans.records
        given = spans.sizes[chosen] >= 0
        found = self.read(replace(spans, records=chosen[given]))
        places = found.places(spans.sizes.size)[chosen]
        kept = ~given | (places >= 0)
        places = places[kept]
        return found.columns.take(pa.array(places, mask=places < 0)), kept

    def _of_nobody(self, spans: Spans) -> list[tuple[str, Longs]]:
        """Values that begin as those of no writer and of no other table, by reject reason."""
        if not spans.records.size:
            return []
        sizes, wire = spans.sizes[spans.records], self._decoding.wire
        tests = {"null_value": sizes < 0}
        if wire.size:
            tests |= {
                "truncated": sizes
                < np.where(self._by_guid.find(spans) == NOBODY, wire.size, wire.guid_frame_size),
                "bad_magic": self._magics.find(spans) == NOBODY,
                "incompatible_schema": self._misfits.find(spans) != NOBODY,
                "unknown_schema_id": self._frames.find(spans) == NOBODY,
            }
        which = np.select(list(tests.values()), range(len(tests)), len(tests))
        return [
            (reason, spans.records[which == place])
            for place, reason in enumerate((*tests, "malformed"))
            if (which == place).any()
        ]

    def _reader(self, number: int) -> AnyReader:
        if number not in self._readers:
            self._readers[number] = self._reader_of(self._decoding.writers[number])
        return self._readers[number]

    def _reader_of(self, writer: Writer) -> AnyReader:
        match writer:
            case AvroWriter():
                return Reader(program(writer.value), len(writer.prefix))
            case JsonWriter(lenient=True):
                return LenientReader(writer, self._decoding.columns)
            case JsonWriter():
                return JsonReader(json_program(writer, self._decoding.columns), len(writer.prefix))
            case ProtobufWriter():
                return Messages(writer)
            case PlainWriter():
                kinds = {each["name"]: each["type"] for each in self._decoding.columns["fields"]}
                return PlainReader(writer.column, kinds[writer.column], text=writer.text)


def structs(held: pa.Table, kind: pa.StructType, count: int) -> pa.Array:
    """The rows of a table as structs of a type; missing columns are null."""
    columns = [
        _as_one(held.column(each.name)).cast(each.type)
        if each.name in held.column_names
        else pa.nulls(count, each.type)
        for each in kind
    ]
    return pa.StructArray.from_arrays(columns, fields=list(kind))


def _as_one(column: pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def _frames(wire: Wire, ids: Iterable[int]) -> list[bytes]:
    return [frame for each in sorted(ids) for frame in wire.frames(each)] if wire.size else []


def _malformed(records: Longs, reader: AnyReader) -> list[tuple[str, Longs]]:
    """Values that a reader has refused, by reject reason."""
    trailing = np.concatenate([records[:0], *reader.trailing]) if isinstance(reader, Reader) else records[:0]
    found = [("trailing_bytes", trailing), ("malformed", _without(records, trailing))]
    return [each for each in found if each[1].size]


def _without(records: Longs, some: Longs) -> Longs:
    """The records without some of them. Both in order, each once."""
    return records[:0] if some.size == records.size else np.setdiff1d(records, some, assume_unique=True)


def _number(decoding: DecodePlan, writer: Writer) -> int | None:
    """`_kafka.schema_id` of a good value of this writer."""
    if not decoding.wire.size:
        return decoding.numbers.get(writer.id, writer.id) or None
    if decoding.wire.names_are_numbers:
        return int(decoding.wire.name(writer.id))
    return decoding.numbers.get(writer.id)


NOBODY = -1


@kernel(types.void(BYTES, PLACES, PLACES, LONGS, BYTES, PLACES, PLACES_OUT))
def _find(data: Any, places: Any, sizes: Any, records: Any, prefixes: Any, ends: Any, found: Any) -> Any:
    """The first matching prefix of each value. The last match is tried first, because neighbours often share it."""
    last = 0
    for number in range(records.size):
        at, size = places[records[number]], sizes[records[number]]
        found[number] = NOBODY
        for turn in range(-1, ends.size):
            prefix = last if turn < 0 else turn
            if size < 0 or prefix >= ends.size:
                break
            begin = 0 if prefix == 0 else ends[prefix - 1]
            length = ends[prefix] - begin
            same = size >= length
            for place in range(length):
                same = same and data[at + place] == prefixes[begin + place]
                if not same:
                    break
            if same:
                found[number] = last = prefix
                break


class Prefixes:
    """Prefixes of values. No prefix starts with another one."""

    def __init__(self, prefixes: Sequence[bytes]) -> None:
        self._bytes = np.frombuffer(b"".join(prefixes), np.uint8)
        self._ends = np.cumsum([len(each) for each in prefixes], dtype=np.int32)

    def find(self, spans: Spans) -> NDArray[np.int32]:
        """The index of the prefix of each value, or `NOBODY`, also for null."""
        found = np.empty(spans.records.size, np.int32)
        _find(spans.data, spans.places, spans.sizes, spans.records, self._bytes, self._ends, found)
        return found


INFLATED_BYTES = 16 * 2**20
"""How much is inflated at once, plus one value."""


def inflated(spans: Spans, wire: Wire) -> Iterator[Spans]:
    """All values, inflated. A value that cannot be inflated stays unchanged."""
    if wire.deflated is None:
        yield spans
        return
    deflated = Prefixes([wire.deflated]).find(spans) == 0
    kept = [spans.records[~deflated]]
    values: dict[int, bytes] = {}
    size = 0
    for record in spans.records[deflated].tolist():
        begin = spans.places[record]
        found = wire.plain(spans.data[begin : begin + spans.sizes[record]].tobytes())
        if found is None:
            kept.append(np.array([record]))
            continue
        values[record], size = found, size + len(found)
        if size >= INFLATED_BYTES:
            yield _spans(values, spans.places.size)
            values, size = {}, 0
    if values:
        yield _spans(values, spans.places.size)
    yield Spans(spans.data, spans.places, spans.sizes, np.sort(np.concatenate(kept)))


def _spans(values: dict[int, bytes], count: int) -> Spans:
    records = np.fromiter(values, np.int64, len(values))
    lengths = np.fromiter(map(len, values.values()), np.int32, len(values))
    places, sizes = np.zeros(count, np.int32), np.zeros(count, np.int32)
    places[records], sizes[records] = np.cumsum(lengths) - lengths, lengths
    return Spans(np.frombuffer(b"".join(values.values()), np.uint8), places, sizes, records)
