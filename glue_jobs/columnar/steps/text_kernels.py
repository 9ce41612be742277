"""Texts written into texts: what is shown of a masked value, and the digits of numbers, days and moments.

Each kernel writes one text of every value into `out`, which has room for all of them, and where it begins into `begins`.
"""

from __future__ import annotations

import numpy as np
from numba import types
from numpy.typing import NDArray

from glue_jobs.compiled import BYTES, BYTES_OUT, LONGS, PLACES, PLACES_OUT, kernel

Begins = NDArray[np.int32]
Bytes = NDArray[np.uint8]

STAR, AT, DOT, DASH, PLUS, ZERO = (np.uint8(ord(each)) for each in "*@.-+0")
DAY_US = 86_400_000_000
LONGEST_MOMENT = 40


@kernel(types.int64(types.uint8))
def _bytes_of(first: int) -> int:
    """How many bytes a character takes, by the first of them; one that begins no character counts as one."""
    if first < 0xC2 or first > 0xF4:
        return 1
    if first < 0xE0:
        return 2
    return 3 if first < 0xF0 else 4


@kernel(types.void(PLACES, BYTES, types.int64, PLACES_OUT, BYTES_OUT))
def write_ends(places: Begins, data: Bytes, stays: int, begins: Begins, out: Bytes) -> None:
    """The last characters of each text, with stars for those before; stars alone where there are no more than `stays`."""
    to = 0
    for n in range(len(places) - 1):
        at, end, count = places[n], places[n + 1], 0
        while at < end:
            at += _bytes_of(data[at])
            count += 1
        stars = count - stays if count > stays else count
        at = places[n]
        for _ in range(stars):
            at += _bytes_of(data[at])
            out[to] = STAR
            to += 1
        for k in range(at, end):
            out[to] = data[k]
            to += 1
        begins[n + 1] = to


@kernel(types.boolean(types.uint8))
def _is_letter(byte: int) -> bool:
    return 97 <= (byte | 32) <= 122


@kernel(types.int64(BYTES, types.int64, types.int64))
def _domain(data: Bytes, at: int, end: int) -> int:
    """Where the @ is that the domain of an e-mail address stands behind, at the end of a text; the end where there is none."""
    k, dot = end - 1, -1
    while k >= at and data[k] != AT:
        byte = data[k]
        if byte == DOT and dot < 0:
            dot = k
        if not (_is_letter(byte) or 48 <= byte <= 57 or byte in (DOT, DASH)):
            return end
        k -= 1
    if k < at or dot < k + 2 or dot + 1 >= end or not _is_letter(data[dot + 1]):
        return end
    return k


@kernel(types.void(PLACES, BYTES, PLACES_OUT, BYTES_OUT))
def write_domains(places: Begins, data: Bytes, begins: Begins, out: Bytes) -> None:
    """Three stars, and the domain of each text that is an e-mail address."""
    to = 0
    for n in range(len(places) - 1):
        out[to : to + 3] = STAR
        to += 3
        for k in range(_domain(data, places[n], places[n + 1]), places[n + 1]):
            out[to] = data[k]
            to += 1
        begins[n + 1] = to


@kernel(types.void(PLACES, BYTES, types.int64, PLACES_OUT, BYTES_OUT))
def write_decimals(places: Begins, data: Bytes, scale: int, begins: Begins, out: Bytes) -> None:
    """Integers as so many units of a scale, without needless zeros."""
    to = 0
    for n in range(len(places) - 1):
        at, end = places[n], places[n + 1]
        if at < end and data[at] == DASH:
            out[to] = DASH
            to, at = to + 1, at + 1
        point, last = (
            end - scale,
            end,
        )  # where the fraction begins, perhaps before the first digit, and where it ends
        while last > point and (last - 1 < at or data[last - 1] == ZERO):
            last -= 1
        if point <= at:
            out[to] = ZERO
            to += 1
        for k in range(min(at, point), last if last > point else point):
            if k == point:
                out[to] = DOT
                to += 1
            if k >= at or k >= point:
                out[to] = data[k] if k >= at else ZERO
                to += 1
        begins[n + 1] = to


@kernel(types.int64(types.int64, types.int64, types.int64, BYTES_OUT))
def _write_digits(number: int, width: int, to: int, out: Bytes) -> int:
    """A number with at least so many digits; where it ends."""
    digits, rest = width, number
    while rest >= 10**digits:
        digits += 1
    for k in range(digits):
        out[to + digits - 1 - k] = ZERO + rest % 10
        rest //= 10
    return to + digits


@kernel(types.int64(types.int64, types.int64, BYTES_OUT))
def _write_day(day: int, to: int, out: Bytes) -> int:
    """ISO 8601: a day by its number from 1970-01-01 on, in the calendar of today (proleptic). Where it ends."""
    shifted = day + 719_468  # from 0000-03-01, so that a leap day ends its year
    era = shifted // 146_097
    of_era = shifted - era * 146_097
    year_of_era = (of_era - of_era // 1_460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    shifted_month = (5 * of_year + 2) // 153
    month = shifted_month + 3 if shifted_month < 10 else shifted_month - 9
    year = year_of_era + era * 400 + (1 if month <= 2 else 0)
    if year < 0 or year > 9_999:
        out[to] = DASH if year < 0 else PLUS
        to += 1
    to = _write_digits(abs(year), 4, to, out)
    out[to] = DASH
    to = _write_digits(month, 2, to + 1, out)
    out[to] = DASH
    return _write_digits(of_year - (153 * shifted_month + 2) // 5 + 1, 2, to + 1, out)


@kernel(types.void(LONGS, PLACES_OUT, BYTES_OUT))
def write_days(days: NDArray[np.int64], begins: Begins, out: Bytes) -> None:
    to = 0
    for n in range(len(days)):
        to = _write_day(days[n], to, out)
        begins[n + 1] = to


@kernel(types.void(LONGS, types.boolean, PLACES_OUT, BYTES_OUT))
def write_moments(moments: NDArray[np.int64], utc: bool, begins: Begins, out: Bytes) -> None:  # noqa: FBT001 numba has no keywords
    """Microseconds from 1970 on as ISO 8601 with six decimals; utc: with a Z."""
    to = 0
    for n in range(len(moments)):
        day = moments[n] // DAY_US
        rest = moments[n] - day * DAY_US
        to = _write_day(day, to, out)
        for unit, width, before in (
            (3_600_000_000, 2, 84),
            (60_000_000, 2, 58),
            (1_000_000, 2, 58),
            (1, 6, 46),
        ):
            out[to] = before  # T, two colons, and a dot
            to = _write_digits(rest // unit, width, to + 1, out)
            rest %= unit
        if utc:
            out[to] = 90
            to += 1
        begins[n + 1] = to
