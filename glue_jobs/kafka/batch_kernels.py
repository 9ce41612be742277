"""Compiled loops that read record batches of message format 2.

The bytes come from a broker. A batch or record with impossible values is an error, and nothing outside its batch is read.
Layout: https://kafka.apache.org/documentation/#recordbatch
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from calve.schema.columns import KEPT_OF_LARGE, LARGEST_RECORD, MOST_MILLIS
from glue_jobs.columns.kernels import BYTES, LONGS_OUT, kernel
from glue_jobs.columns.texts import PAIR
from glue_jobs.kafka.records import BAD_TIMESTAMP, RECORD_TOO_LARGE, varint

AT, END, BASE, LAST, COUNT, ATTRIBUTES, FIRST_TIME, MAX_TIME, PRODUCER, CRC, BEFORE = range(11)
"""The columns that `scan` fills per batch: its place, first and last offset, record count and header fields.

The last column is the offset of the record that `parse` read last.
"""
COLUMNS = 11
HEADER = 61
"""Bytes before the records of a batch."""
CHECKED_FROM = 21
"""The checksum covers a batch's bytes from here on."""
CODEC, APPEND_TIME, TRANSACTIONAL, CONTROL = 7, 8, 16, 32
"""Bits of a batch's attributes."""
SMALLEST_RECORD = 7
WELL, CORRUPT, OLD = 0, 1, 2
"""Results of kernels. OLD: a message format before 2."""

_ROWS = types.Array(types.int64, 2, "C")
_INT8 = types.Array(types.int8, 1, "C")
_PLACES = types.Array(types.int32, 2, "C")


@kernel(types.int64(BYTES, types.int64, types.int64), inline=True)
def big_endian(data: Any, at: Any, size: Any) -> Any:
    """A signed number of `size` bytes."""
    value = np.int64(np.int8(data[at]))
    for place in range(at + 1, at + size):
        value = (value << 8) | np.int64(data[place])
    return value


@kernel(PAIR(BYTES, _ROWS))
def scan(data: Any, batches: Any) -> Any:
    """Fill a row per whole batch from its header, in offset order; returns their number, and `WELL` or the error.

    `batches` has room for len(data) // HEADER rows. A broker cuts its response at the requested size, so the last batch may
    be incomplete.
    """
    at, count, size, before = 0, 0, len(data), np.int64(-1)
    while size - at > 16:
        if data[at + 16] != 2:
            return count, OLD if data[at + 16] < 2 else CORRUPT
        length = big_endian(data, at + 8, 4)
        if length < HEADER - 12:
            return count, CORRUPT
        end = at + 12 + length
        if end > size:
            break
        base = big_endian(data, at, 8)
        last = base + big_endian(data, at + 23, 4)
        records = big_endian(data, at + 57, 4)
        if base <= before or last < base or records < 0:
            return count, CORRUPT
        row = batches[count]
        row[AT], row[END], row[BASE], row[LAST], row[COUNT] = at, end, base, last, records
        row[ATTRIBUTES] = big_endian(data, at + 21, 2)
        row[FIRST_TIME] = big_endian(data, at + 27, 8)
        row[MAX_TIME] = big_endian(data, at + 35, 8)
        row[PRODUCER] = big_endian(data, at + 43, 8)
        row[CRC] = big_endian(data, at + 17, 4) & 0xFFFFFFFF
        row[BEFORE] = base - 1
        before, at, count = last, end, count + 1
    return count, WELL


@kernel(PAIR(BYTES, types.int64, types.int64), inline=True)
def varlong(data: Any, at: Any, end: Any) -> Any:
    """As `varint`, for 64 bits."""
    value, shift = np.uint64(0), np.uint64(0)
    while at >= 0 and at < end and shift < np.uint64(70):
        byte = np.uint64(data[at])
        value |= (byte & np.uint64(0x7F)) << shift
        at += 1
        if byte < np.uint64(0x80):
            return np.int64(value >> np.uint64(1)) ^ -np.int64(value & np.uint64(1)), at
        shift += np.uint64(7)
    return np.int64(0), np.int64(-1)


@kernel(types.boolean(LONGS_OUT, _ROWS, _INT8))
def is_aborted(batch: Any, aborted: Any, ended: Any) -> Any:
    """Whether a batch belongs to an aborted transaction that has not ended before it."""
    for each in range(len(aborted)):
        if aborted[each, 1] > batch[LAST]:
            break
        if aborted[each, 0] == batch[PRODUCER] and not ended[each]:
            return True
    return False


@kernel(types.void(_ROWS, _ROWS, _INT8))
def choose(batches: Any, aborted: Any, chosen: Any) -> Any:
    """Choose the batches with committed records. `aborted`: producer and first offset of transactions, ordered by that offset.

    A producer has one transaction at a time. Its records are aborted from the first offset to its next marker.
    """
    ended = np.zeros(len(aborted), dtype=np.int8)
    for number in range(len(batches)):
        batch = batches[number]
        if batch[ATTRIBUTES] & CONTROL == 0:
            transactional = batch[ATTRIBUTES] & TRANSACTIONAL != 0
            chosen[number] = 0 if transactional and is_aborted(batch, aborted, ended) else 1
            continue
        chosen[number] = 0
        for each in range(len(aborted)):
            if aborted[each, 0] == batch[PRODUCER] and aborted[each, 1] <= batch[LAST]:
                ended[each] = 1


@kernel(types.int64(BYTES, types.int64, types.int64, types.int64))
def after_headers(data: Any, at: Any, end: Any, count: Any) -> Any:
    """The place after `count` headers; -1 if they do not fit or the count is negative."""
    if count < 0:
        return -1
    for _ in range(count):
        size, at = varint(data, at, end)
        if at < 0 or size < 0:
            return -1
        size, at = varint(data, at + size, end)
        if at < 0:
            return -1
        at += max(size, 0)
    return at


@kernel(types.int64(types.int64, types.int64), inline=True)
def refusal(time: Any, size: Any) -> Any:
    """Why a record of this time and size is a dead letter, as in `Records.refused`."""
    if size > LARGEST_RECORD:
        return RECORD_TOO_LARGE
    return 0 if time >= -MOST_MILLIS and time <= MOST_MILLIS else BAD_TIMESTAMP


@kernel(PAIR(BYTES, types.int64, types.int64))
def whole(data: Any, end: Any, most: Any) -> Any:
    """The number of whole records before `end`, at most `most`, and the place after them."""
    at, count = np.int64(0), 0
    while count < most:
        size, start = varint(data, at, end)
        if start < 0 or size < 1 or start + size > end:
            break
        at, count = start + size, count + 1
    return count, at


@kernel(PAIR(BYTES, _ROWS, types.int64, types.int64, LONGS_OUT, LONGS_OUT, _INT8, _INT8, _PLACES))
def parse(
    data: Any,
    batches: Any,
    start: Any,
    to: Any,
    offsets: Any,
    times: Any,
    kinds: Any,
    refused: Any,
    places: Any,
) -> Any:
    """Store the places of the records with offsets in [start, to); returns their number, and `WELL` or the error.

    `batches`: as from `scan`, but `AT` is the place of the first record and `END` the place after the last, in uncompressed
    bytes. A batch may be parsed in parts, one call each, with `COUNT` set to the part's records; `BEFORE` is kept between
    calls. `places` has room for every record: rows for key and value (place, size) and headers (place, count).
    """
    found = 0
    for number in range(len(batches)):
        batch = batches[number]
        at, end, base = batch[AT], batch[END], batch[BASE]
        append_time, first_time, last = batch[ATTRIBUTES] & APPEND_TIME, batch[FIRST_TIME], batch[LAST]
        for _ in range(batch[COUNT]):
            size, at = varint(data, at, end)
            stop = at + size
            if at < 0 or size < 1 or stop > end:
                return found, CORRUPT
            elapsed, at = varlong(data, at + 1, stop)  # after the unused attributes byte
            delta, at = varint(data, at, stop)
            key_size, key_at = varint(data, at, stop)
            value_size, value_at = varint(data, key_at + max(key_size, 0), stop)
            headers, headers_at = varint(data, value_at + max(value_size, 0), stop)
            # A size that leads out of the record leaves no place inside it. So all sizes are right if the record ends at its
            # stop.
            if (headers_at if headers == 0 else after_headers(data, headers_at, stop, headers)) != stop:
                return found, CORRUPT
            offset = base + delta
            if offset <= batch[BEFORE] or offset > last:
                return found, CORRUPT
            batch[BEFORE], at = offset, stop
            if offset >= start and offset < to:
                time = batch[MAX_TIME] if append_time else first_time + elapsed
                why = refusal(time, max(key_size, 0) + max(value_size, 0) + stop - headers_at)
                if why == RECORD_TOO_LARGE:
                    value_size, key_size = -1, key_size if key_size <= KEPT_OF_LARGE else -1
                    headers = headers if stop - headers_at <= KEPT_OF_LARGE else 0
                refused[found] = why
                offsets[found] = offset
                times[found] = time
                kinds[found] = 1 if append_time else 0
                places[0, found], places[1, found] = key_at if key_size >= 0 else 0, max(key_size, -1)
                places[2, found], places[3, found] = value_at if value_size >= 0 else 0, max(value_size, -1)
                places[4, found], places[5, found] = headers_at, headers
                found += 1
        if at != end:
            return found, CORRUPT
    return found, WELL
