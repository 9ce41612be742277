"""The machine that runs decode programs (`calve.decoding.avro_program`): one loop over records, for every schema.

It accepts and rejects the same values as Spark's `from_avro` with Avro's Java. That library is more lenient when it skips a
value than when it reads one. It reads any byte but 1 as false, and it keeps texts that are not UTF-8.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from calve.decoding.avro_operations import CELL, JUMP_TO, MARKED, NULL, SECOND, WIDTH, A, B, Op
from glue_jobs.columns.kernels import BYTES, BYTES_OUT, LONGS, LONGS_OUT, PLACES, kernel
from glue_jobs.columns.texts import PAIR, TRIPLE, U, little, varint
from glue_jobs.decode.machines.cells import clear

(
    BOOLEAN, INT, LONG, FLOAT, DOUBLE, TEXT, FIXED, ENUM, MILLIS, DECIMAL, MARK, UNION, JUMP, LIST, NEXT,
    SKIP_INT, SKIP_LONG, SKIP_BYTES, SKIP_FIXED, SKIP_LIST, SKIP_NEXT, END,
) = map(int, Op)  # fmt: skip
GOOD, MALFORMED, DOUBTFUL, TRAILING = 0, 1, 2, 4
"""Doubtful: a map value does not fit its column. This matters only if no later value has the same key.

Trailing: bytes are left over.
"""
UNFIT = 2
"""The mark of such a value."""
PARENT, LEFT, COUNT_AT, FIRST = range(4)
"""The state of a list: its parent row, items left in the block, the cell of its item count, its first row."""
POSITIVE = 2**63 - 1
LEAST = -(2**63)
MOST_MILLIS = POSITIVE // 1000
FRAMES = types.Array(types.int64, 2, "C")


@kernel(PAIR(BYTES, types.int64, types.int64), inline=True)
def _int(data: Any, at: Any, end: Any) -> Any:
    if at < end and data[U(at)] < 0x80:
        byte = np.int64(data[U(at)])
        return (byte >> 1) ^ -(byte & 1), at + 1
    value, at = varint(data, at, end, 35)
    value &= 0xFFFFFFFF
    return (value >> 1) ^ -(value & 1), at


@kernel(PAIR(BYTES, types.int64, types.int64), inline=True)
def _long(data: Any, at: Any, end: Any) -> Any:
    value, at = varint(data, at, end, 70)
    return ((value >> 1) & POSITIVE) ^ -(value & 1), at


@kernel(TRIPLE(BYTES, types.int64, types.int64, LONGS, types.int64))
def _decimal(data: Any, at: Any, size: Any, pool: Any, limit: Any) -> Any:
    """Low half, high half, and whether the number has few enough digits.

    For at most 18 digits Spark uses only the lower 64 bits and ignores the rest.
    """
    low_limit, high_limit = pool[limit], pool[limit + 1]
    low = high = -np.int64(data[U(at)] >> 7) if size > 0 else np.int64(0)
    if high_limit == 0 and low_limit > 0 and low_limit <= 10**18:
        for place in range(max(0, size - 8), size):
            low = low << 8 | np.int64(data[U(at + place)])
        return low, low >> 63, np.int64(size > 0 and -low_limit < low and low < low_limit)
    sign = low & 0xFF
    for place in range(size - 16):
        if data[U(at + place)] != sign:
            return low, high, np.int64(0)
    first = max(0, size - 16)
    if size == 0 or (size > 16 and (data[at + first] >> 7) != (sign >> 7)):
        return low, high, np.int64(0)
    for place in range(first, size):
        high = high << 8 | (low >> 56) & 0xFF
        low = low << 8 | np.int64(data[U(at + place)])
    up, down = high, low
    if sign:
        down = -low
        up = ~high + (1 if low == 0 else 0)
    fits = up >= 0 and (up < high_limit or (up == high_limit and (down ^ LEAST) < (low_limit ^ LEAST)))
    return low, high, np.int64(fits)


@kernel(PAIR(BYTES, types.int64, types.int64))
def _block(data: Any, at: Any, end: Any) -> Any:
    """The item count of the next block of a list, and where the items begin."""
    count, at = _long(data, at, end)
    if at >= 0 and count < 0:
        _, at = _long(data, at, end)
        count = -count
    return count, at


@kernel(PAIR(BYTES, types.int64, types.int64))
def _block_to_skip(data: Any, at: Any, end: Any) -> Any:
    """As `_block`, but skip blocks that state their size in bytes."""
    count, at = _long(data, at, end)
    while at >= 0 and count < 0:
        size, at = _long(data, at, end)
        if at >= 0 and size > 0:
            at = at + size if size <= end - at else np.int64(-1)
        if at >= 0:
            count, at = _long(data, at, end)
    return count, at


@kernel(
    PAIR(
        LONGS, LONGS, BYTES, PLACES, PLACES, LONGS, types.int64, BYTES_OUT, LONGS_OUT, LONGS_OUT, LONGS,
        LONGS_OUT, BYTES_OUT, LONGS, LONGS, FRAMES, types.int64, types.int64,
    )
)  # fmt: skip
def run(  # noqa: C901 one loop: a call for each operation would cost more than most of them do
    code: Any, pool: Any, data: Any, places: Any, sizes: Any, chosen: Any, prefix: Any, verdicts: Any, rows: Any,
    before: Any, space: Any, cells: Any, marks: Any, mark_level: Any, mark_base: Any, lists: Any, string_limit: Any,
    items_limit: Any,
) -> Any:  # fmt: skip
    """Read the chosen records; returns the first unread record and the level without space for it, or -1.

    code: with places in `cells` and `marks` instead of column numbers. prefix: bytes before each value. verdicts: by place in
    `chosen`.
    rows: current rows per level; before: scratch space of the same size. space: rows per level; columns have one more.
    marks: 0 at first. A cell without a mark is undefined.
    """
    collected = np.int64(0)
    for number in range(chosen.size):
        record = chosen[number]
        at = np.int64(places[record]) + prefix
        end = np.int64(places[record]) + np.int64(sizes[record])
        for level in range(rows.size):
            before[level] = rows[U(level)]
        row, pc, top, good, verdict = rows[U(0)], np.int64(0), np.int64(-1), at <= end, GOOD
        while good:
            op, null = code[U(pc)], code[U(pc + NULL)]
            if null >= 0:
                index, at = _int(data, at, end)
                if at < 0 or (index != null and index != 1 - null):
                    good = False
                    break
                if index == null:
                    pc = code[U(pc + JUMP_TO)]
                    continue
            cell, fits, in_map = U(code[U(pc + CELL)] + row), True, False
            marks[U(code[U(pc + MARKED)] + row)] = 1
            if op == LONG:
                cells[cell], at = _long(data, at, end)
                good = at >= 0
            elif op == INT:
                cells[cell], at = _int(data, at, end)
                good = at >= 0
            elif op == TEXT:
                size, at = _long(data, at, end)
                good = at >= 0 and size >= 0 and size <= string_limit and size <= end - at
                if good:
                    cells[cell] = at << 32 | size
                    at += size
            elif op == DOUBLE:
                good = end - at >= 8
                if good:
                    cells[cell] = little(data, at, 8)
                    at += 8
            elif op == ENUM:
                index, at = _int(data, at, end)
                cells[cell] = index
                good = at >= 0 and index >= 0 and index < code[U(pc + A)]
            elif op == BOOLEAN:
                good = at < end
                if good:
                    cells[cell] = np.int64(data[U(at)] == 1)
                    at += 1
            elif op == MARK:
                pass
            elif op == LIST:
                level = code[U(pc + A)]
                count, at = _block(data, at, end)
                good = at >= 0 and count <= items_limit
                collected = max(count, np.int64(0))
                cells[cell] = 0
                if not good or count <= 0:
                    pc = code[U(pc + JUMP_TO)]
                    continue
                top += 1
                lists[top, PARENT], lists[top, LEFT], lists[top, COUNT_AT] = row, count, np.int64(cell)
                row = rows[U(level)]
                lists[top, FIRST] = row
                if row >= space[U(level)]:
                    clear(rows, before, mark_level, mark_base, marks)
                    return number, level
            elif op == NEXT:
                level = code[U(pc + A)]
                row += 1
                rows[U(level)] = row
                left = lists[top, LEFT] - 1
                if left == 0:
                    left, at = _block(data, at, end)
                    good = at >= 0 and left >= 0 and left <= items_limit - collected
                    collected += left
                if good and left > 0:
                    lists[top, LEFT] = left
                    if row >= space[U(level)]:
                        clear(rows, before, mark_level, mark_base, marks)
                        return number, level
                    pc = code[U(pc + JUMP_TO)]
                    continue
                cells[U(lists[top, COUNT_AT])] = row - lists[top, FIRST]
                row = lists[top, PARENT]
                top -= 1
            elif op == UNION:
                index, at = _int(data, at, end)
                good = at >= 0 and index >= 0 and index < code[U(pc + A)]
                if good:
                    pc = pool[U(code[U(pc + B)] + index)]
                    continue
            elif op == JUMP:
                pc = code[U(pc + JUMP_TO)]
                continue
            elif op == FLOAT:
                good = end - at >= 4
                if good:
                    cells[cell] = little(data, at, 4)
                    at += 4
            elif op == MILLIS:
                millis, at = _long(data, at, end)
                cells[cell] = millis * 1000
                fits = millis >= -MOST_MILLIS and millis <= MOST_MILLIS
                good, in_map = at >= 0, code[U(pc + A)] == 1
            elif op == FIXED:
                size = code[U(pc + A)]
                good = size <= end - at
                cells[cell] = at << 32 | size
                at += size
            elif op == DECIMAL:
                size = code[U(pc + A)]
                if size < 0:
                    size, at = _long(data, at, end)
                good = at >= 0 and size >= 0 and size <= string_limit and size <= end - at
                if good:
                    limit = code[U(pc + B)]
                    low, high, few = _decimal(data, at, size, pool, limit)
                    cells[cell], cells[U(code[U(pc + SECOND)] + row)] = low, high
                    fits = few == 1
                    in_map = pool[U(limit + 2)] == 1
                    at += size
            elif op == END:
                good = at == end
                break
            elif op == SKIP_INT:
                _, at = _int(data, at, end)
                good = at >= 0
            elif op == SKIP_LONG:
                _, at = _long(data, at, end)
                good = at >= 0
            elif op == SKIP_BYTES:
                size, at = _long(data, at, end)
                good = at >= 0 and size <= end - at
                at += max(size, np.int64(0))
            elif op == SKIP_FIXED:
                at += code[U(pc + A)]
                good = at <= end
            elif op == SKIP_LIST:
                count, at = _block_to_skip(data, at, end)
                good = at >= 0
                if count <= 0:
                    pc = code[U(pc + JUMP_TO)]
                    continue
                top += 1
                lists[top, LEFT] = count
            else:  # SKIP_NEXT
                left = lists[top, LEFT] - 1
                if left == 0:
                    left, at = _block_to_skip(data, at, end)
                    good = at >= 0
                lists[top, LEFT] = left
                if good and left > 0:
                    pc = code[U(pc + JUMP_TO)]
                    continue
                top -= 1
            if not fits:
                good = good and in_map
                marks[U(code[U(pc + MARKED)] + row)] = UNFIT
                verdict = DOUBTFUL
            pc += WIDTH
        if good:
            rows[U(0)] += 1
        else:
            clear(rows, before, mark_level, mark_base, marks)
        if not good:
            verdict = TRAILING if op == END and at < end and verdict == GOOD else MALFORMED
        verdicts[number] = verdict
    return np.int64(chosen.size), np.int64(-1)
