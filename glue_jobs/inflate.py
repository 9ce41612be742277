"""Compressed payloads, batch by batch: the one thing that Spark has no function for."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.types import BinaryType

from calve.wire import GLUE

CHUNK_BYTES = 16 * 2**20


def inflated(batches: Iterator[pa.Array]) -> Iterator[pa.Array]:
    """The values as they would be without compression, null where they cannot be inflated.

    What comes out in one piece is bounded, whatever the batches hold: `CHUNK_BYTES` and one more value.
    """
    for batch in batches:
        chunk: list[bytes | None] = []
        size = 0
        for each in batch:
            value = each.as_py()
            found = None if value is None else GLUE.plain(value)
            chunk.append(found)
            size += len(found or b"")
            if size >= CHUNK_BYTES:
                yield pa.array(chunk, pa.binary())
                chunk, size = [], 0
        if chunk:
            yield pa.array(chunk, pa.binary())


inflate: Callable[[Column], Column] = arrow_udf(inflated, BinaryType())  # type: ignore[call-overload]
