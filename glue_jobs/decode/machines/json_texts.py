"""Texts of JSON as values of columns: compiled loops over the cells of a column, which hold places of texts (`columns.texts`).

A text that has no value is marked in `wrong`. Rows without a mark are left out.
`glue_jobs.decode.machines.moments` has dates and timestamps.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from glue_jobs.columns.kernels import BYTES, BYTES_OUT, LONGS, LONGS_OUT, kernel
from glue_jobs.columns.texts import LENGTH, TRIPLE, U
from glue_jobs.decode.machines.json_machine import QUOTED

MOST_DIGITS = 38
DECIMAL_BYTES = 16
LOW_HALF = U(0xFFFFFFFF)


@kernel(types.int64(BYTES, types.int64), inline=True)
def _six_bits(data: Any, at: Any) -> Any:
    """The bits of a character of Base64; -1 if it is none."""
    byte = np.int64(data[U(at)])
    if byte >= 65 and byte <= 90:
        return byte - 65
    if byte >= 97 and byte <= 122:
        return byte - 71
    if byte >= 48 and byte <= 57:
        return byte + 4
    return np.int64(62) if byte == 43 else np.int64(63) if byte == 47 else np.int64(-1)


@kernel(types.int64(BYTES, types.int64, types.int64))
def _base64_size(data: Any, at: Any, size: Any) -> Any:
    """How many bytes a text of Base64 with its padding has; -1 if it is none."""
    if size % 4 != 0:
        return np.int64(-1)
    padding = np.int64(0)
    while padding < 2 and padding < size and data[U(at + size - 1 - padding)] == 61:
        padding += 1
    for place in range(at, at + size - padding):
        if _six_bits(data, place) < 0:
            return np.int64(-1)
    return size // 4 * 3 - padding


@kernel(types.int64(BYTES, types.int64, types.int64), inline=True)
def _base64_byte(data: Any, at: Any, number: Any) -> Any:
    """One byte of a good text of Base64."""
    place = at + number // 3 * 4 + number % 3
    left, right = _six_bits(data, place), _six_bits(data, place + 1)
    shift = 2 * (number % 3)
    return (left << (2 + shift) | right >> (4 - shift)) & 0xFF


@kernel(types.void(LONGS_OUT, BYTES, BYTES_OUT, BYTES_OUT))
def to_bytes(cells: Any, marks: Any, data: Any, wrong: Any) -> Any:
    """Base64 with its padding. The bytes take the place of their text, which is longer."""
    for row in range(cells.size):
        if marks[row]:
            place = cells[row] >> 32
            size = _base64_size(data, place, cells[row] & LENGTH)
            wrong[row] |= size < 0
            cells[row] = place << 32 | max(size, np.int64(0))
            for number in range(size):
                data[U(place + number)] = _base64_byte(data, place, number)


@kernel(TRIPLE(BYTES, types.int64, types.int64, types.int64, types.int64))
def _of_digits(data: Any, at: Any, end: Any, precision: Any, scale: Any) -> Any:
    """Low half and high half of a number's unscaled value, and 1; 0 if the number has an exponent or too many digits.

    Spark's parser keeps 38 digits, zeros at the end included, and at most 38 of them after the point.
    """
    negative = data[U(at)] == 45
    at += np.int64(negative)
    digits, fraction, zeros, point = np.int64(0), np.int64(0), np.int64(0), False
    low, high = U(0), U(0)
    for place in range(at, end):
        byte = np.int64(data[U(place)])
        if byte == 46:
            point = True
            continue
        if byte < 48 or byte > 57 or fraction >= MOST_DIGITS:
            return np.int64(0), np.int64(0), np.int64(0)
        digits += np.int64(byte > 48 or digits > 0)
        if digits > MOST_DIGITS:
            return np.int64(0), np.int64(0), np.int64(0)
        fraction += np.int64(point)
        zeros = zeros + 1 if point and byte == 48 else np.int64(0)
    digits, fraction = max(digits - zeros, np.int64(0)), fraction - zeros
    if fraction > scale or (digits > 0 and digits + scale - fraction > precision):
        return np.int64(0), np.int64(0), np.int64(0)
    for place in range(at, end - zeros + scale - fraction):
        digit = U(0)
        if place < end - zeros:
            byte = np.int64(data[U(place)])
            if byte == 46:
                continue
            digit = U(byte - 48)
        first = (low & LOW_HALF) * U(10) + digit
        second = (low >> U(32)) * U(10) + (first >> U(32))
        low = second << U(32) | (first & LOW_HALF)
        high = high * U(10) + (second >> U(32))
    if negative:
        high = ~high + U(low == U(0))
        low = ~low + U(1)
    return np.int64(low), np.int64(high), np.int64(1)


@kernel(TRIPLE(BYTES, types.int64, types.int64, types.uint64, types.uint64))
def _of_base64(data: Any, at: Any, length: Any, most_low: Any, most_high: Any) -> Any:
    """As `_of_digits`, of two's complement in Base64. `most`: the halves of the least number with too many digits."""
    size = _base64_size(data, at, length)
    if size < 1 or size > DECIMAL_BYTES:
        return np.int64(0), np.int64(0), np.int64(0)
    negative = _base64_byte(data, at, np.int64(0)) >= 128
    low = high = ~U(0) if negative else U(0)
    for number in range(size):
        high = high << U(8) | low >> U(56)
        low = low << U(8) | U(_base64_byte(data, at, number))
    up, down = high, low
    if negative:
        up = ~high + U(low == U(0))
        down = ~low + U(1)
    fits = up < most_high or (up == most_high and down < most_low)
    return np.int64(low), np.int64(high), np.int64(fits)


@kernel(
    types.void(
        LONGS_OUT, LONGS_OUT, BYTES, BYTES, types.int64, types.int64, types.uint64, types.uint64, BYTES_OUT
    )
)
def to_decimals(
    cells: Any,
    highs: Any,
    marks: Any,
    data: Any,
    precision: Any,
    scale: Any,
    most_low: Any,
    most_high: Any,
    wrong: Any,
) -> Any:
    """Numbers by their digits, and unscaled numbers in Base64."""
    for row in range(cells.size):
        if marks[row]:
            place, size = cells[row] >> 32, cells[row] & LENGTH
            if marks[row] == QUOTED:
                cells[row], highs[row], good = _of_base64(data, place, size, most_low, most_high)
            else:
                cells[row], highs[row], good = _of_digits(data, place, place + size, precision, scale)
            wrong[row] |= good == 0


@kernel(types.int64(LONGS, BYTES_OUT, LONGS, BYTES_OUT, types.int64, LONGS_OUT))
def join(counts: Any, marks: Any, items: Any, data: Any, out: Any, cells: Any) -> Any:
    """Write fields as an object for each row, from `out` on; the place after them. counts: of each row, where marked."""
    item = np.int64(0)
    for row in range(counts.size):
        if marks[row] == 0:
            continue
        begin = out
        for number in range(counts[row]):
            data[U(out)] = 123 if number == 0 else 44
            out += 1
            place, size = items[item] >> 32, items[item] & LENGTH
            for byte in range(size):
                data[U(out + byte)] = data[U(place + byte)]
            out += size
            item += 1
        data[U(out)] = 125
        out += 1
        cells[row] = begin << 32 | (out - begin)
    return out
