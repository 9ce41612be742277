"""HMAC-SHA-256 (FIPS 180-4, RFC 2104) of many values at once, written as tokens.

Each key is hashed once: `state_of` is the hash state after the key's block. Each value continues from it.
Values are hashed in parallel lanes. The same word of all lanes is stored together, so the processor computes many lanes at
once. That is ten times as fast as one value after another.
"""

from __future__ import annotations

import numpy as np
from numba import types
from numpy.typing import NDArray

from glue_jobs.columns.kernels import BYTES, BYTES_OUT, LONGS, PLACES, kernel

LANES = 16
BLOCK, BLOCK_WORDS, ROUNDS, STATE_WORDS = 64, 16, 64, 8
DIGITS = 64
START = np.array(
    [0x6A09E667, 0xBB67AE85, 0x3C6EF372, 0xA54FF53A, 0x510E527F, 0x9B05688C, 0x1F83D9AB, 0x5BE0CD19],
    np.uint32,
)
CONSTANTS = np.array(
    [
        0x428A2F98,
        0x71374491,
        0xB5C0FBCF,
        0xE9B5DBA5,
        0x3956C25B,
        0x59F111F1,
        0x923F82A4,
        0xAB1C5ED5,
        0xD807AA98,
        0x12835B01,
        0x243185BE,
        0x550C7DC3,
        0x72BE5D74,
        0x80DEB1FE,
        0x9BDC06A7,
        0xC19BF174,
        0xE49B69C1,
        0xEFBE4786,
        0x0FC19DC6,
        0x240CA1CC,
        0x2DE92C6F,
        0x4A7484AA,
        0x5CB0A9DC,
        0x76F988DA,
        0x983E5152,
        0xA831C66D,
        0xB00327C8,
        0xBF597FC7,
        0xC6E00BF3,
        0xD5A79147,
        0x06CA6351,
        0x14292967,
        0x27B70A85,
        0x2E1B2138,
        0x4D2C6DFC,
        0x53380D13,
        0x650A7354,
        0x766A0ABB,
        0x81C2C92E,
        0x92722C85,
        0xA2BFE8A1,
        0xA81A664B,
        0xC24B8B70,
        0xC76C51A3,
        0xD192E819,
        0xD6990624,
        0xF40E3585,
        0x106AA070,
        0x19A4C116,
        0x1E376C08,
        0x2748774C,
        0x34B0BCB5,
        0x391C0CB3,
        0x4ED8AA4A,
        0x5B9CCA4F,
        0x682E6FF3,
        0x748F82EE,
        0x78A5636F,
        0x84C87814,
        0x8CC70208,
        0x90BEFFFA,
        0xA4506CEB,
        0xBEF9A3F7,
        0xC67178F2,
    ],
    np.uint32,
)
HEX = np.frombuffer(b"0123456789abcdef", np.uint8)

_WORD, _PLACE = types.uint32, types.int64
WORDS = types.Array(_WORD, 1, "C")
STATES = types.Array(_WORD, 2, "C", readonly=True)
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
    for k in range(STATE_WORDS * LANES):
        t[k] = state[k]
    for n in range(0, ROUNDS, 8):
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
    return state[::LANES]


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


@kernel(types.void(WORDS, _PLACE, BYTES_OUT, _PLACE), inline=True)
def _write(state: Words, lane: int, out: Bytes, at: int) -> None:
    for n in range(STATE_WORDS):
        word = state[n * LANES + lane]
        for k in range(8):
            out[at + 8 * n + k] = HEX[(word >> u32(28 - 4 * k)) & u32(0xF)]


@kernel(
    types.void(
        LONGS,
        PLACES,
        BYTES,
        LONGS,
        STATES,
        STATES,
        BYTES,
        PLACES,
        PLACES,
        BYTES_OUT,
    )
)
def write_tokens(
    order: NDArray[np.int64],
    begins: NDArray[np.int32],
    data: Bytes,
    which: NDArray[np.int64],
    inner: Words,
    outer: Words,
    heads: Bytes,
    head_begins: NDArray[np.int32],
    out_begins: NDArray[np.int32],
    out: Bytes,
) -> None:
    """Write the prefix of its key, and the HMAC in hexadecimal digits, for each value.

    order: the places of the values, shortest first, so that lanes end together. which: the key of each value.
    inner, outer: `state_of` the pads of each key. out_begins: where each token begins.
    """
    w, t = np.zeros(ROUNDS * LANES, np.uint32), np.empty(STATE_WORDS * LANES, np.uint32)
    state, done = np.zeros_like(t), np.zeros_like(t)
    for first in range(0, len(order), LANES):
        group = order[first : first + LANES]
        for lane, n in enumerate(group):
            state[lane::LANES] = inner[which[n]]
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
        for lane, n in enumerate(group):
            state[lane::LANES] = outer[which[n]]
        _compress(state, w, t)
        for lane, n in enumerate(group):
            begin, head = out_begins[n], head_begins[which[n]]
            size = head_begins[which[n] + 1] - head
            out[begin : begin + size] = heads[head : head + size]
            _write(state, lane, out, begin + size)
