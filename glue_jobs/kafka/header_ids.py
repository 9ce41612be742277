"""Values whose record header names their schema, as if they began with it (`calve.schema.wire.Wire.by_guid`)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numba import types
from numpy.typing import NDArray

from calve.config.job import PartName
from calve.schema.wire import GUID_MAGIC, HEADERS, Wire
from glue_jobs.columns.buffers import Spans
from glue_jobs.columns.kernels import BYTES, BYTES_OUT, LONGS, LONGS_OUT, PLACES, kernel
from glue_jobs.columns.texts import Longs
from glue_jobs.kafka.records import Records, parts, varint

NOT_NAMED = -1


def named(records: Records, part: PartName, chosen: Longs, wire: Wire) -> Spans:
    """The values or keys of chosen records. Memory: a copy of them if a header names the schema of one."""
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


def named_array(records: Records, part: PartName, wire: Wire) -> tuple[pa.Array, NDArray[np.int32]]:
    """As `glue_jobs.columns.buffers.PartOf`."""
    found = named(records, part, np.arange(len(records)), wire)
    sizes = records.value_size if part == "value" else records.key_size
    return parts(pa.binary(), found.data, found.places, found.sizes), sizes


def _joined(spans: Spans, headers: Longs, wire: Wire, by_guid: bytes) -> Spans:
    """headers: their places, as `_find` finds them."""
    chosen, data = spans.records, spans.data
    has, size = headers != NOT_NAMED, headers & 0xFFFFFFFF
    size[~has] = 0
    place = np.where(has, headers >> 32, 0)
    magic = np.where(size > 0, data[np.minimum(place, data.size - 1)], 0xFF)
    is_guid = magic == GUID_MAGIC[0]
    is_id = (magic == wire.magic[0]) & (size >= wire.size)
    whole = ~has | is_id | (is_guid & (size >= len(GUID_MAGIC) + wire.guid_frame_size - len(by_guid)))
    value = spans.sizes[chosen].astype(np.int64)
    skipped = np.where(is_guid, len(GUID_MAGIC), 0)
    leads, heads = np.where(is_guid, len(by_guid), 0), size - skipped
    lengths = np.where(value < 0, 0, leads + heads + np.where(whole, value, 0))
    ends = np.cumsum(lengths)
    made = np.empty(max(1, int(ends[-1])), np.uint8)
    lead = np.frombuffer(by_guid, np.uint8)
    _join(data, lead, leads, heads, place + skipped, spans.places[chosen].astype(np.int64), lengths, made)
    places, sizes = np.zeros(spans.places.size, np.int32), np.full(spans.places.size, -1, np.int32)
    places[chosen], sizes[chosen] = ends - lengths, np.where(value < 0, -1, lengths)
    made.flags.writeable = False
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


@kernel(types.void(BYTES, BYTES, LONGS, LONGS, LONGS, LONGS, LONGS, BYTES_OUT))
def _join(
    data: Any, lead: Any, leads: Any, headers: Any, header_at: Any, value_at: Any, lengths: Any, made: Any
) -> Any:
    """Write each value with its header before it: so many bytes of `lead`, then of the header, and the rest of the length."""
    end = 0
    for number in range(lengths.size):
        if lengths[number] == 0:
            continue
        for place in range(leads[number]):
            made[end + place] = lead[place]
        end += leads[number]
        for place in range(headers[number]):
            made[end + place] = data[header_at[number] + place]
        end += headers[number]
        rest = lengths[number] - leads[number] - headers[number]
        for place in range(rest):
            made[end + place] = data[value_at[number] + place]
        end += rest
