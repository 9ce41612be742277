"""HMAC-SHA-256 (FIPS 180-4, RFC 2104) of many values at once (ADR 44).

A key is hashed once: `state_of` is the hash state after the key's block. Each value continues from it.
Values are hashed in parallel lanes. The same word of all lanes is stored together, so the processor computes many lanes at once.
"""

from __future__ import annotations

import numpy as np
from numba import types
from numpy.typing import NDArray

from glue_jobs.columns.kernels import BYTES, BYTES_OUT, LONGS, PLACES, kernel

LANES = 16
BLOCK, BLOCK_WORDS, ROUNDS, STATE_WORDS = 64, 16, 64, 8
DIGITS = 64
PRIMES = [n for n in range(2, 312) if all(n % k for k in range(2, n))]
START = np.array([int(n ** (1 / 2) % 1 * 2**32) for n in PRIMES[:STATE_WORDS]], np.uint32)
CONSTANTS = np.array([int(n ** (1 / 3) % 1 * 2**32) for n in PRIMES], np.uint32)
"""The standard's: the first 32 bits of the fractions of square roots and of cube roots of the first primes."""
HEX = np.frombuffer(b"0123456789abcdef", np.uint8)

_WORD, _PLACE = types.uint32, types.int64
WORDS = types.Array(_WORD, 1, "C")
STATE = types.Array(_WORD, 1, "C", readonly=True)
Words = NDArray[np.uint32]
Bytes = NDArray[np.uint8]
u32 = np.uint32


@kernel(_WORD(_WORD, _WORD), inline=True)
def _turned(word: np.uint32, bits: np.uint32) -> np.uint32:
    return u32((word >> bits) | (word << (u32(32) - bits)))


@kernel(types.void(WORDS, WORDS, *9 * [_PLACE]), inline=True)
def _round(
    t: Words, w: Words, n: int, a: int, b: int, c: int, d: int, e: int, f: int, g: int, h: int
) -> None:
    """One round of all lanes. a to h: the places of the standard's words. The new a is at h, the new e at d."""
    constant = CONSTANTS[n]
    for lane in range(LANES):
        x, y, z = t[e * LANES + lane], t[f * LANES + lane], t[g * LANES + lane]
        s1 = _turned(x, u32(6)) ^ _turned(x, u32(11)) ^ _turned(x, u32(25))
        t1 = u32(t[h * LANES + lane] + s1 + (z ^ (x & (y ^ z))) + constant + w[n * LANES + lane])
        x, y, z = t[a * LANES + lane], t[b * LANES + lane], t[c * LANES + lane]
        s0 = _turned(x, u32(2)) ^ _turned(x, u32(13)) ^ _turned(x, u32(22))
        t[d * LANES + lane] = u32(t[d * LANES + lane] + t1)
        t[h * LANES + lane] = u32(t1 + s0 + ((x & y) | (z & (x | y))))


@kernel(types.void(WORDS, WORDS, WORDS))
def _compress(state: Words, w: Words, t: Words) -> None:
    """Process a block of each lane: the first 16 words of `w`, which has room for 64. t: room for 8."""
    for n in range(BLOCK_WORDS, ROUNDS):
        for lane in range(LANES):
            x, y = w[(n - 15) * LANES + lane], w[(n - 2) * LANES + lane]
            s0 = _turned(x, u32(7)) ^ _turned(x, u32(18)) ^ (x >> u32(3))
            s1 = _turned(y, u32(17)) ^ _turned(y, u32(19)) ^ (y >> u32(10))
            w[n * LANES + lane] = u32(w[(n - 16) * LANES + lane] + s0 + w[(n - 7) * LANES + lane] + s1)
    t[:] = state
    for n in range(0, ROUNDS, 8):  # the places turn by one each round
        _round(t, w, n, 0, 1, 2, 3, 4, 5, 6, 7)
        _round(t, w, n + 1, 7, 0, 1, 2, 3, 4, 5, 6)
        _round(t, w, n + 2, 6, 7, 0, 1, 2, 3, 4, 5)
        _round(t, w, n + 3, 5, 6, 7, 0, 1, 2, 3, 4)
        _round(t, w, n + 4, 4, 5, 6, 7, 0, 1, 2, 3)
        _round(t, w, n + 5, 3, 4, 5, 6, 7, 0, 1, 2)
        _round(t, w, n + 6, 2, 3, 4, 5, 6, 7, 0, 1)
        _round(t, w, n + 7, 1, 2, 3, 4, 5, 6, 7, 0)
    for k in range(STATE_WORDS * LANES):
        state[k] = u32(state[k] + t[k])


def state_of(block: bytes) -> Words:
    """The hash state after one block of 64 bytes."""
    state, w = np.repeat(START, LANES), np.zeros(ROUNDS * LANES, np.uint32)
    w[: BLOCK_WORDS * LANES] = np.repeat(np.frombuffer(block, ">u4"), LANES)
    _compress(state, w, np.empty(STATE_WORDS * LANES, np.uint32))
    return np.ascontiguousarray(state[::LANES])


@kernel(_PLACE(_PLACE), inline=True)
def _blocks(size: int) -> int:
    """The number of blocks of a value of `size` bytes, with padding."""
    return (size + 8) // BLOCK + 1


@kernel(types.void(WORDS, _PLACE, BYTES, _PLACE, _PLACE, _PLACE), inline=True)
def _load(w: Words, lane: int, data: Bytes, begin: int, end: int, block: int) -> None:
    """Load a padded block of a value. Its stated length includes the key's block."""
    for n in range(BLOCK_WORDS):
        at, word = begin + block * BLOCK + 4 * n, u32(0)
        for k in range(4):
            byte = data[at + k] if at + k < end else 0x80 if at + k == end else 0
            word = u32((word << u32(8)) | u32(byte))
        w[n * LANES + lane] = word
    if block + 1 == _blocks(end - begin):
        bits = (BLOCK + end - begin) * 8
        w[14 * LANES + lane], w[15 * LANES + lane] = u32(bits >> 32), u32(bits & 0xFFFFFFFF)


@kernel(types.void(LONGS, PLACES, BYTES, STATE, STATE, _PLACE, BYTES_OUT))
def write_digests(
    order: NDArray[np.int64],
    begins: NDArray[np.int32],
    data: Bytes,
    inner: Words,
    outer: Words,
    width: int,
    out: Bytes,
) -> None:
    """Write the HMAC of each value as `DIGITS` hexadecimal digits: the last of its `width` bytes of `out`.

    order: the places of the values, shortest first, so that lanes end together. inner, outer: `state_of` the pads of the key.
    """
    w, t = np.zeros(ROUNDS * LANES, np.uint32), np.empty(STATE_WORDS * LANES, np.uint32)
    state, done = np.zeros_like(t), np.zeros_like(t)
    for first in range(0, len(order), LANES):
        group = order[first : first + LANES]
        for k in range(STATE_WORDS * LANES):
            state[k] = inner[k // LANES]
        longest = group[-1]
        for block in range(_blocks(begins[longest + 1] - begins[longest])):
            for lane, n in enumerate(group):
                _load(w, lane, data, begins[n], begins[n + 1], block)
            _compress(state, w, t)
            for lane, n in enumerate(group):
                if block + 1 == _blocks(begins[n + 1] - begins[n]):
                    done[lane::LANES] = state[lane::LANES]
        w[: STATE_WORDS * LANES] = done
        w[8 * LANES : 9 * LANES] = 0x80000000
        w[9 * LANES : 15 * LANES] = 0
        w[15 * LANES : 16 * LANES] = 8 * (BLOCK + 4 * STATE_WORDS)
        for k in range(STATE_WORDS * LANES):
            state[k] = outer[k // LANES]
        _compress(state, w, t)
        for lane, n in enumerate(group):
            begin = (n + 1) * width - DIGITS
            for k in range(DIGITS):
                word = state[(k >> 3) * LANES + lane]
                out[begin + k] = HEX[(word >> u32(28 - 4 * (k & 7))) & u32(0xF)]
