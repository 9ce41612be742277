"""The column that says where a row comes from, as Arrow has it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numba import types

from calve.columns import KAFKA
from glue_jobs.arrow_types import arrow_type
from glue_jobs.columnar.cells import NOTHING, Bytes, Longs, texts, validity
from glue_jobs.columnar.copies import find_no_utf_8
from glue_jobs.compiled import BYTES, LONGS, LONGS_OUT, PLACES, kernel
from glue_jobs.kafka.records import Records

PAIR = types.UniTuple(types.int64, 2)  # type: ignore[no-untyped-call]
KIND = arrow_type(KAFKA["type"])
MOST_MILLIS = (2**63 - 1) // 1000


@kernel(PAIR(BYTES, types.int64))
def _varint(data: Any, at: Any) -> Any:
    """A number and the place after it; the place is -1 where it is none."""
    value, shift = np.int64(0), np.int64(0)
    while at < data.size and shift < 35:
        byte = np.int64(data[at])
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
        shift += 7
    return value, np.int64(-1)


@kernel(types.boolean(BYTES, PLACES, PLACES, LONGS, LONGS_OUT, LONGS_OUT))
def _headers(data: Any, places: Any, counts: Any, chosen: Any, names: Any, values: Any) -> Any:
    """The places of names and values (place << 32 | length, -1: null) of all headers; False: there is another number of them."""
    number = 0
    for record in chosen:
        at = np.int64(places[record])
        for _ in range(counts[record]):
            size, at = _varint(data, at)
            if at < 0 or size < 0 or size > data.size - at or number == names.size:
                return False
            names[number], at = at << 32 | size, at + size
            size, at = _varint(data, at)
            if at < 0 or size > data.size - at:
                return False
            values[number] = -1 if size < 0 else at << 32 | size
            at += max(size, 0)
            number += 1
    return number == names.size


def kafka_column(topic: str, records: Records, chosen: Longs, schema_id: Any) -> Any:
    """`_kafka` of the chosen records. schema_id: theirs, as `Decoded` has it."""
    size = chosen.size
    partition = pa.repeat(pa.scalar(records.partition, pa.int32()), size)
    columns = [
        pa.repeat(pa.scalar(topic, pa.string()), size),
        partition,
        pa.array(records.offset[chosen]),
        _moments(records.timestamp[chosen]),
        pa.array(records.timestamp_type[chosen].astype(np.int32)),
        _bytes(KIND.field("key").type, records.buffer, records.key_at[chosen], records.key_size[chosen]),
        _header_lists(records, chosen),
        schema_id,
    ]
    return pa.StructArray.from_arrays(columns, fields=list(KIND))


def _moments(millis: Longs) -> Any:
    """Raises OverflowError where microseconds are too many, as Spark does."""
    if millis.size and not -MOST_MILLIS <= int(millis.min()) <= int(millis.max()) <= MOST_MILLIS:
        raise OverflowError("the timestamp of a record is further away than any column can hold")
    return pa.array(millis * 1000).view(KIND.field("timestamp").type)


def _bytes(kind: Any, data: Bytes, places: Any, sizes: Any) -> Any:
    marks = (sizes >= 0).view(np.uint8)
    cells = places.astype(np.int64) << 32 | np.maximum(sizes, 0)
    return texts(kind, cells, NOTHING if marks.all() else marks, data)


def _header_lists(records: Records, chosen: Longs) -> Any:
    """Lists of name and value; null where a record has no headers."""
    kind, counts = KIND.field("headers").type, records.headers_count[chosen]
    offsets = np.zeros(counts.size + 1, np.int32)
    np.cumsum(counts, out=offsets[1:])
    total = int(offsets[-1])
    if total == 0:
        return pa.nulls(counts.size, kind)
    names, values = np.empty(total, np.int64), np.empty(total, np.int64)
    if not _headers(records.buffer, records.headers_at, records.headers_count, chosen, names, values):
        raise ValueError("headers do not lie where the record says")
    entry = kind.value_type
    held = (values >= 0).view(np.uint8)
    pairs = pa.StructArray.from_arrays(
        [
            _names(entry.field("key").type, names, records.buffer),
            texts(
                entry.field("value").type,
                np.maximum(values, 0),
                NOTHING if held.all() else held,
                records.buffer,
            ),
        ],
        fields=list(entry),
    )
    buffers = [validity((counts > 0).view(np.uint8)), pa.py_buffer(offsets)]
    return pa.Array.from_buffers(kind, counts.size, buffers, children=[pairs])


def _names(kind: Any, cells: Longs, data: Bytes) -> Any:
    """Names of headers: what is no UTF-8 in them is replaced, as Kafka's Java does."""
    found, wrong = texts(kind, cells, NOTHING, data), np.empty(cells.size, np.uint8)
    if not find_no_utf_8(cells, NOTHING, data, wrong):
        return found
    return pa.array([each.decode(errors="replace") for each in found.cast(pa.binary()).to_pylist()], kind)
