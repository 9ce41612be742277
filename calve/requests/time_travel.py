"""Read records again (ADR 32).

A rollback takes a table and its position back to an earlier snapshot: later offsets are read again. A backfill makes the rows of
an offset range again and replaces the old ones, in one commit that moves no offset. It replaces only rows whose records were rows
before and are rows now, so the ledgers of the original rounds stay true.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import takewhile
from typing import ClassVar, Literal

from calve.config.job import Start
from calve.errors import CalveError
from calve.requests.requests import WaitingRequest
from calve.table.position import Ledger, Offsets, Position, TopicKey
from calve.table.protocol import Begin, Commit, nearest_position
from calve.table.summary import BACKFILL, TRAVEL, ends_of, has_position, ledger_of, starts_of

What = Literal["rollback", "rewind"]


@dataclass(frozen=True, slots=True)
class RollbackRequest(WaitingRequest):
    """The snapshot to roll main back to. `what`: whether the person chose it by a time of the table or a place in the topic."""

    NAME: ClassVar[str] = TRAVEL
    by: str
    what: What
    snapshot: int


@dataclass(frozen=True, slots=True)
class Journey:
    """The way from main's head back to `to`. `left`: the snapshots that main loses, newest first."""

    to: Commit
    position: Position
    left: tuple[Commit, ...]

    @property
    def begun(self) -> dict[TopicKey, Offsets]:
        """Where reading must start again so that nothing is missing."""
        read, known = first_read(self.left), self.position.offsets
        return {topic: read.get(topic, {}) | known.get(topic, {}) for topic in {**read, **known}}

    @property
    def reread(self) -> int:
        """The number of offsets that the table has read beyond `to`."""
        now, begun = nearest_position(self.left), self.begun
        return sum(
            end - begun.get(topic, {}).get(partition, end)
            for topic, offsets in (now.offsets if now else {}).items()
            for partition, end in offsets.items()
        )

    @property
    def ledger(self) -> Ledger:
        """The sum of the lost rounds' ledgers."""
        return reduce(Ledger.plus, (ledger_of(each.summary) for each in self.left), Ledger())

    @property
    def others(self) -> int:
        """The number of lost foreign snapshots: deletions, compactions and other commits of others."""
        return sum(not has_position(each.summary) for each in self.left)


def first_read(ancestors: Iterable[Commit]) -> dict[TopicKey, Offsets]:
    """Where the oldest of these commits, newest first, began to read each partition."""
    found: dict[TopicKey, Offsets] = {}
    for commit in ancestors:
        for topic, offsets in starts_of(commit.summary).items():
            found[topic] = found.get(topic, {}) | offsets
    return found


def journey(ancestors: Sequence[Commit], snapshot: int) -> Journey:
    """The way back to a snapshot of main's history. Raises CalveError: it is not in that history, or its offsets are unknown."""
    left = tuple(takewhile(lambda each: each.id != snapshot, ancestors))
    rest = ancestors[len(left) :]
    if not rest:
        raise CalveError(
            f"snapshot {snapshot} is not in the history of the table now. It has expired, an earlier rollback left it behind, "
            "or it never was",
            fix="choose one of those that `calve rollback` lists without --to",
        )
    position = nearest_position(rest)
    if position is None:
        raise CalveError(
            f"nothing says which offsets snapshot {snapshot} holds: those before it have expired",
            fix="choose a newer one",
        )
    return Journey(rest[0], position, left)


def at_moment(ancestors: Iterable[Commit], moment: float) -> Commit | None:
    """The newest commit at a time, in epoch seconds: it holds nothing that arrived later."""
    return next((each for each in ancestors if each.committed_at <= moment), None)


def before_offsets(ancestors: Iterable[Commit], topic: TopicKey, wanted: Offsets) -> Commit | None:
    """The newest commit that holds nothing at or beyond these offsets of the topic's partitions."""
    for commit in ancestors:
        if not has_position(commit.summary):
            continue
        held = ends_of(commit.summary).get(topic, {})
        if all(held.get(partition, 0) <= offset for partition, offset in wanted.items()):
            return commit
    return None


def require_readable(way: Journey, topic: TopicKey, start: Begin) -> None:
    """Refuse to lose offsets that the topic no longer holds. `start`: where the next round would begin. Raises CalveError."""
    begun = way.begun.get(topic, {})
    gone = {p: (begun[p], o) for p, o in start.offsets.items() if o > begun.get(p, o)}
    if gone:
        ranges = ", ".join(f"partition {p} [{a}, {b})" for p, (a, b) in sorted(gone.items()))
        raise CalveError(
            f"the table would lose offsets that would not be read again: {ranges}",
            fix="choose a newer snapshot",
        )


Range = dict[int, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class BackfillRequest(WaitingRequest):
    """The records from `start` to `to` (exclusive); each end is offsets of partitions, or a record timestamp."""

    NAME: ClassVar[str] = BACKFILL
    by: str
    start: Start
    to: Start


def range_of(start: Offsets, to: Offsets, *, held: Offsets, log_start: Offsets) -> Range:
    """The offsets between both ends that the table has read. Raises CalveError: there are none, or some have expired."""
    found = {p: (o, min(to[p], held[p])) for p, o in start.items() if p in to and p in held}
    found = {p: (a, b) for p, (a, b) in found.items() if a < b}
    if not found:
        raise CalveError("the table has read no records of this range")
    if gone := sorted(p for p, (a, _) in found.items() if a < log_start.get(p, 0)):
        raise CalveError(
            f"the topic no longer holds the range: partition {gone[0]} begins at {log_start[gone[0]]} now"
        )
    return found


def remade_json(offsets: Range) -> str:
    return json.dumps({str(p): [a, b] for p, (a, b) in sorted(offsets.items())})
