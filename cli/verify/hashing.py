"""A 64-bit hash of every row of an Arrow batch, the same whatever file, order or physical encoding the row came in.

Digests of rows by ranges of offsets have no order either: two sides that hold the same rows have the same digests.

Texts and bytes are hashed with BLAKE2b once per distinct value; everything else is mixed as 64-bit integers
(the finaliser of SplitMix64), so that two rows with the same values in exchanged columns differ.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import reduce
from hashlib import blake2b
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from cli.verify.columns import is_text

_GOLDEN = pa.scalar(0x9E3779B97F4A7C15, pa.uint64())
_FIRST = pa.scalar(0xBF58476D1CE4E5B9, pa.uint64())
_SECOND = pa.scalar(0x94D049BB133111EB, pa.uint64())
_NULL = pa.scalar(0x6A09E667F3BCC909, pa.uint64())
_NAN = pa.scalar(0x3C6EF372FE94F82B, pa.uint64())

SCIENTIFIC = re.compile(r"-?\d{1,3}\.\d{1,17}E-?\d{1,3}")
Array = Any
RANGE = 4096
"""Offsets per digest: what is read again, on both sides, where a digest differs."""

MODULUS = 1 << 64


def column_hashes(columns: list[Array]) -> list[Array]:
    """The hashes of each column's values."""
    return [_hash(column) for column in columns]


def row_hashes(columns: list[Array]) -> Array:
    """The hashes of rows, out of those of their columns."""
    return reduce(_combine, columns)


def _combine(before: Array, column: Array) -> Array:
    return _mix(pc.add(pc.multiply(before, _FIRST), column))


def _mix(value: Array) -> Array:
    """SplitMix64's finaliser: https://prng.di.unimi.it/splitmix64.c."""
    value = pc.add(value, _GOLDEN)
    value = pc.multiply(_xor_shifted(value, 30), _FIRST)
    value = pc.multiply(_xor_shifted(value, 27), _SECOND)
    return _xor_shifted(value, 31)


def _xor_shifted(value: Array, bits: int) -> Array:
    return pc.bit_wise_xor(value, pc.shift_right(value, pa.scalar(bits, pa.uint64())))


def _hash(values: Array) -> Array:
    kind = values.type
    if pa.types.is_struct(kind):
        hashes = row_hashes([_hash(child) for child in values.flatten()])
    elif pa.types.is_map(kind):
        hashes = _hash_list(
            values.cast(pa.list_(pa.struct([("key", kind.key_type), ("value", kind.item_type)]))), 0
        )
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        hashes = _hash_list(values, 1)
    elif pa.types.is_floating(kind):
        hashes = pc.if_else(pc.is_nan(values), _NAN, _mix(_float_bits(values)))
    elif pa.types.is_boolean(kind):
        hashes = _mix(values.cast(pa.uint64()))
    elif pa.types.is_integer(kind) or pa.types.is_temporal(kind):
        hashes = _mix(_as_int64(values).view(pa.uint64()))
    else:
        hashes = _hash_bytes(values)
    return hashes if _null_is_empty(kind) else pc.if_else(values.is_valid(), hashes, _NULL)


def _null_is_empty(kind: Any) -> bool:
    """True for lists and maps of structs: PyIceberg reads null ones as empty, so the two cannot be told apart."""
    if pa.types.is_map(kind):
        return bool(pa.types.is_struct(kind.item_type))
    return bool(
        (pa.types.is_list(kind) or pa.types.is_large_list(kind)) and pa.types.is_struct(kind.value_type)
    )


def _as_int64(values: Array) -> Array:
    kind = values.type
    if pa.types.is_date32(kind) or pa.types.is_time32(kind):
        return values.cast(pa.int32()).cast(pa.int64())
    return values.cast(pa.int64())


def _float_bits(values: Array) -> Array:
    return (
        values.view(pa.uint32()).cast(pa.uint64())
        if values.type == pa.float32()
        else values.view(pa.uint64())
    )


def _hash_list(values: Array, position_weight: int) -> Array:
    """Sums the elements' hashes; a list's elements are told apart by their place, a map's entries are not."""
    elements = _hash(pc.list_flatten(values))
    lengths = pc.fill_null(pc.list_value_length(values), 0).cast(pa.int64())
    ends = pc.cumulative_sum(lengths)
    starts = pc.subtract(ends, lengths)
    if position_weight and len(elements):
        places = pc.subtract(_range(len(elements)), starts.take(pc.list_parent_indices(values)))
        elements = _combine(elements, places.view(pa.uint64()))
    sums = pa.concat_arrays([pa.array([0], pa.uint64()), pc.cumulative_sum(_mix(elements))])
    total = pc.subtract(sums.take(ends), sums.take(starts))
    return _combine(total, lengths.view(pa.uint64()))


def _range(size: int) -> Array:
    return pc.subtract(pc.cumulative_sum(pa.repeat(pa.scalar(1, pa.int64()), size)), 1)


def _hash_bytes(values: Array) -> Array:
    """Texts, bytes and decimals (as their text, which holds the scale)."""
    if pa.types.is_decimal(values.type):
        values = values.cast(pa.string())
    kind = (
        pa.large_binary()
        if pa.types.is_large_string(values.type) or pa.types.is_large_binary(values.type)
        else pa.binary()
    )
    encoded = values.cast(kind).dictionary_encode()
    held = encoded.dictionary.to_pylist()
    if is_text(values.type):
        held = [_text(value) for value in held]
    distinct = [int.from_bytes(blake2b(value, digest_size=8).digest(), "little") for value in held]
    return pa.array(distinct, pa.uint64()).take(encoded.indices)


def _text(value: bytes) -> bytes:
    """A text with what is no UTF-8 replaced, and with one spelling of each number: Java's digits of a double vary."""
    found = value.decode(errors="replace")
    return SCIENTIFIC.sub(lambda number: repr(float(number[0])), found).encode()


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """A range of `RANGE` offsets of a partition."""

    partition: int
    number: int

    @property
    def offsets(self) -> tuple[int, int]:
        return self.number * RANGE, (self.number + 1) * RANGE


@dataclass(slots=True)
class Digests:
    """Count and sum of row hashes (mod 2^64) per place."""

    by_place: dict[Place, tuple[int, int]] = field(default_factory=dict)

    def add(self, partitions: Any, offsets: Any, hashes: Any) -> set[Place]:
        """Add rows; gives the places that they are in."""
        numbers = pc.divide(offsets.cast(pa.int64()), RANGE)
        rows = pa.table({"partition": partitions, "number": numbers, "hash": hashes})
        sums = rows.group_by(["partition", "number"]).aggregate([("hash", "sum"), ("hash", "count")])
        found = set()
        for row in sums.to_pylist():
            place = Place(row["partition"], row["number"])
            count, total = self.by_place.get(place, (0, 0))
            self.by_place[place] = (count + row["hash_count"], (total + row["hash_sum"]) % MODULUS)
            found.add(place)
        return found

    def differing(self, other: Digests) -> list[Place]:
        """Places whose rows are not the same on both sides, in order."""
        places = self.by_place.keys() | other.by_place.keys()
        return sorted(each for each in places if self.by_place.get(each) != other.by_place.get(each))

    def partition(self, partition: int) -> tuple[int, int]:
        """Count and digest of a whole partition."""
        found = [pair for place, pair in self.by_place.items() if place.partition == partition]
        return sum(count for count, _ in found), sum(total for _, total in found) % MODULUS

    @property
    def count(self) -> int:
        return sum(count for count, _ in self.by_place.values())
