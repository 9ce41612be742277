"""Records that must be in neither table, since a person is forgotten: their places are what the table's audit says (ADR 24)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from calve.forget import Entry, Places, united
from calve.position import Offsets, TopicKey
from cli.verify.findings import Check

CHECK = "forgotten"


@dataclass(frozen=True, slots=True)
class Spots:
    """Places of one incarnation of a topic: partition -> where ranges of offsets begin, and where they end."""

    ranges: Mapping[int, tuple[Any, Any]] = field(default_factory=dict)

    @classmethod
    def of(cls, places: Places, topic: TopicKey) -> Spots:
        found = {int(p): np.array(each, np.int64) for p, each in places.get(str(topic), {}).items() if each}
        return cls({p: (each[:, 0], each[:, 1]) for p, each in found.items()})

    def masks(self, partitions: Any, offsets: Any) -> Any:
        """Which of these places there are."""
        found = np.zeros(len(offsets), bool)
        for partition, (starts, ends) in self.ranges.items():
            here = partitions == partition
            at = np.searchsorted(starts, offsets[here], side="right") - 1
            found[here] = (at >= 0) & (offsets[here] < ends[at])
        return found

    def spans(self) -> Iterator[tuple[int, int, int]]:
        """Partition, first offset, and the one after the last."""
        for partition, (starts, ends) in self.ranges.items():
            yield from ((partition, int(a), int(b)) for a, b in zip(starts, ends, strict=True))

    def within(self, spans: Mapping[int, tuple[int, int]]) -> Iterator[dict[int, tuple[int, int]]]:
        """The ranges one by one, as far as they lie in the spans of their partitions."""
        for partition, start, to in self.spans():
            first, end = spans.get(partition, (0, 0))
            if max(start, first) < min(to, end):
                yield {partition: (max(start, first), min(to, end))}

    @property
    def count(self) -> int:
        return sum(b - a for _, a, b in self.spans())


@dataclass(frozen=True, slots=True)
class Forgotten:
    """since: where the table began, as was noted when its history went; empty where nobody knew."""

    requests: int = 0
    rows: Spots = Spots()
    letters: Spots = Spots()
    since: Offsets = field(default_factory=dict)

    @classmethod
    def of(cls, properties: Mapping[str, str], topic: TopicKey) -> Forgotten:
        """What a table's properties say of a topic's incarnation."""
        entries = [each for each in Entry.all(properties) if each.problem is None]
        rows = _together(each.row_places for each in entries)
        letters = _together(each.letter_places for each in entries)
        since = next((each.since for each in reversed(entries) if each.since), {}).get(str(topic), {})
        return cls(len(entries), Spots.of(rows, topic), Spots.of(letters, topic), since)

    def checks(self, *, failed: bool) -> Iterator[Check]:
        """The check, where anybody was forgotten."""
        if self.requests:
            figures = {"requests": self.requests, "rows": self.rows.count, "dead_letters": self.letters.count}
            yield Check(CHECK, "failed" if failed else "proved", dict(figures))


def _together(places: Iterable[Places]) -> Places:
    found: Places = {}
    for each in places:
        found = united(found, each)
    return found
