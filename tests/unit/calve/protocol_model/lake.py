"""A topic and an Iceberg-like catalog with an unreliable network: the world that the protocol's model runs in.

Everything is a value: a table is a chain of immutable metadata versions, and a commit swaps one version for the next.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

from calve.table.position import Offsets, TopicKey
from calve.table.protocol import Commit, TopicState

MAIN = "main"


class Row(NamedTuple):
    """One record, as the topic really gave it (whatever the writer believed it was reading).

    `redriven`: of a dead letter, the redrive that brought the record into main.
    """

    topic: TopicKey
    partition: int
    offset: int
    round: str
    kind: str = "g"
    redriven: str = ""

    @property
    def record(self) -> tuple[TopicKey, int, int]:
        return self.topic, self.partition, self.offset


@dataclass(frozen=True, slots=True)
class Snapshot:
    """`lineage` is the truth that expiry cannot take away: the rounds whose rows this snapshot builds on."""

    id: int
    parent: int | None
    summary: Mapping[str, str]
    rows: tuple[Row, ...]
    lineage: tuple[str, ...] = ()


class Wanted(NamedTuple):
    """A request to go back to a snapshot."""

    id: int
    snapshot: int


class WantedMove(NamedTuple):
    """A request to go on with a copy of the topic. offsets: pairs of partition and offset."""

    id: int
    round: str
    former: TopicKey
    copy: TopicKey
    offsets: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Metadata:
    """`wanted`, `answered`: properties of the table, by which people ask for something; the latter are ids of requests."""

    version: int
    snapshots: Mapping[int, Snapshot]
    refs: Mapping[str, int]
    wanted: Wanted | WantedMove | None = None
    answered: tuple[int, ...] = ()

    def head(self, ref: str = MAIN) -> Snapshot:
        return self.snapshots[self.refs[ref]]

    def walk(self, ref: str = MAIN) -> Iterator[Snapshot]:
        """From the head of `ref` towards the root, as far as expiry has left it."""
        at: int | None = self.refs.get(ref)
        while at is not None and at in self.snapshots:
            yield self.snapshots[at]
            at = self.snapshots[at].parent

    def ancestors(self, ref: str = MAIN) -> list[Commit]:
        return [as_commit(snapshot) for snapshot in self.walk(ref)]

    def with_ref(self, ref: str, snapshot: int | None) -> Metadata:
        refs = {name: at for name, at in self.refs.items() if name != ref}
        return replace(self, refs=refs if snapshot is None else refs | {ref: snapshot})

    def with_snapshot(self, snapshot: Snapshot, ref: str = MAIN) -> Metadata:
        return replace(self, snapshots={**self.snapshots, snapshot.id: snapshot}).with_ref(ref, snapshot.id)

    def expired(self, keep: int, since: int | None = None) -> Metadata:
        """Without all snapshots but the newest `keep` of every branch, those that a ref names, and those from `since` on."""
        kept = {*self.refs.values(), *(at for at in self.snapshots if since is not None and at >= since)}
        for ref in self.refs:
            kept.update(snapshot.id for snapshot, _ in zip(self.walk(ref), range(keep), strict=False))
        return replace(self, snapshots={at: s for at, s in self.snapshots.items() if at in kept})


def as_commit(snapshot: Snapshot) -> Commit:
    return Commit(snapshot.id, snapshot.parent, snapshot.summary)


Answer = Literal["ok", "conflict", "unknown"]


@dataclass
class Table:
    """A table of the catalog. `late` holds commit requests that are still on their way."""

    name: str
    ids: Iterator[int]
    metadata: Metadata = field(init=False)
    late: list[tuple[int, Metadata]] = field(default_factory=list)

    def create(self, summary: Mapping[str, str]) -> None:
        """Make the table and its root snapshot in one step."""
        root = Snapshot(next(self.ids), None, {"total-records": "0", **summary}, ())
        self.metadata = Metadata(0, {root.id: root}, {MAIN: root.id})

    def snapshot(
        self,
        base: Metadata,
        summary: Mapping[str, str],
        rows: tuple[Row, ...],
        *lineage: str,
        ref: str = MAIN,
    ) -> Metadata:
        """`base` with one more snapshot on `ref`, which begins at main's head where it is new."""
        parent = base.head(ref if ref in base.refs else MAIN)
        totals = {"total-records": str(len(rows))}
        made = Snapshot(next(self.ids), parent.id, {**summary, **totals}, rows, (*parent.lineage, *lineage))
        return base.with_snapshot(made, ref)

    def swap(self, version: int, new: Metadata) -> bool:
        """The catalog's compare-and-swap on the metadata version."""
        if self.metadata.version != version:
            return False
        self.metadata = replace(new, version=version + 1)
        return True

    def request(self, version: int, new: Metadata, fate: str) -> Answer:
        """One commit request over the network."""
        if fate == "late":
            self.late.append((version, new))
        if fate in ("late", "lost"):
            return "unknown"
        applied = self.swap(version, new)
        if fate == "answer lost":
            return "unknown"
        if (
            fate == "told conflict"
        ):  # a client that retries by itself meets its own first attempt: apache/iceberg #7151
            return "conflict"
        return "ok" if applied else "conflict"

    def change(self, change: Callable[[Metadata], Metadata]) -> None:
        """A commit by somebody else: a user, or foreign maintenance."""
        self.swap(self.metadata.version, change(self.metadata))

    def deliver(self) -> None:
        version, new = self.late.pop(0)
        self.swap(version, new)


@dataclass
class Topic:
    """Records are characters.

    `g`ood, `b`ad, `s`chema not registered yet, `-` transaction marker, `x` removed by log compaction.
    """

    key: TopicKey
    records: dict[int, str]
    log_start: Offsets
    transactional: bool = False
    compacted: bool = False

    @classmethod
    def empty(cls, key: TopicKey, partitions: int, *, transactional: bool) -> Topic:
        return cls(
            key, dict.fromkeys(range(partitions), ""), dict.fromkeys(range(partitions), 0), transactional
        )

    def state(self) -> TopicState:
        return TopicState(
            key=self.key,
            name="trades",
            log_start=dict(self.log_start),
            end={p: len(records) for p, records in self.records.items()},
            compacted=self.compacted,
            transactional=self.transactional,
        )

    def read(self, start: Offsets, to: Offsets) -> list[tuple[TopicKey, int, int, str]]:
        """What the broker gives for the offsets of a plan, made for this incarnation of the topic or not."""
        return [
            (self.key, p, o, self.records[p][o])
            for p in sorted(start)
            for o in range(max(start[p], self.log_start.get(p, 0)), min(to[p], len(self.records.get(p, ""))))
            if self.records[p][o] not in "-x"
        ]

    def compact(self, rng: random.Random) -> None:
        for partition, records in self.records.items():
            self.records[partition] = "".join(
                "x" if r in "gb" and o + 1 < len(records) and rng.random() < 0.2 else r
                for o, r in enumerate(records)
            )


def doubled(rows: tuple[Row, ...]) -> list[tuple[TopicKey, int, int]]:
    return [record for record, times in Counter(row.record for row in rows).items() if times > 1]
