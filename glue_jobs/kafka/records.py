"""Kafka records as columns: places in the broker's bytes, and Arrow arrays for both engines.

A value whose record header names its schema is read as if it began with it (`calve.schema.wire.Wire.by_guid`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numba import types
from numpy.typing import NDArray

from calve.config.job import PartName
from calve.decoding.decode_plan import DecodePlan
from calve.schema.columns import KAFKA, MOST_MILLIS, UNDELIVERED
from calve.schema.wire import GUID_MAGIC, GUID_SIZE, HEADERS, Wire
from glue_jobs.columns.arrow_types import arrow_type, not_utf_8
from glue_jobs.columns.buffers import Spans
from glue_jobs.columns.kernels import BYTES, LONGS, LONGS_OUT, PLACES, kernel
from glue_jobs.columns.texts import LENGTH, NOTHING, PAIR, Bytes, Longs, copy, lay_out, texts, validity

DELIVERED = 0
BAD_TIMESTAMP, RECORD_TOO_LARGE, BATCH_TOO_LARGE, CORRUPT_BATCH = range(1, len(UNDELIVERED) + 1)
"""Values of `Records.refused`: 1 + the index of the reason in `UNDELIVERED`."""
NO_TIME = -(2**63)
"""The timestamp of an offset whose record is unknown."""


@dataclass(frozen=True, slots=True)
class Records:
    """Committed records of one partition in offset order. Every array but `buffer` has one item per record.

    buffer: uncompressed bytes (uint8, read-only: `kernels.BYTES`) that the places point into.
    `*_at`, `*_size`: int32, place and length in bytes. Size -1 is null, with place 0.
    headers_at: the first byte after the header count. Each header is a name (varint length, bytes) and a value (varint
    length, -1 is null, bytes).
    offset, timestamp (ms since epoch): int64. timestamp_type: int8, 0 the producer's, 1 the broker's.
    Places, sizes and headers were checked to lie within the record.
    refused: int8, why a record is a dead letter regardless of its value; 0 for others. `BAD_TIMESTAMP` has all parts.
    `RECORD_TOO_LARGE` has no value, and no key or headers larger than `KEPT_OF_LARGE`. The other reasons are offsets without
    a record. Only refused records may have timestamps beyond `MOST_MILLIS`.
    """

    partition: int
    buffer: NDArray[np.uint8]
    offset: NDArray[np.int64]
    timestamp: NDArray[np.int64]
    timestamp_type: NDArray[np.int8]
    refused: NDArray[np.int8]
    key_at: NDArray[np.int32]
    key_size: NDArray[np.int32]
    value_at: NDArray[np.int32]
    value_size: NDArray[np.int32]
    headers_at: NDArray[np.int32]
    headers_count: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.offset)

    @property
    def known_times(self) -> NDArray[np.int64]:
        """The timestamps that a column can hold."""
        times = self.timestamp
        if not self.refused.any():
            return times
        return times[(times >= -MOST_MILLIS) & (times <= MOST_MILLIS)]


KIND = arrow_type(KAFKA["type"])


@kernel(PAIR(BYTES, types.int64, types.int64), inline=True)
def varint(data: Any, at: Any, end: Any) -> Any:
    """A 32-bit zigzag number at `at`, and the place after it; -1 if it does not end before `end`, or if `at` is -1."""
    if at >= 0 and at < end and data[at] < 0x80:
        value = np.int64(data[at])
        return (value >> 1) ^ -(value & 1), at + 1
    value, shift = np.int64(0), 0
    while at >= 0 and at < end and shift < 35:
        byte = np.int64(data[at])
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            value &= 0xFFFFFFFF
            return (value >> 1) ^ -(value & 1), at
        shift += 7
    return np.int64(0), np.int64(-1)


@kernel(types.boolean(BYTES, PLACES, PLACES, LONGS, LONGS_OUT, LONGS_OUT))
def _headers(data: Any, places: Any, counts: Any, chosen: Any, names: Any, values: Any) -> Any:
    """Store the places of all header names and values (place << 32 | length; -1 is null). False if their number differs."""
    number = 0
    for record in chosen:
        at = np.int64(places[record])
        for _ in range(counts[record]):
            size, at = varint(data, at, data.size)
            if at < 0 or size < 0 or size > data.size - at or number == names.size:
                return False
            names[number], at = at << 32 | size, at + size
            size, at = varint(data, at, data.size)
            if at < 0 or size > data.size - at:
                return False
            values[number] = -1 if size < 0 else at << 32 | size
            at += max(size, 0)
            number += 1
    return number == names.size


def parts(kind: Any, data: Bytes, places: Any, sizes: Any) -> Any:
    """Keys or values; null where a size is -1."""
    marks = (sizes >= 0).view(np.uint8)
    cells = places.astype(np.int64) << 32 | np.maximum(sizes, 0)
    return texts(kind, cells, NOTHING if marks.all() else marks, data)


def header_lists(records: Records, chosen: Longs) -> Any:
    """Lists of name and value; null if a record has no headers."""
    kind, counts = KIND.field("headers").type, records.headers_count[chosen]
    offsets = np.zeros(counts.size + 1, np.int32)
    np.cumsum(counts, out=offsets[1:])
    total = int(offsets[-1])
    if total == 0:
        return pa.nulls(counts.size, kind)
    names, values = np.empty(total, np.int64), np.empty(total, np.int64)
    if not _headers(records.buffer, records.headers_at, records.headers_count, chosen, names, values):
        raise ValueError("headers do not lie where the record says")
    name, value = kind.value_type
    keys, held = texts(name.type, names, NOTHING, records.buffer), (values >= 0).view(np.uint8)
    if not_utf_8(keys).any():  # what is invalid is replaced, as in Kafka's Java client
        keys = pa.array(
            [each.decode(errors="replace") for each in keys.cast(pa.binary()).to_pylist()], name.type
        )
    marks = NOTHING if held.all() else held
    pairs = pa.StructArray.from_arrays(
        [keys, texts(value.type, np.maximum(values, 0), marks, records.buffer)], fields=[name, value]
    )
    buffers = [validity((counts > 0).view(np.uint8)), pa.py_buffer(offsets)]
    return pa.Array.from_buffers(kind, counts.size, buffers, children=[pairs])


NOT_NAMED = -1
"""Instead of the place of a header."""


def named(records: Records, part: PartName, chosen: Longs, wire: Wire) -> Spans:
    """The values or keys of chosen records. Memory: two copies of the buffer if a header names the schema of one."""
    places, sizes = (
        (records.value_at, records.value_size) if part == "value" else (records.key_at, records.key_size)
    )
    plain = Spans(records.buffer, places, sizes, chosen)
    if wire.by_guid is None or not records.headers_count.any():
        return plain
    name = np.frombuffer(HEADERS[part].encode(), np.uint8)
    found = np.empty(chosen.size, np.int64)
    if not _find(records.buffer, records.headers_at, records.headers_count, chosen, name, found):
        return plain
    return _joined(plain, found, wire, wire.by_guid)


def named_array(
    records: Records, part: PartName, decoding: DecodePlan
) -> tuple[pa.Array, NDArray[np.int32], pa.Array | None]:
    """As `glue_jobs.columns.buffers.PartOf`."""
    every = np.arange(len(records))
    found = named(records, part, every, decoding.wire)
    sizes = records.value_size if part == "value" else records.key_size
    headers = header_lists(records, every) if decoding.event else None
    return parts(pa.binary(), found.data, found.places, found.sizes), sizes, headers


def _joined(spans: Spans, headers: Longs, wire: Wire, by_guid: bytes) -> Spans:
    """Each value is made of magic, header and payload. headers: their cells (`glue_jobs.columns.texts`), or `NOT_NAMED`."""
    chosen, data, lead = spans.records, spans.data, np.frombuffer(by_guid, np.uint8)
    has = headers != NOT_NAMED
    place, size = np.where(has, headers >> 32, 0), np.where(has, headers & LENGTH, 0)
    magic = np.where(size > 0, data[np.minimum(place, data.size - 1)], 0xFF)
    is_guid = magic == GUID_MAGIC[0]
    least = np.where(is_guid, len(GUID_MAGIC) + GUID_SIZE, wire.size)
    whole = ~has | ((is_guid | (magic == wire.magic[0])) & (size >= least))
    given = spans.sizes[chosen] >= 0
    skipped = np.where(is_guid, len(GUID_MAGIC), 0)
    pieces = np.zeros((chosen.size, 3), np.int64)
    pieces[:, 0] = data.size << 32 | np.where(given & is_guid, lead.size, 0)
    pieces[:, 1] = (place + skipped) << 32 | np.where(given, size - skipped, 0)
    pieces[:, 2] = spans.places[chosen].astype(np.int64) << 32 | np.where(
        given & whole, spans.sizes[chosen], 0
    )
    cells, ends = pieces.reshape(-1), np.empty(pieces.size + 1, np.int32)
    made = np.empty(lay_out(cells, NOTHING, ends), np.uint8)
    copy(cells, np.concatenate([data, lead]), ends, made)
    places, sizes = np.zeros(spans.places.size, np.int32), np.full(spans.places.size, -1, np.int32)
    places[chosen], sizes[chosen] = ends[:-1:3], np.where(given, ends[3::3] - ends[:-1:3], -1)
    return Spans(made, places, sizes, chosen)


@kernel(types.boolean(BYTES, PLACES, PLACES, LONGS, BYTES, LONGS_OUT))
def _find(data: Any, places: Any, counts: Any, chosen: Any, name: Any, found: Any) -> Any:
    """The places of the last headers of this name (place << 32 | length); `NOT_NAMED`: there is none, or it is null. False: no
    record has one.
    """
    some = False
    for number in range(chosen.size):
        found[number] = NOT_NAMED
        at = np.int64(places[chosen[number]])
        for _ in range(counts[chosen[number]]):
            size, at = varint(data, at, data.size)
            same = size == name.size
            if same:
                for place in range(name.size):
                    same = same and data[at + place] == name[place]
            size, at = varint(data, at + size, data.size)
            if same:
                found[number] = NOT_NAMED if size < 0 else at << 32 | size
            at += max(size, 0)
        some = some or found[number] != NOT_NAMED
    return some
