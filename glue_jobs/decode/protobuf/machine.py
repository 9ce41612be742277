"""The machine that reads Protobuf messages (`glue_jobs.decode.protobuf.program`): one loop over records, for every schema.

A message may come in several pieces, which are merged as in Protobuf. If a field is written twice, its last value wins.
Bytes that no serializer writes make their record malformed, at any depth: what is no field, a group, or text that is not UTF-8.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from glue_jobs.columns.kernels import BYTES, BYTES_OUT, LONGS, LONGS_OUT, PLACES, kernel
from glue_jobs.columns.texts import PAIR, U, character_end, little, varint
from glue_jobs.decode.machines.cells import clear
from glue_jobs.decode.protobuf.program import WIDTH, Kind

NUMBER, BYTE_STRING, TEXT, MESSAGE, SKIPPED = map(int, Kind)
(
    KIND, OWN, ALSO, CELL, MARK, LEVEL, COUNT, LISTED, FIRST, FIELDS, UNFIT, HOLDER, HELD, MARKS_FROM, MARKS_END,
    LEVELS_FROM, LEVELS_END,
) = range(WIDTH)  # fmt: skip
"""As in `program`."""
ABOVE, COUNTED_AT, COUNTED = range(3)
"""Of a level."""
NODE, ROW, STOP, NEXT, FRAME = range(5)
"""Of a message that is not read to its end: where its next field probably is."""
VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5
VARINT_BITS, SHORT_VARINT_BITS = 70, 35
GREATEST_LENGTH = 2**31 - 1
GREATEST_TAG = 2**32 - 1
TABLE = types.Array(types.int64, 2, "C", readonly=True)


@kernel(PAIR(BYTES, types.int64, types.int64, types.int64), inline=True)
def _varint(data: Any, at: Any, end: Any, most: Any) -> Any:
    """A number of at most `most` bits of encoding, 7 per byte, and the place after it; -1 if invalid."""
    if at < end and data[U(at)] < 0x80:
        return np.int64(data[U(at)]), at + 1
    return varint(data, at, end, most)


@kernel(types.boolean(BYTES, types.int64, types.int64))
def _beyond_ascii(data: Any, at: Any, end: Any) -> Any:
    """Whether bytes are UTF-8."""
    while at >= 0 and at < end:
        at = at + 1 if data[U(at)] < 0x80 else character_end(data, at, end)
    return at == end


@kernel(types.boolean(BYTES, types.int64, types.int64), inline=True)
def _is_text(data: Any, at: Any, end: Any) -> Any:
    begin, seen = at, np.int64(0)
    while end - at >= 8:
        seen |= little(data, at, 8)
        at += 8
    while at < end:
        seen |= np.int64(data[U(at)])
        at += 1
    return seen & -0x7F7F7F7F7F7F7F80 == 0 or _beyond_ascii(data, begin, end)


@kernel(types.int64(LONGS, types.int64, types.int64, types.int64))
def _place_of(fields: Any, number: Any, low: Any, high: Any) -> Any:
    """The place of a field's number between two places; -1 if it is not there."""
    end = high
    while low < high:
        middle = (low + high) >> 1
        if fields[U(2 * middle)] < number:
            low = middle + 1
        else:
            high = middle
    return low if low < end and fields[U(2 * low)] == number else np.int64(-1)


@kernel(
    types.void(
        LONGS, types.int64, types.int64, TABLE, LONGS_OUT, LONGS_OUT, LONGS_OUT, BYTES_OUT, LONGS, LONGS
    )
)
def _replace(
    nodes: Any, base: Any, row: Any, levels: Any, rows: Any, starts: Any, cells: Any, marks: Any, mark_level: Any,
    mark_base: Any,
) -> Any:  # fmt: skip
    """Discard a member of a oneof in a row. All it has written is last in its levels. starts: scratch space, as `rows`."""
    begin, end = nodes[base + MARKS_FROM], nodes[base + MARKS_END]
    if begin == end:
        return
    own = mark_level[begin]
    for level in range(nodes[base + LEVELS_FROM], nodes[base + LEVELS_END]):
        above, count, listed = levels[level, ABOVE], levels[level, COUNTED_AT], levels[level, COUNTED]
        first = row if above == own else starts[above]
        last = row + 1 if above == own else rows[above]
        starts[level] = rows[level]
        for each in range(first, last):
            if marks[listed + each]:
                starts[level] -= cells[count + each]
    for column in range(begin, end):
        level = mark_level[column]
        first = row if level == own else starts[level]
        last = row + 1 if level == own else rows[level]
        for each in range(first, last):
            marks[mark_base[column] + each] = 0
    for level in range(nodes[base + LEVELS_FROM], nodes[base + LEVELS_END]):
        rows[level] = starts[level]


@kernel(
    PAIR(
        LONGS, LONGS, TABLE, BYTES, PLACES, PLACES, LONGS, types.int64, BYTES_OUT, LONGS_OUT, LONGS_OUT, LONGS_OUT,
        LONGS, LONGS_OUT, BYTES_OUT, LONGS, LONGS, LONGS_OUT,
    )
)  # fmt: skip
def run(  # noqa: C901 one loop: a call for each field would cost more than most of them do
    nodes: Any, fields: Any, levels: Any, data: Any, places: Any, sizes: Any, chosen: Any, prefix: Any, good: Any,
    rows: Any, before: Any, starts: Any, space: Any, cells: Any, marks: Any, mark_level: Any, mark_base: Any, frames: Any,
) -> Any:  # fmt: skip
    """Read the chosen records; returns the first unread record and the level without space for it, or -1.

    nodes, levels: with places in `cells` and `marks` instead of column numbers. prefix: bytes before each message.
    good: 1 for records that are messages, by place in `chosen`.
    rows: current rows per level; before, starts: scratch space of the same size. space: rows per level; columns have one more.
    marks: 0 at first. A cell without a mark is undefined. frames: `FRAME` numbers for each message around another one.
    """
    for number in range(chosen.size):
        record = chosen[number]
        at = np.int64(places[record]) + prefix
        stop = np.int64(places[record]) + np.int64(sizes[record])
        for level in range(rows.size):
            before[level] = rows[U(level)]
        row, base, top, whole = rows[U(0)], np.int64(0), np.int64(-1), at <= stop
        guess = nodes[U(FIRST)]
        while whole:
            if at >= stop:
                if top < 0:
                    break
                base, row = frames[U(FRAME * top + NODE)], frames[U(FRAME * top + ROW)]
                stop, guess = frames[U(FRAME * top + STOP)], frames[U(FRAME * top + NEXT)]
                top -= 1
                continue
            tag, at = _varint(data, at, stop, SHORT_VARINT_BITS)
            if at < 0 or tag < 8 or tag > GREATEST_TAG:
                whole = False
                break
            wire, size, value = tag & 7, np.int64(0), np.int64(0)
            if wire == LENGTH:
                size, at = _varint(data, at, stop, SHORT_VARINT_BITS)
                whole = at >= 0 and size <= GREATEST_LENGTH and size <= stop - at
            elif wire == VARINT:
                value, at = _varint(data, at, stop, VARINT_BITS)
                whole = at >= 0
            elif wire == FIXED64:
                size = np.int64(8)
                whole = stop - at >= 8
                if whole:
                    value = little(data, at, 8)
            elif wire == FIXED32:
                size = np.int64(4)
                whole = stop - at >= 4
                if whole:
                    value = little(data, at, 4)
            else:
                whole = False
            if not whole:
                break
            first, field = nodes[U(base + FIRST)], tag >> 3
            last = first + nodes[U(base + FIELDS)]
            if guess < last and fields[U(2 * guess)] == field:
                place = guess
            elif guess > first and fields[U(2 * guess - 2)] == field:
                place = guess - 1
            else:
                place = _place_of(fields, field, first, last)
            if place < 0:
                at += size
                continue
            guess = place + 1
            child = WIDTH * fields[U(2 * place + 1)]
            kind, own, level = nodes[U(child + KIND)], nodes[U(child + OWN)], nodes[U(child + LEVEL)]
            if wire != own and wire != nodes[U(child + ALSO)]:
                marks[U(nodes[U(base + UNFIT)] + row)] = 1
                at += size
                continue
            holder, held = nodes[U(child + HOLDER)], nodes[U(child + HELD)]
            if held >= 0:
                if marks[U(held + row)] and cells[U(holder + row)] != child:
                    _replace(
                        nodes,
                        cells[U(holder + row)],
                        row,
                        levels,
                        rows,
                        starts,
                        cells,
                        marks,
                        mark_level,
                        mark_base,
                    )
                marks[U(held + row)], cells[U(holder + row)] = 1, child
            if kind == SKIPPED:
                at += size
                continue
            to = row
            if level < 0:
                marks[U(nodes[U(child + MARK)] + row)] = 1
            else:
                to = rows[U(level)]
                listed, count = U(nodes[U(child + LISTED)] + row), U(nodes[U(child + COUNT)] + row)
                if marks[listed] == 0:
                    marks[listed], cells[count] = 1, 0
                if wire != own:  # packed
                    cell, end = nodes[U(child + CELL)], at + size
                    width = np.int64(0) if own == VARINT else np.int64(8) if own == FIXED64 else np.int64(4)
                    whole = width == 0 or size % width == 0
                    while whole and at < end:
                        if to >= space[U(level)]:
                            rows[U(level)] = to
                            clear(rows, before, mark_level, mark_base, marks)
                            return number, level
                        if width == 0:
                            value, after = _varint(data, at, end, VARINT_BITS)
                            whole = after >= 0
                        else:
                            after = at + width
                            value = little(data, at, 8) if width == 8 else little(data, at, 4)
                        cells[U(cell + to)] = value
                        to, at = to + 1, after
                    cells[count] += to - rows[U(level)]
                    rows[U(level)] = to
                    continue
                if to >= space[U(level)]:
                    clear(rows, before, mark_level, mark_base, marks)
                    return number, level
                rows[U(level)] = to + 1
                cells[count] += 1
            if kind == NUMBER:
                cells[U(nodes[U(child + CELL)] + to)] = value
                at += size
            elif kind == MESSAGE:
                top += 1
                frames[U(FRAME * top + NODE)], frames[U(FRAME * top + ROW)] = base, row
                frames[U(FRAME * top + STOP)], frames[U(FRAME * top + NEXT)] = stop, guess
                base, row, stop, guess = child, to, at + size, nodes[U(child + FIRST)]
            else:
                whole = kind != TEXT or _is_text(data, at, at + size)
                cells[U(nodes[U(child + CELL)] + to)] = at << 32 | size
                at += size
        if whole:
            rows[U(0)] += 1
        else:
            clear(rows, before, mark_level, mark_base, marks)
        good[number] = whole
    return np.int64(chosen.size), np.int64(-1)
