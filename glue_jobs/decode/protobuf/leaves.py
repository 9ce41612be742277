"""Values without fields: from Protobuf's bytes to numpy and Arrow, all of a column at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from calve.schema.columns import Json, decimal_digits
from glue_jobs.columns.arrow_types import arrow_type
from glue_jobs.decode.protobuf.scan import (
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
"""The type on the wire of a kind; the others have a length."""
FIXED_TYPES = {
    "fixed32": "<u4", "sfixed32": "<i4", "float": "<f4", "fixed64": "<u8", "sfixed64": "<i8", "double": "<f8",
}  # fmt: skip
Numbers = NDArray[Any]


def numbers(kind: str, data: Bytes, found: Found) -> Numbers:
    """The numbers of fields that are no texts."""
    if kind in FIXED_TYPES:
        size = 4 if WIRES[kind] == FIXED32 else 8
        made: Numbers = data[found.begin[:, None] + np.arange(size)].reshape(-1).view(FIXED_TYPES[kind])
        return made
    return _of_varints(kind, found.value)


def packed(kind: str, data: Bytes, found: Found, bad: Flags) -> tuple[Numbers, Ints]:
    """The numbers in fields with a length, and the place of the field that each is of; `bad` is set where they are none."""
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
    """A column of numbers; null where they are absent. A number that an enum does not name is its digits."""
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
    """A column of strings or bytes, and which of them are no UTF-8 (and then empty)."""
    kind = arrow_type(column, fixed=False)
    made = _binary(data, begin, length, kind, absent)
    wrong = np.zeros(begin.size, np.bool_)
    if column == "string":
        try:
            made.validate(full=True)
        except pa.ArrowInvalid:
            wrong = _not_utf8(data, begin, length)
            made = _binary(data, begin, np.where(wrong, 0, length), kind, absent)
    return made, wrong


def _not_utf8(data: Bytes, begin: Ints, length: Ints) -> Flags:
    wrong = np.zeros(begin.size, np.bool_)
    content = data.tobytes()
    for place, (start, size) in enumerate(zip(begin.tolist(), length.tolist(), strict=True)):
        try:
            content[start : start + size].decode()
        except UnicodeDecodeError:
            wrong[place] = True
    return wrong


def _binary(data: Bytes, begin: Ints, length: Ints, kind: Any, absent: Flags | None) -> Any:
    offsets = np.zeros(begin.size + 1, np.int32)
    np.cumsum(length, out=offsets[1:])
    content = data[ranges(begin, length)]
    buffers = [validity(absent), pa.py_buffer(offsets), pa.py_buffer(content)]
    return pa.Array.from_buffers(kind, begin.size, buffers)


def ranges(begin: Ints, length: Ints) -> Ints:
    """All places of pieces, one after the other."""
    end = np.cumsum(length)
    total = int(end[-1]) if end.size else 0
    places: Ints = np.repeat(begin - end + length, length) + np.arange(total)
    return places


def validity(absent: Flags | None) -> Any:
    """Arrow's bits for a mask of nulls."""
    return None if absent is None else pa.py_buffer(np.packbits(~absent, bitorder="little"))


def decimals(halves: Words, digits: tuple[int, int], absent: Flags | None) -> Any:
    """Decimals from their 128 bits, the lower half first."""
    buffers = [validity(absent), pa.py_buffer(np.ascontiguousarray(halves))]
    return pa.Array.from_buffers(pa.decimal128(*digits), len(halves), buffers)


def is_sized(kind: str) -> bool:
    return kind not in WIRES
