"""Find the fields of many Protobuf messages at once: numpy reads one field of every message per turn.

A message with far more fields would need as many turns. So its rest is read differently:
every byte is tried as the start of a field, and the chain of real fields is followed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Words = NDArray[np.uint64]
Flags = NDArray[np.bool_]
Bytes = NDArray[np.uint8]

VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5
PADDING = 16
"""Zero bytes after the data, so that reading a number never leaves it."""
VARINT_BYTES, SHORT_VARINT_BYTES = 10, 5
GREATEST_LENGTH = 2**31 - 1
GREATEST_TAG = 2**32 - 1
TURNS, FEW = 32, 256
FIRST_WINDOW, LAST_WINDOW = 1 << 12, 1 << 18


@dataclass(frozen=True, slots=True)
class Spans:
    """Pieces of data. Several pieces, in order, may form one message, their `owner`."""

    data: Bytes
    start: Ints
    end: Ints
    owner: Ints


@dataclass(frozen=True, slots=True)
class Found:
    """The found fields, ordered only per message and turn: number, wire type, and the place of the content.

    value: the number of a varint.
    """

    owner: Ints
    number: Ints
    wire: Ints
    begin: Ints
    length: Ints
    value: Words

    def at(self, which: NDArray[np.generic]) -> Found:
        return Found(*(part[which] for part in self.parts))

    @property
    def parts(self) -> tuple[NDArray[Any], ...]:
        return self.owner, self.number, self.wire, self.begin, self.length, self.value


def scan(spans: Spans, bad: Flags) -> Found:
    """All fields of all messages; sets `bad` for owners with invalid bytes."""
    place, stop, owner = spans.start, spans.end, spans.owner
    parts: list[Found] = []
    turn = 0
    while True:
        left = place < stop
        if not left.all():
            place, stop, owner = place[left], stop[left], owner[left]
        if not place.size:
            break
        if turn >= TURNS and place.size < FEW:
            parts += [
                _chain(spans.data, *each, bad)
                for each in zip(place.tolist(), stop.tolist(), owner, strict=True)
            ]
            break
        found, place, good = _fields_at(spans.data, place, stop, owner)
        if not good.all():
            bad[owner[~good]] = True
            found, place, stop, owner = found.at(good), place[good], stop[good], owner[good]
        parts.append(found)
        turn += 1
    return _joined(parts)


def varints(data: Bytes, place: Ints, most: int = VARINT_BYTES) -> tuple[Words, Ints, Flags]:
    """The numbers at these places, their ends, and which of them are valid with at most `most` bytes."""
    byte = data[place]
    value = (byte & 0x7F).astype(np.uint64)
    end = place + 1
    good = np.ones(place.size, np.bool_)
    more = np.flatnonzero(byte & 0x80)
    for step in range(1, most):
        if not more.size:
            return value, end, good
        byte = data[np.minimum(place[more] + step, data.size - 1)]
        value[more] |= (byte & 0x7F).astype(np.uint64) << np.uint64(7 * step)
        end[more] += 1
        more = more[(byte & 0x80) != 0]
    good[more] = False
    return value, end, good


def _fields_at(data: Bytes, place: Ints, stop: Ints, owner: Ints) -> tuple[Found, Ints, Flags]:
    """The field at each place, the place after it, and whether it is valid."""
    tag, begin, good = varints(data, place, SHORT_VARINT_BYTES)
    wire = (tag & np.uint64(7)).astype(np.int64)
    good &= (tag >= 8) & (tag <= GREATEST_TAG)
    value = np.zeros(place.size, np.uint64)
    size = np.zeros(place.size, np.int64)
    size[wire == FIXED64] = 8
    size[wire == FIXED32] = 4
    numbers = np.flatnonzero(wire == VARINT)
    if numbers.size:
        value[numbers], after, whole = varints(data, begin[numbers])
        size[numbers] = after - begin[numbers]
        good[numbers] &= whole
    sized = np.flatnonzero(wire == LENGTH)
    if sized.size:
        length, after, whole = varints(data, begin[sized], SHORT_VARINT_BYTES)
        good[sized] &= whole & (length <= GREATEST_LENGTH)
        begin[sized] = after
        size[sized] = np.minimum(length, GREATEST_LENGTH).astype(np.int64)
    after = begin + size
    good &= (after <= stop) & (wire != 3) & (wire != 4) & (wire < 6)
    return Found(owner, (tag >> np.uint64(3)).astype(np.int64), wire, begin, size, value), after, good


def _chain(data: Bytes, place: int, stop: int, owner: int, bad: Flags) -> Found:
    """The fields of one piece: parse a field at every place of a window, then follow the chain by doubling its steps."""
    parts: list[Found] = []
    window = FIRST_WINDOW
    while place < stop:
        every = np.arange(place, min(place + window, stop), dtype=np.int64)
        width = every.size
        found, after, good = _fields_at(data, every, np.full(width, stop), np.full(width, owner))
        jump = np.append(np.where(good, np.minimum(after - place, width), width), width)
        reached = np.zeros(1, np.int64)
        while (more := jump[reached])[0] < width:
            reached = np.concatenate([reached, more[more < width]])
            jump = jump[jump]
        reached = np.sort(reached)
        if not good[reached[-1]]:
            bad[owner] = True
            break
        parts.append(found.at(reached))
        place = int(after[reached[-1]])
        window = min(2 * window, LAST_WINDOW)
    return _joined(parts)


def _joined(parts: list[Found]) -> Found:
    if len(parts) == 1:
        return parts[0]
    none = np.zeros(0, np.int64)
    nothing = Found(none, none, none, none, none, np.zeros(0, np.uint64))
    return Found(*map(np.concatenate, zip(*(each.parts for each in (nothing, *parts)), strict=True)))
