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

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cli.verify.columns import entries, is_list, is_text, lengths

_GOLDEN, _FIRST, _SECOND = map(np.uint64, (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))
_NULL, _NAN = map(np.uint64, (0x6A09E667F3BCC909, 0x3C6EF372FE94F82B))

SCIENTIFIC = re.compile(r"-?\d{1,3}\.\d{1,17}E-?\d{1,3}")
Array = Any
RANGE = 4096
"""Offsets per digest: what is read again, on both sides, where a digest differs."""

MODULUS = 1 << 64


def column_hashes(columns: list[Array]) -> list[Array]:
    """The hashes of each column's values."""
    return [pa.array(_hash(column)) for column in columns]


def row_hashes(columns: list[Array]) -> Array:
    """The hashes of rows, out of those of their columns."""
    return pa.array(reduce(_combine, (column.to_numpy() for column in columns)))


def _combine(before: Array, column: Array) -> Array:
    return _mix(before * _FIRST + column)


def _mix(value: Array) -> Array:
    """SplitMix64's finaliser: https://prng.di.unimi.it/splitmix64.c."""
    value = value + _GOLDEN
    value = (value ^ (value >> np.uint64(30))) * _FIRST
    value = (value ^ (value >> np.uint64(27))) * _SECOND
    return value ^ (value >> np.uint64(31))


def _hash(values: Array) -> Array:
    """The hashes of Arrow's values, as an array of numpy's."""
    kind = values.type
    if pa.types.is_struct(kind):
        hashes = reduce(_combine, map(_hash, values.flatten()))
    elif pa.types.is_map(kind):
        hashes = _hash_list(entries(values), ordered=False)
    elif is_list(kind):
        hashes = _hash_list(values, ordered=True)
    elif pa.types.is_floating(kind):
        numbers = values.fill_null(0).to_numpy()
        bits = numbers.view(f"u{numbers.itemsize}").astype(np.uint64)
        hashes = np.where(np.isnan(numbers), _NAN, _mix(bits))
    elif pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_temporal(kind):
        hashes = _mix(_as_int64(values).fill_null(0).to_numpy().view(np.uint64))
    else:
        hashes = _hash_bytes(values)
    return hashes if _null_is_empty(kind) else np.where(_is_valid(values), hashes, _NULL)


def _is_valid(values: Array) -> Array:
    return values.is_valid().to_numpy(zero_copy_only=False)


def _null_is_empty(kind: Any) -> bool:
    """True for lists and maps of structs: PyIceberg reads null ones as empty, so the two cannot be told apart."""
    inner = kind.item_type if pa.types.is_map(kind) else kind.value_type if is_list(kind) else None
    return inner is not None and bool(pa.types.is_struct(inner))


def _as_int64(values: Array) -> Array:
    kind = values.type
    if pa.types.is_date32(kind) or pa.types.is_time32(kind):
        values = values.cast(pa.int32())
    return values.cast(pa.int64())


def _hash_list(values: Array, *, ordered: bool) -> Array:
    """Sums the elements' hashes; a list's elements are told apart by their place, a map's entries are not."""
    elements, sizes = _hash(pc.list_flatten(values)), lengths(values)
    ends = np.cumsum(sizes)
    starts = ends - sizes
    if ordered:
        places = np.arange(len(elements)) - np.repeat(starts, sizes)
        elements = _combine(elements, places.astype(np.uint64))
    sums = np.cumsum(np.r_[np.uint64(0), _mix(elements)])
    return _combine(sums[ends] - sums[starts], sizes.astype(np.uint64))


def _hash_bytes(values: Array) -> Array:
    """Texts, bytes and decimals (as their text, which holds the scale)."""
    if pa.types.is_decimal(values.type):
        values = values.cast(pa.string())
    large = pa.types.is_large_string(values.type) or pa.types.is_large_binary(values.type)
    encoded = values.cast(pa.large_binary() if large else pa.binary()).dictionary_encode()
    held = encoded.dictionary.to_pylist()
    if is_text(values.type):
        held = [_text(value) for value in held]
    distinct = [int.from_bytes(blake2b(value, digest_size=8).digest(), "little") for value in held]
    return np.array([*distinct, 0], np.uint64)[encoded.indices.fill_null(len(distinct)).to_numpy()]


def _text(value: bytes) -> bytes:
    """A text with what is no UTF-8 replaced, and with one spelling of each number: Java's digits of a double vary."""
    found = value.decode(errors="replace")
    return SCIENTIFIC.sub(lambda number: repr(float(number[0])), found).encode()


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """A range of `RANGE` offsets of a partition."""

    partition: int
    number: int


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
