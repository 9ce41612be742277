"""One 128-bit hash for a key, whatever engine wrote its row.

The hash is murmur3 (x64, 128 bits) of the key's canonical bytes, seeded with a tag of the type. Types that Iceberg may widen
into each other have one form: integers have 64 bits, decimals 128 at their scale. Several columns have the hash of their hashes.
At 8 billion keys the chance that any two have the same hash is 1e-19, so equal hashes mean equal keys.
Source: https://github.com/aappleby/smhasher/blob/master/src/MurmurHash3.cpp
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numba import types
from numpy.typing import NDArray

from glue_jobs.columns.kernels import BYTES, LONGS, kernel

Words = NDArray[np.uint64]
INTEGER, TEXT, BINARY, BOOLEAN, DATE, MOMENT, DECIMAL, SEVERAL = range(1, 9)
"""Tags of types: equal bytes of two types are different keys."""
NULL = (0x9AE16A3B2F90404F, 0xC949D7C7509E6557)
"""The hash of a null inside a key."""
DECIMAL_WIDTH, WORD, PAIR = 16, 8, 16

_U, _I = types.uint64, types.int64
WORDS = types.Array(_U, 1, "C")
u64 = np.uint64


class Hashes(NamedTuple):
    """The two halves of the hashes of keys."""

    high: Words
    low: Words

    def take(self, places: NDArray[np.intp]) -> Hashes:
        return Hashes(self.high[places], self.low[places])

    def plus(self, others: Hashes) -> Hashes:
        return Hashes(*(np.concatenate(halves) for halves in zip(self, others, strict=True)))


def hashes(key: Sequence[pa.Array]) -> Hashes:
    """The hashes of keys, whose columns are arrays of one length. Raises ValueError: a column has a type that no key has."""
    hashed = [_column(each) for each in key]
    if len(hashed) == 1:
        return hashed[0]
    words = np.column_stack([half for each in hashed for half in each])
    return _hashed(words.view(np.uint8).reshape(-1), _ends(len(words), PAIR * len(hashed)), SEVERAL)


def _column(column: pa.Array) -> Hashes:
    found = _hashed(*_canonical(column))
    if column.null_count:
        null = column.is_null().to_numpy(zero_copy_only=False)
        found.high[null], found.low[null] = NULL
    return found


def _canonical(column: pa.Array) -> tuple[NDArray[np.uint8], NDArray[np.int64], int]:
    """The bytes of all values, the end of each after a leading start, and the tag of the type."""
    kind, is_ = column.type, pa.types
    if is_.is_string(kind) or is_.is_large_string(kind):
        return *_of_variable(column.cast(pa.large_binary())), TEXT
    if is_.is_binary(kind) or is_.is_large_binary(kind) or is_.is_fixed_size_binary(kind):
        return *_of_variable(column.cast(pa.large_binary())), BINARY
    if is_.is_decimal(kind):
        wide = pc.fill_null(column.cast(pa.decimal128(38, kind.scale)), 0)
        data = np.frombuffer(wide.buffers()[1], np.uint8)[wide.offset * DECIMAL_WIDTH :]
        return data, _ends(len(wide), DECIMAL_WIDTH), DECIMAL + (kind.scale << 8)
    if is_.is_integer(kind) or is_.is_boolean(kind):
        numbers, tag = _longs(column), INTEGER if is_.is_integer(kind) else BOOLEAN
    elif is_.is_date32(kind):
        numbers, tag = _longs(column.cast(pa.int32())), DATE
    elif is_.is_timestamp(kind):
        numbers, tag = _longs(column.cast(pa.timestamp("us", kind.tz))), MOMENT
    else:
        raise ValueError(f"a key has no {kind}")
    return np.ascontiguousarray(numbers).view(np.uint8), _ends(len(numbers), WORD), tag


def _longs(column: pa.Array) -> NDArray[Any]:
    numbers: NDArray[Any] = pc.fill_null(column.cast(pa.int64()), 0).to_numpy()
    return numbers


def _of_variable(column: pa.Array) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    _, offsets, data = column.buffers()
    ends = np.frombuffer(offsets, np.int64)[column.offset : column.offset + len(column) + 1]
    return np.frombuffer(data or b"", np.uint8), ends


def _ends(count: int, width: int) -> NDArray[np.int64]:
    return np.arange(count + 1, dtype=np.int64) * width


def _hashed(data: NDArray[np.uint8], ends: NDArray[np.int64], tag: int) -> Hashes:
    found = Hashes(np.empty(len(ends) - 1, np.uint64), np.empty(len(ends) - 1, np.uint64))
    _murmur(data, ends, u64(tag), *found)
    return found


FIRST, SECOND = u64(0x87C37B91114253D5), u64(0x4CF5AD432745937F)
ONE, OTHER = u64(0xFF51AFD7ED558CCD), u64(0xC4CEB9FE1A85EC53)


@kernel(_U(_U, _U), inline=True)
def _turned(word: np.uint64, bits: np.uint64) -> np.uint64:
    return u64((word << bits) | (word >> (u64(64) - bits)))


@kernel(_U(_U), inline=True)
def _mixed(word: np.uint64) -> np.uint64:
    word = u64((word ^ (word >> u64(33))) * ONE)
    word = u64((word ^ (word >> u64(33))) * OTHER)
    return u64(word ^ (word >> u64(33)))


@kernel(_U(BYTES, _I, _I), inline=True)
def _word(data: NDArray[np.uint8], at: int, size: int) -> np.uint64:
    """Up to 8 bytes, the least significant first."""
    word = u64(0)
    for n in range(size):
        word |= u64(data[at + n]) << u64(8 * n)
    return word


@kernel(types.void(BYTES, LONGS, _U, WORDS, WORDS))
def _murmur(
    data: NDArray[np.uint8], ends: NDArray[np.int64], seed: np.uint64, high: Words, low: Words
) -> None:
    """The hash of each value. ends: where each value begins, then the end of the last one."""
    for n in range(ends.size - 1):
        at, size = ends[n], ends[n + 1] - ends[n]
        h1, h2 = seed, seed
        for _ in range(size // 16):
            k1 = u64(_turned(u64(_word(data, at, 8) * FIRST), u64(31)) * SECOND)
            h1 = u64(_turned(u64(h1 ^ k1), u64(27)) + h2) * u64(5) + u64(0x52DCE729)
            k2 = u64(_turned(u64(_word(data, at + 8, 8) * SECOND), u64(33)) * FIRST)
            h2 = u64(_turned(u64(h2 ^ k2), u64(31)) + h1) * u64(5) + u64(0x38495AB5)
            at += 16
        rest = size % 16
        if rest > 8:
            h2 ^= u64(_turned(u64(_word(data, at + 8, rest - 8) * SECOND), u64(33)) * FIRST)
        if rest > 0:
            h1 ^= u64(_turned(u64(_word(data, at, min(rest, 8)) * FIRST), u64(31)) * SECOND)
        h1 ^= u64(size)
        h2 ^= u64(size)
        h1 += h2
        h2 += h1
        h1, h2 = _mixed(h1), _mixed(h2)
        h1 += h2
        high[n], low[n] = h1, h2 + h1
