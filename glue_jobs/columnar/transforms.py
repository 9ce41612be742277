"""Iceberg's transforms of partition fields and sort fields, whole columns at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numba import types
from numpy.typing import NDArray

from calve.job import Transform
from glue_jobs.columnar import murmur
from glue_jobs.columnar.types import stored
from glue_jobs.compiled import BYTES, kernel

DAY_US = 86_400_000_000
HOUR_US = 3_600_000_000


def applied(transform: Transform, values: pa.Array) -> pa.Array:
    """The transform's value of each; null stays null."""
    match transform.name:
        case "identity":
            return values
        case "bucket":
            return _like(values, _hashes(values) % np.int32(transform.argument or 1), pa.int32())
        case "truncate":
            return _truncated(values, transform.argument or 1)
        case "hour":
            return _like(values, _numbers(values) // HOUR_US, pa.int32())
    days = _numbers(values)
    if pa.types.is_timestamp(values.type):
        days = days // DAY_US
    if transform.name == "day":
        return _like(values, days, pa.date32())
    unit = "M8[Y]" if transform.name == "year" else "M8[M]"
    return _like(values, days.astype("M8[D]").astype(unit).astype(np.int64), pa.int32())


def _like(values: pa.Array, numbers: NDArray[Any], kind: pa.DataType) -> pa.Array:
    """Numbers as an array that is null where the values are."""
    null = pc.is_null(values).to_numpy(zero_copy_only=False) if values.null_count else None
    return pa.array(numbers.astype(np.int32), pa.int32(), mask=null).cast(kind)


def _numbers(values: pa.Array) -> NDArray[np.int64]:
    """What whole numbers, dates and times are stored as; anything where they are null."""
    held = np.frombuffer(values.buffers()[1], stored(values.type))
    return held[values.offset : values.offset + len(values)].astype(np.int64)


def _hashes(values: pa.Array) -> NDArray[np.int32]:
    kind = values.type
    if pa.types.is_decimal(kind):
        return murmur.of_decimals(_unscaled(values))
    if pa.types.is_integer(kind) or pa.types.is_temporal(kind):
        return murmur.of_longs(_numbers(values))
    if pa.types.is_fixed_size_binary(kind):
        values = values.cast(pa.binary())
    _, places, data = values.buffers()
    begins = np.frombuffer(places, np.int32)[values.offset : values.offset + len(values) + 1]
    return murmur.of_bytes(begins, np.frombuffer(data or b"", np.uint8))


def _truncated(values: pa.Array, width: int) -> pa.Array:
    kind = values.type
    if pa.types.is_string(kind):
        return pc.utf8_slice_codeunits(values, 0, width)
    if pa.types.is_binary(kind):
        return pc.binary_slice(values, 0, width)
    if pa.types.is_decimal(kind):
        found, null = _floored(_unscaled(values), width), values.buffers()[0]
        if values.offset:
            null = pc.is_valid(values).buffers()[1]
        return pa.Array.from_buffers(kind, len(values), [null, pa.py_buffer(found)])
    numbers = _numbers(values)
    null = pc.is_null(values).to_numpy(zero_copy_only=False) if values.null_count else None
    return pa.array((numbers - numbers % width).astype(stored(kind)), kind, mask=null)


def _unscaled(values: pa.Array) -> NDArray[np.uint8]:
    """Decimals as whole numbers of 16 bytes, the lowest first."""
    held = np.frombuffer(values.buffers()[1], np.uint8)
    return held[values.offset * 16 : (values.offset + len(values)) * 16]


@kernel(types.uint8[::1](BYTES, types.int64))
def _floored(data: NDArray[np.uint8], width: int) -> NDArray[np.uint8]:
    """Each whole number of 16 bytes as the greatest multiple of `width` that is not above it."""
    found = np.empty(len(data), np.uint8)
    for first in range(0, len(data), 16):
        rest = np.int64(np.int8(data[first + 15])) % width
        for place in range(first + 14, first - 1, -1):
            rest = (rest * 256 + np.int64(data[place])) % width
        for place in range(first, first + 16):
            less = np.int64(data[place]) - (rest & 255)
            rest = (rest >> 8) + (1 if less < 0 else 0)
            found[place] = np.uint8(less & 255)
    return found
