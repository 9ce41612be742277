"""The pass over the dead letters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from cli.verify.digest import Digests, Place
from cli.verify.rows import LetterRows, Rows

Span = tuple[int, int]
Count = Callable[[int], object]


@dataclass(slots=True)
class Letters:
    """The dead letters without their contents: partition -> offset -> reason of those that can be compared.

    `redriven`: those of them that came back, so that the table must have their records, each with the round of the redrive.
    `came_back`: how many did, in all. `unopened`: those that are sealed by keys that nobody here has.
    """

    rows: LetterRows | None
    reasons: dict[int, dict[int, str]] = field(default_factory=dict)
    digests: Digests = field(default_factory=Digests)
    places: dict[str, set[Place]] = field(default_factory=dict)
    by_reason: dict[str, int] = field(default_factory=dict)
    redriven: dict[tuple[int, int], str] = field(default_factory=dict)
    came_back: int = 0
    unopened: set[tuple[int, int]] = field(default_factory=set)

    def keeps(self, partition: int, offset: int) -> bool:
        """True where there is a dead letter, open or not."""
        return offset in self.reasons.get(partition, {})

    def holds(self, partition: int, offset: int) -> bool:
        """True where there is one that is open: its record must not be in the table."""
        return self.keeps(partition, offset) and (partition, offset) not in self.redriven


def read_letters(rows: LetterRows | None, claimed: dict[int, Span], spans: dict[int, Span]) -> Letters:
    """One pass over the dead letters. All that the table claims are counted, those that Kafka still has can be compared."""
    letters = Letters(rows)
    for task in rows.tasks if rows else ():
        for found, reasons, marked, unopened in rows.read(task) if rows else ():
            claimed_here = within(found, claimed)
            letters.came_back += pc.count(marked.filter(claimed_here)).as_py()
            counted = reasons.filter(claimed_here)
            for pair in counted.value_counts().to_pylist():
                letters.by_reason[pair["values"]] = letters.by_reason.get(pair["values"], 0) + pair["counts"]
            inside = within(found, spans)
            kept = found.where(inside)
            added = letters.digests.add(kept.partitions, kept.offsets, kept.hashes)
            letters.places.setdefault(found.file, set()).update(added)
            letters.unopened.update(found.where(pc.and_(inside, unopened)).places())
            places = zip(kept.partitions.to_pylist(), kept.offsets.to_pylist(), strict=True)
            told = zip(reasons.filter(inside).to_pylist(), marked.filter(inside).to_pylist(), strict=True)
            for (partition, offset), (reason, back) in zip(places, told, strict=True):
                letters.reasons.setdefault(partition, {})[offset] = reason
                if back:
                    letters.redriven[partition, offset] = back
    return letters


def within(rows: Rows, spans: dict[int, Span]) -> Any:
    """True for rows whose offset lies in the span of their partition."""
    mask = pa.repeat(pa.scalar(False), len(rows.offsets))  # noqa: FBT003 a value
    for partition in pc.unique(rows.partitions.drop_null()).to_pylist():
        start, to = spans.get(partition, (0, 0))
        here = pc.and_(pc.greater_equal(rows.offsets, start), pc.less(rows.offsets, to))
        mask = pc.or_(mask, pc.and_(here, pc.equal(rows.partitions, partition)))
    return pc.fill_null(mask, False)  # noqa: FBT003 a value
