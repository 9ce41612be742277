"""Raw record batches, as a broker sends them, to `Records`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from calve.errors import CalveError, Retryable, Suspended
from glue_jobs.kafka.batch_kernels import (
    AT,
    ATTRIBUTES,
    BASE,
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
)
from glue_jobs.kafka.inflating import inflate
from glue_jobs.kafka.records import Records

LARGEST_BATCH = 1 << 29
"""Uncompressed bytes of a batch; what would have more was made to exhaust memory."""
MOST_RECORDS = 1 << 16
"""Records of a chunk, unless one batch has more."""
SPARE = 1 << 20
"""Room of a chunk beyond its size, for the batch that completes it."""

Rows = NDArray[np.int64]
"""Batches, one a row: the columns of `batch_kernels.scan`."""


@dataclass(frozen=True, slots=True)
class Span:
    """Offsets [start, to) of a partition."""

    topic: str
    partition: int
    start: int
    to: int

    def refused(self, state: int, offset: int) -> CalveError:
        """Why batches from an offset on are not read."""
        where = f"topic {self.topic}, partition {self.partition}, from offset {offset} on"
        if state == OLD:
            return Suspended(
                "message_format",
                f"{where}: batches of a message format before 2",
                fix="set engine: rows for this table: it reads what was written under an old message.format.version",
            )
        return Suspended(
            "corrupt_batch",
            f"{where}: a record batch cannot be read, or inflates to more than {LARGEST_BATCH >> 20} MiB",
            fix="look at it with kafka-dump-log on a broker; with engine: rows Kafka's own consumer says why",
        )


@dataclass(frozen=True, slots=True)
class Batches:
    """The batches of a response that hold committed records of a span; `next_offset`: where to read on after them."""

    span: Span
    data: bytes
    rows: Rows
    next_offset: int

    @classmethod
    def of(cls, span: Span, data: bytes, aborted: Sequence[tuple[int, int]]) -> Batches:
        """Out of raw bytes; `aborted`: producer and first offset of transactions, as the broker says them with the bytes.

        Raises:
            Retryable: a checksum is wrong. Suspended: `corrupt_batch`, `message_format`.
        """
        rows = np.empty((len(data) // HEADER, COLUMNS), dtype=np.int64)
        view = np.frombuffer(data, dtype=np.uint8)
        count, state = scan(view, rows)
        rows = rows[:count]
        next_offset = int(rows[-1, LAST]) + 1 if count else span.start
        if state != WELL and next_offset < span.to:
            raise span.refused(state, next_offset)
        rows = rows[rows[:, BASE] < span.to]
        _check(span, data, rows)
        transactions = np.array(sorted(aborted, key=lambda each: each[1]), dtype=np.int64).reshape(-1, 2)
        chosen = np.zeros(len(rows), dtype=np.int8)
        choose(rows, transactions, chosen)
        return cls(span, data, rows[chosen != 0], max(next_offset, span.start))

    def records(self, chunk_bytes: int) -> Iterator[Records]:
        """Their records in chunks of about so many uncompressed bytes, or of `MOST_RECORDS`.

        Uncompressed batches stay where they are. Of compressed ones there is one chunk at a time: `chunk_bytes` and `SPARE`, or
        the one batch that is larger.

        Raises:
            Suspended: `corrupt_batch`.
        """
        at = 0
        while at < len(self.rows):
            if self.rows[at, ATTRIBUTES] & CODEC:
                buffer, end = self._inflated(at, chunk_bytes)
            else:
                buffer, end = np.frombuffer(self.data, dtype=np.uint8), self._plain(at, chunk_bytes)
                self.rows[at:end, AT] += HEADER
            found = self._parsed(buffer, self.rows[at:end])
            if len(found):
                yield found
            at = end

    def _plain(self, at: int, chunk_bytes: int) -> int:
        """The end of a chunk of uncompressed batches that begins with this one."""
        rows = self.rows[at:]
        compressed = np.flatnonzero(rows[:, ATTRIBUTES] & CODEC)
        sizes, counts = np.cumsum(rows[:, END] - rows[:, AT]), np.cumsum(rows[:, COUNT])
        full = min(np.searchsorted(sizes, chunk_bytes), np.searchsorted(counts, MOST_RECORDS)) + 1
        return at + min(int(compressed[0]) if len(compressed) else len(rows), int(full))

    def _inflated(self, at: int, chunk_bytes: int) -> tuple[NDArray[np.uint8], int]:
        """A chunk of batches that begins with this one, and where it ends; their places become those in the chunk."""
        packed, room = memoryview(self.data), np.empty(chunk_bytes + SPARE, dtype=np.uint8)
        used = records = 0
        for number in range(at, len(self.rows)):
            row = self.rows[number]
            records += int(row[COUNT])
            if used and (used >= chunk_bytes or records > MOST_RECORDS):
                return _ended(room, used), number
            codec, batch = int(row[ATTRIBUTES]) & CODEC, packed[row[AT] + HEADER : row[END]]
            size = inflate(codec, batch, room.data[used:])
            if size is None and used:
                return _ended(room, used), number
            if size is None:
                room = np.empty(LARGEST_BATCH, dtype=np.uint8)  # memory is taken as it is written
                size = inflate(codec, batch, room.data)
            if size is None:
                raise self.span.refused(WELL, int(row[BASE]))
            row[AT], row[END] = used, used + size
            used += size
        return _ended(room, used), len(self.rows)

    def _parsed(self, buffer: NDArray[np.uint8], rows: Rows) -> Records:
        span, counts = self.span, rows[:, COUNT]
        if np.any(counts * SMALLEST_RECORD > rows[:, END] - rows[:, AT]):
            raise span.refused(WELL, int(rows[0, BASE]))
        total = int(counts.sum())
        offset, timestamp = np.empty(total, dtype=np.int64), np.empty(total, dtype=np.int64)
        kind, places = np.empty(total, dtype=np.int8), np.empty((6, total), dtype=np.int32)
        count, state = parse(buffer, rows, span.start, span.to, offset, timestamp, kind, places)
        if state != WELL:
            raise span.refused(state, int(rows[0, BASE]))
        return Records(
            span.partition, buffer, offset[:count], timestamp[:count], kind[:count], *places[:, :count]
        )


def _check(span: Span, data: bytes, rows: Rows) -> None:
    for at, end, crc, base in rows[:, [AT, END, CRC, BASE]].tolist():
        if google_crc32c.value(data[at + CHECKED_FROM : end]) != crc:
            raise Retryable(
                f"topic {span.topic}, partition {span.partition}, offset {base}: a batch has another checksum than its bytes"
            )


def _ended(room: NDArray[np.uint8], used: int) -> NDArray[np.uint8]:
    chunk = room[:used]
    chunk.flags.writeable = False
    return chunk
