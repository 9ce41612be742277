"""Convert a broker's raw record batches to `Records`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from calve.errors import Retryable
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
    SMALLEST_RECORD,
    WELL,
    choose,
    scan,
)
from glue_jobs.kafka.inflating import Inflating, inflate
from glue_jobs.kafka.records import Records
from glue_jobs.kafka.slices import MOST_RECORDS, Rows, Span, frozen, parsed, slices

SPARE = 1 << 20
"""Extra room of a chunk for the batch that completes it."""


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
        _check(span, data, rows)
        transactions = np.array(sorted(aborted, key=lambda each: each[1]), dtype=np.int64).reshape(-1, 2)
        chosen = np.zeros(len(rows), dtype=np.int8)
        choose(rows, transactions, chosen)
        return cls(span, data, rows[chosen != 0], max(next_offset, span.start))

    def records(self, chunk_bytes: int) -> Iterator[Records]:
        """The records in chunks of about `chunk_bytes` uncompressed bytes, or of `MOST_RECORDS`.

        Uncompressed batches are not copied. Compressed ones are inflated one chunk at a time: `chunk_bytes` and `SPARE`.
        A larger batch, or one that cannot be read, comes in slices (`glue_jobs.kafka.slices`).
        """
        at = 0
        while at < len(self.rows):
            rows = self.rows[at:].copy()
            compressed = rows[0, ATTRIBUTES] & CODEC
            buffer, count = (self._inflated if compressed else self._plain)(rows, chunk_bytes)
            found = _parsed(self.span, buffer, rows[:count]) if count else None
            if found is not None and len(found):
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


def _parsed(span: Span, buffer: NDArray[np.uint8], rows: Rows) -> Records | None:
    """None if one of the batches contradicts itself."""
    if np.any(rows[:, COUNT] * SMALLEST_RECORD > rows[:, END] - rows[:, AT]):
        return None
    found, state = parsed(span, buffer, rows)
    return found if state == WELL else None


def _check(span: Span, data: bytes, rows: Rows) -> None:
    for at, end, crc, base in rows[:, [AT, END, CRC, BASE]].tolist():
        if google_crc32c.value(data[at + CHECKED_FROM : end]) != crc:
            raise Retryable(
                f"topic {span.topic}, partition {span.partition}, offset {base}: a batch has another checksum than its bytes"
            )
