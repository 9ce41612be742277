"""Order-free digests of rows by ranges of offsets: two sides that hold the same rows have the same digests."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

RANGE = 4096
"""Offsets per digest: what is read again, on both sides, where a digest differs."""

MODULUS = 1 << 64


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


def ranges(offsets: list[int]) -> Iterator[tuple[int, int]]:
    """Offsets, sorted, as ranges [from, to) of neighbours."""
    start = previous = None
    for offset in offsets:
        if start is None or previous is None:
            start = offset
        elif offset > previous + 1:
            yield start, previous + 1
            start = offset
        previous = offset
    if start is not None and previous is not None:
        yield start, previous + 1
