"""Fields of many Protobuf messages as numpy and Arrow arrays: plain values, and messages that represent one value."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from calve.schema.columns import Json, decimal_digits
from calve.schema.protobuf.columns import SCALAR_COLUMNS, Column, Read, Struct, Value
from calve.schema.protobuf.model import DATE, MEMBERS, TIMESTAMP, WRAPPERS
from glue_jobs.columns.arrow_types import arrow_type, not_utf_8
from tests.numpy_protobuf.scan import (
    FIXED32,
    FIXED64,
    VARINT,
    VARINT_BYTES,
    Bytes,
    Flags,
    Found,
    Ints,
    Words,
)

WIRES = (
    dict.fromkeys(("int32", "int64", "uint32", "uint64", "sint32", "sint64", "bool", "enum"), VARINT)
    | dict.fromkeys(("fixed32", "sfixed32", "float"), FIXED32)
    | dict.fromkeys(("fixed64", "sfixed64", "double"), FIXED64)
)
"""The wire type of a kind; other kinds have a length."""
FIXED_TYPES = {
    "fixed32": "<u4", "sfixed32": "<i4", "float": "<f4", "fixed64": "<u8", "sfixed64": "<i8", "double": "<f8",
}  # fmt: skip
Numbers = NDArray[Any]


def numbers(kind: str, data: Bytes, found: Found) -> Numbers:
    """The numbers of fields that are not texts."""
    if kind in FIXED_TYPES:
        size = 4 if WIRES[kind] == FIXED32 else 8
        made: Numbers = data[found.begin[:, None] + np.arange(size)].reshape(-1).view(FIXED_TYPES[kind])
        return made
    return _of_varints(kind, found.value)


def packed(kind: str, data: Bytes, found: Found, bad: Flags) -> tuple[Numbers, Ints]:
    """The numbers of packed fields, and the place of each number's field; sets `bad` for invalid ones."""
    size = 0 if WIRES[kind] == VARINT else 4 if WIRES[kind] == FIXED32 else 8
    last = data[np.maximum(found.begin + found.length - 1, 0)]
    whole = found.length % size == 0 if size else (found.length == 0) | (last < 0x80)
    bad[found.owner[~whole]] = True
    pieces = np.flatnonzero(whole)
    begin, length = found.begin[pieces], found.length[pieces]
    content = data[ranges(begin, length)]
    if size:
        return content.view(FIXED_TYPES[kind]), np.repeat(pieces, length // size)
    every = np.repeat(pieces, length)
    ends = np.flatnonzero(content < 0x80)
    starts = np.concatenate([np.zeros(min(1, ends.size), np.int64), ends[:-1] + 1])
    lengths = ends - starts + 1
    bad[found.owner[every[ends[lengths > VARINT_BYTES]]]] = True
    place = np.arange(content.size) - np.repeat(starts, lengths)
    bits = (content & 0x7F).astype(np.uint64) << np.minimum(7 * place, 63).astype(np.uint64)
    bits[place >= VARINT_BYTES] = 0
    value = np.bitwise_or.reduceat(bits, starts) if starts.size else np.zeros(0, np.uint64)
    return _of_varints(kind, value), every[ends]


def _of_varints(kind: str, value: Words) -> Numbers:
    match kind:
        case "int32" | "enum":
            return value.astype(np.uint32).view(np.int32)
        case "int64":
            return value.view(np.int64)
        case "uint32":
            return value.astype(np.uint32)
        case "sint32":
            short = value.astype(np.uint32)
            return ((short >> np.uint32(1)) ^ (np.uint32(0) - (short & np.uint32(1)))).view(np.int32)
        case "sint64":
            return ((value >> np.uint64(1)) ^ (np.uint64(0) - (value & np.uint64(1)))).view(np.int64)
        case "bool":
            return np.not_equal(value, 0)
    return value


def from_numbers(made: Numbers, column: Json, symbols: dict[int, str], absent: Flags | None) -> Any:
    """A column of numbers; null where absent. A number that an enum does not name becomes its digits."""
    if column == "string":
        codes = pa.array(made, mask=absent).dictionary_encode()
        names = [symbols.get(number, str(number)) for number in codes.dictionary.to_pylist()]
        return pa.DictionaryArray.from_arrays(codes.indices, pa.array(names, pa.string())).cast(pa.string())
    if digits := decimal_digits(column):
        halves = np.zeros((made.size, 2), np.uint64)
        halves[:, 0] = made
        return decimals(halves, digits, absent)
    kind = arrow_type(column)
    return pa.array(made, mask=absent) if column == "boolean" else pa.array(made, mask=absent).cast(kind)


def texts(data: Bytes, begin: Ints, length: Ints, column: str, absent: Flags | None) -> tuple[Any, Flags]:
    """A column of strings or bytes, and which are not UTF-8 (and then empty)."""
    kind = arrow_type(column, fixed=False)
    made = _binary(data, begin, length, kind, absent)
    wrong = not_utf_8(made) if column == "string" else np.zeros(begin.size, np.bool_)
    if wrong.any():
        made = _binary(data, begin, np.where(wrong, 0, length), kind, absent)
    return made, wrong


def _binary(data: Bytes, begin: Ints, length: Ints, kind: Any, absent: Flags | None) -> Any:
    offsets = np.zeros(begin.size + 1, np.int32)
    np.cumsum(length, out=offsets[1:])
    content = data[ranges(begin, length)]
    buffers = [validity(absent), pa.py_buffer(offsets), pa.py_buffer(content)]
    return pa.Array.from_buffers(kind, begin.size, buffers)


def ranges(begin: Ints, length: Ints) -> Ints:
    """All places of the pieces, one after the other."""
    end = np.cumsum(length)
    total = int(end[-1]) if end.size else 0
    places: Ints = np.repeat(begin - end + length, length) + np.arange(total)
    return places


def validity(absent: Flags | None) -> Any:
    """Arrow's validity bits for a mask of nulls."""
    return None if absent is None else pa.py_buffer(np.packbits(~absent, bitorder="little"))


def decimals(halves: Words, digits: tuple[int, int], absent: Flags | None) -> Any:
    """Decimals from their 128 bits, lower half first."""
    buffers = [validity(absent), pa.py_buffer(np.ascontiguousarray(halves))]
    return pa.Array.from_buffers(pa.decimal128(*digits), len(halves), buffers)


def is_sized(kind: str) -> bool:
    return kind not in WIRES


FIRST_SECOND, LAST_SECOND = -62_135_596_800, 253_402_300_799
"""The first second of year 1 and the last second of year 9999."""
LIMBS, MOST_DIGITS = 16, 38


def members(value: Value) -> Struct:
    """How the message is read before it becomes one value."""
    reads, columns = [], []
    for place, (name, kind) in enumerate(MEMBERS[value.kind].items()):
        # A wrapper's column may be wider than its kind.
        column = value.column if value.kind in WRAPPERS else SCALAR_COLUMNS[kind]
        reads.append(Read(place + 1, Value(kind, column), implicit=True))
        columns.append(Column(name, column, place))
    return Struct(tuple(reads), tuple(columns))


def entry(key: Value, value: Value) -> Struct:
    """How a map entry is read: as a message of key and value, with defaults if absent."""
    return Struct(
        (Read(1, key, implicit=True), Read(2, value, implicit=True)),
        (Column("[key]", key.column, 0), Column("[value]", value.column, 1)),
    )


def one_value(value: Value, parts: list[Any], absent: Flags) -> tuple[Any, Flags]:
    """The column of the single value, and which values it cannot hold."""
    match value.kind:
        case name if name in WRAPPERS:
            made = parts[0]
            if absent.any():
                made = pc.if_else(pa.array(absent), pa.scalar(None, made.type), made)
            return made, np.zeros(absent.size, np.bool_)
        case name if name == TIMESTAMP:
            return _timestamps(parts[0].to_numpy(), parts[1].to_numpy(), absent)
        case name if name == DATE:
            year, month, day = (part.to_numpy().astype(np.int64) for part in parts)
            return _dates(year, month, day, absent)
        case _:
            return _of_bytes(value.column, parts[0], parts[2].to_numpy().astype(np.int64), absent)


def _timestamps(seconds: Numbers, nanos: Numbers, absent: Flags) -> tuple[Any, Flags]:
    wrong = (seconds < FIRST_SECOND) | (seconds > LAST_SECOND)
    wrong |= (nanos < 0) | (nanos > 999_999_999) | (nanos % 1000 != 0)
    micros = np.where(wrong, 0, seconds) * 1_000_000 + np.where(wrong, 0, nanos) // 1000
    made = pa.array(micros, pa.int64(), mask=absent | wrong)
    return made.view(arrow_type("timestamptz")), wrong & ~absent


def _dates(year: Ints, month: Ints, day: Ints, absent: Flags) -> tuple[Any, Flags]:
    wrong = (year < 1) | (year > 9999) | (month < 1) | (month > 12) | (day < 1)
    year, month, day = (np.where(wrong, 1, each) for each in (year, month, day))
    first = (year - 1970).astype("datetime64[Y]").astype("datetime64[M]") + (month - 1)
    days = first.astype("datetime64[D]").astype(np.int64) + day - 1
    wrong |= days >= (first + 1).astype("datetime64[D]").astype(np.int64)
    made = pa.array(days.astype(np.int32), pa.int32(), mask=absent | wrong)
    return made.view(pa.date32()), wrong & ~absent


def _of_bytes(column: Json, unscaled: Any, scale: Ints, absent: Flags) -> tuple[Any, Flags]:
    """Decimals from big-endian two's complement of at most 16 bytes."""
    digits = decimal_digits(column)
    assert digits is not None
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
    nines = Decimal((0, (9,) * digits[0], -digits[1]))
    made = decimals(halves, digits, None)
    most, least = (pa.scalar(each, made.type) for each in (nines, nines.copy_negate()))
    too_long = pc.or_(pc.greater(made, most), pc.less(made, least))
    wrong |= too_long.to_numpy(zero_copy_only=False)
    halves[wrong] = 0
    return decimals(halves, digits, absent | wrong), wrong & ~absent


def rescaled(number: int, places: int) -> int | None:
    """A number with its point moved by `places`; None if it is then not whole, or too long for a decimal."""
    if number == 0:
        return 0
    if abs(places) > MOST_DIGITS:
        return None
    moved, rest = divmod(number * 10 ** max(places, 0), 10 ** max(-places, 0))
    return moved if not rest and abs(moved) < 10**MOST_DIGITS else None
