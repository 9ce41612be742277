"""Roll a table back to an earlier snapshot, and ingestion with it: later offsets are read again (ADR 32)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import takewhile
from typing import ClassVar, Literal

from calve.errors import CalveError
from calve.requests.requests import WaitingRequest
from calve.table.position import Ledger, Offsets, Position, TopicKey
from calve.table.protocol import Begin, Commit, nearest_position
from calve.table.summary import TRAVEL, ends_of, has_position, ledger_of, starts_of

What = Literal["rollback", "rewind"]


@dataclass(frozen=True, slots=True)
class Request(WaitingRequest):
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
            f"snapshot {snapshot} is not in the history of the table as it is now: it has expired, was left behind by an "
            "earlier rollback, or never was",
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
