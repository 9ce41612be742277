"""Where a copy of a topic goes on: behind the copy of the last record that a table has, found by contents (ADR 73).

MirrorMaker 2, MSK Replicator and Cluster Linking copy a partition's records in order, with key, value and timestamp. After a
restart they may copy some again. So the place is behind the last copy of the record before the table's offset: from there on the
copy has every later record, and no earlier one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Self

from calve.config.job import Kafka
from calve.errors import CalveError
from calve.table.position import Offsets
from calve.table.protocol import TopicState
from cli.kafka import Cluster
from cli.verify.topic import Reader, Records

WINDOW = 1_000
"""So many offsets before the table's are compared at least."""
SHOWN = 5


@dataclass(frozen=True, slots=True)
class Mark:
    """A record by its contents; the same record of a copy has the same `digest`."""

    offset: int
    timestamp_ms: int
    digest: bytes


@dataclass(frozen=True, slots=True)
class Place:
    """Where a partition goes on. records: how many records in a row prove it; 0: neither topic holds a record before it."""

    partition: int
    former: int
    offset: int
    records: int


@dataclass
class Side:
    """One topic on one cluster. stamped: records keep their producers' timestamps."""

    cluster: Cluster
    topic: TopicState
    reader: Reader
    stamped: bool
    compacted: bool

    @classmethod
    def of(cls, kafka: Kafka, region: str, topic: str) -> Self:
        """Raises CalveError: the cluster has no such topic."""
        cluster = Cluster(kafka, region)
        state = cluster.topics({topic}).get(topic)
        if state is None:
            raise CalveError(f"the cluster {kafka.bootstrap_servers} has no topic {topic}")
        stamped = cluster.setting(topic, "message.timestamp.type") == "CreateTime"
        compacted = "compact" in cluster.setting(topic, "cleanup.policy")
        return cls(cluster, state, Reader(state, kafka, region), stamped, compacted)

    def begins(self, moments: Mapping[int, int], *, stamped: bool) -> Offsets:
        """Offsets at or before every record that is as old as these timestamps, by partition."""
        if stamped and all(moment >= 0 for moment in moments.values()):
            return self.cluster.offsets_at(self.topic, moments) if moments else {}
        return {partition: self.topic.log_start[partition] for partition in moments}

    def marks(self, spans: Mapping[int, tuple[int, int]], *, stamped: bool) -> dict[int, list[Mark]]:
        """The records of these offsets, in order. stamped: their timestamps count as contents."""
        found: dict[int, list[Mark]] = {partition: [] for partition in spans}
        for records in self.reader.read(spans):
            for index, mark in enumerate(_marked(records, stamped=stamped)):
                found[records.partitions[index]].append(mark)
        return found


@dataclass
class Search:
    """Compares both topics. held: the table's offsets in the former one. problems: of partitions whose place is not proved."""

    former: Side
    copy: Side
    held: Offsets
    stamped: bool = field(init=False)
    problems: dict[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.stamped = self.former.stamped and self.copy.stamped

    def places(self) -> list[Place]:
        """Where each partition goes on. Raises CalveError: a place is not proved; the message names them."""
        found = {p: place for p in sorted(self.held) if (place := self._unread(p))}
        left = [p for p in sorted(self.held) if p not in found and p not in self.problems]
        windows = {p: self._window(p) for p in left}
        anchors = {p: anchor for p in left if (anchor := self._anchor(p, *windows[p]))}
        oldest = {p: min(each.timestamp_ms for each in anchor) for p, anchor in anchors.items()}
        begins = self.copy.begins(oldest, stamped=self.stamped)
        spans = {p: (begins[p], self.copy.topic.end[p]) for p in anchors}
        copied = self.copy.marks(spans, stamped=self.stamped)
        found |= {
            p: place
            for p, anchor in anchors.items()
            if (place := self._place(p, *windows[p], anchor, copied[p]))
        }
        if self.problems:
            named = [f"partition {p}: {why}" for p, why in sorted(self.problems.items())]
            more = f"; and {len(named) - SHOWN} more" if len(named) > SHOWN else ""
            raise CalveError(
                f"topic {self.copy.topic.name} on cluster {self.copy.topic.key.cluster_id} does not prove where the table"
                f" goes on: {'; '.join(named[:SHOWN])}{more}",
                fix="let the copy catch up, then ask again; nothing was changed",
            )
        return [found[p] for p in sorted(found)]

    def _unread(self, partition: int) -> Place | None:
        """The place of a partition that needs no search: nothing was read, or neither topic holds a record before it."""
        held, former, copy = self.held[partition], self.former.topic, self.copy.topic
        first, end = former.log_start.get(partition, 0), former.end.get(partition, -1)
        if partition not in copy.end:
            self.problems[partition] = "the copy does not have it"
        elif not first <= held <= end:
            self.problems[partition] = f"the former topic has [{first}, {end}), the table goes on at {held}"
        elif held == 0:
            return Place(partition, 0, 0, 0)
        elif first == held and copy.log_start[partition] == copy.end[partition]:
            return Place(partition, held, copy.end[partition], 0)
        return None

    def _window(self, partition: int) -> tuple[list[Mark], list[Mark]]:
        """The records before the table's offset in the former topic that may be alike, and all records from it on."""
        held, topic, size = self.held[partition], self.former.topic, WINDOW
        first = topic.log_start[partition]
        before = self._former(partition, held - size, held)
        while not before and held - size > first:  # compacted away, or markers of transactions
            size *= 16
            before = self._former(partition, held - size, held)
        if before:
            alike = self.former.begins({partition: before[-1].timestamp_ms}, stamped=self.stamped)[partition]
            before = self._former(partition, alike, before[0].offset) + before
        return before, self._former(partition, held, topic.end[partition])

    def _former(self, partition: int, first: int, end: int) -> list[Mark]:
        span = (max(first, self.former.topic.log_start[partition]), end)
        return self.former.marks({partition: span}, stamped=self.stamped)[partition]

    def _anchor(self, partition: int, before: list[Mark], after: list[Mark]) -> list[Mark]:
        """The shortest end of `before` that is nowhere else among these records; empty: with a problem."""
        if not before:
            self.problems[partition] = "the former topic does not hold any record that the table has"
            return []
        whole = before[0].offset == 0
        length = _length([each.digest for each in (*before, *after)], len(before) - 1, whole=whole)
        if not length:
            self.problems[partition] = "its records are all alike, so none of them tells the place"
        return before[len(before) - length :]

    def _place(
        self, partition: int, before: list[Mark], after: list[Mark], anchor: list[Mark], copied: list[Mark]
    ) -> Place | None:
        start = _last(anchor, copied)
        if start is None:
            self.problems[partition] = (
                f"the copy does not have the former topic's record at offset {anchor[-1].offset}"
            )
            return None
        behind = start + len(anchor)
        if problem := self._behind(partition, before, after, copied[:behind], copied[behind:]):
            self.problems[partition] = problem
            return None
        return Place(partition, self.held[partition], copied[behind - 1].offset + 1, len(anchor))

    def _behind(
        self,
        partition: int,
        before: list[Mark],
        after: list[Mark],
        copied: list[Mark],
        following: list[Mark],
    ) -> str | None:
        """Why the copy's records that follow the place are not all later ones, and only these; None: they are."""
        again = "the copy repeats records, as a mirror does after a restart"
        later, found = [each.digest for each in after], Counter(each.digest for each in following)
        known, reached = {*later}, Counter(each.digest for each in copied) & Counter(later)
        if reached - found or not found.keys().isdisjoint(each.digest for each in before):
            return again
        mirrored = next((each.digest for each in following if each.digest in known), None)
        if mirrored is not None and mirrored != later[0]:
            return f"the copy does not have the former topic's record at offset {after[0].offset}"
        strangers = [each for each in following if each.digest not in known]
        if not strangers:
            return None
        if self.former.compacted or self.copy.compacted:
            return "it is compacted, and the copy has records that the former topic does not have"
        oldest = {partition: min(each.timestamp_ms for each in strangers)}
        spans = (
            (self.former, self.held[partition]),
            (self.copy, following[0].offset),
        )
        for side, end in spans:
            first = side.begins(oldest, stamped=self.stamped)[partition]
            earlier = side.marks({partition: (first, end)}, stamped=self.stamped)[partition]
            if not {each.digest for each in earlier}.isdisjoint(each.digest for each in strangers):
                return again
        return None


def _marked(records: Records, *, stamped: bool) -> Iterator[Mark]:
    for index, offset in enumerate(records.offsets):
        at_ms = records.timestamps_ms[index]
        digest = blake2b(str(at_ms).encode() if stamped else b"", digest_size=16)
        for part in (records.keys[index], records.values[index]):
            digest.update(b"-" if part is None else b"%d:" % len(part) + part)
        yield Mark(offset, at_ms, digest.digest())


def _length(digests: Sequence[bytes], last: int, *, whole: bool) -> int:
    """How many digests up to `last` are in a row nowhere else; 0: perhaps none. whole: nothing is before the first digest."""
    longest = 0
    for at in (at for at, each in enumerate(digests) if each == digests[last] and at != last):
        most = min(at, last) + 1
        alike = next((n for n in range(1, most) if digests[at - n] != digests[last - n]), most)
        if alike > at and not whole:
            return 0
        longest = max(longest, alike)
    return longest + 1 if longest <= last else 0


def _last(anchor: Sequence[Mark], copied: Sequence[Mark]) -> int | None:
    """Where the last row of these records begins in the copy."""
    wanted, first = [each.digest for each in anchor], anchor[0].digest
    return next(
        (
            at
            for at in range(len(copied) - len(wanted), -1, -1)
            if copied[at].digest == first and _digests(copied[at : at + len(wanted)]) == wanted
        ),
        None,
    )


def _digests(marks: Iterable[Mark]) -> list[bytes]:
    return [each.digest for each in marks]
