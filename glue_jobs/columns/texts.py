"""Bytes and texts in compiled loops: as Arrow arrays, and scanned by the machines of several formats.

Texts are copied from their places in a buffer: cells are `place << 32 | length`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from llvmlite import ir
from numba import types
from numba.core.cgutils import get_or_insert_function, pointer_add
from numba.extending import intrinsic
from numpy.typing import NDArray

from glue_jobs.columns.arrow_types import bits
from glue_jobs.columns.kernels import BYTES, BYTES_OUT, LONGS, PLACES, PLACES_OUT, kernel

LENGTH = 0xFFFFFFFF
"""The part of a cell with the number of bytes; the rest is their place in the buffer."""
MOVED, AHEAD = 16, 16
"""Bytes copied at once; rows whose bytes are prefetched."""

Bytes = NDArray[np.uint8]
Longs = NDArray[np.int64]
NOTHING: Bytes = np.zeros(0, np.uint8)
U = np.uint64
"""An unsigned index: for signed ones numba checks for negative values each time."""
PAIR, TRIPLE = (types.UniTuple(types.int64, size) for size in (2, 3))  # type: ignore[no-untyped-call]


def pointer(context: Any, builder: Any, kind: Any, array: Any, at: Any, bits: int) -> Any:
    """For intrinsics: a pointer to `bits` bits in an array of bytes."""
    begin = context.make_array(kind)(context, builder, array).data
    return pointer_add(builder, begin, at, ir.IntType(bits).as_pointer())  # type: ignore[no-untyped-call]


def _loading(_: Any, data: Any, at: Any) -> Any:
    def generate(context: Any, builder: Any, _: Any, given: Any) -> Any:
        return builder.load(pointer(context, builder, data, given[0], given[1], 64), align=1)

    return types.uint64(data, types.int64), generate


eight: Any = intrinsic(_loading)
"""The bits of eight bytes, little-endian."""


@kernel(types.int64(BYTES, types.int64, types.int64), inline=True)
def little(data: Any, at: Any, size: Any) -> Any:
    """The bits of `size` bytes, little-endian."""
    value = np.int64(0)
    for place in range(size):
        value |= np.int64(data[U(at + place)]) << (8 * place)
    return value


@kernel(PAIR(BYTES, types.int64, types.int64, types.int64))
def varint(data: Any, at: Any, end: Any, most: Any) -> Any:
    """The bits of a number, 7 per byte and `most` at most, and the place after it; -1 if it does not end before `end`."""
    value, shift = np.int64(0), np.int64(0)
    while at < end and shift < most:
        byte = np.int64(data[U(at)])
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    return value, np.int64(-1)


@kernel(types.int64(BYTES, types.int64, types.int64))
def character_end(data: Any, at: Any, end: Any) -> Any:
    """The place after a character of several bytes in UTF-8; -1 if it is none."""
    lead = data[U(at)]
    size = 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4
    if lead < 0xC2 or lead > 0xF4 or at + size > end:
        return np.int64(-1)
    low = 0xA0 if lead == 0xE0 else 0x90 if lead == 0xF0 else 0x80
    high = 0x9F if lead == 0xED else 0x8F if lead == 0xF4 else 0xBF
    if data[U(at + 1)] < low or data[U(at + 1)] > high:
        return np.int64(-1)
    for place in range(at + 2, at + size):
        if data[U(place)] & 0xC0 != 0x80:
            return np.int64(-1)
    return at + size


@kernel(types.int64(BYTES, types.int64, types.int64), inline=True)
def digits(data: Any, at: Any, end: Any) -> Any:
    """The place after digits."""
    while at < end and data[U(at)] >= 48 and data[U(at)] <= 57:
        at += 1
    return at


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
