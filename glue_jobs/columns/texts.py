"""Text and bytes as Arrow arrays, copied by compiled loops from their places in a buffer: cells are `place << 32 | length`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from llvmlite import ir
from numba import types
from numba.core.cgutils import get_or_insert_function
from numba.extending import intrinsic
from numpy.typing import NDArray

from glue_jobs.columns.arrow_types import bits
from glue_jobs.columns.kernels import BYTES, BYTES_OUT, LONGS, PLACES, PLACES_OUT, kernel
from glue_jobs.columns.scanning import pointer

LENGTH = 0xFFFFFFFF
"""The part of a cell with the number of bytes; the rest is their place in the buffer."""
MOVED, AHEAD = 16, 16
"""Bytes copied at once; rows whose bytes are prefetched."""

Bytes = NDArray[np.uint8]
Longs = NDArray[np.int64]
NOTHING: Bytes = np.zeros(0, np.uint8)


@kernel(types.int64(LONGS, BYTES, PLACES_OUT))
def lay_out(cells: Any, marks: Any, offsets: Any) -> Any:
    """The offsets of the cells' bytes after copying, and their total. Without marks every cell has a value."""
    total = np.int64(0)
    offsets[0] = 0
    for row in range(cells.size):
        if marks.size == 0 or marks[row]:
            total += cells[row] & LENGTH
        offsets[row + 1] = total
    return total


def _moving(_: Any, out: Any, at: Any, data: Any, place: Any) -> Any:
    """Copy `MOVED` bytes at once. The compiler makes no single instruction of a loop, because the arrays might overlap."""

    def generate(context: Any, builder: Any, _: Any, given: Any) -> Any:
        source = pointer(context, builder, data, given[2], given[3], 8 * MOVED)
        to = pointer(context, builder, out, given[0], given[1], 8 * MOVED)
        builder.store(builder.load(source, align=1), to, align=1)
        return context.get_dummy_value()

    return types.void(out, types.int64, data, types.int64), generate


def _expecting(_: Any, data: Any, place: Any) -> Any:
    """Prefetch bytes: those of neighbours in a column are a record apart."""

    def generate(context: Any, builder: Any, _: Any, given: Any) -> Any:
        number, at = ir.IntType(32), pointer(context, builder, data, given[0], given[1], 8)
        kind = ir.FunctionType(ir.VoidType(), [at.type, number, number, number])
        prefetch = get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")  # type: ignore[no-untyped-call]
        builder.call(prefetch, [at, *(ir.Constant(number, each) for each in (0, 3, 1))])
        return context.get_dummy_value()

    return types.void(data, types.int64), generate


_move: Any = intrinsic(_moving)
_expect: Any = intrinsic(_expecting)


@kernel(types.void(LONGS, BYTES, PLACES, BYTES_OUT))
def copy(cells: Any, data: Any, offsets: Any, out: Any) -> Any:
    """Copy the bytes as `lay_out` planned."""
    for row in range(cells.size):
        if row + AHEAD < cells.size:
            _expect(data, cells[row + AHEAD] >> 32)
        at, end, place = np.int64(offsets[row]), np.int64(offsets[row + 1]), cells[row] >> 32
        while at < end and at + MOVED <= out.size and place + MOVED <= data.size:
            _move(out, at, data, place)  # the next row overwrites excess bytes
            at += MOVED
            place += MOVED
        while at < end:
            out[at] = data[place]
            at += 1
            place += 1


def validity(marks: Bytes) -> Any:
    """Arrow's validity bitmap of marks."""
    return pa.py_buffer(bits(marks)) if marks.size else None


def texts(kind: Any, numbers: Longs, marks: Bytes, data: Bytes) -> Any:
    """An array of text or bytes from their places."""
    offsets = np.empty(numbers.size + 1, np.int32)
    content = np.empty(lay_out(numbers, marks, offsets), np.uint8)
    copy(numbers, data, offsets, content)
    buffers = [validity(marks), pa.py_buffer(offsets), pa.py_buffer(content)]
    return pa.Array.from_buffers(kind, numbers.size, buffers)
