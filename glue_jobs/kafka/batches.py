"""Convert a broker's raw record batches to `Records`.

A batch that is too large or damaged is read slice by slice, in the memory of a chunk and one record.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from calve.errors import CalveError, Retryable, Suspended
from calve.schema.columns import KEPT_OF_LARGE, LARGEST_RECORD
from calve.schema.wire import varint_of
from glue_jobs.columns.texts import NOTHING, Bytes
from glue_jobs.kafka.batch_kernels import (
    APPEND_TIME,
    AT,
    ATTRIBUTES,
    BASE,
    BEFORE,
    CHECKED_FROM,
    CODEC,
    COLUMNS,
    COUNT,
    CRC,
    END,
    HEADER,
    LAST,
    OLD,
    SMALLEST_RECORD,
    WELL,
    choose,
    parse,
    scan,
    varlong,
    whole,
)
from glue_jobs.kafka.inflating import Inflating, inflate
from glue_jobs.kafka.records import CORRUPT_BATCH, NO_TIME, RECORD_TOO_LARGE, Records, varint

MOST_RECORDS = 1 << 16
"""The most records per chunk, unless a batch no larger than a chunk has more."""
SPARE = 1 << 20
"""Extra room of a chunk for the batch that completes it."""
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


@dataclass(frozen=True, slots=True)
class Batches:
    """The batches of a response with committed records of a span. `next_offset`: where reading continues after them."""

    span: Span
    data: bytes
    rows: Rows
    next_offset: int

    @classmethod
    def of(cls, span: Span, data: bytes, aborted: Sequence[tuple[int, int]]) -> Batches:
        """Parse raw bytes. `aborted`: producer and first offset of transactions, as in the broker's response.

        Raises Retryable: a checksum is wrong. Suspended: `corrupt_batch`, `message_format`.
        """
        rows = np.empty((len(data) // HEADER, COLUMNS), dtype=np.int64)
        view = np.frombuffer(data, dtype=np.uint8)
        count, state = scan(view, rows)
        rows = rows[:count]
        next_offset = int(rows[-1, LAST]) + 1 if count else span.start
        if state != WELL and next_offset < span.to:
            raise span.refused(state, next_offset)
        rows = rows[rows[:, BASE] < span.to]
        for at, end, crc, base in rows[:, [AT, END, CRC, BASE]].tolist():
            if google_crc32c.value(data[at + CHECKED_FROM : end]) != crc:
                raise Retryable(
                    f"topic {span.topic}, partition {span.partition}, offset {base}: a batch has another checksum than its bytes"
                )
        transactions = np.array(sorted(aborted, key=lambda each: each[1]), dtype=np.int64).reshape(-1, 2)
        chosen = np.zeros(len(rows), dtype=np.int8)
        choose(rows, transactions, chosen)
        return cls(span, data, rows[chosen != 0], max(next_offset, span.start))

    def records(self, chunk_bytes: int) -> Iterator[Records]:
        """The records in chunks of about `chunk_bytes` uncompressed bytes, or of `MOST_RECORDS`.

        Uncompressed batches are not copied. Compressed ones are inflated one chunk at a time: `chunk_bytes` and `SPARE`.
        A larger batch, or one that cannot be read, comes in `slices`.
        """
        at = 0
        while at < len(self.rows):
            rows = self.rows[at:].copy()
            compressed = rows[0, ATTRIBUTES] & CODEC
            buffer, count = (self._inflated if compressed else self._plain)(rows, chunk_bytes)
            rows, found = rows[:count], None
            if count and np.all(rows[:, COUNT] * SMALLEST_RECORD <= rows[:, END] - rows[:, AT]):
                records, state = parsed(self.span, buffer, rows)
                found = records if state == WELL else None
            if found:
                yield found
            if found is None:
                count = max(count, 1)
                for row in self.rows[at : at + count]:
                    packed = memoryview(self.data)[row[AT] + HEADER : row[END]]
                    inflating = Inflating(int(row[ATTRIBUTES]) & CODEC, packed)
                    yield from slices(self.span, row.copy(), inflating, chunk_bytes)
            at += count

    def _plain(self, rows: Rows, chunk_bytes: int) -> tuple[NDArray[np.uint8], int]:
        """A chunk of the first uncompressed batches, and their number. Places become those of their records."""
        sizes = rows[:, END] - rows[:, AT]
        others = np.flatnonzero((rows[:, ATTRIBUTES] & CODEC != 0) | (sizes > chunk_bytes + SPARE))
        ends = (
            np.searchsorted(np.cumsum(sizes), chunk_bytes),
            np.searchsorted(np.cumsum(rows[:, COUNT]), MOST_RECORDS),
        )
        count = min(int(others[0]) if len(others) else len(rows), int(min(ends)) + 1)
        rows[:count, AT] += HEADER
        return np.frombuffer(self.data, dtype=np.uint8), count

    def _inflated(self, rows: Rows, chunk_bytes: int) -> tuple[NDArray[np.uint8], int]:
        """Inflate a chunk of the first batches; returns it and their number. Places become those in the chunk.

        0 if the first batch does not fit, or cannot be inflated.
        """
        packed, room = memoryview(self.data), np.empty(chunk_bytes + SPARE, dtype=np.uint8)
        used = records = 0
        for number, row in enumerate(rows):
            records += int(row[COUNT])
            if used and (used >= chunk_bytes or records > MOST_RECORDS):
                return frozen(room[:used]), number
            size = inflate(
                int(row[ATTRIBUTES]) & CODEC, packed[row[AT] + HEADER : row[END]], room.data[used:]
            )
            if size is None:
                return frozen(room[:used]), number
            row[AT], row[END] = used, used + size
            used += size
        return frozen(room[:used]), len(rows)


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
        content, count, cut = room.next(min(left, MOST_RECORDS))
        row[AT], row[END], row[COUNT] = 0, len(content), count
        records, state = parsed(span, content, row[None])
        if cut:
            records.refused[:] = RECORD_TOO_LARGE
        if len(records):
            yield records
        if state != WELL or not count:
            break
        left -= count
    if left or room.used or inflating.take(1):
        yield from _lost(span, row, left, inflating.ended or CORRUPT_BATCH)


class _Room:
    """Inflated bytes of a batch that are not handed out yet."""

    def __init__(self, inflating: Inflating, chunk_bytes: int) -> None:
        self._inflating, self._chunk_bytes = inflating, chunk_bytes
        self._room, self.used = np.empty(chunk_bytes, np.uint8), 0

    def next(self, most: int) -> tuple[Bytes, int, bool]:
        """The next records, at most `most`; none at the end. Also their number, and whether it is one without its large parts."""
        end = NOTHING, 0, False
        while True:
            self.used += self._inflating.into(self._room.data[self.used :])
            count, stop = whole(self._room, self.used, most)
            if count:
                content, self.used = frozen(self._room[:stop]), self.used - stop
                self._move(stop, max(self._chunk_bytes, self.used))
                return content, count, False
            size, at = varint(self._room, 0, self.used)
            if at < 0 or size < 1:
                return end
            if size > LARGEST_RECORD + OVERHEAD:
                self._inflating.back(self._room[at : self.used].tobytes())
                self.used, kept = 0, _cut(self._inflating, size)
                return end if kept is None else (np.frombuffer(kept, np.uint8), 1, True)
            if self.used < len(self._room):
                return end
            self._move(0, at + size)

    def _move(self, start: int, size: int) -> None:
        """Move the used bytes, from `start` on, into a new room."""
        room = np.empty(size, np.uint8)
        room[: self.used] = self._room[start : start + self.used]
        self._room = room


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
