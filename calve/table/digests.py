"""Digests: for each commit that adds rows, a sum of the rows' hashes by which the table is proved without Kafka (ADR 78).

A digest depends on the rows alone: not on their order, their files, the columns' names, or integers and decimals that were
widened. Digests of two sets of rows add up to that of both.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from calve.table.position import Offsets, TopicKey
from calve.table.protocol import Commit
from calve.table.summary import (
    DIGEST,
    ends_of,
    is_round,
    mode_of,
    remade_of,
    round_of,
    starts_of,
    topic_of,
)

VERSION = 1
"""Of the hash. A digest of another version proves nothing here."""
MODULUS = 1 << 64


@dataclass(frozen=True, slots=True)
class Sum:
    """Rows of one partition of Kafka: their number, the sum of their hashes, and the range [first, end) of their offsets."""

    rows: int
    digest: int
    first: int
    end: int

    def plus(self, other: Sum) -> Sum:
        return Sum(
            self.rows + other.rows,
            (self.digest + other.digest) % MODULUS,
            min(self.first, other.first),
            max(self.end, other.end),
        )


Sums = Mapping[int, Sum]
"""By partition. Partitions without rows are left out."""


def together(parts: Iterable[Sums]) -> Sums:
    found: dict[int, Sum] = {}
    for part in parts:
        for partition, each in part.items():
            found[partition] = found[partition].plus(each) if partition in found else each
    return found


def entry(sums: Sums | None) -> dict[str, str]:
    """The entry of a commit's summary; empty without digests. A digest of no rows says that there are none."""
    if sums is None:
        return {}
    parts = {p: [each.rows, f"{each.digest:x}", each.first, each.end] for p, each in sorted(sums.items())}
    return {DIGEST: json.dumps({"v": VERSION, "rows": parts}, separators=(",", ":"))}


@dataclass(frozen=True, slots=True)
class Claimed:
    """The rows that a commit added at the offsets [start, end) of a partition. digest: None: it proves nothing any more."""

    start: int
    end: int
    rows: int
    digest: int | None


@dataclass(frozen=True, slots=True)
class RoundDigest:
    """A round, redrive or backfill and its digests by partition. at: of the commit, epoch seconds.

    replaces: a backfill. It replaced the rows of these offsets.
    """

    round: str
    sequence: int
    at: float
    parts: Mapping[int, Claimed]
    replaces: bool = False

    @classmethod
    def of(cls, commit: Commit) -> Self | None:
        """None: the commit added no rows of records, or has no digests of this version."""
        summary = commit.summary
        found = json.loads(summary.get(DIGEST, "{}"))
        if found.get("v") != VERSION or not is_round(summary):
            return None
        sums = {
            int(p): Sum(rows, int(digest, 16), *ends) for p, (rows, digest, *ends) in found["rows"].items()
        }
        remade = remade_of(summary)
        ranges = remade or _read(summary, topic_of(summary)) or {p: (e.first, e.end) for p, e in sums.items()}
        parts = {
            p: Claimed(start, end, sums[p].rows if p in sums else 0, sums[p].digest if p in sums else 0)
            for p, (start, end) in ranges.items()
        }
        return cls(
            round_of(summary) or "", commit.sequence, commit.committed_at, parts, replaces=bool(remade)
        )

    def without(self, places: Mapping[str, Sequence[Sequence[int]]]) -> Self:
        """No digest of ranges with any of these places. places: partition -> ranges [from, to), sorted, without overlaps."""
        parts = dict(self.parts)
        for partition, each in self.parts.items():
            ranges = places.get(str(partition), ())
            before = bisect_left(ranges, each.end, key=lambda found: found[0])
            if before and each.start < ranges[before - 1][1]:
                parts[partition] = replace(each, digest=None)
        return replace(self, parts=parts)

    def line(self) -> str:
        parts = {
            p: [e.start, e.end, e.rows, None if e.digest is None else f"{e.digest:x}"]
            for p, e in self.parts.items()
        }
        found: dict[str, Any] = {"round": self.round, "sequence": self.sequence, "at": self.at}
        found |= {"replaces": True} if self.replaces else {}
        return json.dumps(found | {"rows": parts}, separators=(",", ":"))

    @classmethod
    def parse(cls, line: str) -> Self:
        raw = json.loads(line)
        parts = {
            int(p): Claimed(start, end, rows, None if digest is None else int(digest, 16))
            for p, (start, end, rows, digest) in raw["rows"].items()
        }
        return cls(raw["round"], raw["sequence"], raw["at"], parts, raw.get("replaces", False))


@dataclass(frozen=True, slots=True)
class DigestFile:
    """Digests that outlive their snapshots, oldest first. previous: the path of the file before it."""

    previous: str | None
    digests: Sequence[RoundDigest]

    def plus(self, later: Iterable[RoundDigest]) -> Self:
        """With digests of rounds that it lacks."""
        known = {each.round for each in self.digests}
        return replace(self, digests=(*self.digests, *(each for each in later if each.round not in known)))

    def text(self) -> str:
        """A line of JSON with the path, and one for each digest."""
        head = json.dumps({"previous": self.previous, "v": VERSION})
        return "".join(f"{line}\n" for line in (head, *(each.line() for each in self.digests)))

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises ValueError: another release wrote it, with other hashes."""
        head, *lines = text.splitlines()
        found = json.loads(head)
        if found["v"] != VERSION:
            raise ValueError(f"version {found['v']}")
        return cls(found["previous"], tuple(map(RoundDigest.parse, lines)))


def digests_of(line: Sequence[Commit]) -> list[RoundDigest]:
    """The digests of commits, newest first: of the oldest first."""
    return [found for each in reversed(line) if (found := RoundDigest.of(each)) is not None]


def after_other_modes(line: Sequence[Commit]) -> Sequence[Commit]:
    """The commits, newest first, down to one of another mode than append. That mode may have changed any row before it."""
    other = (n for n, each in enumerate(line) if mode_of(each.summary) != "append")
    return line[: next(other, len(line))]


def chain(newest: str | None, read: Callable[[str], DigestFile | None]) -> Iterator[tuple[str, DigestFile]]:
    """The files and their paths, the newest first. read: a file by its path; None: it is gone."""
    path = newest
    while path and (file := read(path)) is not None:
        yield path, file
        path = file.previous


def all_digests(line: Sequence[Commit], files: Iterable[DigestFile]) -> Sequence[RoundDigest]:
    """The digests of files, the newest first, and of commits, newest first: of the oldest first, each round once."""
    own = after_other_modes(line)
    older = [*files][::-1] if len(own) == len(line) else []
    kept = DigestFile(None, [each for file in older for each in file.digests])
    return kept.plus(digests_of(own)).digests


def _read(summary: Mapping[str, str], topic: TopicKey) -> dict[int, tuple[int, int]]:
    """The offsets that a round read, by partition; empty for a commit that read none."""
    ends: Offsets = ends_of(summary).get(topic, {})
    starts = starts_of(summary).get(topic, {})
    return {p: (start, ends[p]) for p, start in starts.items() if start < ends.get(p, 0)}
