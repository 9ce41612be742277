"""JSON text, character by character: the kernels that `json_machine` and `json_kept` use. They accept RFC 8259 and no more."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from glue_jobs.columns.kernels import BYTES, BYTES_OUT, LONGS_OUT, kernel
from glue_jobs.columns.texts import PAIR, U, character_end, digits, eight

DEEPEST, MOST_DIGITS, MOST_NAME = 998, 1000, 50_000
"""Limits: objects and lists inside each other, digits of a number, UTF-16 units of a name."""
PADDING = 16
"""Bytes that must follow the values: eight are read at once."""
FEW = 12
ESCAPED, SHORT = np.frombuffer(b'"\\/bfnrt', np.uint8), np.frombuffer(b"btn\0fr", np.uint8)
"""What may follow a backslash; the letters of the characters from 8 on."""
ONES, HIGHS = U(0x0101010101010101), U(0x8080808080808080)
QUOTES, ESCAPES, SPACES = U(0x2222222222222222), U(0x5C5C5C5C5C5C5C5C), U(0x2020202020202020)
INFINITY, NAN = U(0x7974696E69666E49), U(0x4E614E)
"""These words as little-endian numbers."""


def _zeros(_: Any, number: Any) -> Any:
    """How many low bits are zero; undefined for 0."""

    def generate(_: Any, builder: Any, __: Any, given: Any) -> Any:
        return builder.cttz(given[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.uint64), generate


_low_zeros: Any = intrinsic(_zeros)


@kernel(types.int64(BYTES, types.int64, types.int64), inline=True)
def blank(data: Any, at: Any, end: Any) -> Any:
    """The place after white space."""
    while at < end:
        byte = data[U(at)]
        if byte > 32 or (byte != 32 and byte != 10 and byte != 13 and byte != 9):
            break
        at += 1
    return at


@kernel(types.int64(BYTES, types.int64, types.int64))
def unit(data: Any, at: Any, end: Any) -> Any:
    """The UTF-16 unit of four hexadecimal digits; -1 if they are none."""
    if at + 4 > end:
        return np.int64(-1)
    found = np.int64(0)
    for place in range(at, at + 4):
        byte = np.int64(data[U(place)])
        if byte >= 48 and byte <= 57:
            digit = byte - 48
        elif (byte | 32) >= 97 and (byte | 32) <= 102:
            digit = (byte | 32) - 87
        else:
            return np.int64(-1)
        found = found << 4 | digit
    return found


@kernel(types.int64(BYTES, types.int64, types.int64))
def _escape(data: Any, at: Any, end: Any) -> Any:
    """The place after the escape at a backslash; -1 if it is none, or half of a surrogate pair."""
    if at + 1 >= end:
        return np.int64(-1)
    byte = data[U(at + 1)]
    if byte == 117:
        found = unit(data, at + 2, end)
        if found < 0xD800 or found > 0xDFFF:
            return at + 6 if found >= 0 else np.int64(-1)
        at += 6
        if found >= 0xDC00 or at + 6 > end or data[U(at)] != 92 or data[U(at + 1)] != 117:
            return np.int64(-1)
        low = unit(data, at + 2, end)
        return at + 6 if low >= 0xDC00 and low <= 0xDFFF else np.int64(-1)
    for place in range(ESCAPED.size):
        if byte == ESCAPED[place]:
            return at + 2
    return np.int64(-1)


@kernel(PAIR(BYTES, types.int64, types.int64))
def string(data: Any, at: Any, end: Any) -> Any:
    """The place of the quote that ends a string, and whether the string has escapes; -1 if it is none."""
    escaped = np.int64(0)
    while at < end:
        word = eight(data, at)
        quote, escape = word ^ QUOTES, word ^ ESCAPES
        found = (
            ((quote - ONES) & ~quote) | ((escape - ONES) & ~escape) | ((word - SPACES) & ~word) | word
        ) & HIGHS
        if found == U(0):
            at += 8
            continue
        at += _low_zeros(found) >> 3
        if at >= end:
            break
        byte = data[U(at)]
        if byte == 34:
            return at, escaped
        if byte == 92:
            escaped = np.int64(1)
            at = _escape(data, at, end)
        elif byte >= 128:
            at = character_end(data, at, end)
        else:
            break
        if at < 0:
            break
    return np.int64(-1), escaped


@kernel(types.int64(BYTES_OUT, types.int64, types.int64))
def put(data: Any, point: Any, out: Any) -> Any:
    """Write a character beyond ASCII; the place after it."""
    more = 1 if point < 0x800 else 2 if point < 0x10000 else 3
    data[U(out)] = (0xC0 if more == 1 else 0xE0 if more == 2 else 0xF0) | point >> 6 * more
    for place in range(1, more + 1):
        data[U(out + place)] = 0x80 | (point >> 6 * (more - place)) & 0x3F
    return out + more + 1


@kernel(types.int64(BYTES_OUT, types.int64, types.int64, types.int64))
def unescape(data: Any, at: Any, end: Any, out: Any) -> Any:
    """Write a good string with escapes as text; the place after it."""
    while at < end:
        byte = data[U(at)]
        if byte != 92:
            data[U(out)] = byte
            out += 1
            at += 1
            continue
        byte = data[U(at + 1)]
        if byte != 117:
            for place in range(SHORT.size):
                if byte == SHORT[place]:
                    byte = place + 8
                    break
            data[U(out)] = byte
            out += 1
            at += 2
            continue
        point = unit(data, at + 2, end)
        at += 6
        if point >= 0xD800 and point <= 0xDFFF:
            point = 0x10000 + ((point - 0xD800) << 10) + (unit(data, at + 2, end) - 0xDC00)
            at += 6
        if point < 0x80:
            data[U(out)] = point
            out += 1
            continue
        out = put(data, point, out)
    return out


@kernel(types.boolean(BYTES, types.int64, types.int64))
def is_long(data: Any, at: Any, end: Any) -> Any:
    """Whether a name is longer than `MOST_NAME`."""
    if end - at <= MOST_NAME:
        return False
    units = 0
    while at < end:
        byte = data[U(at)]
        units += 2 if byte >= 0xF0 else 1
        if byte == 92:
            at += 6 if data[U(at + 1)] == 117 else 2
        else:
            at += 1 if byte < 0x80 else 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
    return units > MOST_NAME


@kernel(types.int64(BYTES, types.int64, types.int64))
def number_end(data: Any, at: Any, end: Any) -> Any:
    """The place after a number; -1 if it is none."""
    if at < end and data[U(at)] == 45:
        at += 1
    begin = at
    at = digits(data, at, end)
    count = at - begin
    if count == 0 or (count > 1 and data[U(begin)] == 48):
        return np.int64(-1)
    if at < end and data[U(at)] == 46:
        begin = at + 1
        at = digits(data, begin, end)
        if at == begin:
            return np.int64(-1)
        count += at - begin
    if at < end and (data[U(at)] | 32) == 101:
        begin = at + 1
        if begin < end and (data[U(begin)] == 43 or data[U(begin)] == 45):
            begin += 1
        at = digits(data, begin, end)
        if at == begin:
            return np.int64(-1)
        count += at - begin
    return at if count <= MOST_DIGITS else np.int64(-1)


@kernel(types.int64(BYTES, types.int64, types.int64))
def word_end(data: Any, at: Any, end: Any) -> Any:
    """The place after true, false or null; -1 if it is none of them."""
    found = eight(data, at)
    if (found & U(0xFFFFFFFF)) == U(0x65757274) or (found & U(0xFFFFFFFF)) == U(0x6C6C756E):
        return at + 4 if at + 4 <= end else np.int64(-1)
    if (found & U(0xFFFFFFFFFF)) == U(0x65736C6166):
        return at + 5 if at + 5 <= end else np.int64(-1)
    return np.int64(-1)


@kernel(types.boolean(BYTES, types.int64, types.int64))
def is_not_finite(data: Any, at: Any, size: Any) -> Any:
    """Whether a text is NaN, Infinity or -Infinity."""
    if size == 9:
        return data[U(at)] == 45 and eight(data, at + 1) == INFINITY
    found = eight(data, at)
    return (size == 8 and found == INFINITY) or (size == 3 and (found & U(0xFFFFFF)) == NAN)


@kernel(types.int64(BYTES, types.int64, types.int64))
def order(data: Any, one: Any, other: Any) -> Any:
    """Compares two texts (place << 32 | length), shorter ones first: -1, 0 or 1."""
    size, others = one & 0xFFFFFFFF, other & 0xFFFFFFFF
    if size != others:
        return np.int64(-1) if size < others else np.int64(1)
    here, there = one >> 32, other >> 32
    for place in range(size):
        left, right = data[U(here + place)], data[U(there + place)]
        if left != right:
            return np.int64(-1) if left < right else np.int64(1)
    return np.int64(0)


@kernel(types.boolean(BYTES, LONGS_OUT, types.int64, types.int64))
def repeated(data: Any, names: Any, first: Any, last: Any) -> Any:
    """Whether two of the names are the same. It sorts many names, on a heap: no names take it longer."""
    found, count = False, last - first
    if count <= FEW:
        for one in range(first, last):
            for other in range(one + 1, last):
                found = found or order(data, names[U(one)], names[U(other)]) == 0
        return found
    begin = count // 2
    while count > 1:
        if begin > 0:
            begin -= 1
            held = names[U(first + begin)]
        else:
            count -= 1
            held = names[U(first + count)]
            names[U(first + count)] = names[U(first)]
        parent, child = begin, 2 * begin + 1
        while child < count:
            if child + 1 < count and order(data, names[U(first + child)], names[U(first + child + 1)]) < 0:
                child += 1
            if order(data, held, names[U(first + child)]) >= 0:
                break
            names[U(first + parent)] = names[U(first + child)]
            parent, child = child, 2 * child + 1
        names[U(first + parent)] = held
    for place in range(first + 1, last):
        found = found or order(data, names[U(place - 1)], names[U(place)]) == 0
    return found


@kernel(
    types.int64(BYTES_OUT, types.int64, types.int64, types.int64, LONGS_OUT, LONGS_OUT, types.int64)
)  # fmt: skip
def skip(  # noqa: C901 one kernel
    data: Any, at: Any, end: Any, inside: Any, opened: Any, names: Any, extra: Any
) -> Any:
    """The place after a value of any form; -1 if it is none.

    inside: how many objects and lists are around it. extra: where names may be written as text; -1: names may be there twice.
    """
    depth, held = np.int64(0), np.int64(0)
    while True:
        at = blank(data, at, end)
        if at >= end:
            return np.int64(-1)
        byte = data[U(at)]
        is_name = False
        if byte == 34:
            at, _ = string(data, at + 1, end)
            if at < 0:
                return np.int64(-1)
            at += 1
        elif byte == 123 or byte == 91:
            if inside + depth >= DEEPEST:
                return np.int64(-1)
            opened[U(depth)] = held << 8 | np.int64(byte)
            depth += 1
            at = blank(data, at + 1, end)
            if at >= end:
                return np.int64(-1)
            if data[U(at)] == byte + 2:
                at += 1
                depth -= 1
            elif byte == 91:
                continue
            else:
                is_name = True
        elif byte == 45 or (byte >= 48 and byte <= 57):
            at = number_end(data, at, end)
        else:
            at = word_end(data, at, end)
        if at < 0:
            return np.int64(-1)
        while depth > 0 and not is_name:
            at = blank(data, at, end)
            if at >= end:
                return np.int64(-1)
            byte, kind = np.int64(data[U(at)]), opened[U(depth - 1)] & 0xFF
            at += 1
            if byte == 44:
                is_name = kind == 123
                if is_name:
                    at = blank(data, at, end)
                break
            if byte != kind + 2:
                return np.int64(-1)
            depth -= 1
            first = opened[U(depth)] >> 8
            if kind == 123 and extra >= 0 and repeated(data, names, first, held):
                return np.int64(-1)
            held = first
        if is_name:
            if at >= end or data[U(at)] != 34:
                return np.int64(-1)
            begin = at + 1
            at, escaped = string(data, begin, end)
            if at < 0 or is_long(data, begin, at):
                return np.int64(-1)
            if extra >= 0:
                names[U(held)] = begin << 32 | (at - begin)
                if escaped:
                    stop = unescape(data, begin, at, extra)
                    names[U(held)] = extra << 32 | (stop - extra)
                    extra = stop
                held += 1
            at = blank(data, at + 1, end)
            if at >= end or data[U(at)] != 58:
                return np.int64(-1)
            at += 1
        elif depth == 0:
            return at
