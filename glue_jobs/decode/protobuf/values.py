"""Messages that are one value: moments, dates, decimals, wrapped scalars."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from calve.schema.columns import Json, decimal_digits
from calve.schema.protobuf.columns import SCALAR_COLUMNS
from calve.schema.protobuf.model import DATE, MEMBERS, TIMESTAMP, WRAPPERS
from calve.schema.protobuf.reading import Column, Read, Struct, Value
from glue_jobs.arrow.types import arrow_type
from glue_jobs.decode.protobuf.leaves import Numbers, decimals
from glue_jobs.decode.protobuf.scan import Flags, Ints

FIRST_SECOND, LAST_SECOND = -62_135_596_800, 253_402_300_799
"""Of the years 1 and 9999."""
DAYS = np.array([31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31])
LIMBS, MOST_DIGITS = 16, 38


def members(value: Value) -> Struct:
    """How the message is read, before it is made one value."""
    reads, columns = [], []
    for place, (name, kind) in enumerate(MEMBERS[value.kind].items()):
        # The column of a wrapper may be wider than its own.
        column = value.column if value.kind in WRAPPERS else SCALAR_COLUMNS[kind]
        reads.append(Read(place + 1, Value(kind, column), implicit=True))
        columns.append(Column(name, column, place))
    return Struct(tuple(reads), tuple(columns))


def entry(key: Value, value: Value) -> Struct:
    """How an entry of a map is read: as a message of both, which have their default where they are not written."""
    return Struct(
        (Read(1, key, implicit=True), Read(2, value, implicit=True)),
        (Column("[key]", key.column, 0), Column("[value]", value.column, 1)),
    )


def one_value(value: Value, parts: list[Any], absent: Flags) -> tuple[Any, Flags]:
    """The column of the value that the parts of its message are, and which of them are none that it can hold."""
    match value.kind:
        case name if name in WRAPPERS:
            return _masked(parts[0], absent), np.zeros(absent.size, np.bool_)
        case name if name == TIMESTAMP:
            return _timestamps(parts[0].to_numpy(), parts[1].to_numpy(), absent)
        case name if name == DATE:
            year, month, day = (part.to_numpy().astype(np.int64) for part in parts)
            return _dates(year, month, day, absent)
        case _:
            return _of_bytes(value.column, parts[0], parts[2].to_numpy().astype(np.int64), absent)


def _masked(made: Any, absent: Flags) -> Any:
    if not absent.any():
        return made
    return pc.if_else(pa.array(absent), pa.scalar(None, made.type), made)


def _timestamps(seconds: Numbers, nanos: Numbers, absent: Flags) -> tuple[Any, Flags]:
    wrong = (seconds < FIRST_SECOND) | (seconds > LAST_SECOND)
    wrong |= (nanos < 0) | (nanos > 999_999_999) | (nanos % 1000 != 0)
    micros = np.where(wrong, 0, seconds) * 1_000_000 + np.where(wrong, 0, nanos) // 1000
    made = pa.array(micros, pa.int64(), mask=absent | wrong)
    return made.view(arrow_type("timestamptz")), wrong & ~absent


def _dates(year: Ints, month: Ints, day: Ints, absent: Flags) -> tuple[Any, Flags]:
    wrong = (year < 1) | (year > 9999) | (month < 1) | (month > 12) | (day < 1)
    year, month, day = (np.where(wrong, 1, each) for each in (year, month, day))
    leap = (year % 4 == 0) & ((year % 100 != 0) | (year % 400 == 0))
    wrong |= day > DAYS[month - 1] + (leap & (month == 2))
    day = np.where(wrong, 1, day)
    first = (year - 1970).astype("datetime64[Y]").astype("datetime64[M]") + (month - 1)
    days = first.astype("datetime64[D]").astype(np.int64) + day - 1
    made = pa.array(days.astype(np.int32), pa.int32(), mask=absent | wrong)
    return made.view(pa.date32()), wrong & ~absent


def _of_bytes(column: Json, unscaled: Any, scale: Ints, absent: Flags) -> tuple[Any, Flags]:
    """Decimals from big-endian two's complement of at most 16 bytes."""
    digits = decimal_digits(column)
    assert digits is not None  # noqa: S101 its column is a decimal
    count = absent.size
    offsets = np.frombuffer(unscaled.buffers()[1], np.int32)[unscaled.offset : unscaled.offset + count + 1]
    content = np.frombuffer(unscaled.buffers()[2] or b"", np.uint8)
    end, length = offsets[1:].astype(np.int64), np.diff(offsets).astype(np.int64)
    wrong = length > LIMBS
    limbs = np.zeros((count, LIMBS), np.uint8)
    for place in range(LIMBS):
        some = np.flatnonzero(~wrong & (length > place))
        limbs[some, place] = content[end[some] - 1 - place]
    some = np.flatnonzero(~wrong & (length > 0))
    negative = np.zeros(count, np.bool_)
    negative[some] = content[end[some] - length[some]] >= 0x80
    limbs[negative[:, None] & (np.arange(LIMBS) >= length[:, None])] = 0xFF
    halves = limbs.view("<u8")
    other = np.flatnonzero(~wrong & ~absent & (scale != digits[1]))
    for row in other.tolist():
        number = int.from_bytes(halves[row].tobytes(), "little", signed=True)
        moved = rescaled(number, digits[1] - int(scale[row]))
        wrong[row] = moved is None
        halves[row] = np.frombuffer((moved or 0).to_bytes(LIMBS, "little", signed=True), "<u8")
    wrong |= _too_long(halves, digits[0])
    halves[wrong] = 0
    return decimals(halves, digits, absent | wrong), wrong & ~absent


def rescaled(number: int, places: int) -> int | None:
    """A number with its point moved by so many digits; None where it is not whole then, or longer than a decimal."""
    if number == 0:
        return 0
    if abs(places) > MOST_DIGITS:
        return None
    moved, rest = divmod(number * 10 ** max(places, 0), 10 ** max(-places, 0))
    return moved if not rest and abs(moved) < 10**MOST_DIGITS else None


def _too_long(halves: Any, precision: int) -> Flags:
    """Which numbers have more digits."""
    low, high = halves[:, 0].copy(), halves[:, 1].copy()
    negative = high >> np.uint64(63) == 1
    low[negative], high[negative] = ~low[negative], ~high[negative]
    carry = negative & (low == np.uint64(2**64 - 1))
    low[negative] += np.uint64(1)
    high[carry] += np.uint64(1)
    top, rest = divmod(10**precision - 1, 2**64)
    found: Flags = (high > np.uint64(top)) | ((high == np.uint64(top)) & (low > np.uint64(rest)))
    return found
