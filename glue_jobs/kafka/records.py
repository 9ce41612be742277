"""Kafka records as columns: where each begins in the bytes that a broker sent."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calve.schema.columns import MOST_MILLIS, UNDELIVERED

DELIVERED = 0
BAD_TIMESTAMP, RECORD_TOO_LARGE, BATCH_TOO_LARGE, CORRUPT_BATCH = range(1, len(UNDELIVERED) + 1)
"""`Records.refused`: the place of the reason in `UNDELIVERED`, and one more."""
NO_TIME = -(2**63)
"""The timestamp of an offset whose record is not known."""


@dataclass(frozen=True, slots=True)
class Records:
    """Committed records of one partition in the order of their offsets; every array but `buffer` has one item per record.

    buffer: uncompressed bytes (uint8, read-only: `compiled.BYTES`) that places point into. `*_at`, `*_size`: int32, the place and
    the length in bytes; a size of -1 is null, its place then 0. headers_at: the first byte after the count of headers; they lie
    there as in the record: name (varint length, bytes) and value (varint length, -1 is null, bytes). offset, timestamp (ms since
    epoch): int64. timestamp_type: int8, 0 the producer's, 1 the broker's. Places, sizes and headers have been found to lie within
    the record. refused: int8, why a record is a dead letter whatever its value says, 0 of others: `BAD_TIMESTAMP` has all
    its parts, `RECORD_TOO_LARGE` has no value, and no key or headers larger than `batch_kernels.KEPT`. The others are offsets
    without a record. Only the timestamps of refused ones may be further away than `MOST_MILLIS`.
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
        """Timestamps, but for those that no column holds."""
        times = self.timestamp
        if not self.refused.any():
            return times
        return times[(times >= -MOST_MILLIS) & (times <= MOST_MILLIS)]
