"""Rows in file order: grouped by partition, and each partition sorted as Spark would sort it.

Iceberg's transforms and bucket hash are computed on whole columns.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numba import types
from numpy.typing import NDArray

from calve.schema.columns import Transform
from glue_jobs.columns.kernels import BYTES, LONGS, PLACES, kernel
from glue_jobs.engines.columnar.cells import stored
from glue_jobs.engines.columnar.layouts import Layout, SortField

NAN = np.int64(2**63 - 1)


def arranged(rows: pa.Table, layout: Layout) -> Iterator[tuple[str | None, pa.Table]]:
    """For each table partition, its tuple in Iceberg's JSON, and its rows."""
    tuples = [
        pa.nulls(rows.num_rows, pa.int32()) if each.transform is None else _value(rows, each.transform)
        for each in layout.partition
    ]
    places = _places(tuples, rows.num_rows)
    order = _order(places, [_sort_key(rows, each) for each in layout.order], layout.order)
    if order is not None:
        rows, places = rows.combine_chunks().take(pa.array(order)), places[order]
    begins = np.flatnonzero(np.diff(places, prepend=-1))
    for begin, end in zip(begins, [*begins[1:], rows.num_rows], strict=True):
        first = int(order[begin]) if order is not None else int(begin)
        held = {str(each.id): _json(of[first]) for each, of in zip(layout.partition, tuples, strict=True)}
        yield json.dumps(held) if held else None, rows.slice(begin, end - begin)


def _value(rows: pa.Table, transform: Transform) -> pa.Array:
    first, *rest = transform.column.split(".")
    column = rows.column(first)
    for name in rest:
        column = pc.struct_field(column, name)
    values = column.combine_chunks()
    values = pa.concat_arrays(values.chunks) if isinstance(values, pa.ChunkedArray) else values
    plain = values.dictionary_decode() if pa.types.is_dictionary(values.type) else values
    return applied(transform, plain)


def _places(tuples: list[pa.Array], count: int) -> NDArray[np.int64]:
    """The number of each row's table partition."""
    found = np.zeros(count, np.int64)
    for values in tuples:
        each = values.dictionary_encode(null_encoding="encode")
        found = found * max(len(each.dictionary), 1) + each.indices.to_numpy()
        found = pa.array(found).dictionary_encode().indices.to_numpy().astype(np.int64)
    return found


def _order(
    places: NDArray[np.int64], keys: list[pa.Array], fields: tuple[SortField, ...]
) -> NDArray[np.int64] | None:
    """The row numbers in the wanted order; None if the rows are in order already."""
    if not keys:
        found = np.argsort(places, kind="stable")
    else:
        columns, wanted = {"places": pa.array(places)}, [("places", "ascending")]
        for at, (key, each) in enumerate(zip(keys, fields, strict=True)):
            if each.nulls_first and key.null_count:
                columns[f"null {at}"] = pc.is_null(key).cast(pa.int8())
                wanted.append((f"null {at}", "descending"))
            columns[str(at)] = key
            wanted.append((str(at), "descending" if each.transform.descending else "ascending"))
        found = pc.sort_indices(pa.table(columns), sort_keys=wanted).to_numpy().astype(np.int64)
    return None if np.array_equal(found, np.arange(len(found))) else found


def _sort_key(rows: pa.Table, field: SortField) -> pa.Array:
    """Values that Arrow orders as Spark orders the originals: NaN is the greatest number, zeros are equal."""
    values = _value(rows, field.transform)
    if not pa.types.is_floating(values.type):
        return values
    null = pc.is_null(values).to_numpy(zero_copy_only=False)
    numbers = values.cast(pa.float64()).to_numpy(zero_copy_only=False) + 0.0
    bits = numbers.view(np.int64)
    ordered = np.where(bits < 0, bits ^ NAN, bits)
    return pa.array(np.where(np.isnan(numbers), NAN, ordered), mask=null)


def _json(value: pa.Scalar) -> Any:
    """A value in Iceberg's JSON (https://iceberg.apache.org/spec/#json-single-value-serialization)."""
    kind = value.type
    if not value.is_valid:
        return None
    if pa.types.is_decimal(kind):
        return f"{value.as_py():f}"
    if pa.types.is_string(kind):
        return value.as_buffer().to_pybytes().decode("utf-8", "replace")
    if pa.types.is_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return value.as_py().hex()
    if pa.types.is_date(kind):
        return iso(np.datetime64(value.value, "D"))
    if pa.types.is_timestamp(kind):
        return iso(np.datetime64(value.value, "us")) + ("+00:00" if kind.tz else "")
    return value.as_py()


def iso(moment: np.datetime64) -> str:
    """ISO 8601: a year has at least four digits, and a sign if it is negative or longer."""
    text = str(moment)
    sign, year = ("-", text[1:]) if text.startswith("-") else ("", text)
    digits, _, rest = year.partition("-")
    return f"{sign or '+' * (len(digits) > 4)}{digits:0>4}-{rest}"


DAY_US = 86_400_000_000
HOUR_US = 3_600_000_000


def applied(transform: Transform, values: pa.Array) -> pa.Array:
    """The transform's value of each; null stays null."""
    match transform.name:
        case "identity":
            return values
        case "bucket":
            return _like(values, _hashes(values) % np.int32(transform.argument or 1), pa.int32())
        case "truncate":
            return _truncated(values, transform.argument or 1)
        case "hour":
            return _like(values, _numbers(values) // HOUR_US, pa.int32())
    days = _numbers(values)
    if pa.types.is_timestamp(values.type):
        days = days // DAY_US
    if transform.name == "day":
        return _like(values, days, pa.date32())
    unit = "M8[Y]" if transform.name == "year" else "M8[M]"
    return _like(values, days.astype("M8[D]").astype(unit).astype(np.int64), pa.int32())


def _like(values: pa.Array, numbers: NDArray[Any], kind: pa.DataType) -> pa.Array:
    """Numbers as an array that is null where the values are null."""
    null = pc.is_null(values).to_numpy(zero_copy_only=False) if values.null_count else None
    return pa.array(numbers.astype(np.int32), pa.int32(), mask=null).cast(kind)


def _numbers(values: pa.Array) -> NDArray[np.int64]:
    """The stored numbers of integers, dates and times; undefined where null."""
    held = np.frombuffer(values.buffers()[1], stored(values.type))
    return held[values.offset : values.offset + len(values)].astype(np.int64)


def _hashes(values: pa.Array) -> NDArray[np.int32]:
    kind = values.type
    if pa.types.is_decimal(kind):
        return of_decimals(_unscaled(values))
    if pa.types.is_integer(kind) or pa.types.is_temporal(kind):
        return of_longs(_numbers(values))
    if pa.types.is_fixed_size_binary(kind):
        values = values.cast(pa.binary())
    _, places, data = values.buffers()
    begins = np.frombuffer(places, np.int32)[values.offset : values.offset + len(values) + 1]
    return of_bytes(begins, np.frombuffer(data or b"", np.uint8))


def _truncated(values: pa.Array, width: int) -> pa.Array:
    kind = values.type
    if pa.types.is_string(kind):
        return pc.utf8_slice_codeunits(values, 0, width)
    if pa.types.is_binary(kind):
        return pc.binary_slice(values, 0, width)
    if pa.types.is_decimal(kind):
        found, null = _floored(_unscaled(values), width), values.buffers()[0]
        if values.offset:
            null = pc.is_valid(values).buffers()[1]
        return pa.Array.from_buffers(kind, len(values), [null, pa.py_buffer(found)])
    numbers = _numbers(values)
    null = pc.is_null(values).to_numpy(zero_copy_only=False) if values.null_count else None
    return pa.array((numbers - numbers % width).astype(stored(kind)), kind, mask=null)


def _unscaled(values: pa.Array) -> NDArray[np.uint8]:
    """Decimals as 16-byte integers, little-endian."""
    held = np.frombuffer(values.buffers()[1], np.uint8)
    return held[values.offset * 16 : (values.offset + len(values)) * 16]


@kernel(types.uint8[::1](BYTES, types.int64))
def _floored(data: NDArray[np.uint8], width: int) -> NDArray[np.uint8]:
    """Each 16-byte integer rounded down to a multiple of `width`."""
    found = np.empty(len(data), np.uint8)
    for first in range(0, len(data), 16):
        rest = np.int64(np.int8(data[first + 15])) % width
        for place in range(first + 14, first - 1, -1):
            rest = (rest * 256 + np.int64(data[place])) % width
        for place in range(first, first + 16):
            less = np.int64(data[place]) - (rest & 255)
            rest = (rest >> 8) + (1 if less < 0 else 0)
            found[place] = np.uint8(less & 255)
    return found


C1, C2 = np.uint64(0xCC9E2D51), np.uint64(0x1B873593)
FIVE, ADDED = np.uint64(5), np.uint64(0xE6546B64)
MIX1, MIX2 = np.uint64(0x85EBCA6B), np.uint64(0xC2B2AE35)
LOW = np.uint64(0xFFFFFFFF)
POSITIVE = np.uint64(0x7FFFFFFF)

HASHES = types.int32[::1]


@kernel(types.uint64(types.uint64, types.uint64))
def _left(number: np.uint64, by: np.uint64) -> np.uint64:
    return ((number << by) | (number >> (np.uint64(32) - by))) & LOW


@kernel(types.uint64(types.uint64))
def _scrambled(word: np.uint64) -> np.uint64:
    return (_left((word * C1) & LOW, np.uint64(15)) * C2) & LOW


@kernel(types.uint64(types.uint64, types.uint64))
def _mixed(state: np.uint64, word: np.uint64) -> np.uint64:
    return (_left(state ^ _scrambled(word), np.uint64(13)) * FIVE + ADDED) & LOW


@kernel(types.int32(types.uint64, types.uint64))
def _finished(state: np.uint64, length: np.uint64) -> np.int32:
    """The hash without its sign."""
    state ^= length
    state = ((state ^ (state >> np.uint64(16))) * MIX1) & LOW
    state = ((state ^ (state >> np.uint64(13))) * MIX2) & LOW
    return np.int32((state ^ (state >> np.uint64(16))) & POSITIVE)


@kernel(types.int32(BYTES, types.int64, types.int64))
def _of_bytes(data: NDArray[np.uint8], begin: int, end: int) -> np.int32:
    state, at = np.uint64(0), begin
    while at + 4 <= end:
        word = np.uint64(data[at]) | (np.uint64(data[at + 1]) << np.uint64(8))
        word |= (np.uint64(data[at + 2]) << np.uint64(16)) | (np.uint64(data[at + 3]) << np.uint64(24))
        state = _mixed(state, word)
        at += 4
    rest = np.uint64(0)
    for place in range(end - 1, at - 1, -1):
        rest = (rest << np.uint64(8)) | np.uint64(data[place])
    if at < end:
        state ^= _scrambled(rest)
    return _finished(state, np.uint64(end - begin))


@kernel(HASHES(LONGS))
def of_longs(values: NDArray[np.int64]) -> NDArray[np.int32]:
    found = np.empty(len(values), np.int32)
    for row in range(len(values)):
        value = np.uint64(values[row])
        state = _mixed(_mixed(np.uint64(0), value & LOW), value >> np.uint64(32))
        found[row] = _finished(state, np.uint64(8))
    return found


@kernel(HASHES(PLACES, BYTES))
def of_bytes(begins: NDArray[np.int32], data: NDArray[np.uint8]) -> NDArray[np.int32]:
    """begins: one more than there are values."""
    found = np.empty(len(begins) - 1, np.int32)
    for row in range(len(found)):
        found[row] = _of_bytes(data, begins[row], begins[row + 1])
    return found


@kernel(HASHES(BYTES))
def of_decimals(data: NDArray[np.uint8]) -> NDArray[np.int32]:
    """data: the unscaled values, 16 bytes each, little-endian.

    The hash covers the fewest bytes that hold a value, big-endian.
    """
    found = np.empty(len(data) // 16, np.int32)
    shortest = np.empty(16, np.uint8)
    for row in range(len(found)):
        top = row * 16 + 15
        sign = np.uint8(255) if data[top] >= 128 else np.uint8(0)
        size = 16
        while (
            size > 1
            and data[row * 16 + size - 1] == sign
            and (data[row * 16 + size - 2] >= 128) == (sign == 255)
        ):
            size -= 1
        for place in range(size):
            shortest[place] = data[row * 16 + size - 1 - place]
        found[row] = _of_bytes(shortest, 0, size)
    return found
