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
from glue_jobs.columns.arrow_types import column_at
from glue_jobs.columns.kernels import BYTES, LONGS, PLACES, kernel
from glue_jobs.decode.machines.cells import stored
from glue_jobs.engines.columnar.layouts import Layout

NAN = np.int64(2**63 - 1)


def arranged(rows: pa.Table, layout: Layout) -> Iterator[tuple[str | None, pa.Table]]:
    """For each table partition, its tuple in Iceberg's JSON, and its rows."""
    tuples = {
        field_id: _value(rows, each) if each else pa.nulls(rows.num_rows, pa.int32())
        for field_id, each in layout.partition
    }
    places = np.zeros(rows.num_rows, np.int64)  # the number of each row's table partition
    for values in tuples.values():
        each = values.dictionary_encode(null_encoding="encode")
        places = places * max(len(each.dictionary), 1) + each.indices.to_numpy()
        places = pa.array(places).dictionary_encode().indices.to_numpy().astype(np.int64)
    order = _order(rows, places, layout)
    if order is not None:
        rows, places = rows.combine_chunks().take(pa.array(order)), places[order]
    begins = np.flatnonzero(np.diff(places, prepend=-1))
    for begin, end in zip(begins, [*begins[1:], rows.num_rows], strict=True):
        first = int(order[begin]) if order is not None else int(begin)
        held = {str(field_id): _json(values[first]) for field_id, values in tuples.items()}
        yield json.dumps(held) if held else None, rows.slice(begin, end - begin)


def _value(rows: pa.Table, transform: Transform) -> pa.Array:
    return applied(transform, column_at(rows, transform.column))


def _order(rows: pa.Table, places: NDArray[np.int64], layout: Layout) -> NDArray[np.int64] | None:
    """The row numbers in the wanted order; None if the rows are in order already."""
    columns, wanted = {"places": pa.array(places)}, [("places", "ascending")]
    for at, (transform, nulls_first) in enumerate(layout.order):
        key = _sort_key(_value(rows, transform))
        if nulls_first and key.null_count:
            columns[f"null {at}"] = pc.is_null(key).cast(pa.int8())
            wanted.append((f"null {at}", "descending"))
        columns[str(at)] = key
        wanted.append((str(at), "descending" if transform.descending else "ascending"))
    if layout.order:
        found = pc.sort_indices(pa.table(columns), sort_keys=wanted).to_numpy().astype(np.int64)
    else:
        found = np.argsort(places, kind="stable")
    return None if np.array_equal(found, np.arange(len(found))) else found


def _sort_key(values: pa.Array) -> pa.Array:
    """Values that Arrow orders as Spark orders the originals: NaN is the greatest number, zeros are equal."""
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
    kind, count = values.type, len(values)
    if pa.types.is_decimal(kind):
        ends = np.arange(16, 16 * count + 1, 16, dtype=np.int32)
        unscaled = _unscaled(values)
        return of_bytes(ends - _sizes(unscaled), ends, np.ascontiguousarray(unscaled[:, ::-1]).reshape(-1))
    if pa.types.is_integer(kind) or pa.types.is_temporal(kind):
        return of_longs(_numbers(values))
    if pa.types.is_fixed_size_binary(kind):
        values = values.cast(pa.binary())
    _, places, data = values.buffers()
    begins = np.frombuffer(places, np.int32)[values.offset : values.offset + count + 1]
    return of_bytes(begins[:-1], begins[1:], np.frombuffer(data or b"", np.uint8))


def _truncated(values: pa.Array, width: int) -> pa.Array:
    kind = values.type
    if pa.types.is_string(kind):
        return pc.utf8_slice_codeunits(values, 0, width)
    if pa.types.is_binary(kind):
        return pc.binary_slice(values, 0, width)
    if pa.types.is_decimal(kind):
        null = pc.is_valid(values).buffers()[1]
        return pa.Array.from_buffers(
            kind, len(values), [null, pa.py_buffer(_floored(_unscaled(values), width))]
        )
    numbers = _numbers(values)
    null = pc.is_null(values).to_numpy(zero_copy_only=False) if values.null_count else None
    return pa.array((numbers - numbers % width).astype(stored(kind)), kind, mask=null)


def _unscaled(values: pa.Array) -> NDArray[np.uint8]:
    """Decimals as integers of 16 bytes, little-endian, one per row."""
    held = np.frombuffer(values.buffers()[1], np.uint8)
    return held[values.offset * 16 : (values.offset + len(values)) * 16].reshape(-1, 16)


def _floored(unscaled: NDArray[np.uint8], width: int) -> NDArray[np.uint64]:
    """Each integer rounded down to a multiple of `width`, which has less than 32 bits."""
    low, high = unscaled.view(np.uint64).T
    rest = (high.view(np.int64) % width * (2**64 % width) + (low % np.uint64(width)).astype(np.int64)) % width
    less = rest.astype(np.uint64)
    return np.stack([low - less, high - (low < less)], axis=1)


def _sizes(unscaled: NDArray[np.uint8]) -> NDArray[np.int32]:
    """The fewest bytes that hold each integer."""
    low, high = unscaled.view(np.int64).T
    low, high = ((each ^ (high >> 63)).view(np.uint64) for each in (low, high))
    found = np.ones(len(low), np.int32)
    for bits in range(7, 64, 8):
        found += (low >> np.uint64(bits) | high) != 0
        found += high >> np.uint64(bits) != 0
    return found


U = np.uint64
C1, C2, FIVE, ADDED = U(0xCC9E2D51), U(0x1B873593), U(5), U(0xE6546B64)
MIX1, MIX2, LOW, POSITIVE = U(0x85EBCA6B), U(0xC2B2AE35), U(0xFFFFFFFF), U(0x7FFFFFFF)
HASHES = types.int32[::1]


@kernel(types.uint64(types.uint64, types.uint64))
def _left(number: np.uint64, by: np.uint64) -> np.uint64:
    return ((number << by) | (number >> (U(32) - by))) & LOW


@kernel(types.uint64(types.uint64))
def _scrambled(word: np.uint64) -> np.uint64:
    return (_left((word * C1) & LOW, U(15)) * C2) & LOW


@kernel(types.uint64(types.uint64, types.uint64))
def _mixed(state: np.uint64, word: np.uint64) -> np.uint64:
    return (_left(state ^ _scrambled(word), U(13)) * FIVE + ADDED) & LOW


@kernel(types.int32(types.uint64))
def _finished(state: np.uint64) -> np.int32:
    state = ((state ^ (state >> U(16))) * MIX1) & LOW
    state = ((state ^ (state >> U(13))) * MIX2) & LOW
    return np.int32((state ^ (state >> U(16))) & POSITIVE)


@kernel(HASHES(LONGS))
def of_longs(values: NDArray[np.int64]) -> NDArray[np.int32]:
    """As `of_bytes` of 8 bytes each, little-endian."""
    found = np.empty(len(values), np.int32)
    for row in range(len(values)):
        value = U(values[row])
        found[row] = _finished(_mixed(_mixed(U(0), value & LOW), value >> U(32)) ^ U(8))
    return found


@kernel(HASHES(PLACES, PLACES, BYTES))
def of_bytes(
    begins: NDArray[np.int32], ends: NDArray[np.int32], data: NDArray[np.uint8]
) -> NDArray[np.int32]:
    """The hash of each value's bytes, without its sign."""
    found = np.empty(len(begins), np.int32)
    for row in range(len(found)):
        state, at, end = U(0), U(begins[row]), U(ends[row])
        size = end - at
        while at + U(4) <= end:
            word = U(data[at]) | U(data[at + U(1)]) << U(8)
            state = _mixed(state, word | U(data[at + U(2)]) << U(16) | U(data[at + U(3)]) << U(24))
            at += U(4)
        rest, shift = U(0), U(0)
        while at < end:
            rest |= U(data[at]) << shift
            at, shift = at + U(1), shift + U(8)
        found[row] = _finished(state ^ _scrambled(rest) ^ size)  # a rest of zero changes nothing
    return found
