"""JSON values of any form in their normal form: names sorted, no spaces. Compiled loops over the cells of a column.

The machine has checked the values, but for numbers beyond doubles and for undeclared fields that are there twice. Those are
marked in `wrong`. Source of the form: Spark's `VariantBuilder` and `Variant.toJson`. The normal forms of a record take at most
`GROWTH` times its bytes (`[1e6,1e6]`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from glue_jobs.columns.kernels import BYTES, BYTES_OUT, LONGS, LONGS_OUT, PLACES, kernel
from glue_jobs.columns.texts import LENGTH, PAIR, TRIPLE, U
from glue_jobs.decode.machines.json_scan import SHORT, put, unit

GROWTH = 2.5
MOST_DIGITS = 38
"""Of a number that is kept as it is. Others are doubles."""
MOST_POSITIONAL, LEAST_POSITIONAL = 6, -3
"""Powers of ten of the first digits of doubles without an exponent."""
START, END, SHIFT, WIDTH = range(4)
"""Of a field of an object: where its text begins, with the character before its name; where it ends; how far it moves."""


@kernel(types.int64(BYTES, types.int64), inline=True)
def _blank(data: Any, at: Any) -> Any:
    """The place after white space."""
    while data[U(at)] == 32 or data[U(at)] == 10 or data[U(at)] == 13 or data[U(at)] == 9:
        at += 1
    return at


@kernel(types.int64(BYTES_OUT, types.int64, types.int64))
def _character(data: Any, point: Any, out: Any) -> Any:
    """Write a character that was an escape; the place after it."""
    is_short = point >= 8 and point <= 13 and point != 11
    if point == 34 or point == 92 or is_short:
        data[U(out)], data[U(out + 1)] = 92, SHORT[point - 8] if is_short else point
        return out + 2
    if point < 32:
        data[U(out)], data[U(out + 1)], data[U(out + 2)], data[U(out + 3)] = 92, 117, 48, 48
        low = point & 15
        data[U(out + 4)], data[U(out + 5)] = 48 + (point >> 4), low + (48 if low < 10 else 55)
        return out + 6
    if point < 128:
        data[U(out)] = point
        return out + 1
    return put(data, point, out)


@kernel(PAIR(BYTES_OUT, types.int64, types.int64))
def _string(data: Any, at: Any, out: Any) -> Any:
    """Write the string at a quote; the places after both."""
    data[U(out)] = 34
    at += 1
    out += 1
    while True:
        byte = data[U(at)]
        if byte != 92:
            data[U(out)] = byte
            at += 1
            out += 1
            if byte == 34:
                return at, out
            continue
        byte = data[U(at + 1)]
        if byte != 117:
            data[U(out)] = 92
            out += np.int64(byte != 47)
            data[U(out)] = byte
            at += 2
            out += 1
            continue
        point = unit(data, at + 2, at + 6)
        at += 6
        if point >= 0xD800 and point <= 0xDFFF:
            point = 0x10000 + ((point - 0xD800) << 10) + (unit(data, at + 2, at + 6) - 0xDC00)
            at += 6
        out = _character(data, point, out)


@kernel(PAIR(BYTES, types.int64, types.int64, types.int64))
def _number(data: Any, at: Any, end: Any, pointed: Any) -> Any:
    """The place after a number, and the bytes of it to keep; -1: it is a double. pointed: as for `write`."""
    start, digits, fraction, zeros = at, np.int64(0), np.int64(0), np.int64(0)
    point = exponent = False
    while at < end:
        byte = data[U(at)]
        if byte == 46:
            point = True
        elif byte == 69 or byte == 101 or byte == 43:
            exponent = True
        elif byte >= 48 and byte <= 57:
            digits += np.int64(byte > 48 or digits > 0)
            fraction += np.int64(point)
            zeros = zeros + 1 if point and byte == 48 else np.int64(0)
        elif byte != 45:
            break
        at += 1
    if exponent or digits > MOST_DIGITS or fraction > MOST_DIGITS:
        return at, np.int64(-1)
    if pointed != 0 and point and zeros == fraction:
        return at, at - start - zeros + 1
    return at, at - start - zeros - np.int64(point and zeros == fraction)


@kernel(TRIPLE(BYTES, types.int64, types.int64, BYTES_OUT, types.int64))
def _digits(text: Any, at: Any, end: Any, data: Any, out: Any) -> Any:
    """Write a number's digits alone, without zeros before them.

    Returns the place after them, that after the number without its exponent, and the power of ten of the first digit.
    """
    power, point, first = np.int64(-1), False, out
    while at < end and text[U(at)] != 101:
        byte = text[U(at)]
        at += 1
        if byte == 46:
            point = True
        elif byte == 48 and out == first:
            power -= np.int64(point)
        else:
            data[U(out)] = byte
            out += 1
            power += np.int64(not point)
    return out, at, power


@kernel(types.int64(BYTES_OUT, types.int64, types.int64))
def _power(data: Any, power: Any, out: Any) -> Any:
    """Write an exponent; the place after it."""
    data[U(out)], data[U(out + 1)] = 69, 45
    out += 2 if power < 0 else 1
    power = abs(power)
    unit = np.int64(100 if power >= 100 else 10 if power >= 10 else 1)
    while unit > 0:
        data[U(out)] = 48 + power // unit % 10
        out += 1
        unit //= 10
    return out


@kernel(types.int64(BYTES_OUT, types.int64, types.int64), inline=True)
def _zeros(data: Any, at: Any, end: Any) -> Any:
    """Write zeros up to a place, which is returned."""
    while at < end:
        data[U(at)] = 48
        at += 1
    return at


@kernel(types.int64(BYTES_OUT, types.int64, types.int64, types.int64))
def _shift(data: Any, begin: Any, end: Any, by: Any) -> Any:
    """Move bytes to later places; where they end."""
    for place in range(end - 1, begin - 1, -1):
        data[U(place + by)] = data[U(place)]
    return end + by


@kernel(types.int64(BYTES, types.int64, types.int64, BYTES_OUT, types.int64))
def _double(text: Any, at: Any, end: Any, data: Any, out: Any) -> Any:
    """Write a double as Java does; the place after it. text: its shortest digits, in any notation."""
    if text[U(at)] == 45:
        data[U(out)] = 45
        at += 1
        out += 1
    last, at, power = _digits(text, at, end, data, out)
    exponent, is_small = np.int64(0), at + 1 < end and text[U(at + 1)] == 45
    for place in range(at + 2, end):
        exponent = exponent * 10 + np.int64(text[U(place)]) - 48
    power += -exponent if is_small else exponent
    power = power if last > out else np.int64(0)
    is_positional = power >= LEAST_POSITIONAL and power <= MOST_POSITIONAL
    before = power + 1 if is_positional else np.int64(1)
    if before <= 0:
        last = _shift(data, out, last, 1 - before)
        _zeros(data, out, out + 1 - before)
        before = np.int64(1)
    while last > out + before and data[U(last - 1)] == 48:
        last -= 1
    last = _shift(data, out + before, _zeros(data, last, out + before + 1), np.int64(1))
    data[U(out + before)] = 46
    return last if is_positional else _power(data, power, last)


@kernel(PAIR(BYTES, types.int64))
def _rank(data: Any, at: Any) -> Any:
    """The place after a character of a name in normal form, and its place among others by UTF-16; -1 at the end of the name."""
    byte = np.int64(data[U(at)])
    if byte == 34:
        return at, np.int64(-1)
    if byte != 92:
        return at + 1, byte + 16 if byte == 0xEE or byte == 0xEF else byte
    byte = np.int64(data[U(at + 1)])
    if byte == 117:
        return at + 6, unit(data, at + 2, at + 6)
    for point in range(6):
        if byte == SHORT[point]:
            byte = np.int64(point + 8)
            break
    return at + 2, byte


@kernel(types.int64(BYTES, LONGS, types.int64, types.int64))
def _order(data: Any, fields: Any, one: Any, other: Any) -> Any:
    """Negative, 0 or positive: how the name of a field compares with that of another one."""
    here, there = fields[U(one * WIDTH + START)] + 2, fields[U(other * WIDTH + START)] + 2
    left = right = np.int64(0)
    while left == right and left >= 0:
        here, left = _rank(data, here)
        there, right = _rank(data, there)
    return left - right


@kernel(types.void(BYTES, LONGS, LONGS_OUT, types.int64, types.int64))
def _sort(data: Any, fields: Any, held: Any, first: Any, count: Any) -> Any:
    """Sort fields by name, on a heap: no names take it longer."""
    begin = count // 2
    while count > 1:
        if begin > 0:
            begin -= 1
            moving = held[U(first + begin)]
        else:
            count -= 1
            moving = held[U(first + count)]
            held[U(first + count)] = held[U(first)]
        parent, child = begin, 2 * begin + 1
        while child < count:
            if (
                child + 1 < count
                and _order(data, fields, held[U(first + child)], held[U(first + child + 1)]) < 0
            ):
                child += 1
            if _order(data, fields, moving, held[U(first + child)]) >= 0:
                break
            held[U(first + parent)] = held[U(first + child)]
            parent, child = child, 2 * child + 1
        held[U(first + parent)] = moving


@kernel(types.int64(BYTES_OUT, LONGS_OUT, LONGS_OUT, types.int64, types.int64))
def _close(data: Any, fields: Any, held: Any, first: Any, last: Any) -> Any:
    """Say how far the fields of an object move. 0: they are in order. 1: they move. 2: a name is there twice."""
    found = np.int64(0)
    for place in range(first + 1, last):
        if _order(data, fields, held[U(place - 1)], held[U(place)]) >= 0:
            found = np.int64(1)
            break
    if found == 0:
        return found
    to = fields[U(held[U(first)] * WIDTH + START)]
    _sort(data, fields, held, first, last - first)
    for place in range(first, last):
        field = held[U(place)] * WIDTH
        if place > first and _order(data, fields, held[U(place - 1)], held[U(place)]) == 0:
            found = np.int64(2)
        begin = fields[U(field + START)]
        fields[U(field + SHIFT)] = to - begin
        data[U(begin)] = 123 if place == first else 44
        to += fields[U(field + END)] - begin
    return found


@kernel(types.void(BYTES_OUT, LONGS, types.int64, LONGS_OUT, types.int64, types.int64))
def _move(data: Any, fields: Any, count: Any, held: Any, begin: Any, end: Any) -> Any:
    """Move the fields of a text, by way of the room behind it. Those in a field move with it."""
    at, shift, field, depth = begin, end - begin, np.int64(0), np.int64(0)
    while at < end:
        inner = held[U(depth - 1)] * WIDTH if depth > 0 else np.int64(0)
        stop = fields[U(inner + END)] if depth > 0 else end
        is_next = field < count and fields[U(field * WIDTH + START)] < stop
        if is_next:
            stop = fields[U(field * WIDTH + START)]
        for place in range(at, stop):
            data[U(place + shift)] = data[U(place)]
        at = stop
        if is_next:
            shift += fields[U(field * WIDTH + SHIFT)]
            held[U(depth)] = field
            depth += 1
            field += 1
        elif depth > 0:
            shift -= fields[U(inner + SHIFT)]
            depth -= 1
    for place in range(begin, end):
        data[U(place)] = data[U(place + end - begin)]


@kernel(
    PAIR(
        LONGS, BYTES, BYTES_OUT, types.int64, BYTES, PLACES, types.int64, LONGS_OUT, LONGS_OUT, LONGS_OUT, LONGS_OUT, LONGS_OUT,
        BYTES_OUT,
    )
)  # fmt: skip
def write(  # noqa: C901 one kernel
    values: Any, marks: Any, data: Any, out: Any, digits: Any, ends: Any, pointed: Any, opened: Any, fields: Any, held: Any,
    cells: Any, doubles: Any, wrong: Any,
) -> Any:  # fmt: skip
    """Write values in their normal form, from `out` on. Returns the place after them, and how many doubles they have.

    values: places of texts, where marked. cells: the places of the normal forms. doubles: the places of doubles, in this order.
    digits, ends: their shortest digits, and where those end, after a 0. Without them the normal forms lack the doubles.
    pointed: 1: a whole number that was written with a point keeps it, and one digit after it.
    opened, fields, held: scratch space.
    """
    found = np.int64(0)
    for row in range(values.size):
        if marks[row] == 0:
            continue
        at, begin = values[row] >> 32, out
        end = at + (values[row] & LENGTH)
        depth, count, top, moves = np.int64(0), np.int64(0), np.int64(0), np.int64(0)
        while True:
            at = _blank(data, at)
            byte, is_name = data[U(at)], False
            if byte == 34:
                at, out = _string(data, at, out)
            elif byte == 123 or byte == 91:
                opened[U(depth)] = top << 8 | np.int64(byte)
                depth += 1
                data[U(out)] = byte
                out += 1
                at = _blank(data, at + 1)
                is_name = byte == 123 and data[U(at)] == 34
                if byte == 91 and data[U(at)] != 93:
                    continue
            elif byte == 45 or (byte >= 48 and byte <= 57):
                stop, size = _number(data, at, end, pointed)
                if size < 0:
                    doubles[U(found)] = at << 32 | (stop - at)
                    if ends.size > 1:
                        first, last = np.int64(ends[U(found)]), np.int64(ends[U(found + 1)])
                        if digits[U(last - 1)] == 102:
                            wrong[row] = 1
                        else:
                            out = _double(digits, first, last, data, out)
                    found += 1
                elif size == 2 and byte == 45 and data[U(at + 1)] == 48:
                    data[U(out)] = 48
                    out += 1
                else:
                    for place in range(size):
                        data[U(out + place)] = data[U(at + place)]
                    out += size
                at = stop
            else:
                size = 5 if byte == 102 else 4
                for place in range(size):
                    data[U(out + place)] = data[U(at + place)]
                out += size
                at += size
            while depth > 0 and not is_name:
                at = _blank(data, at)
                byte, kind = data[U(at)], opened[U(depth - 1)] & 0xFF
                at += 1
                first = opened[U(depth - 1)] >> 8
                if kind == 123 and top > first:
                    fields[U(held[U(top - 1)] * WIDTH + END)] = out
                if byte != 44 and kind == 123:
                    moves = max(moves, _close(data, fields, held, first, top))
                    top = first
                data[U(out)] = byte
                out += 1
                if byte == 44:
                    is_name = kind == 123
                    break
                depth -= 1
            if is_name:
                fields[U(count * WIDTH + START)], fields[U(count * WIDTH + SHIFT)] = out - 1, 0
                held[U(top)] = count
                count += 1
                top += 1
                at, out = _string(data, _blank(data, at), out)
                at = _blank(data, at) + 1
                data[U(out)] = 58
                out += 1
            elif depth == 0:
                break
        wrong[row] |= moves == 2
        if moves:
            _move(data, fields, count, held, begin, out)
        cells[row] = begin << 32 | (out - begin)
    return out, found
