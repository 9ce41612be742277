"""Framed Protobuf values as a Spark column: an Arrow function in Spark's Python workers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import Column as SparkColumn
from pyspark.sql.pandas.functions import arrow_udf

from calve.schema.columns import Json, field, struct
from calve.schema.writers import ProtobufWriter
from glue_jobs.columns.arrow_types import arrow_type
from glue_jobs.decode.shapes import spark_type

VALUE, GOOD = "value", "good"


def from_protobuf(value: SparkColumn, writers: Sequence[ProtobufWriter]) -> SparkColumn:
    """A struct of `VALUE` (the row; null for bad values) and `GOOD` per framed value (binary), null for others."""

    def decoded(batches: Iterator[pa.Array]) -> Iterator[pa.Array]:
        return decode(batches, writers)

    kind = f"struct<{VALUE}: {spark_type(row_type(writers))}, {GOOD}: boolean>"
    made: Any = arrow_udf(decoded, kind)  # type: ignore[call-overload]
    # Otherwise Spark evaluates it again for each condition on its result that it pushes down.
    return made.asNondeterministic()(value)  # type: ignore[no-any-return]


def row_type(writers: Sequence[ProtobufWriter]) -> Json:
    """The columns of all writers, which are the table's (Iceberg, JSON form)."""
    return struct(*(field(each.name, each.type) for each in writers[0].plan.columns))


def decode(batches: Iterator[pa.Array], writers: Sequence[ProtobufWriter]) -> Iterator[pa.Array]:
    """A struct per value (binary): its row, and whether it is good. Null if no prefix matches."""
    from glue_jobs.decode.protobuf.reader import Messages  # compiles in a worker, not where the job starts

    columns = arrow_type(row_type(writers), fixed=False)
    kind = pa.struct([pa.field(VALUE, columns), pa.field(GOOD, pa.bool_())])
    readers = [(each.prefix, Messages(replace(each, whole=None))) for each in writers]
    for framed in batches:
        yield _decoded(framed, readers, kind) if len(framed) else pa.nulls(0, kind)


def _decoded(framed: Any, readers: Sequence[tuple[bytes, Any]], kind: Any) -> Any:
    from glue_jobs.columns.buffers import Spans

    size, (_, ends, content) = len(framed), framed.buffers()
    offsets = np.frombuffer(ends, np.int32, size + 1, framed.offset * 4)
    data = np.frombuffer(content, np.uint8) if content is not None and content.size else np.zeros(1, np.uint8)
    starts, lengths = offsets[:-1], np.diff(offsets)
    ours, places, rows = np.zeros(size, np.bool_), np.full(size, -1), [pa.nulls(0, kind[0].type)]
    done = 0
    for prefix, reader in readers:
        which = _prefixed(framed, data, starts, lengths, prefix)
        ours[which] = True
        for records, found in reader.read(Spans(data, starts, lengths, which)):
            places[records] = np.arange(done, done + records.size)
            rows.append(found.to_struct_array().cast(kind[0].type))
            done += records.size
    value = pa.concat_arrays(rows)
    if done < size or np.any(places != np.arange(size)):
        value = value.take(pa.array(places, mask=places < 0))
    mask = None if ours.all() else pa.array(~ours)
    return pa.StructArray.from_arrays([value, pa.array(places >= 0)], fields=list(kind), mask=mask)


def _prefixed(
    framed: Any, data: NDArray[np.uint8], starts: Any, lengths: Any, prefix: bytes
) -> NDArray[np.int64]:
    """The places of values with a prefix."""
    ours = lengths >= len(prefix)
    if framed.null_count:
        ours &= framed.is_valid().to_numpy(zero_copy_only=False)
    for place, byte in enumerate(prefix):
        ours &= data[np.minimum(starts + place, data.size - 1)] == byte
    return np.flatnonzero(ours)
