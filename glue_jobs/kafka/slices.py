"""Read a batch that is too large or damaged, slice by slice, in the memory of a chunk and one record."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from calve.errors import CalveError, Suspended
from calve.schema.columns import KEPT_OF_LARGE, LARGEST_RECORD
from calve.schema.wire import varint_of
from glue_jobs.columns.texts import Bytes
from glue_jobs.kafka.batch_kernels import (
    APPEND_TIME,
    AT,
    ATTRIBUTES,
    BEFORE,
    COUNT,
    END,
    LAST,
    OLD,
    WELL,
    parse,
    varlong,
    whole,
)
from glue_jobs.kafka.inflating import Inflating
from glue_jobs.kafka.records import CORRUPT_BATCH, NO_TIME, RECORD_TOO_LARGE, Records, varint

MOST_RECORDS = 1 << 16
"""The most records per chunk, unless a batch no larger than a chunk has more."""
OVERHEAD = 32
"""The most bytes of a record besides key, value and headers, such as sizes."""
_NULL = varint_of(1)

Row = NDArray[np.int64]
Rows = NDArray[np.int64]
"""Batches, one per row, with the columns of `batch_kernels.scan`."""


@dataclass(frozen=True, slots=True)
class Span:
    """Offsets [start, to) of a partition."""

    topic: str
    partition: int
    start: int
    to: int

    def refused(self, state: int, offset: int) -> CalveError:
        """Why batches from an offset on cannot be read."""
        where = f"topic {self.topic}, partition {self.partition}, from offset {offset} on"
        if state == OLD:
            return Suspended(
                "message_format",
                f"{where}: batches of a message format before 2 (Kafka 0.11)",
                fix="copy the topic with a current producer, or let these records expire and set on_data_loss: continue",
            )
        return Suspended(
            "corrupt_batch",
            f"{where}: the header of a record batch contradicts itself, so nobody knows which offsets it has",
            fix="look at it with kafka-dump-log on a broker",
        )


def parsed(span: Span, buffer: Bytes, rows: Rows) -> tuple[Records, int]:
    """The records of batches, or of parts of them, inside a span; and the result of `parse`."""
    total = int(rows[:, COUNT].sum())
    offset, timestamp = np.empty(total, dtype=np.int64), np.empty(total, dtype=np.int64)
    kind, refused, places = np.empty(total, np.int8), np.empty(total, np.int8), np.empty((6, total), np.int32)
    count, state = parse(buffer, rows, span.start, span.to, offset, timestamp, kind, refused, places)
    offset, timestamp, kind, refused = offset[:count], timestamp[:count], kind[:count], refused[:count]
    return Records(span.partition, buffer, offset, timestamp, kind, refused, *places[:, :count]), state


def slices(span: Span, row: Row, inflating: Inflating, chunk_bytes: int) -> Iterator[Records]:
    """The records of a batch in slices of about `chunk_bytes`, at least 5: a record's size takes up to 5 bytes.

    Records before the first unreadable one are read. The offsets from there on are refused, one by one.
    A record larger than `LARGEST_RECORD` is skipped in the stream, except for the bytes that are kept.
    """
    left, room = int(row[COUNT]), _Room(inflating, chunk_bytes)
    while left and row[BEFORE] + 1 < span.to:
        found = room.next(min(left, MOST_RECORDS))
        row[AT], row[END], row[COUNT] = 0, len(found.content), found.count
        records, state = parsed(span, found.content, row[None])
        if found.cut:
            records.refused[:] = RECORD_TOO_LARGE
        if len(records):
            yield records
        if state != WELL or not found.count:
            break
        left -= found.count
    if left or room.used or inflating.take(1):
        yield from _lost(span, row, left, inflating.ended or CORRUPT_BATCH)


@dataclass(frozen=True, slots=True)
class _Slice:
    """Whole records. cut: a single record without its large parts."""

    content: Bytes = field(default_factory=lambda: np.zeros(0, np.uint8))
    count: int = 0
    cut: bool = False


class _Room:
    """Inflated bytes of a batch that are not handed out yet."""

    def __init__(self, inflating: Inflating, chunk_bytes: int) -> None:
        self._inflating, self._chunk_bytes = inflating, chunk_bytes
        self._room, self.used = np.empty(chunk_bytes, np.uint8), 0

    def next(self, most: int) -> _Slice:
        """The next records, at most `most`; none at the end."""
        while True:
            self.used += self._inflating.into(self._room.data[self.used :])
            count, end = whole(self._room, self.used, most)
            if count:
                return _Slice(self._handed_out(end), count)
            size, at = varint(self._room, 0, self.used)
            if at < 0 or size < 1:
                return _Slice()
            if size > LARGEST_RECORD + OVERHEAD:
                self._inflating.back(self._room[at : self.used].tobytes())
                self.used, kept = 0, _cut(self._inflating, size)
                return _Slice() if kept is None else _Slice(np.frombuffer(kept, np.uint8), 1, cut=True)
            if self.used < len(self._room):
                return _Slice()
            self._room = _with_room(self._room, at + size)

    def _handed_out(self, end: int) -> Bytes:
        content, rest = frozen(self._room[:end]), self._room[end : self.used]
        self._room, self.used = _with_room(rest, max(self._chunk_bytes, len(rest))), len(rest)
        return content


def _with_room(content: Bytes, size: int) -> Bytes:
    room = np.empty(size, np.uint8)
    room[: len(content)] = content
    return room


def frozen(buffer: Bytes) -> Bytes:
    buffer.flags.writeable = False
    return buffer


def _cut(inflating: Inflating, size: int) -> bytes | None:
    """A record of `size` bytes without its value, and without a large key or large headers; None if it is invalid.

    The stream is at the record, after its size. Afterwards it is behind the record.
    """
    left = size

    def number() -> tuple[int, bytes]:
        nonlocal left
        head = inflating.take(min(5, left))
        value, at = varint(np.frombuffer(head, np.uint8), 0, len(head))
        inflating.back(head[max(at, 0) :])
        left -= max(at, 0)
        return (int(value), head[:at]) if at > 0 else (-2, b"")

    def kept(count: int) -> bytes | None:
        nonlocal left
        left -= count
        if count <= KEPT_OF_LARGE:
            return inflating.take(count)
        inflating.skip(count)
        return None

    head = inflating.take(11)
    _, at = varlong(np.frombuffer(head, np.uint8), 1, len(head))
    if at < 0:
        return None
    inflating.back(head[at:])
    left -= at
    _, delta = number()
    key_size, packed_size = number()
    key = kept(key_size) if 0 <= key_size <= left else None
    value_size, _ = number()
    if not 0 <= value_size <= left and value_size != -1:
        return None
    inflating.skip(max(value_size, 0))
    left -= max(value_size, 0)
    count, packed_count = number()
    if left < 0 or count < 0:
        return None
    headers = kept(left)
    body = head[:at] + delta + (_NULL if key is None else packed_size + key) + _NULL
    body += varint_of(0) if headers is None else packed_count + headers
    return varint_of(len(body) << 1) + body


def _lost(span: Span, row: Row, left: int, why: int) -> Iterator[Records]:
    """The unread offsets of a batch: at most as many as its remaining records, because compaction may have removed some.

    If the header states too few records, all remaining offsets.
    """
    start, last = int(row[BEFORE]) + 1, int(row[LAST])
    stop = min(last + 1, start + left) if left else last + 1
    start, stop = max(start, span.start), min(stop, span.to)
    for first in range(start, stop, MOST_RECORDS):
        offset = np.arange(first, min(first + MOST_RECORDS, stop))
        kind = np.full(len(offset), int(bool(row[ATTRIBUTES] & APPEND_TIME)), np.int8)
        zero, null = np.zeros(len(offset), np.int32), np.full(len(offset), -1, np.int32)
        yield Records(
            span.partition,
            np.zeros(0, np.uint8),
            offset,
            np.full(len(offset), NO_TIME),
            kind,
            np.full(len(offset), why, np.int8),
            *(zero, null, zero, null, zero, zero),
        )
