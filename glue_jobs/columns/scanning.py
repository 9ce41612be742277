"""Kernels on bytes that several machines use: numbers of varying length, characters, digits."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core.cgutils import pointer_add
from numba.extending import intrinsic

from glue_jobs.columns.kernels import BYTES, kernel

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
