"""The hash of a row, whose sums are a table's digests (`calve.table.digests`), by compiled loops over Arrow columns.

The hash of a row is a mix of the sum of its values' hashes. Each value is hashed with the id of its field. So names and the
order of columns do not count, nor do columns that a table gets later: a null adds nothing. Integers, dates and times are hashed
with 64 bits, floating-point numbers as doubles, decimals with 128 bits, so widened values keep their hash. Items of a list count
with their place, entries of a map without one. Partition and offset are values of a row, too.

64 bits without a secret find accidents and careless changes. They are no signature.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Iterator
from functools import cache, lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
from numba import types
from numba.extending import intrinsic
from numba.np.numpy_support import carray
from numpy.typing import NDArray

from calve.names import SYSTEM_COLUMN
from calve.table.digests import MODULUS, Sum, Sums, together
from glue_jobs.columns.arrow_types import FIELD_ID
from glue_jobs.columns.kernels import BYTES, BYTES_OUT, LONGS, PLACES, kernel
from glue_jobs.columns.texts import U, eight, little

Words = NDArray[np.uint64]
Bytes = NDArray[np.uint8]

_U = types.uint64
WORDS = types.Array(_U, 1, "C")
WORDS_IN = types.Array(_U, 1, "C", readonly=True)
PLAN = types.Array(_U, 2, "C", readonly=True)
DOUBLES, FLOATS = (types.Array(each, 1, "C", readonly=True) for each in (types.float64, types.float32))
u64 = np.uint64
FIRST, SECOND = u64(0xBF58476D1CE4E5B9), u64(0x94D049BB133111EB)
GOLDEN = u64(0x9E3779B97F4A7C15)
HALF = u64(0xFFFFFFFF)
LOW = np.array([(1 << 8 * size) - 1 for size in range(9)], np.uint64)
"""The lowest bytes of a word, by their number."""
NAN, INFINITY = (np.float64(each).view(np.int64) for each in ("nan", "inf"))
POSITIVE = np.int64(0x7FFFFFFFFFFFFFFF)
EVERY: Bytes = np.zeros(0, np.uint8)
"""The marks of values without nulls."""
ENTRIES, STRUCT, LIST, MAP, TEXT, FIXED, PAIR, DOUBLE, FLOAT, FLAG, INT, LONG, SKIPPED = range(13)
"""The kinds of nodes of a plan. Entries are those of a map, or the columns of a batch."""
KINDS: dict[int, Callable[[pa.DataType], bool]] = {
    STRUCT: pa.types.is_struct,
    LIST: pa.types.is_list,
    MAP: pa.types.is_map,
    TEXT: lambda kind: pa.types.is_string(kind) or pa.types.is_binary(kind),
    FIXED: pa.types.is_fixed_size_binary,
    PAIR: pa.types.is_decimal128,
    DOUBLE: pa.types.is_float64,
    FLOAT: pa.types.is_float32,
    FLAG: pa.types.is_boolean,
    INT: lambda kind: _is_number(kind) and kind.bit_width == 32,
    LONG: lambda kind: _is_number(kind) and kind.bit_width == 64,
    SKIPPED: pa.types.is_null,
}
"""The types that the loops read without a cast."""
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


@kernel([types.void(each, _U, WORDS) for each in (LONGS, PLACES, BYTES)])
def _add_numbers(values: Any, seed: Any, sums: Any) -> None:
    for row in range(sums.size):
        sums[row] += _hashed(u64(np.int64(values[row])), seed)


@kernel(types.void(LONGS, _U, WORDS))
def _add_pairs(values: Any, seed: Any, sums: Any) -> None:
    """Numbers of two words each."""
    for row in range(sums.size):
        low, high = u64(values[U(2 * row)]), u64(values[U(2 * row + 1)])
        sums[row] += _hashed(low, seed) + _hashed(high, seed ^ GOLDEN)


@kernel([types.void(each, _U, WORDS) for each in (DOUBLES, FLOATS)])
def _add_doubles(values: Any, seed: Any, sums: Any) -> None:
    """All NaN are one value."""
    for row in range(sums.size):
        bits = np.float64(values[row]).view(np.int64)
        sums[row] += _hashed(u64(NAN if bits & POSITIVE > INFINITY else bits), seed)


@kernel(types.void(BYTES, types.int64, types.int64, _U, WORDS))
def _add_equal(data: Any, at: Any, size: Any, seed: Any, sums: Any) -> None:
    """Texts of one size, 16 at most, from a place on."""
    low, key_of_last, more = LOW[U(size if size < 8 else 8)], u64(seed ^ SECOND), u64(size) * FIRST
    if size <= 8:
        for row in range(sums.size):
            sums[row] += _hashed(eight(data, at) & low, seed) + more
            at += size
    else:
        for row in range(sums.size):
            found = _hashed(eight(data, at), seed) + _hashed(eight(data, at + size - 8), key_of_last)
            sums[row] += found + more
            at += size


@kernel(types.void(BYTES, PLACES, _U, WORDS))
def _add_short(data: Any, ends: Any, seed: Any, sums: Any) -> None:
    """Texts of at most 8 bytes."""
    for row in range(sums.size):
        at, end = np.int64(ends[U(row)]), np.int64(ends[U(row + 1)])
        word = u64(eight(data, at) & LOW[U(end - at)])
        sums[row] += _hashed(word, seed) + u64(end - at) * FIRST


@kernel(types.void(BYTES, PLACES, _U, WORDS))
def _add_others(data: Any, ends: Any, seed: Any, sums: Any) -> None:
    """Texts of any sizes."""
    key_of_last = u64(seed ^ SECOND)
    for row in range(sums.size):
        at, end = np.int64(ends[U(row)]), np.int64(ends[U(row + 1)])
        size, key = end - at, seed
        found = _hashed(eight(data, at) & LOW[U(size if size < 8 else 8)], seed) + u64(size) * FIRST
        found += _hashed(eight(data, end - 8 if size > 8 else at), key_of_last) * u64(size > 8)
        at += 8
        while at + 8 < end:
            key += GOLDEN
            found += _hashed(eight(data, at), key)
            at += 8
        sums[row] += found


@kernel(types.void(BYTES, PLACES, _U, WORDS))
def _add_texts(data: Any, ends: Any, seed: Any, sums: Any) -> None:
    """The words of a text have keys by their places. The last word overlaps the one before it, so that none is cut.

    ends: where each value begins, then the end of the last one. Sizes are hard to predict, so the loops avoid branches.
    """
    least, most, whole = ends[1] - ends[0], ends[1] - ends[0], sums.size
    for row in range(sums.size):
        size = ends[U(row + 1)] - ends[U(row)]
        least, most = min(least, size), max(most, size)
    while (
        whole and np.int64(ends[U(whole - 1)]) + 8 > data.size
    ):  # too few bytes for a word: the texts are shorter
        whole -= 1
    if least == most and most <= 16:
        _add_equal(data, np.int64(ends[0]), np.int64(most), seed, sums[:whole])
    elif most <= 8:
        _add_short(data, ends, seed, sums[:whole])
    else:
        _add_others(data, ends, seed, sums[:whole])
    for row in range(whole, sums.size):
        at, size = np.int64(ends[row]), np.int64(ends[row + 1] - ends[row])
        sums[row] += _hashed(u64(little(data, at, size)), seed) + u64(size) * FIRST


@kernel(types.void(WORDS_IN, PLACES, types.boolean, _U, WORDS))
def _add_items(items: Any, ends: Any, ordered: Any, seed: Any, sums: Any) -> None:
    """The sums of the items of lists or maps. ends: as in `_add_texts`."""
    begin, step = np.int64(ends[0]), GOLDEN if ordered else u64(0)
    for row in range(sums.size):
        place, found = u64(0), u64(mixed(seed))
        for at in range(np.int64(ends[U(row)]) - begin, np.int64(ends[U(row + 1)]) - begin):
            place += step
            found += _hashed(u64(items[U(at)] + place), seed)
        sums[U(row)] += found


def _pointing(_: Any, address: Any) -> Any:
    def generate(context: Any, builder: Any, _: Any, given: Any) -> Any:
        return builder.inttoptr(given[0], context.get_value_type(types.voidptr))

    return types.voidptr(address), generate


_pointer: Any = intrinsic(_pointing)
array_at: Any = carray


@kernel(types.int64(types.int64, types.int64), inline=True)
def _part(struct: Any, place: Any) -> Any:
    """A number or an address in Arrow's `struct ArrowArray`."""
    return array_at(_pointer(struct), place + 1, np.int64)[U(place)]


@kernel(types.void(types.int64, types.int64, BYTES_OUT))
def _unpack(bitmap: Any, first: Any, marks: Any) -> None:
    found = array_at(_pointer(bitmap), (first + marks.size + 7) // 8, np.uint8)
    for row in range(marks.size):
        at = U(first + row)
        marks[row] = found[at >> U(3)] >> (at & U(7)) & 1


@kernel(types.void(_U, _U, types.int64, types.int64, types.int64, types.int64, WORDS))
def _add_leaves(kind: Any, seed: Any, width: Any, array: Any, at: Any, size: Any, sums: Any) -> None:
    """Add values without children. width: of each, if they are bytes of a fixed size."""
    buffers, end = _part(array, 5), _part(array, 2) + _part(array, 0)
    values = _part(buffers, 1)
    if kind == TEXT:
        places = array_at(_pointer(values), end + 1, np.int32)
        data = array_at(_pointer(_part(buffers, 2)), np.int64(places[end]), np.uint8)
        _add_texts(data, places[at : at + size + 1], seed, sums)
    elif kind == FIXED:
        ends = np.empty(size + 1, np.int32)
        for row in range(size + 1):
            ends[row] = (at + row) * width
        _add_texts(array_at(_pointer(values), end * width, np.uint8), ends, seed, sums)
    elif kind == PAIR:
        _add_pairs(array_at(_pointer(values + 16 * at), 2 * size, np.int64), seed, sums)
    elif kind == DOUBLE:
        _add_doubles(array_at(_pointer(values + 8 * at), size, np.float64), seed, sums)
    elif kind == FLOAT:
        _add_doubles(array_at(_pointer(values + 4 * at), size, np.float32), seed, sums)
    elif kind == LONG:
        _add_numbers(array_at(_pointer(values + 8 * at), size, np.int64), seed, sums)
    elif kind == INT:
        _add_numbers(array_at(_pointer(values + 4 * at), size, np.int32), seed, sums)
    else:
        flags = np.empty(size, np.uint8)
        _unpack(values, at, flags)
        _add_numbers(flags, seed, sums)


@kernel(types.void(PLAN, types.int64, types.int64, types.int64, WORDS))
def _add(plan: Any, node: Any, array: Any, first: Any, sums: Any) -> None:
    """Add the hashes of values, and of what is in them, to the sums of their rows.

    plan, node: a row of `_plan_of`. array: the address of a `struct ArrowArray`, whose memory the loops read where it is
    (https://arrow.apache.org/docs/format/CDataInterface.html). first: the place of the first value.
    """
    kind, seed, size = plan[node, 0], plan[node, 1], sums.size
    nulls, at = _part(array, 1), _part(array, 2) + first
    if kind == SKIPPED or size == 0 or nulls == _part(array, 0):
        return
    buffers, children = _part(array, 5), _part(array, 6)
    marks, total = EVERY, sums
    if nulls != 0 and _part(buffers, 0) != 0:
        marks, total = np.empty(size, np.uint8), np.zeros(size, np.uint64)
        _unpack(_part(buffers, 0), at, marks)
    if kind in (STRUCT, ENTRIES):
        if kind == STRUCT:
            for row in range(size):
                total[row] += u64(mixed(seed))
        each, place = node + 1, 0
        while each < np.int64(plan[node, 2]):
            _add(plan, each, _part(children, place), at, total)
            each, place = np.int64(plan[each, 2]), place + 1
    elif kind in (LIST, MAP):
        ends = array_at(_pointer(_part(buffers, 1) + 4 * at), size + 1, np.int32)
        items = np.zeros(ends[size] - ends[0], np.uint64)
        _add(plan, node + 1, _part(children, 0), np.int64(ends[0]), items)
        _add_items(items, ends, kind == LIST, seed, total)
    else:
        _add_leaves(kind, seed, np.int64(plan[node, 3]), array, at, size, total)
    if marks.size:
        for row in range(size):
            sums[row] += total[row] * u64(marks[row])


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
    plan, plain = _plan_of(batch.schema.serialize().to_pybytes())
    sums = np.zeros(batch.num_rows, np.uint64)
    _, exported = (batch if plain is None else batch.cast(plain)).__arrow_c_array__()
    _add(plan, 0, _address(exported, b"arrow_array"), 0, sums)
    return sums


def hashes_of(batch: pa.RecordBatch) -> Words:
    """The hash of each row."""
    found, sums = np.empty(batch.num_rows, np.uint64), row_sums(batch)
    _close(sums, np.arange(len(sums) + 1, dtype=np.int64), found)
    return found


@lru_cache(100)
def _plan_of(schema: bytes) -> tuple[Words, pa.Schema | None]:
    """How to hash batches of a schema (in Arrow's format), and the schema to cast them to; None: as they are.

    A plan has a row for each field, those of its children behind it: the kind, the seed, the row behind its last child, and the
    size of a value of bytes.
    """
    fields = pa.ipc.read_schema(pa.py_buffer(schema))
    plain = pa.schema([_plain(each) for each in fields])
    nodes = np.array(_entries(plain), np.uint64)
    nodes[:, 2] += np.arange(len(nodes), dtype=np.uint64)
    return nodes, None if plain.equals(fields) else plain


Node = tuple[int, int, int, int]


def _entries(fields: Iterable[pa.Field]) -> list[Node]:
    below = [row for each in fields for row in _nodes(each)]
    return [(ENTRIES, 0, 1 + len(below), 0), *below]


def _nodes(field: pa.Field) -> list[Node]:
    """The rows of a plan; the third number is how many there are."""
    kind, number, below = field.type, int(field.metadata[FIELD_ID]), list[Node]()
    if pa.types.is_map(kind):
        below = _entries([kind.key_field, kind.item_field])
    elif pa.types.is_list(kind) or pa.types.is_struct(kind):
        below = [row for at in range(kind.num_fields) for row in _nodes(kind.field(at))]
    found = SKIPPED if number >= RESERVED else next(each for each, fits in KINDS.items() if fits(kind))
    return [(found, int(_seed(number)), 1 + len(below), kind.byte_width if found == FIXED else 0), *below]


def _plain(field: pa.Field) -> pa.Field:
    """A field with types of `KINDS` only."""
    kind, is_ = field.type, pa.types
    if isinstance(kind, pa.ExtensionType):
        return _plain(field.with_type(kind.storage_type))
    if is_.is_map(kind):
        kind = pa.map_(_plain(kind.key_field), _plain(kind.item_field), keys_sorted=kind.keys_sorted)
    elif is_.is_list(kind) or is_.is_large_list(kind):
        kind = pa.list_(_plain(kind.value_field))
    elif is_.is_struct(kind):
        kind = pa.struct([_plain(each) for each in kind])
    elif is_.is_decimal(kind):
        kind = pa.decimal128(kind.precision if is_.is_decimal128(kind) else 38, kind.scale)
    elif not any(fits(kind) for fits in KINDS.values()):
        number = pa.int64() if _is_number(kind) else pa.binary()
        kind = pa.float64() if is_.is_floating(kind) else number
    return field.with_type(kind)


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_temporal(kind))


@cache
def _seed(field_id: int) -> Any:
    return u64(mixed(u64(field_id * int(GOLDEN) % MODULUS)))


_address = ctypes.pythonapi.PyCapsule_GetPointer
_address.restype, _address.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
