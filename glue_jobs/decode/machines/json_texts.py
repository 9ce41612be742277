"""Texts of JSON as values of columns: compiled loops over the cells of a column, which hold places of texts (`columns.texts`).

A text that has no value is marked in `wrong`. So is a row whose mark says that it was no text. Rows without a mark are left out.
They convert the same texts as `glue_jobs.decode.json_leaves` and `glue_jobs.decode.shapes`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from glue_jobs.columns.kernels import BYTES, BYTES_OUT, LONGS_OUT, kernel

THERE, OTHER, QUOTED = 1, 2, 3
"""The marks of `glue_jobs.decode.machines.json_machine`."""
LENGTH = 0xFFFFFFFF
MOST_DIGITS = 38
DECIMAL_BYTES = 16
MOST_OFFSET_MINUTES = 18 * 60
DAY_MICROS = 86_400_000_000
U = np.uint64
LOW_HALF = U(0xFFFFFFFF)
PAIR = types.UniTuple(types.int64, 2)  # type: ignore[no-untyped-call]
TRIPLE = types.UniTuple(types.int64, 3)  # type: ignore[no-untyped-call]


@kernel(types.int64(BYTES, types.int64), inline=True)
def _two(data: Any, at: Any) -> Any:
    """The number of two digits; -1 if they are none."""
    tens, ones = np.int64(data[U(at)]) - 48, np.int64(data[U(at + 1)]) - 48
    return tens * 10 + ones if tens >= 0 and tens <= 9 and ones >= 0 and ones <= 9 else np.int64(-1)


@kernel(PAIR(BYTES, types.int64))
def _day(data: Any, at: Any) -> Any:
    """The day since 1970 of ten characters, and 1; 0 if there is none. Source of the sum: H. Hinnant, `days_from_civil`."""
    century, years, month, day = _two(data, at), _two(data, at + 2), _two(data, at + 5), _two(data, at + 8)
    year = century * 100 + years
    good = century >= 0 and years >= 0 and year > 0 and month >= 1 and month <= 12 and day >= 1 and day <= 31
    good = good and data[U(at + 4)] == 45 and data[U(at + 7)] == 45
    if good and day > 28:
        last = 30 if month == 4 or month == 6 or month == 9 or month == 11 else 31
        if month == 2:
            last = 29 if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) else 28
        good = day <= last
    if not good:
        return np.int64(0), np.int64(0)
    since_march = year - 1 if month <= 2 else year
    era = since_march // 400
    of_era = since_march - era * 400
    of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    return era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719_468, np.int64(1)


@kernel(PAIR(BYTES, types.int64, types.int64))
def _moment(data: Any, at: Any, end: Any) -> Any:  # noqa: C901 one kernel
    """The microseconds since 1970 of a text by RFC 3339, and 1; 0 if there are none."""
    nothing = (np.int64(0), np.int64(0))
    if end - at < 20:
        return nothing
    days, good = _day(data, at)
    hour, minute, second = _two(data, at + 11), _two(data, at + 14), _two(data, at + 17)
    between = data[U(at + 10)]
    if (
        good == 0
        or (between != 32 and between | 32 != 116)
        or data[U(at + 13)] != 58
        or data[U(at + 16)] != 58
    ):
        return nothing
    if hour < 0 or hour > 23 or minute < 0 or minute > 59 or second < 0 or second > 59:
        return nothing
    at += 19
    micros, unit = np.int64(0), np.int64(100_000)
    if data[U(at)] == 46:
        begin = at + 1
        at = begin
        while at < end:
            digit = np.int64(data[U(at)]) - 48
            if digit < 0 or digit > 9:
                break
            if unit == 0 and digit != 0:
                return nothing
            micros += digit * unit
            unit //= 10
            at += 1
        if at == begin:
            return nothing
    if at >= end:
        return nothing
    sign, offset = data[U(at)], np.int64(0)
    if sign == 43 or sign == 45:
        if end - at != 6 or data[U(at + 3)] != 58:
            return nothing
        hours, minutes = _two(data, at + 1), _two(data, at + 4)
        offset = hours * 60 + minutes
        if hours < 0 or minutes < 0 or minutes > 59 or offset > MOST_OFFSET_MINUTES:
            return nothing
        offset = offset if sign == 43 else -offset
    elif sign | 32 != 122 or end - at != 1:
        return nothing
    seconds = hour * 3600 + (minute - offset) * 60 + second
    return days * DAY_MICROS + seconds * 1_000_000 + micros, np.int64(1)


@kernel(types.void(LONGS_OUT, BYTES, BYTES, BYTES_OUT))
def to_days(cells: Any, marks: Any, data: Any, wrong: Any) -> Any:
    for row in range(cells.size):
        if marks[row]:
            good = np.int64(0)
            if marks[row] == THERE and cells[row] & LENGTH == 10:
                cells[row], good = _day(data, cells[row] >> 32)
            wrong[row] |= good == 0


@kernel(types.void(LONGS_OUT, BYTES, BYTES, BYTES_OUT))
def to_moments(cells: Any, marks: Any, data: Any, wrong: Any) -> Any:
    for row in range(cells.size):
        if marks[row]:
            place, good = cells[row] >> 32, np.int64(0)
            if marks[row] == THERE:
                cells[row], good = _moment(data, place, place + (cells[row] & LENGTH))
            wrong[row] |= good == 0


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
            place, size = cells[row] >> 32, np.int64(-1)
            if marks[row] == THERE:
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
            place, size, good = cells[row] >> 32, cells[row] & LENGTH, np.int64(0)
            if marks[row] == THERE:
                cells[row], highs[row], good = _of_digits(data, place, place + size, precision, scale)
            elif marks[row] == QUOTED:
                cells[row], highs[row], good = _of_base64(data, place, size, most_low, most_high)
            wrong[row] |= good == 0
