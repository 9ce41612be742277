"""What the steps of a round hand on: frozen values, each made of the one before it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from calve.rounds.dead_letter_policy import Rejects
from calve.table.position import DeadLetterRound, Ledger, Offsets, Position
from calve.table.protocol import Begin, TopicState
from glue_jobs.engines.batch import Batch
from glue_jobs.iceberg.staging import NOTHING, Staged
from glue_jobs.table.counts import Counts
from glue_jobs.table.open_table import OpenTable


@dataclass(frozen=True, slots=True)
class Standing:
    """A table as it is open now, and its position."""

    table: OpenTable
    base: Position


@dataclass(frozen=True, slots=True)
class Planned:
    """The offsets that this round reads. topic: as it was before they were chosen."""

    at: Standing
    topic: TopicState
    start: Begin
    batch: Batch

    @property
    def since(self) -> Offsets:
        """Where the ledger of this round begins: the table's position, below what was lost and what held no record."""
        known = self.at.base.of(self.topic.key) or {}
        return {p: known.get(p, o) for p, o in self.start.since.items()}

    @property
    def more(self) -> bool:
        """The topic has offsets beyond this round's."""
        return self.batch.to != self.topic.end

    @property
    def complete_until(self) -> float | None:
        """All that had arrived until then, in epoch seconds, is read; None where that cannot be said."""
        return None if self.more else self.topic.complete_until


@dataclass(frozen=True, slots=True)
class Written:
    """The good records as data files that no snapshot holds."""

    plan: Planned
    files: Staged = NOTHING
    seen: Counts = field(default_factory=Counts)
    stage_ms: int = 0


@dataclass(frozen=True, slots=True)
class Judged:
    """The rejects: as dead letters that no snapshot of main names (`held`), or only counted."""

    written: Written
    rejects: Staged = NOTHING
    reasons: Mapping[str, int] = field(default_factory=dict)
    skipped: Rejects = field(default_factory=Rejects)
    held: DeadLetterRound | None = None


@dataclass(frozen=True, slots=True)
class Audited:
    """The ledger explains every offset. topic: as the audit found it, before the round; after: as it is now."""

    judged: Judged
    topic: TopicState
    after: TopicState
    ledger: Ledger


@dataclass(frozen=True, slots=True)
class Committed:
    """Main has the rows and stands at `position`. published_at: when the commit began, in epoch seconds."""

    audited: Audited
    position: Position
    snapshot: int
    metrics: Mapping[str, Any]
    published_at: float
    commit_ms: int
