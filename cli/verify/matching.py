"""The rows that a place of the topic makes against those that the table has of it, both in no order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

Hashes = tuple[int, ...]


def unlike(
    held: Sequence[tuple[str, Hashes]], expected: Sequence[Hashes]
) -> Iterator[tuple[str, Hashes, Hashes]]:
    """Rows with their files that are none of those expected, each with the one that it is most like."""
    missing = Counter(expected)
    others = []
    for file, found in held:
        if missing[found]:
            missing[found] -= 1
        else:
            others.append((file, found))
    candidates = list(missing.elements()) or expected
    for file, found in others:
        yield file, found, min(candidates, key=lambda each: _differences(each, found))


def _differences(one: Hashes, other: Hashes) -> int:
    return sum(a != b for a, b in zip(one, other, strict=True))
