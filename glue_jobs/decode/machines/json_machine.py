"""The machine that runs programs for JSON (`calve.decoding.json_program`): one loop over records, for every shape.

A value of another kind than its node refuses the record. If an object has a name twice, the last value counts and the machine
forgets the earlier one. So `glue_jobs.decode.machines.json_reader` checks the contents of texts and numbers afterwards.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from calve.decoding.avro_operations import CELL, MARKED, SECOND, WIDTH
from calve.decoding.json_program import COUNT, END, FIELD_WIDTH, FIRST, LEVEL, NODE, SPREAD, Kind
from glue_jobs.columns.kernels import BYTES, BYTES_OUT, LONGS, LONGS_OUT, PLACES, kernel
from glue_jobs.columns.texts import LENGTH, TRIPLE, U, eight
from glue_jobs.decode.machines.cells import clear
from glue_jobs.decode.machines.json_scan import (
    blank,
    is_long,
    is_not_finite,
    number_end,
    repeated,
    skip,
    string,
    unescape,
    word_end,
)

STRUCT, LIST, MAP, BOOLEAN, INT, LONG, FLOAT, DOUBLE, DATABASE_FLOAT, DATABASE_DOUBLE, TEXT, DECIMAL, JSON = (
    map(int, Kind)
)
NAME, SIZE, HEAD, MASK = range(NODE)
FACTOR = U(SPREAD)
GOOD, MALFORMED = 0, 1
THERE, OTHER, QUOTED = 1, 2, 3
"""Marks. Other: the number of a float or double is still a text; a map has a name twice.

Quoted: the text of a decimal, or of a number of a database.
"""
VALUE, AFTER, KEY = range(3)
ROW_AT, NEXT_FIELD, FIRST_ROW, FRAME = 1, 2, 3, 4
"""Of a struct, list or map that is not complete, after its node: its row, the next field, the first row of its items."""
EXACT, EXACT_SINGLE = U(1 << 53), U(1 << 24)
POWERS = types.Array(types.float64, 1, "C", readonly=True)


def _bits_of(_: Any, number: Any) -> Any:
    def generate(_: Any, builder: Any, __: Any, given: Any) -> Any:
        bits = builder.bitcast(given[0], ir.IntType(number.bitwidth))
        return builder.zext(bits, ir.IntType(64)) if number.bitwidth < 64 else bits

    return types.int64(number), generate


_bits: Any = intrinsic(_bits_of)


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
    head = eight(data, at)
    if size < 8:
        head &= (U(1) << U(8 * size)) - U(1)
    last = eight(data, at + size - 8) * U(3) if size > 8 else U(0)
    place = np.int64(((head ^ last ^ U(size)) * FACTOR) >> U(32)) & (count - 1)
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
        types.int64, BYTES_OUT, LONGS_OUT, LONGS_OUT, LONGS_OUT, LONGS, LONGS_OUT, BYTES_OUT, LONGS, LONGS, LONGS_OUT,
        LONGS_OUT, LONGS_OUT, LONGS_OUT,
    )
)  # fmt: skip
def run(  # noqa: C901 one loop: a call for each value would cost more than most of them do
    code: Any, pool: Any, names: Any, powers: Any, data: Any, places: Any, sizes: Any, chosen: Any, must: Any,
    may_be_null: Any, kept: Any, lenient: Any, extra: Any, verdicts: Any, misfits: Any, rows: Any, before: Any, space: Any,
    cells: Any, marks: Any, mark_level: Any, mark_base: Any, frames: Any, opened: Any, twice: Any, firsts: Any,
) -> Any:  # fmt: skip
    """Read the chosen records. Returns the first unread record, the level without space for it or -1, and the next `extra`.

    code: with places in `cells` and `marks` instead of column numbers. data: `PADDING` bytes follow the values, then as many
    bytes as the values have: strings with escapes are written there as text, from `extra` on.
    powers: of ten. must, may_be_null, kept, lenient: as in the program; -1: nothing is kept. verdicts: by place in `chosen`.
    misfits: by place, the node of the property in which a record was refused; -1: none, or the record is good.
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
        good, there, member = True, False, np.int64(-1)
        while good:
            if state == VALUE:
                at = blank(data, at, end)
                if at >= end:
                    good = False
                    break
                state = AFTER
                keeps, begin = kept >= 0 and top >= 0 and frames[U(top * FRAME)] == must, at
                if node < 0:
                    room = extra if keeps else np.int64(-1)
                    at = skip(data, at, end, top + 1, opened, twice, room)
                    good = at >= 0
                    if good and lenient != 0 and data[U(begin)] == 110:
                        continue
                    if lenient != 0 and not keeps:
                        good = False
                    if good and keeps:
                        level = code[U(kept * WIDTH + LEVEL)]
                        if rows[U(level)] >= space[U(level)]:
                            clear(rows, before, mark_level, mark_base, marks)
                            return number, level, extra_before
                        _keep(code, kept, frames[U(top * FRAME + ROW_AT)], rows, cells, marks, name, at)
                    continue
                base, byte = node * WIDTH, data[U(at)]
                is_nested = keeps and byte | 32 == 123
                if is_nested and skip(data, at, end, top + 1, opened, twice, extra) < 0:
                    good = False
                    break
                kind = code[U(base)]
                cell, mark = U(code[U(base + CELL)] + row), U(code[U(base + MARKED)] + row)
                there = there or node == must
                if marks[mark] != 0:
                    _forget(code, node, row, rows, cells, marks, mark_level, firsts)
                if byte == 34 and kind > DOUBLE and kind != JSON:
                    begin += 1
                    at, escaped = string(data, begin, end)
                    if at < 0:
                        good = False
                        break
                    cells[cell] = begin << 32 | (at - begin)
                    if escaped:
                        stop = unescape(data, begin, at, extra)
                        cells[cell] = extra << 32 | (stop - extra)
                        extra = stop
                    marks[mark] = QUOTED if kind == DECIMAL or kind < TEXT else THERE
                    good = kind >= TEXT or is_not_finite(data, cells[cell] >> 32, cells[cell] & LENGTH)
                    at += 1
                elif byte == 110:
                    at = word_end(data, at, end)
                    good = at >= 0
                elif kind <= MAP:
                    good = byte == (91 if kind == LIST else 123)
                    marks[mark] = THERE
                    if kind != STRUCT:
                        cells[cell] = 0
                    at = blank(data, at + 1, end)
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
                        clear(rows, before, mark_level, mark_base, marks)
                        return number, level, extra_before
                    if kind == LIST:
                        state, node = VALUE, node + 1
                elif kind == JSON:
                    at = skip(data, at, end, top + 1, opened, twice, extra)
                    cells[cell], marks[mark], good = begin << 32 | (at - begin), THERE, at >= 0
                elif kind == TEXT:
                    good = False
                elif kind == DECIMAL:
                    at = number_end(data, at, end)
                    cells[cell], marks[mark], good = begin << 32 | (at - begin), THERE, at >= 0
                elif kind == BOOLEAN:
                    at = word_end(data, at, end)
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
                        at = number_end(data, begin, end)
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
                at = blank(data, at, end)
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
                        at = blank(data, at, end)
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
                        clear(rows, before, mark_level, mark_base, marks)
                        return number, level, extra_before
                    if kind == MAP:
                        at = blank(data, at, end)
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
                    if repeated(data, twice, np.int64(0), row - first):
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
                        head = eight(data, begin) & U(pool[U(field + MASK)])
                        same = at < end and data[U(at)] == 34 and head == U(pool[U(field + HEAD)])
                        if same and _is_tail(data, begin, pool, field, names):
                            node = pool[U(field + NODE)]
                            frames[U(frame + NEXT_FIELD)] = following + 1
                    if node < 0:
                        at, escaped = string(data, begin, end)
                        if at < 0 or is_long(data, begin, at):
                            good = False
                            break
                        size = at - begin
                        if escaped:
                            size = unescape(data, begin, at, extra) - extra
                            begin = extra
                        following = _field(data, begin, size, pool, fields, code[U(base + LEVEL)], names)
                        if following >= 0:
                            node = pool[U(fields + following * FIELD_WIDTH + NODE)]
                            frames[U(frame + NEXT_FIELD)] = following + 1
                else:
                    at, escaped = string(data, begin, end)
                    if at < 0 or is_long(data, begin, at):
                        good = False
                        break
                    key = U(code[U(base + SECOND)] + row)
                    cells[key] = begin << 32 | (at - begin)
                    if escaped:
                        stop = unescape(data, begin, at, extra)
                        cells[key] = extra << 32 | (stop - extra)
                        extra = stop
                    node = frames[U(frame)] + 1
                at = blank(data, at + 1, end)
                good = at < end and data[U(at)] == 58
                at += 1
                state = VALUE
                if frames[U(frame)] == must:
                    member = node
        if good:
            member = np.int64(-1)
            at = blank(data, at, end)
            here = marks[U(code[U(must * WIDTH + MARKED)] + rows[U(0)])] != 0
            good = at == end and there and (here or may_be_null != 0)
        if good:
            rows[U(0)] += 1
        else:
            clear(rows, before, mark_level, mark_base, marks)
            extra = extra_before
        verdicts[number] = GOOD if good else MALFORMED
        misfits[number] = np.int64(-1) if good else member
    return np.int64(chosen.size), np.int64(-1), extra
