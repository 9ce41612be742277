"""Rows and dead letters that have left for their age, or since a person is forgotten (ADR 24), and which records they were."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from calve.config.maintenance import retained
from calve.requests.forget import Entry, Places, united
from calve.table.position import Offsets, TopicKey
from cli import lake
from cli.verify.claim import Span
from cli.verify.columns import within
from cli.verify.findings import Check

if TYPE_CHECKING:
    from pyiceberg.table import Table


@dataclass(frozen=True, slots=True)
class Aged:
    """Nothing is asked of rows whose `column` is before a moment, where their offsets lie below `to`.

    rows: how many have left.
    """

    column: str
    before: datetime
    to: Offsets
    rows: int

    @classmethod
    def of(cls, table: Table | None, topic: TopicKey) -> Aged | None:
        """What a table says of a topic's incarnation; None: nothing has left for its age."""
        if table is None:
            return None
        line = [each.commit for each in lake.ancestors(table)]
        newest = retained(line, table.properties)
        if newest is None:
            return None
        before = datetime.fromtimestamp(0, UTC) + timedelta(microseconds=newest.before_us)
        return cls(newest.column, before, dict(newest.to.get(topic, {})), newest.rows)

    def mask(self, batch: pa.RecordBatch, partitions: Any, offsets: Any) -> Any:
        """Which rows of a batch these are."""
        names = self.column.split(".")
        values: Any = batch.column(names[0])
        for name in names[1:]:
            values = pc.struct_field(values, name)
        limit = self.before.date() if pa.types.is_date(values.type) else self.before
        if pa.types.is_timestamp(values.type) and values.type.tz is None:
            limit = self.before.replace(tzinfo=None)
        old = pc.less(values, pa.scalar(limit, values.type))
        below = within(partitions, offsets, {partition: (0, to) for partition, to in self.to.items()})
        return pc.fill_null(pc.and_(old, below), False)  # noqa: FBT003 a value

    def may_be(self, partition: int, offset: int, timestamp_ms: int) -> bool:
        """Whether a record may have been a dead letter that has left: it was there before it was rejected."""
        return offset < self.to.get(partition, 0) and timestamp_ms < self.before.timestamp() * 1000


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

    def within(self, spans: Mapping[int, Span]) -> Iterator[dict[int, Span]]:
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
        rows = reduce(united, (each.row_places for each in entries), Places())
        letters = reduce(united, (each.letter_places for each in entries), Places())
        since = next((each.since for each in reversed(entries) if each.since), {}).get(str(topic), {})
        return cls(len(entries), Spots.of(rows, topic), Spots.of(letters, topic), since)

    def checks(self, *, failed: bool) -> Iterator[Check]:
        """The check, where anybody was forgotten."""
        if self.requests:
            figures = {"requests": self.requests, "rows": self.rows.count, "dead_letters": self.letters.count}
            yield Check("forgotten", "failed" if failed else "proved", dict(figures))
