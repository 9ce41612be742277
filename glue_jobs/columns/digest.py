"""The hash of a row, whose sums are a table's digests (`calve.table.digests`), by compiled loops over Arrow columns.

The hash of a row is a mix of the sum of its values' hashes. Each value is hashed with the id of its field. So names and the
order of columns do not count, nor do columns that a table gets later: a null adds nothing. Integers, dates and times are hashed
with 64 bits, floating-point numbers as doubles, decimals with 128 bits, so widened values keep their hash. Items of a list count
with their place, entries of a map without one. Partition and offset are values of a row, too.

64 bits without a secret find accidents and careless changes. They are no signature.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
from numba import types
from numpy.typing import NDArray

from calve.names import SYSTEM_COLUMN
from calve.table.digests import MODULUS, Sum, Sums, together
from glue_jobs.columns.arrow_types import FIELD_ID
from glue_jobs.columns.kernels import BYTES, LONGS, PLACES, kernel
from glue_jobs.columns.texts import U, eight, little

Words = NDArray[np.uint64]
Bytes = NDArray[np.uint8]

_U = types.uint64
WORDS = types.Array(_U, 1, "C")
WORDS_IN = types.Array(_U, 1, "C", readonly=True)
u64 = np.uint64
FIRST, SECOND = u64(0xBF58476D1CE4E5B9), u64(0x94D049BB133111EB)
GOLDEN = u64(0x9E3779B97F4A7C15)
HALF = u64(0xFFFFFFFF)
LOW = np.array([(1 << 8 * size) - 1 for size in range(9)], np.uint64)
"""The lowest bytes of a word, by their number."""
NAN, INFINITY = (np.float64(each).view(np.int64) for each in ("nan", "inf"))
POSITIVE = np.int64(0x7FFFFFFFFFFFFFFF)
EVERY: Bytes = np.zeros(0, np.uint8)
"""The marks of a column without nulls."""
RESERVED = 2_147_483_447
"""Iceberg's own columns have ids from here on: the lineage of rows that format 3 writes with rewritten rows."""


@kernel(_U(_U), inline=True)
def mixed(word: Any) -> Any:
    """SplitMix64's finaliser: https://prng.di.unimi.it/splitmix64.c."""
    word = u64((word ^ (word >> u64(30))) * FIRST)
    word = u64((word ^ (word >> u64(27))) * SECOND)
    return u64(word ^ (word >> u64(31)))


@kernel(_U(_U, _U), inline=True)
def _hashed(word: Any, seed: Any) -> Any:
    """The product of the word's halves, as in XXH3 and NH: compilers make vector instructions of it.

    Two sums differ where a word does; the mix of a row's sum makes the rest of a hash of them.
    """
    keyed = word ^ seed
    return u64((keyed & HALF) * (keyed >> u64(32)) + word + seed)


@kernel([types.void(each, BYTES, _U, WORDS) for each in (LONGS, PLACES)])
def _add_numbers(values: Any, marks: Any, seed: Any, sums: Any) -> None:
    if marks.size == 0:
        for row in range(sums.size):
            sums[row] += _hashed(u64(np.int64(values[row])), seed)
    else:
        for row in range(sums.size):
            sums[row] += _hashed(u64(np.int64(values[row])), seed) * u64(marks[row])


@kernel(types.void(LONGS, BYTES, _U, WORDS))
def _add_pairs(values: Any, marks: Any, seed: Any, sums: Any) -> None:
    """Numbers of two words each."""
    for row in range(sums.size):
        if marks.size == 0 or marks[row]:
            low, high = u64(values[2 * row]), u64(values[2 * row + 1])
            sums[row] += _hashed(low, seed) + _hashed(high, seed ^ GOLDEN)


@kernel(types.void(LONGS, BYTES, _U, WORDS))
def _add_doubles(bits: Any, marks: Any, seed: Any, sums: Any) -> None:
    """All NaN are one value."""
    for row in range(sums.size):
        word = NAN if bits[row] & POSITIVE > INFINITY else bits[row]
        found = _hashed(u64(word), seed)
        sums[row] += found * u64(marks[row]) if marks.size else found


@kernel(types.void(BYTES, PLACES, BYTES, _U, WORDS))
def _add_texts(data: Any, ends: Any, marks: Any, seed: Any, sums: Any) -> None:
    """The words of a text have keys by their places. The last word overlaps the one before it, so that none is cut.

    ends: where each value begins, then the end of the last one.
    """
    last, at, key_of_last = data.size - 8, np.int64(ends[0]), u64(seed ^ SECOND)
    for row in range(sums.size):
        end = np.int64(ends[U(row + 1)])
        size = end - at
        if size <= 8:
            word = u64(eight(data, at) & LOW[U(size)]) if at <= last else u64(little(data, at, size))
            found = _hashed(word, seed)
        else:
            found, key = (
                u64(_hashed(eight(data, end - 8), key_of_last) + _hashed(eight(data, at), seed)),
                seed,
            )
            at += 8
            while at + 8 < end:
                key += GOLDEN
                found += _hashed(eight(data, at), key)
                at += 8
        if marks.size == 0 or marks[U(row)]:
            sums[U(row)] += found + u64(size) * FIRST
        at = end


@kernel(types.void(WORDS_IN, PLACES, BYTES, types.boolean, _U, WORDS))
def _add_items(items: Any, ends: Any, marks: Any, ordered: Any, seed: Any, sums: Any) -> None:
    """The sums of the items of lists or maps. ends: as in `_add_texts`."""
    for row in range(sums.size):
        if marks.size and not marks[row]:
            continue
        place = u64(0)
        for at in range(ends[row], ends[row + 1]):
            if ordered:
                place += GOLDEN
            sums[row] += _hashed(u64(items[at] + place), seed)


@kernel(types.void(WORDS, LONGS, WORDS))
def _close(sums: Any, ends: Any, found: Any) -> None:
    """The sum of the mixed hashes of each run of rows. ends: as in `_add_texts`."""
    for run in range(found.size):
        total = u64(0)
        for row in range(ends[run], ends[run + 1]):
            total += mixed(sums[row])
        found[run] = total


def sums_of(rows: pa.Table | pa.RecordBatch) -> Sums:
    """The sums of a table's rows by Kafka's partition. Each row has a place, and each field its id (`FIELD_ID`)."""
    batches = rows.to_batches() if isinstance(rows, pa.Table) else [rows]
    return together(part for batch in batches if batch.num_rows for part in _runs(batch))


def _runs(batch: pa.RecordBatch) -> Iterator[Sums]:
    """The sums of neighbouring rows of one partition."""
    partitions, offsets = places_of(batch)
    changes = () if partitions.min() == partitions.max() else np.flatnonzero(np.diff(partitions)) + 1
    runs = np.array([0, *changes, len(partitions)], np.int64)
    totals = np.empty(len(runs) - 1, np.uint64)
    _close(row_sums(batch), runs, totals)
    for first, end, total in zip(runs[:-1].tolist(), runs[1:].tolist(), totals.tolist(), strict=True):
        here = offsets[first:end]
        yield {int(partitions[first]): Sum(end - first, total, int(here.min()), int(here.max()) + 1)}


def places_of(batch: pa.RecordBatch) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Partition and offset of each row."""
    kafka = batch.column(SYSTEM_COLUMN)
    return kafka.field("partition").to_numpy(), kafka.field("offset").to_numpy()


def row_sums(batch: pa.RecordBatch) -> Words:
    """The sum of the hashes of each row's values, before the last mix."""
    sums = np.zeros(batch.num_rows, np.uint64)
    for field, column in zip(batch.schema, batch.columns, strict=True):
        if int(field.metadata[FIELD_ID]) < RESERVED:
            _add(field, column, sums)
    return sums


def hashes_of(batch: pa.RecordBatch) -> Words:
    """The hash of each row."""
    found, sums = np.empty(batch.num_rows, np.uint64), row_sums(batch)
    _close(sums, np.arange(len(sums) + 1, dtype=np.int64), found)
    return found


def _add(field: pa.Field, values: pa.Array, sums: Words) -> None:
    """Add the hashes of values, and of what is in them, to the sums of their rows."""
    kind, seed, is_ = field.type, _seed(int(field.metadata[FIELD_ID])), pa.types
    if values.null_count == len(values):
        return
    marks = values.is_valid().to_numpy(zero_copy_only=False).view(np.uint8) if values.null_count else EVERY
    if is_.is_struct(kind):
        _add_marks(marks, seed, sums)
        for each, child in zip(kind, values.flatten(), strict=True):
            _add(each, child, sums)
    elif is_.is_map(kind) or is_.is_list(kind) or is_.is_large_list(kind):
        _add_marks(marks, seed, sums)
        ends = values.offsets.cast(pa.int32()).to_numpy()
        start, size = int(ends[0]), int(ends[-1] - ends[0])
        items = np.zeros(size, np.uint64)
        for each, child in _children(kind, values) if size else ():
            _add(each, child.slice(start, size), items)
        if size:
            _add_items(items, ends - start, marks, not is_.is_map(kind), seed, sums)
    elif is_.is_decimal(kind):
        wide = values if is_.is_decimal128(kind) else values.cast(pa.decimal128(38, kind.scale))
        _add_pairs(_numbers(wide, np.int64, 2), marks, seed, sums)
    elif is_.is_floating(kind):
        _add_doubles(_numbers(values.cast(pa.float64()), np.int64), marks, seed, sums)
    elif is_.is_boolean(kind) or is_.is_integer(kind) or is_.is_temporal(kind):
        fits = not is_.is_boolean(kind) and kind.bit_width in (32, 64)
        whole = values if fits else values.cast(pa.int64())
        words = np.int32 if whole.type.bit_width == 32 else np.int64
        _add_numbers(_numbers(whole, words), marks, seed, sums)
    else:
        plain = values.storage if isinstance(values, pa.ExtensionArray) else values
        plain = plain if is_.is_string(kind) or is_.is_binary(kind) else plain.cast(pa.binary())
        places, data = _numbers(plain, np.int32, more=1), plain.buffers()[2]
        _add_texts(np.frombuffer(data or b"", np.uint8), places, marks, seed, sums)


@cache
def _seed(field_id: int) -> Any:
    return u64(mixed(u64(field_id * int(GOLDEN) % MODULUS)))


def _children(kind: pa.DataType, values: pa.Array) -> list[tuple[pa.Field, pa.Array]]:
    """The items of lists, or keys and values of maps, with their fields; those before and behind the array, too.

    kind: the type with ids: an array's own type may lack them.
    """
    if pa.types.is_map(kind):
        return [(kind.key_field, values.keys), (kind.item_field, values.items)]
    return [(kind.value_field, values.values)]


def _add_marks(marks: Bytes, seed: Any, sums: Words) -> None:
    """A value without content of its own: a struct, list or map."""
    sums += u64(mixed(seed)) * (marks if marks.size else u64(1))


def _numbers(values: pa.Array, kind: type, words: int = 1, more: int = 0) -> NDArray[Any]:
    """The words of each value, and `more` behind the last one. Those of nulls mean nothing."""
    size, data = words * len(values) + more, values.buffers()[1]
    return np.frombuffer(data or bytes(8), kind, size, np.dtype(kind).itemsize * words * values.offset)
