"""Iceberg's hash of bucket partitioning: 32-bit Murmur 3 of a value's bytes, whole columns at a time."""

from __future__ import annotations

import numpy as np
from numba import types
from numpy.typing import NDArray

from glue_jobs.compiled import BYTES, LONGS, PLACES, kernel

C1, C2 = np.uint64(0xCC9E2D51), np.uint64(0x1B873593)
FIVE, ADDED = np.uint64(5), np.uint64(0xE6546B64)
MIX1, MIX2 = np.uint64(0x85EBCA6B), np.uint64(0xC2B2AE35)
LOW = np.uint64(0xFFFFFFFF)
POSITIVE = np.uint64(0x7FFFFFFF)

HASHES = types.int32[::1]


@kernel(types.uint64(types.uint64, types.uint64))
def _left(number: np.uint64, by: np.uint64) -> np.uint64:
    return ((number << by) | (number >> (np.uint64(32) - by))) & LOW


@kernel(types.uint64(types.uint64))
def _scrambled(word: np.uint64) -> np.uint64:
    return (_left((word * C1) & LOW, np.uint64(15)) * C2) & LOW


@kernel(types.uint64(types.uint64, types.uint64))
def _mixed(state: np.uint64, word: np.uint64) -> np.uint64:
    return (_left(state ^ _scrambled(word), np.uint64(13)) * FIVE + ADDED) & LOW


@kernel(types.int32(types.uint64, types.uint64))
def _finished(state: np.uint64, length: np.uint64) -> np.int32:
    """The hash without its sign."""
    state ^= length
    state = ((state ^ (state >> np.uint64(16))) * MIX1) & LOW
    state = ((state ^ (state >> np.uint64(13))) * MIX2) & LOW
    return np.int32((state ^ (state >> np.uint64(16))) & POSITIVE)


@kernel(types.int32(BYTES, types.int64, types.int64))
def _of_bytes(data: NDArray[np.uint8], begin: int, end: int) -> np.int32:
    state, at = np.uint64(0), begin
    while at + 4 <= end:
        word = np.uint64(data[at]) | (np.uint64(data[at + 1]) << np.uint64(8))
        word |= (np.uint64(data[at + 2]) << np.uint64(16)) | (np.uint64(data[at + 3]) << np.uint64(24))
        state = _mixed(state, word)
        at += 4
    rest = np.uint64(0)
    for place in range(end - 1, at - 1, -1):
        rest = (rest << np.uint64(8)) | np.uint64(data[place])
    if at < end:
        state ^= _scrambled(rest)
    return _finished(state, np.uint64(end - begin))


@kernel(HASHES(LONGS))
def of_longs(values: NDArray[np.int64]) -> NDArray[np.int32]:
    found = np.empty(len(values), np.int32)
    for row in range(len(values)):
        value = np.uint64(values[row])
        state = _mixed(_mixed(np.uint64(0), value & LOW), value >> np.uint64(32))
        found[row] = _finished(state, np.uint64(8))
    return found


@kernel(HASHES(PLACES, BYTES))
def of_bytes(begins: NDArray[np.int32], data: NDArray[np.uint8]) -> NDArray[np.int32]:
    """begins: one more than there are values."""
    found = np.empty(len(begins) - 1, np.int32)
    for row in range(len(found)):
        found[row] = _of_bytes(data, begins[row], begins[row + 1])
    return found


@kernel(HASHES(BYTES))
def of_decimals(data: NDArray[np.uint8]) -> NDArray[np.int32]:
    """data: the unscaled values, 16 bytes each, the lowest first.

    Hashed are as few bytes as hold a value, the highest first.
    """
    found = np.empty(len(data) // 16, np.int32)
    shortest = np.empty(16, np.uint8)
    for row in range(len(found)):
        top = row * 16 + 15
        sign = np.uint8(255) if data[top] >= 128 else np.uint8(0)
        size = 16
        while (
            size > 1
            and data[row * 16 + size - 1] == sign
            and (data[row * 16 + size - 2] >= 128) == (sign == 255)
        ):
            size -= 1
        for place in range(size):
            shortest[place] = data[row * 16 + size - 1 - place]
        found[row] = _of_bytes(shortest, 0, size)
    return found
