"""Dead letters counted by reason and schema id: when they were rejected and where they lie, never what they hold."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterable

COLUMNS = ("cluster_id", "topic_id", "partition", "offset", "schema_id", "reason", "rejected_at")
MAX_SCHEMAS = 1_000
"""Schema ids that are told apart for one reason: a producer that sends other bytes than Avro makes any number of them."""
_KEYS = ["cluster_id", "topic_id", "reason", "schema_id", "partition"]
_FIGURES = [("offset", "count"), ("offset", "min"), ("offset", "max")]
_FIGURES += [("rejected_at", "min"), ("rejected_at", "max")]


@dataclass(slots=True)
class Stretch:
    """The dead letters of one partition; between the first and the last offset there may be others."""

    partition: int
    first_offset: int
    last_offset: int
    dead_letters: int = 0

    def __str__(self) -> str:
        several = self.last_offset > self.first_offset
        return f"{self.partition}:{self.first_offset}" + (f"-{self.last_offset}" if several else "")


@dataclass(slots=True)
class Group:
    """The dead letters of one reason, schema id and incarnation of the topic. `other_schemas`: of ids beyond `MAX_SCHEMAS`."""

    cluster_id: str
    topic_id: str
    reason: str
    schema_id: int | None
    other_schemas: bool = False
    dead_letters: int = 0
    first: datetime | None = None
    last: datetime | None = None
    places: dict[int, Stretch] = field(default_factory=dict)

    def add(self, row: dict[str, Any]) -> None:
        """One line of a batch's own summary."""
        count, lowest, highest = row["offset_count"], row["offset_min"], row["offset_max"]
        self.dead_letters += count
        place = self.places.setdefault(row["partition"], Stretch(row["partition"], lowest, highest))
        place.first_offset = min(place.first_offset, lowest)
        place.last_offset = max(place.last_offset, highest)
        place.dead_letters += count
        self.first = min(filter(None, (self.first, row["rejected_at_min"])), default=None)
        self.last = max(filter(None, (self.last, row["rejected_at_max"])), default=None)

    @property
    def line(self) -> dict[str, object]:
        """What and how many, for people."""
        schema = "others" if self.other_schemas else self.schema_id
        return {
            "reason": self.reason,
            "schema_id": "-" if schema is None else str(schema),
            "dead_letters": self.dead_letters,
        }

    def document(self) -> dict[str, object]:
        return {
            "cluster_id": self.cluster_id,
            "topic_id": self.topic_id,
            "reason": self.reason,
            "schema_id": self.schema_id,
            "other_schemas": self.other_schemas,
            "dead_letters": self.dead_letters,
            "first_rejected_at": self.first and self.first.isoformat(),
            "last_rejected_at": self.last and self.last.isoformat(),
            "places": [
                {
                    "partition": each.partition,
                    "first_offset": each.first_offset,
                    "last_offset": each.last_offset,
                    "dead_letters": each.dead_letters,
                }
                for _, each in sorted(self.places.items())
            ],
        }


def summarize(batches: Iterable[pa.RecordBatch]) -> list[Group]:
    """The groups, the largest first; `batches` hold `COLUMNS`."""
    found: dict[tuple[str, str, str, int | None, bool], Group] = {}
    schemas: dict[str, set[int | None]] = {}
    for batch in batches:
        counted = pa.Table.from_batches([batch]).group_by(_KEYS).aggregate(_FIGURES)
        for row in counted.to_pylist():
            known = schemas.setdefault(row["reason"], set())
            other = row["schema_id"] not in known and len(known) >= MAX_SCHEMAS
            if not other:
                known.add(row["schema_id"])
            schema_id = None if other else row["schema_id"]
            key = (row["cluster_id"], row["topic_id"], row["reason"], schema_id, other)
            found.setdefault(key, Group(*key)).add(row)
    return sorted(found.values(), key=lambda each: (-each.dead_letters, each.reason, each.schema_id or -1))
