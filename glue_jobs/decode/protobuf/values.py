"""Values of many Protobuf messages as Arrow arrays: numbers, and messages that represent one value."""

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
from glue_jobs.columns.arrow_types import arrow_type, bits

Flags = NDArray[np.bool_]
Longs = NDArray[np.int64]
VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5
VARINT_BYTES, SHORT_VARINT_BYTES = 10, 5
GREATEST_LENGTH = 2**31 - 1
GREATEST_TAG = 2**32 - 1
WIRES = (
    dict.fromkeys(("int32", "int64", "uint32", "uint64", "sint32", "sint64", "bool", "enum"), VARINT)
    | dict.fromkeys(("fixed32", "sfixed32", "float"), FIXED32)
    | dict.fromkeys(("fixed64", "sfixed64", "double"), FIXED64)
)
"""The wire type of a kind; other kinds have a length."""
Numbers = NDArray[Any]


def cut(kind: str, numbers: Longs) -> Numbers:
    """The numbers of fields from the 64 bits of their cells."""
    match kind:
        case "int32" | "enum" | "sfixed32":
            return numbers.astype(np.int32)
        case "uint32" | "fixed32":
            return numbers.astype(np.uint32)
        case "uint64" | "fixed64":
            return numbers.view(np.uint64)
        case "sint32":
            short = numbers.astype(np.uint32)
            return ((short >> np.uint32(1)) ^ (np.uint32(0) - (short & np.uint32(1)))).view(np.int32)
        case "sint64":
            words = numbers.view(np.uint64)
            return ((words >> np.uint64(1)) ^ (np.uint64(0) - (words & np.uint64(1)))).view(np.int64)
        case "bool":
            return np.not_equal(numbers, 0)
        case "float":
            return numbers.astype(np.uint32).view(np.float32)
        case "double":
            return numbers.view(np.float64)
    return numbers


def from_numbers(made: Numbers, column: Json, symbols: dict[int, str], absent: Flags | None) -> Any:
    """A column of numbers; null where absent. A number that an enum does not name becomes its digits."""
    if digits := decimal_digits(column):
        halves = np.zeros((made.size, 2), np.uint64)
        halves[:, 0] = made
        return decimals(halves, digits, absent)
    content = bits(made) if made.dtype == np.bool_ else made
    own = pa.Array.from_buffers(
        pa.from_numpy_dtype(made.dtype), made.size, [validity(absent), pa.py_buffer(content)]
    )
    if column == "string":
        codes = own.dictionary_encode()
        names = [symbols.get(number, str(number)) for number in codes.dictionary.to_pylist()]
        return pa.DictionaryArray.from_arrays(codes.indices, pa.array(names, pa.string())).cast(pa.string())
    return own.cast(arrow_type(column))


def validity(absent: Flags | None) -> Any:
    """Arrow's validity bits for a mask of nulls."""
    return None if absent is None else pa.py_buffer(bits(~absent))


def decimals(halves: Numbers, digits: tuple[int, int], absent: Flags | None) -> Any:
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


def _dates(year: Longs, month: Longs, day: Longs, absent: Flags) -> tuple[Any, Flags]:
    wrong = (year < 1) | (year > 9999) | (month < 1) | (month > 12) | (day < 1)
    year, month, day = (np.where(wrong, 1, each) for each in (year, month, day))
    first = (year - 1970).astype("datetime64[Y]").astype("datetime64[M]") + (month - 1)
    days = first.astype("datetime64[D]").astype(np.int64) + day - 1
    wrong |= days >= (first + 1).astype("datetime64[D]").astype(np.int64)
    made = pa.array(days.astype(np.int32), pa.int32(), mask=absent | wrong)
    return made.view(pa.date32()), wrong & ~absent


def _of_bytes(column: Json, unscaled: Any, scale: Longs, absent: Flags) -> tuple[Any, Flags]:
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
