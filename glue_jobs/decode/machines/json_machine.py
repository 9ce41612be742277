"""The machine that runs programs for JSON (`calve.decoding.json_program`): one loop over records, for every shape.

A value of another kind than its node refuses the record. If an object has a name twice, the last value counts and the machine
forgets the earlier one. So `glue_jobs.decode.machines.json_reader` checks the contents of texts and numbers afterwards.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core.cgutils import pointer_add
from numba.extending import intrinsic

from glue_jobs.columns.kernels import BYTES, BYTES_OUT, LONGS, LONGS_OUT, PLACES, kernel

(
    STRUCT, LIST, MAP, BOOLEAN, INT, LONG, FLOAT, DOUBLE, DATABASE_FLOAT, DATABASE_DOUBLE, TEXT, DECIMAL, JSON,
) = range(13)  # fmt: skip
"""`calve.decoding.json_program.Kind`, repeated here because numba's cache does not notice changes in another module."""
CELL, MARKED, LEVEL, FIRST, COUNT, END, SECOND, WIDTH = range(1, 9)
NAME, SIZE, HEAD, MASK, NODE, FIELD_WIDTH = range(6)
SPREAD = np.uint64(0x9E3779B97F4A7C15)
GOOD, MALFORMED = 0, 1
THERE, OTHER, QUOTED = 1, 2, 3
"""Marks. Other: the number of a float or double is still a text; a map has a name twice.

Quoted: the text of a decimal, or of a number of a database.
"""
DEEPEST, MOST_DIGITS, MOST_NAME = 998, 1000, 50_000
"""Limits: objects and lists inside each other, digits of a number, UTF-16 units of a name."""
PADDING = 16
"""Bytes that must follow the values: eight are read at once."""
VALUE, AFTER, KEY = range(3)
ROW_AT, NEXT_FIELD, FIRST_ROW, FRAME = 1, 2, 3, 4
"""Of a struct, list or map that is not complete, after its node: its row, the next field, the first row of its items."""
FEW = 12
ESCAPED, SHORT = np.frombuffer(b'"\\/bfnrt', np.uint8), np.frombuffer(b"btn\0fr", np.uint8)
"""What may follow a backslash; the letters of the characters from 8 on."""
U = np.uint64
"""An unsigned index: for signed ones numba checks for negative values each time."""
ONES, HIGHS = U(0x0101010101010101), U(0x8080808080808080)
QUOTES, ESCAPES, SPACES = U(0x2222222222222222), U(0x5C5C5C5C5C5C5C5C), U(0x2020202020202020)
INFINITY, NAN = U(0x7974696E69666E49), U(0x4E614E)
"""These words as little-endian numbers."""
LENGTH = 0xFFFFFFFF
EXACT, EXACT_SINGLE = U(1 << 53), U(1 << 24)
POWERS = types.Array(types.float64, 1, "C", readonly=True)
PAIR = types.UniTuple(types.int64, 2)  # type: ignore[no-untyped-call]
TRIPLE = types.UniTuple(types.int64, 3)  # type: ignore[no-untyped-call]


def _eight_bytes(_: Any, data: Any, at: Any) -> Any:
    def generate(context: Any, builder: Any, _: Any, given: Any) -> Any:
        begin = context.make_array(data)(context, builder, given[0]).data
        place = pointer_add(builder, begin, given[1], ir.IntType(64).as_pointer())  # type: ignore[no-untyped-call]
        return builder.load(place, align=1)

    return types.uint64(data, types.int64), generate


def _zeros(_: Any, number: Any) -> Any:
    """How many low bits are zero; undefined for 0."""

    def generate(_: Any, builder: Any, __: Any, given: Any) -> Any:
        return builder.cttz(given[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.uint64), generate


def _bits_of(_: Any, number: Any) -> Any:
    def generate(_: Any, builder: Any, __: Any, given: Any) -> Any:
        bits = builder.bitcast(given[0], ir.IntType(number.bitwidth))
        return builder.zext(bits, ir.IntType(64)) if number.bitwidth < 64 else bits

    return types.int64(number), generate


_eight: Any = intrinsic(_eight_bytes)
_low_zeros: Any = intrinsic(_zeros)
_bits: Any = intrinsic(_bits_of)


@kernel(types.int64(BYTES, types.int64, types.int64), inline=True)
def _blank(data: Any, at: Any, end: Any) -> Any:
    """The place after white space."""
    while at < end:
        byte = data[U(at)]
        if byte > 32 or (byte != 32 and byte != 10 and byte != 13 and byte != 9):
            break
        at += 1
    return at


@kernel(types.int64(BYTES, types.int64, types.int64))
def _several(data: Any, at: Any, end: Any) -> Any:
    """The place after a UTF-8 sequence of several bytes; -1 if it is none."""
    lead = data[U(at)]
    size = 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4
    if lead < 0xC2 or lead > 0xF4 or at + size > end:
        return np.int64(-1)
    low = 0xA0 if lead == 0xE0 else 0x90 if lead == 0xF0 else 0x80
    high = 0x9F if lead == 0xED else 0x8F if lead == 0xF4 else 0xBF
    if data[U(at + 1)] < low or data[U(at + 1)] > high:
        return np.int64(-1)
    for place in range(at + 2, at + size):
        if data[U(place)] & 0xC0 != 0x80:
            return np.int64(-1)
    return at + size


@kernel(types.int64(BYTES, types.int64, types.int64))
def _unit(data: Any, at: Any, end: Any) -> Any:
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
        found = _unit(data, at + 2, end)
        if found < 0xD800 or found > 0xDFFF:
            return at + 6 if found >= 0 else np.int64(-1)
        at += 6
        if found >= 0xDC00 or at + 6 > end or data[U(at)] != 92 or data[U(at + 1)] != 117:
            return np.int64(-1)
        low = _unit(data, at + 2, end)
        return at + 6 if low >= 0xDC00 and low <= 0xDFFF else np.int64(-1)
    for place in range(ESCAPED.size):
        if byte == ESCAPED[place]:
            return at + 2
    return np.int64(-1)


@kernel(PAIR(BYTES, types.int64, types.int64))
def _string(data: Any, at: Any, end: Any) -> Any:
    """The place of the quote that ends a string, and whether the string has escapes; -1 if it is none."""
    escaped = np.int64(0)
    while at < end:
        word = _eight(data, at)
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
            at = _several(data, at, end)
        else:
            break
        if at < 0:
            break
    return np.int64(-1), escaped


@kernel(types.int64(BYTES_OUT, types.int64, types.int64, types.int64))
def _unescape(data: Any, at: Any, end: Any, out: Any) -> Any:
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
        point = _unit(data, at + 2, end)
        at += 6
        if point >= 0xD800 and point <= 0xDFFF:
            point = 0x10000 + ((point - 0xD800) << 10) + (_unit(data, at + 2, end) - 0xDC00)
            at += 6
        if point < 0x80:
            data[U(out)] = point
            out += 1
            continue
        more = 1 if point < 0x800 else 2 if point < 0x10000 else 3
        data[U(out)] = (0xC0 if more == 1 else 0xE0 if more == 2 else 0xF0) | point >> 6 * more
        for place in range(1, more + 1):
            data[U(out + place)] = 0x80 | (point >> 6 * (more - place)) & 0x3F
        out += more + 1
    return out


@kernel(types.boolean(BYTES, types.int64, types.int64))
def _is_long(data: Any, at: Any, end: Any) -> Any:
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


@kernel(types.int64(BYTES, types.int64, types.int64), inline=True)
def _digits(data: Any, at: Any, end: Any) -> Any:
    """The place after digits."""
    while at < end and data[U(at)] >= 48 and data[U(at)] <= 57:
        at += 1
    return at


@kernel(types.int64(BYTES, types.int64, types.int64))
def _number(data: Any, at: Any, end: Any) -> Any:
    """The place after a number; -1 if it is none."""
    if at < end and data[U(at)] == 45:
        at += 1
    begin = at
    at = _digits(data, at, end)
    count = at - begin
    if count == 0 or (count > 1 and data[U(begin)] == 48):
        return np.int64(-1)
    if at < end and data[U(at)] == 46:
        begin = at + 1
        at = _digits(data, begin, end)
        if at == begin:
            return np.int64(-1)
        count += at - begin
    if at < end and (data[U(at)] | 32) == 101:
        begin = at + 1
        if begin < end and (data[U(begin)] == 43 or data[U(begin)] == 45):
            begin += 1
        at = _digits(data, begin, end)
        if at == begin:
            return np.int64(-1)
        count += at - begin
    return at if count <= MOST_DIGITS else np.int64(-1)


@kernel(types.int64(BYTES, types.int64, types.int64))
def _word(data: Any, at: Any, end: Any) -> Any:
    """The place after true, false or null; -1 if it is none of them."""
    found = _eight(data, at)
    if (found & U(0xFFFFFFFF)) == U(0x65757274) or (found & U(0xFFFFFFFF)) == U(0x6C6C756E):
        return at + 4 if at + 4 <= end else np.int64(-1)
    if (found & U(0xFFFFFFFFFF)) == U(0x65736C6166):
        return at + 5 if at + 5 <= end else np.int64(-1)
    return np.int64(-1)


@kernel(types.boolean(BYTES, types.int64, types.int64))
def _is_not_finite(data: Any, at: Any, size: Any) -> Any:
    """Whether a text is NaN, Infinity or -Infinity."""
    if size == 9:
        return data[U(at)] == 45 and _eight(data, at + 1) == INFINITY
    found = _eight(data, at)
    return (size == 8 and found == INFINITY) or (size == 3 and (found & U(0xFFFFFF)) == NAN)


@kernel(types.int64(BYTES, types.int64, types.int64))
def _order(data: Any, one: Any, other: Any) -> Any:
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
def _repeated(data: Any, names: Any, first: Any, last: Any) -> Any:
    """Whether two of the names are the same. It sorts many names, on a heap: no names take it longer."""
    found, count = False, last - first
    if count <= FEW:
        for one in range(first, last):
            for other in range(one + 1, last):
                found = found or _order(data, names[U(one)], names[U(other)]) == 0
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
            if child + 1 < count and _order(data, names[U(first + child)], names[U(first + child + 1)]) < 0:
                child += 1
            if _order(data, held, names[U(first + child)]) >= 0:
                break
            names[U(first + parent)] = names[U(first + child)]
            parent, child = child, 2 * child + 1
        names[U(first + parent)] = held
    for place in range(first + 1, last):
        found = found or _order(data, names[U(place - 1)], names[U(place)]) == 0
    return found


@kernel(
    types.int64(BYTES_OUT, types.int64, types.int64, types.int64, LONGS_OUT, LONGS_OUT, types.int64)
)  # fmt: skip
def _skip(  # noqa: C901 one kernel
    data: Any, at: Any, end: Any, inside: Any, opened: Any, names: Any, extra: Any
) -> Any:
    """The place after a value of any form; -1 if it is none.

    inside: how many objects and lists are around it. extra: where names may be written as text; -1: names may be there twice.
    """
    depth, held = np.int64(0), np.int64(0)
    while True:
        at = _blank(data, at, end)
        if at >= end:
            return np.int64(-1)
        byte = data[U(at)]
        is_name = False
        if byte == 34:
            at, _ = _string(data, at + 1, end)
            if at < 0:
                return np.int64(-1)
            at += 1
        elif byte == 123 or byte == 91:
            if inside + depth >= DEEPEST:
                return np.int64(-1)
            opened[U(depth)] = held << 8 | np.int64(byte)
            depth += 1
            at = _blank(data, at + 1, end)
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
            at = _number(data, at, end)
        else:
            at = _word(data, at, end)
        if at < 0:
            return np.int64(-1)
        while depth > 0 and not is_name:
            at = _blank(data, at, end)
            if at >= end:
                return np.int64(-1)
            byte, kind = np.int64(data[U(at)]), opened[U(depth - 1)] & 0xFF
            at += 1
            if byte == 44:
                is_name = kind == 123
                if is_name:
                    at = _blank(data, at, end)
                break
            if byte != kind + 2:
                return np.int64(-1)
            depth -= 1
            first = opened[U(depth)] >> 8
            if kind == 123 and extra >= 0 and _repeated(data, names, first, held):
                return np.int64(-1)
            held = first
        if is_name:
            if at >= end or data[U(at)] != 34:
                return np.int64(-1)
            begin = at + 1
            at, escaped = _string(data, begin, end)
            if at < 0 or _is_long(data, begin, at):
                return np.int64(-1)
            if extra >= 0:
                names[U(held)] = begin << 32 | (at - begin)
                if escaped:
                    stop = _unescape(data, begin, at, extra)
                    names[U(held)] = extra << 32 | (stop - extra)
                    extra = stop
                held += 1
            at = _blank(data, at + 1, end)
            if at >= end or data[U(at)] != 58:
                return np.int64(-1)
            at += 1
        elif depth == 0:
            return at


@kernel(
    types.void(LONGS, types.int64, types.int64, LONGS_OUT, LONGS_OUT, BYTES_OUT, types.int64, types.int64)
)
def _keep(code: Any, kept: Any, outer: Any, rows: Any, cells: Any, marks: Any, begin: Any, end: Any) -> Any:
    """Append an undeclared field, with its name, to those of the struct in row `outer`."""
    base = kept * WIDTH
    level, count, mark = (
        code[U(base + LEVEL)],
        U(code[U(base + CELL)] + outer),
        U(code[U(base + MARKED)] + outer),
    )
    if marks[mark] == 0:
        cells[count], marks[mark] = 0, THERE
    cells[count] += 1
    cells[U(code[U(base + WIDTH + CELL)] + rows[U(level)])] = begin << 32 | (end - begin)
    rows[U(level)] += 1


@kernel(types.void(LONGS, types.int64, types.int64, LONGS_OUT, LONGS, BYTES_OUT, LONGS, LONGS_OUT))
def _forget(
    code: Any, node: Any, row: Any, rows: Any, cells: Any, marks: Any, mark_level: Any, firsts: Any
) -> Any:
    """Discard a node's value. The items of its lists are the last ones of their levels."""
    last = code[U(node * WIDTH + END)]
    for each in range(node, last):
        base, level = each * WIDTH, mark_level[U(each)]
        if code[U(base)] == LIST or code[U(base)] == MAP:
            begin = row if level == mark_level[U(node)] else firsts[U(level)]
            stop = row + 1 if level == mark_level[U(node)] else rows[U(level)]
            count = np.int64(0)
            for place in range(begin, stop):
                if marks[U(code[U(base + MARKED)] + place)] != 0:
                    count += cells[U(code[U(base + CELL)] + place)]
            firsts[U(code[U(base + LEVEL)])] = rows[U(code[U(base + LEVEL)])] - count
    for each in range(node, last):
        level = mark_level[U(each)]
        begin = row if level == mark_level[U(node)] else firsts[U(level)]
        stop = row + 1 if level == mark_level[U(node)] else rows[U(level)]
        for place in range(begin, stop):
            marks[U(code[U(each * WIDTH + MARKED)] + place)] = 0
    for each in range(node, last):
        base = each * WIDTH
        if code[U(base)] == LIST or code[U(base)] == MAP:
            rows[U(code[U(base + LEVEL)])] = firsts[U(code[U(base + LEVEL)])]


@kernel(types.void(LONGS_OUT, LONGS_OUT, LONGS, LONGS, BYTES_OUT))
def _clear(rows: Any, before: Any, mark_level: Any, mark_base: Any, marks: Any) -> Any:
    """Discard everything written since rows `before`."""
    for column in range(mark_level.size):
        level = mark_level[column]
        for row in range(before[level], rows[level] + 1):
            marks[mark_base[column] + row] = 0
    for level in range(rows.size):
        rows[level] = before[level]


@kernel(types.boolean(BYTES, types.int64, LONGS, types.int64, BYTES))
def _is_tail(data: Any, at: Any, pool: Any, field: Any, names: Any) -> Any:
    """Whether a field's name from its ninth byte on is that at a place."""
    name, same = pool[U(field + NAME)], True
    for place in range(8, pool[U(field + SIZE)]):
        same = same and data[U(at + place)] == names[U(name + place)]
    return same


@kernel(types.int64(BYTES, types.int64, types.int64, LONGS, types.int64, types.int64, BYTES))
def _field(data: Any, at: Any, size: Any, pool: Any, fields: Any, slots: Any, names: Any) -> Any:
    """The number of a struct's field with this name; -1 if it has none."""
    count = pool[U(slots)]
    head = _eight(data, at)
    if size < 8:
        head &= (U(1) << U(8 * size)) - U(1)
    last = _eight(data, at + size - 8) * U(3) if size > 8 else U(0)
    place = np.int64(((head ^ last ^ U(size)) * SPREAD) >> U(32)) & (count - 1)
    while pool[U(slots + 1 + place)] != 0:
        number = pool[U(slots + 1 + place)] - 1
        field = fields + number * FIELD_WIDTH
        if (
            pool[U(field + SIZE)] == size
            and U(pool[U(field + HEAD)]) == head
            and _is_tail(data, at, pool, field, names)
        ):
            return number
        place = (place + 1) & (count - 1)
    return np.int64(-1)


@kernel(
    TRIPLE(
        LONGS, LONGS, BYTES, POWERS, BYTES_OUT, PLACES, PLACES, LONGS, types.int64, types.int64, types.int64, types.int64,
        BYTES_OUT, LONGS_OUT, LONGS_OUT, LONGS, LONGS_OUT, BYTES_OUT, LONGS, LONGS, LONGS_OUT, LONGS_OUT,
        LONGS_OUT, LONGS_OUT,
    )
)  # fmt: skip
def run(  # noqa: C901 one loop: a call for each value would cost more than most of them do
    code: Any, pool: Any, names: Any, powers: Any, data: Any, places: Any, sizes: Any, chosen: Any, must: Any,
    may_be_null: Any, kept: Any, extra: Any, verdicts: Any, rows: Any, before: Any, space: Any, cells: Any,
    marks: Any, mark_level: Any, mark_base: Any, frames: Any, opened: Any, twice: Any, firsts: Any,
) -> Any:  # fmt: skip
    """Read the chosen records. Returns the first unread record, the level without space for it or -1, and the next `extra`.

    code: with places in `cells` and `marks` instead of column numbers. data: `PADDING` bytes follow the values, then as many
    bytes as the values have: strings with escapes are written there as text, from `extra` on.
    powers: of ten. must, may_be_null, kept: as in the program; -1: nothing is kept. verdicts: by place in `chosen`.
    rows: current rows per level. space: rows per level; columns have one more.
    marks: 0 at first. A cell without a mark is undefined. before, frames, opened, twice, firsts: scratch space.
    """
    for number in range(chosen.size):
        record = chosen[number]
        at = np.int64(places[record])
        end = at + np.int64(sizes[record])
        for level in range(rows.size):
            before[level] = rows[U(level)]
        extra_before = extra
        row, node, top, state, name = rows[U(0)], np.int64(0), np.int64(-1), VALUE, at
        good, there = True, False
        while good:
            if state == VALUE:
                at = _blank(data, at, end)
                if at >= end:
                    good = False
                    break
                state = AFTER
                keeps = kept >= 0 and top >= 0 and frames[U(top * FRAME)] == must
                if node < 0:
                    room = extra if keeps else np.int64(-1)
                    at = _skip(data, at, end, top + 1, opened, twice, room)
                    good = at >= 0
                    if good and keeps:
                        level = code[U(kept * WIDTH + LEVEL)]
                        if rows[U(level)] >= space[U(level)]:
                            _clear(rows, before, mark_level, mark_base, marks)
                            return number, level, extra_before
                        _keep(code, kept, frames[U(top * FRAME + ROW_AT)], rows, cells, marks, name, at)
                    continue
                base, byte, begin = node * WIDTH, data[U(at)], at
                is_nested = keeps and byte | 32 == 123
                if is_nested and _skip(data, at, end, top + 1, opened, twice, extra) < 0:
                    good = False
                    break
                kind = code[U(base)]
                cell, mark = U(code[U(base + CELL)] + row), U(code[U(base + MARKED)] + row)
                there = there or node == must
                if marks[mark] != 0:
                    _forget(code, node, row, rows, cells, marks, mark_level, firsts)
                if byte == 34 and kind > DOUBLE and kind != JSON:
                    begin += 1
                    at, escaped = _string(data, begin, end)
                    if at < 0:
                        good = False
                        break
                    cells[cell] = begin << 32 | (at - begin)
                    if escaped:
                        stop = _unescape(data, begin, at, extra)
                        cells[cell] = extra << 32 | (stop - extra)
                        extra = stop
                    marks[mark] = QUOTED if kind == DECIMAL or kind < TEXT else THERE
                    good = kind >= TEXT or _is_not_finite(data, cells[cell] >> 32, cells[cell] & LENGTH)
                    at += 1
                elif byte == 110:
                    at = _word(data, at, end)
                    good = at >= 0
                elif kind <= MAP:
                    good = byte == (91 if kind == LIST else 123)
                    marks[mark] = THERE
                    if kind != STRUCT:
                        cells[cell] = 0
                    at = _blank(data, at + 1, end)
                    if not good or at >= end:
                        good = False
                        break
                    if data[U(at)] == byte + 2:
                        at += 1
                        continue
                    top += 1
                    frame = top * FRAME
                    frames[U(frame)], frames[U(frame + ROW_AT)], frames[U(frame + NEXT_FIELD)] = node, row, 0
                    state = KEY
                    if kind == STRUCT:
                        continue
                    level = code[U(base + LEVEL)]
                    row = rows[U(level)]
                    frames[U(frame + FIRST_ROW)] = row
                    if row >= space[U(level)]:
                        _clear(rows, before, mark_level, mark_base, marks)
                        return number, level, extra_before
                    if kind == LIST:
                        state, node = VALUE, node + 1
                elif kind == JSON:
                    at = _skip(data, at, end, top + 1, opened, twice, extra)
                    cells[cell], marks[mark], good = begin << 32 | (at - begin), THERE, at >= 0
                elif kind == TEXT:
                    good = False
                elif kind == DECIMAL:
                    at = _number(data, at, end)
                    cells[cell], marks[mark], good = begin << 32 | (at - begin), THERE, at >= 0
                elif kind == BOOLEAN:
                    at = _word(data, at, end)
                    cells[cell], marks[mark], good = np.int64(byte == 116), THERE, at >= 0
                else:
                    negative = byte == 45
                    at += np.int64(negative)
                    first, value = at, U(0)
                    while at < end:
                        digit = U(data[U(at)]) - U(48)
                        if digit > U(9):
                            break
                        value = value * U(10) + digit
                        at += 1
                    count = at - first
                    good = count > 0 and (count == 1 or data[U(first)] != 48)
                    following = data[U(at)] if at < end else np.uint8(0)
                    if kind <= LONG:
                        most = U(1 << 31) if kind == INT else U(1 << 63)
                        if (
                            count > 19
                            or value >= most + U(negative)
                            or following == 46
                            or following | 32 == 101
                        ):
                            good = False
                        cells[cell] = -np.int64(value) if negative else np.int64(value)
                        marks[mark] = THERE
                        continue
                    is_whole, point = following != 46, at
                    if not is_whole:
                        at += 1
                        while at < end:
                            digit = U(data[U(at)]) - U(48)
                            if digit > U(9):
                                break
                            value = value * U(10) + digit
                            at += 1
                        good = good and at > point + 1
                        count += at - point - 1
                        following = data[U(at)] if at < end else np.uint8(0)
                    fraction = np.int64(0) if is_whole else at - point - 1
                    is_single = kind != DOUBLE and kind != DATABASE_DOUBLE
                    if (
                        following | 32 == 101 or count > 19 or value > (EXACT_SINGLE if is_single else EXACT)
                        or fraction > (10 if is_single else 22)
                    ):  # fmt: skip
                        at = _number(data, begin, end)
                        cells[cell], marks[mark], good = begin << 32 | (at - begin), OTHER, good and at >= 0
                        continue
                    real = np.float64(value) / powers[U(fraction)]
                    if negative and (value != U(0) or not is_whole):
                        real = -real
                    cells[cell] = _bits(np.float32(real)) if is_single else _bits(real)
                    marks[mark] = THERE
            elif state == AFTER:
                if top < 0:
                    break
                at = _blank(data, at, end)
                if at >= end:
                    good = False
                    break
                byte, frame = data[U(at)], top * FRAME
                node = frames[U(frame)]
                base = node * WIDTH
                kind = code[U(base)]
                at += 1
                if kind == STRUCT:
                    row = frames[U(frame + ROW_AT)]
                    if byte == 44:
                        at = _blank(data, at, end)
                        state = KEY
                    else:
                        good = byte == 125
                        top -= 1
                    continue
                level = code[U(base + LEVEL)]
                row = rows[U(level)] + 1
                rows[U(level)] = row
                if byte == 44:
                    if row >= space[U(level)]:
                        _clear(rows, before, mark_level, mark_base, marks)
                        return number, level, extra_before
                    if kind == MAP:
                        at = _blank(data, at, end)
                        state = KEY
                    else:
                        state, node = VALUE, node + 1
                    continue
                good = byte == (125 if kind == MAP else 93)
                first, outer = frames[U(frame + FIRST_ROW)], frames[U(frame + ROW_AT)]
                cells[U(code[U(base + CELL)] + outer)] = row - first
                if kind == MAP:
                    keys = code[U(base + SECOND)]
                    for place in range(first, row):
                        twice[U(place - first)] = cells[U(keys + place)]
                    if _repeated(data, twice, np.int64(0), row - first):
                        marks[U(code[U(base + MARKED)] + outer)] = OTHER
                top -= 1
            else:
                if at >= end or data[U(at)] != 34:
                    good = False
                    break
                name, begin, frame = at, at + 1, top * FRAME
                base = frames[U(frame)] * WIDTH
                if code[U(base)] == STRUCT:
                    fields, following = code[U(base + FIRST)], frames[U(frame + NEXT_FIELD)]
                    field, node = fields + following * FIELD_WIDTH, np.int64(-1)
                    if following < code[U(base + COUNT)]:
                        at = begin + pool[U(field + SIZE)]
                        head = _eight(data, begin) & U(pool[U(field + MASK)])
                        same = at < end and data[U(at)] == 34 and head == U(pool[U(field + HEAD)])
                        if same and _is_tail(data, begin, pool, field, names):
                            node = pool[U(field + NODE)]
                            frames[U(frame + NEXT_FIELD)] = following + 1
                    if node < 0:
                        at, escaped = _string(data, begin, end)
                        if at < 0 or _is_long(data, begin, at):
                            good = False
                            break
                        size = at - begin
                        if escaped:
                            size = _unescape(data, begin, at, extra) - extra
                            begin = extra
                        following = _field(data, begin, size, pool, fields, code[U(base + LEVEL)], names)
                        if following >= 0:
                            node = pool[U(fields + following * FIELD_WIDTH + NODE)]
                            frames[U(frame + NEXT_FIELD)] = following + 1
                else:
                    at, escaped = _string(data, begin, end)
                    if at < 0 or _is_long(data, begin, at):
                        good = False
                        break
                    key = U(code[U(base + SECOND)] + row)
                    cells[key] = begin << 32 | (at - begin)
                    if escaped:
                        stop = _unescape(data, begin, at, extra)
                        cells[key] = extra << 32 | (stop - extra)
                        extra = stop
                    node = frames[U(frame)] + 1
                at = _blank(data, at + 1, end)
                good = at < end and data[U(at)] == 58
                at += 1
                state = VALUE
        if good:
            at = _blank(data, at, end)
            here = marks[U(code[U(must * WIDTH + MARKED)] + rows[U(0)])] != 0
            good = at == end and there and (here or may_be_null != 0)
        if good:
            rows[U(0)] += 1
        else:
            _clear(rows, before, mark_level, mark_base, marks)
            extra = extra_before
        verdicts[number] = GOOD if good else MALFORMED
    return np.int64(chosen.size), np.int64(-1), extra
