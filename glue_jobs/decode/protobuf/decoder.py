"""Framed Protobuf values as a Spark column: an Arrow function, in the Python processes that Spark starts beside its tasks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql.pandas.functions import arrow_udf

from calve.schema.columns import Json, field, struct
from calve.schema.protobuf.reading import Struct
from glue_jobs.columns.arrow_types import arrow_type
from glue_jobs.decode.protobuf.messages import Messages
from glue_jobs.decode.protobuf.scan import PADDING, Bytes, Flags, Ints, Spans
from glue_jobs.decode.shapes import spark_type

VALUE, GOOD = "value", "good"
CHUNK_BYTES = 1 << 20
"""So much is read at once, or one value: what is made on the way takes up to a hundred times as much memory."""


@dataclass(frozen=True, slots=True)
class Frame:
    """Values with this prefix are messages to be read so."""

    prefix: bytes
    plan: Struct


def from_protobuf(value: Column, frames: Sequence[Frame]) -> Column:
    """A struct of `VALUE` (the row) and `GOOD` for each value (binary) that is framed so, null for others."""
    frames = tuple(frames)

    def decoded(values: pa.Array) -> pa.Array:
        return decode(values, frames)

    kind = f"struct<{VALUE}: {spark_type(row_type(frames))}, {GOOD}: boolean>"
    made: Any = arrow_udf(decoded, kind)  # type: ignore[call-overload]
    # Spark would evaluate it once more for each condition on its result that it moves below it.
    return made.asNondeterministic()(value)  # type: ignore[no-any-return]


def row_type(frames: Sequence[Frame]) -> Json:
    """The columns that all frames are read as, which are the table's (Iceberg, JSON form)."""
    return struct(*(field(each.name, each.type) for each in frames[0].plan.columns))


def decode(values: Any, frames: Sequence[Frame]) -> Any:
    """A struct for each value (binary): its row, and whether it is good. Null where no frame is the value's."""
    columns = arrow_type(row_type(frames), fixed=False)
    size = len(values)
    offsets = np.frombuffer(values.buffers()[1], np.int32, size + 1, values.offset * 4).astype(np.int64)
    content = values.buffers()[2]
    held = np.frombuffer(content, np.uint8) if content is not None and content.size else np.zeros(0, np.uint8)
    present = np.ones(size, np.bool_)
    if values.null_count:
        present = values.is_valid().to_numpy(zero_copy_only=False)
    parts = []
    for begin, end in _chunks(offsets):
        data = np.concatenate([held[offsets[begin] : offsets[end]], np.zeros(PADDING, np.uint8)])
        starts = offsets[begin : end + 1] - offsets[begin]
        parts.append(_rows(data, starts[:-1], starts[1:], present[begin:end], frames, columns))
    kind = pa.struct([pa.field(VALUE, columns), pa.field(GOOD, pa.bool_())])
    return pa.concat_arrays([each.cast(kind) for each in parts]) if parts else pa.nulls(0, kind)


def _chunks(offsets: Ints) -> list[tuple[int, int]]:
    """Ranges of values of about `CHUNK_BYTES`."""
    found, begin, count = [], 0, offsets.size - 1
    while begin < count:
        end = int(np.searchsorted(offsets, offsets[begin] + CHUNK_BYTES, side="right")) - 1
        end = min(max(end, begin + 1), count)
        found.append((begin, end))
        begin = end
    return found


def _rows(data: Bytes, start: Ints, end: Ints, present: Flags, frames: Sequence[Frame], columns: Any) -> Any:
    made, places = [], []
    for frame in frames:
        which = np.flatnonzero(present & _has_prefix(data, start, end, frame.prefix))
        if which.size:
            made.append(_read(data, start[which] + len(frame.prefix), end[which], frame.plan))
            places.append(which)
    if len(made) == 1 and places[0].size == start.size:
        return made[0]
    if not made:
        kind = pa.struct([pa.field(VALUE, columns), pa.field(GOOD, pa.bool_())])
        return pa.nulls(start.size, kind)
    place = np.full(start.size, -1)
    place[np.concatenate(places)] = np.arange(sum(each.size for each in places))
    together = pa.concat_arrays([each.cast(made[0].type) for each in made])
    return together.take(pa.array(place, mask=place < 0))


def _has_prefix(data: Bytes, start: Ints, end: Ints, prefix: bytes) -> Flags:
    found: Flags = end - start >= len(prefix)
    for place, byte in enumerate(prefix):
        found &= data[np.minimum(start + place, data.size - 1)] == byte
    return found


def _read(data: Bytes, start: Ints, end: Ints, plan: Struct) -> Any:
    every = np.arange(start.size)
    messages = Messages(plan, Spans(data, start, end, every), np.ones(start.size, np.bool_))
    parts = messages.columns()
    fields = [pa.field(each.name, part.type) for each, part in zip(plan.columns, parts, strict=True)]
    row = pa.Array.from_buffers(pa.struct(fields), start.size, [None], children=parts)
    return pa.StructArray.from_arrays(
        [row, pa.array(~(messages.broken | messages.unfit))], names=[VALUE, GOOD]
    )
