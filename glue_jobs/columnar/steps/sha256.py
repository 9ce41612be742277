"""HMAC-SHA-256 (FIPS 180-4, RFC 2104) of many values at once, written as tokens.

A key is hashed once: `state_of` is what the hash has come to after the block that the key fills, and each value goes on there.
"""

from __future__ import annotations

import numpy as np
from numba import types
from numpy.typing import NDArray

from glue_jobs.columnar.compiled import BYTES, kernel

BLOCK = 64
DIGITS = 64
START = np.array(
    [0x6A09E667, 0xBB67AE85, 0x3C6EF372, 0xA54FF53A, 0x510E527F, 0x9B05688C, 0x1F83D9AB, 0x5BE0CD19],
    np.uint64,
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
    np.uint64,
)
ALL, HALF = np.uint64(0xFFFFFFFF), np.uint64(32)
HEX = np.frombuffer(b"0123456789abcdef", np.uint8)

WORDS = types.Array(types.uint64, 1, "C")
STATES = types.Array(types.uint64, 2, "C", readonly=True)
PLACES = types.Array(types.int32, 1, "C", readonly=True)
NUMBERS = types.Array(types.int64, 1, "C", readonly=True)
Words = NDArray[np.uint64]
Bytes = NDArray[np.uint8]


@kernel(types.void(WORDS, BYTES, types.int64, WORDS))
def _compress(state: Words, data: Bytes, at: int, w: Words) -> None:
    """Take in the block of the data at a place. w: room for 64 words.

    A word of 32 bits stands in 64, twice where it is turned: what is above its bits is cut off where a sum is kept.
    """
    for n in range(16):
        p = at + 4 * n
        high = (np.uint64(data[p]) << np.uint64(24)) | (np.uint64(data[p + 1]) << np.uint64(16))
        w[n] = high | (np.uint64(data[p + 2]) << np.uint64(8)) | np.uint64(data[p + 3])
    for n in range(16, 64):
        x, y = w[n - 15], w[n - 2]
        xx, yy = x | x << HALF, y | y << HALF
        s0 = xx >> np.uint64(7) ^ xx >> np.uint64(18) ^ x >> np.uint64(3)
        s1 = yy >> np.uint64(17) ^ yy >> np.uint64(19) ^ y >> np.uint64(10)
        w[n] = (w[n - 16] + s0 + w[n - 7] + s1) & ALL
    a, b, c, d = state[0], state[1], state[2], state[3]
    e, f, g, h = state[4], state[5], state[6], state[7]
    for n in range(64):
        aa, ee = a | a << HALF, e | e << HALF
        s1 = ee >> np.uint64(6) ^ ee >> np.uint64(11) ^ ee >> np.uint64(25)
        t1 = h + s1 + (g ^ (e & (f ^ g))) + CONSTANTS[n] + w[n]
        s0 = aa >> np.uint64(2) ^ aa >> np.uint64(13) ^ aa >> np.uint64(22)
        t2 = s0 + ((a & b) | (c & (a | b)))
        h, g, f, e = g, f, e, (d + t1) & ALL
        d, c, b, a = c, b, a, (t1 + t2) & ALL
    for n, word in enumerate((a, b, c, d, e, f, g, h)):
        state[n] = (state[n] + word) & ALL


@kernel(types.void(WORDS, BYTES))
def _take_in(state: Words, block: Bytes) -> None:
    _compress(state, block, 0, np.empty(64, np.uint64))


def state_of(block: bytes) -> Words:
    """The hash after one block of 64 bytes."""
    state = START.copy()
    _take_in(state, np.frombuffer(block, np.uint8))
    return state


@kernel(types.void(types.Array(types.uint8, 1, "C"), types.int64, types.int64, types.int64))
def _end(block: Bytes, used: int, room: int, size: int) -> None:
    """Pad the last `room` bytes of a message of `size` bytes, of which `used` are there."""
    block[used] = 0x80
    block[used + 1 : room - 8] = 0
    for n in range(8):
        block[room - 1 - n] = (size * 8 >> 8 * n) & 0xFF


@kernel(
    types.void(
        PLACES, BYTES, BYTES, NUMBERS, STATES, STATES, BYTES, PLACES, PLACES, types.Array(types.uint8, 1, "C")
    )
)
def write_tokens(
    begins: NDArray[np.int32],
    data: Bytes,
    valid: Bytes,
    which: NDArray[np.int64],
    inner: NDArray[np.uint64],
    outer: NDArray[np.uint64],
    heads: Bytes,
    head_begins: NDArray[np.int32],
    out_begins: NDArray[np.int32],
    out: Bytes,
) -> None:
    """Of each value that is there: the head of its key, and the HMAC in hexadecimal digits.

    which: the key of each value. inner, outer: `state_of` the pads of each key. out_begins: where each token is to begin.
    """
    state, w = np.empty(8, np.uint64), np.empty(64, np.uint64)
    block = np.empty(2 * BLOCK, np.uint8)
    for n in range(len(begins) - 1):
        if not valid[n]:
            continue
        key, at, end = which[n], begins[n], begins[n + 1]
        size = end - at
        state[:] = inner[key]
        while end - at >= BLOCK:
            _compress(state, data, at, w)
            at += BLOCK
        rest = end - at
        block[:rest] = data[at:end]
        room = BLOCK if rest + 9 <= BLOCK else 2 * BLOCK
        _end(block, rest, room, BLOCK + size)
        for begin in range(0, room, BLOCK):
            _compress(state, block, begin, w)
        for k in range(32):
            block[k] = (state[k // 4] >> np.uint64(24 - 8 * (k % 4))) & np.uint64(0xFF)
        _end(block, 32, BLOCK, BLOCK + 32)
        state[:] = outer[key]
        _compress(state, block, 0, w)
        place, first = out_begins[n], head_begins[key]
        head = head_begins[key + 1] - first
        out[place : place + head] = heads[first : first + head]
        for k in range(DIGITS):
            out[place + head + k] = HEX[(state[k // 8] >> np.uint64(28 - 4 * (k % 8))) & np.uint64(0xF)]
