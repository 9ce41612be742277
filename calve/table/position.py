"""The position of a table (its committed offsets) and the ledger of a round, as values. `calve.table.summary` stores them."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import Any

NO_DEAD_LETTERS = ""
"""The round of the newest dead letters if there are none."""

Offsets = dict[int, int]
"""Partition -> next offset to read."""
WIDE = 2_000
"""With so many partitions, the offsets of a topic are stored compressed: a table's metadata repeats them for each snapshot.
With fewer, gzip makes their text as small."""


@dataclass(frozen=True, slots=True)
class TopicKey:
    """One incarnation of a topic: a re-created topic has another id (KIP-516), a re-created cluster another cluster id."""

    cluster_id: str
    topic_id: str

    def __str__(self) -> str:
        return f"{self.cluster_id}/{self.topic_id}"

    @classmethod
    def parse(cls, text: str) -> TopicKey:
        cluster_id, _, topic_id = text.partition("/")
        return cls(cluster_id, topic_id)


TopicEnd = tuple[TopicKey, Offsets]
"""One incarnation of a topic, and the next offset of each partition."""


@dataclass(frozen=True, slots=True)
class Ledger:
    """The outcome of every offset of a round. `span = consumed + gaps + lost`; each consumed record has one outcome.

    `rows_appended` counts rows of the table, which need not equal `applied` records. `rejected` is by reason.
    `lost` counts offsets that expired before they could be read.
    A redrive reads no offsets. Each of its `selected` dead letters is `redriven`, `present` (the table had its record),
    `overtaken` by a later record of its key, or `refused`, by reason.
    `skipped` is by reason, too: rejects that are in no table. `skipped_schemas` counts those rejected for their schema by its id.
    An id unknown today may be registered later.
    `filtered` records belong to other tables of the topic, or steps filtered them (`filtered_by_steps`).
    `filtered_schemas` counts the former by schema id. Both schema counts are limited.
    `rows_filtered` are rows that a step filtered behind one that makes several rows of a record.
    """

    span: int = 0
    consumed: int = 0
    gaps: int = 0
    applied: int = 0
    deduplicated: int = 0
    filtered: int = 0
    filtered_by_steps: int = 0
    dead_lettered: int = 0
    rows_appended: int = 0
    rows_deleted: int = 0
    rows_filtered: int = 0
    lost: int = 0
    selected: int = 0
    redriven: int = 0
    present: int = 0
    overtaken: int = 0
    rejected: dict[str, int] = field(default_factory=dict)
    skipped: dict[str, int] = field(default_factory=dict)
    skipped_schemas: dict[str, int] = field(default_factory=dict)
    refused: dict[str, int] = field(default_factory=dict)
    filtered_schemas: dict[str, int] = field(default_factory=dict)

    def imbalance(self) -> str | None:
        if self.span != self.consumed + self.gaps + self.lost:
            return f"span {self.span} is not consumed {self.consumed} + gaps {self.gaps} + lost {self.lost}"
        skipped = sum(self.skipped.values())
        fates = self.applied + self.deduplicated + self.filtered + self.dead_lettered + skipped
        if self.consumed != fates:
            return (
                f"consumed {self.consumed} is not applied {self.applied} + deduplicated {self.deduplicated}"
                f" + filtered {self.filtered} + dead-lettered {self.dead_lettered} + skipped {skipped}"
            )
        if self.dead_lettered != sum(self.rejected.values()):
            return f"dead-lettered {self.dead_lettered} is not the sum of its reasons {sum(self.rejected.values())}"
        refused = sum(self.refused.values())
        if self.selected != self.closed + refused:
            return (
                f"selected {self.selected} is not redriven {self.redriven} + present {self.present}"
                f" + overtaken {self.overtaken} + refused {refused}"
            )
        named = self.filtered_by_steps + sum(self.filtered_schemas.values())
        if self.filtered < named:
            return f"filtered {self.filtered} is less than by steps and by schema {named}"
        return None

    @property
    def closed(self) -> int:
        """Dead letters that a redrive marked, because it settled them."""
        return self.redriven + self.present + self.overtaken

    def plus(self, other: Ledger) -> Ledger:
        sums: dict[str, Any] = {}
        for name in self.__slots__:
            these, those = getattr(self, name), getattr(other, name)
            if isinstance(these, dict):
                sums[name] = {key: these.get(key, 0) + those.get(key, 0) for key in sorted({*these, *those})}
            else:
                sums[name] = these + those
        return Ledger(**sums)

    def to_json(self) -> str:
        figures = {name: getattr(self, name) for name in self.__slots__}
        return json.dumps({name: value for name, value in figures.items() if value}, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Ledger:
        return cls(**json.loads(text))


@dataclass(frozen=True, slots=True)
class DeadLetterRound:
    """The newest round that changed a table's dead letters; `snapshot` is the commit on the dead-letter table's branch.

    `previous` is the round before it: the dead-letter table must end with that one when this one is published.
    `redriven`: it is a redrive. Its branch holds the redriven dead letters, marked, to replace the unmarked ones.
    """

    round: str
    snapshot: int
    count: int
    previous: str = NO_DEAD_LETTERS
    redriven: bool = False


@dataclass(frozen=True, slots=True)
class Position:
    """The position of a table, from one of its snapshots.

    offsets: the incarnation that was read last is the last one. moved: incarnations whose cluster the table has left for a copy:
    they are never read again.
    """

    offsets: dict[TopicKey, Offsets]
    round: str
    writer: str
    topic: str
    snapshot: int | None = None
    dead_letters: DeadLetterRound | None = None
    redrives: int = 0
    mode: str | None = None
    moved: tuple[TopicKey, ...] = ()

    @property
    def newest(self) -> TopicKey:
        """The incarnation that the table reads now; its ids are empty before the first round."""
        return next(reversed(self.offsets), TopicKey("", ""))

    def with_offsets(self, topic: TopicKey, offsets: Offsets) -> dict[TopicKey, Offsets]:
        """The offsets of all incarnations, with these of `topic`, which becomes the newest."""
        others = {key: each for key, each in self.offsets.items() if key != topic}
        return others | {topic: (self.of(topic) or {}) | offsets}

    def of(self, topic: TopicKey) -> Offsets | None:
        """Next offsets of a topic's incarnation; None if the table has never read it."""
        return self.offsets.get(topic)


def encode_offsets(offsets: Mapping[TopicKey, Offsets]) -> str:
    """JSON: topic -> partition -> offset, in the order of topics. A topic of `WIDE` partitions or more has a text (`_packed`)."""
    return json.dumps(
        {
            str(topic): _packed(parts)
            if len(parts) >= WIDE
            else {str(p): o for p, o in sorted(parts.items())}
            for topic, parts in offsets.items()
        }
    )


def decode_offsets(text: str) -> dict[TopicKey, Offsets]:
    return {
        TopicKey.parse(key): _unpacked(parts)
        if isinstance(parts, str)
        else {int(p): int(o) for p, o in parts.items()}
        for key, parts in json.loads(text).items()
    }


def _packed(parts: Offsets) -> str:
    """Base64 of zlib of JSON `[partitions, offsets]`: both in the order of partitions, each number less the one before it."""
    partitions = sorted(parts)
    columns = (partitions, [parts[each] for each in partitions])
    steps = [[number - before for before, number in pairwise((0, *column))] for column in columns]
    return base64.b64encode(zlib.compress(json.dumps(steps).encode(), 9)).decode()


def _unpacked(text: str) -> Offsets:
    partitions, offsets = map(accumulate, json.loads(zlib.decompress(base64.b64decode(text))))
    return dict(zip(partitions, offsets, strict=True))
