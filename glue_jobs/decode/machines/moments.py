"""Texts as dates and timestamps: compiled loops over the cells of a column, which hold places of texts (`columns.texts`).

A text that has no value is marked in `wrong`. Rows without a mark are left out.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from calve.schema.columns import FIRST_MICROS as FIRST
from calve.schema.columns import LAST_MICROS as LAST
from glue_jobs.columns.kernels import BYTES, BYTES_OUT, LONGS_OUT, kernel
from glue_jobs.columns.texts import LENGTH, PAIR, Longs, U, digits

MOST_OFFSET_MINUTES = 18 * 60
DAY_MICROS = 86_400_000_000
BEFORE, AFTER = -1, 1
INFINITY = np.frombuffer(b"infinity", np.uint8)


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


@kernel(PAIR(BYTES, types.int64, types.int64, types.boolean))
def _moment(data: Any, at: Any, end: Any, cut: Any) -> Any:  # noqa: C901 one kernel
    """The microseconds since 1970 of a text by RFC 3339, and 1; 0 if there are none. cut: leave out parts of a microsecond."""
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
            if unit == 0 and digit != 0 and not cut:
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


@kernel(types.boolean(BYTES, types.int64, types.int64))
def _is_infinity(data: Any, at: Any, end: Any) -> Any:
    found = end - at == 8
    for place in range(at, end if found else at):
        found = found and data[U(place)] == INFINITY[place - at]
    return found


@kernel(types.boolean(BYTES, types.int64))
def _is_year_0(data: Any, at: Any) -> Any:
    return _two(data, at) == 0 and _two(data, at + 2) == 0


@kernel(types.int64(BYTES, types.int64, types.int64, types.int64))
def _clock(data: Any, at: Any, end: Any, other: Any) -> Any:
    """The place after digits, colons and another character."""
    while at < end:
        byte = np.int64(data[U(at)])
        if (byte < 48 or byte > 58) and byte != other:
            break
        at += 1
    return at


@kernel(types.int64(BYTES, types.int64, types.int64))
def _far(data: Any, at: Any, end: Any) -> Any:
    """Whether a text is a timestamp before year 1 or after year 9999 (`BEFORE`, `AFTER`), as databases write it; 0 if neither."""
    sign = np.int64(data[U(at)]) if at < end else np.int64(0)
    signed = sign == 43 or sign == 45
    begin = at + np.int64(signed)
    way = BEFORE if sign == 45 else AFTER
    if _is_infinity(data, begin, end):
        return np.int64(way)
    at = digits(data, begin, end)
    if not signed:
        if at - begin != 4 or not _is_year_0(data, begin):
            return np.int64(0)
        way = BEFORE
    elif at - begin < (4 if sign == 45 else 5):
        return np.int64(0)
    if end - at < 7 or _two(data, at + 1) < 0 or _two(data, at + 4) < 0:
        return np.int64(0)
    if data[U(at)] != 45 or data[U(at + 3)] != 45 or data[U(at + 6)] != 84:
        return np.int64(0)
    begin = at + 7
    at = _clock(data, begin, end, np.int64(46))
    if at == begin or at >= end:
        return np.int64(0)
    zone = data[U(at)]
    at += 1
    if zone == 43 or zone == 45:
        begin = at
        at = _clock(data, begin, end, np.int64(58))
        return np.int64(way if at == end and at > begin else 0)
    return np.int64(way if zone == 90 and at == end else 0)


@kernel(types.void(LONGS_OUT, BYTES, BYTES, BYTES_OUT))
def to_days(cells: Any, marks: Any, data: Any, wrong: Any) -> Any:
    for row in range(cells.size):
        if marks[row]:
            good = np.int64(0)
            if cells[row] & LENGTH == 10:
                cells[row], good = _day(data, cells[row] >> 32)
            wrong[row] |= good == 0


@kernel(types.void(LONGS_OUT, BYTES, BYTES, BYTES_OUT, types.boolean))
def to_moments(cells: Any, marks: Any, data: Any, wrong: Any, cut: Any) -> Any:
    """cut: as in `_moment`."""
    for row in range(cells.size):
        if marks[row]:
            place = cells[row] >> 32
            cells[row], good = _moment(data, place, place + (cells[row] & LENGTH), cut)
            wrong[row] |= good == 0


@kernel(types.void(LONGS_OUT, BYTES, BYTES, BYTES_OUT))
def to_database_moments(cells: Any, marks: Any, data: Any, wrong: Any) -> Any:
    """As `to_moments`; timestamps before year 1 become the first one, those after year 9999 the last one."""
    for row in range(cells.size):
        if marks[row]:
            place, good = cells[row] >> 32, np.int64(1)
            end = place + (cells[row] & LENGTH)
            way = _far(data, place, end)
            if way != 0:
                cells[row] = np.int64(FIRST if way == BEFORE else LAST)
            else:
                cells[row], good = _moment(data, place, end, False)  # noqa: FBT003 kernels have no names
            wrong[row] |= good == 0


def bounded_millis(numbers: Longs) -> Longs:
    """The microseconds of milliseconds. Numbers out of range become one millisecond before the first or after the last."""
    return np.clip(numbers, FIRST // 1000 - 1, LAST // 1000 + 1) * 1000
