"""The values that the steps of a round pass on: frozen, each built from the one before it."""

from __future__ import annotations

from dataclasses import dataclass, field

from calve.rounds.dead_letter_policy import Rejects
from calve.rounds.expectations import Missed, Rules
from calve.table.position import DeadLetterRound, Ledger, Offsets, Position
from calve.table.protocol import Begin, TopicState
from glue_jobs.engines.batch import Batch
from glue_jobs.iceberg.staging import NOTHING, Staged
from glue_jobs.table.counts import Counts
from glue_jobs.table.open_table import OpenTable, Outcome


@dataclass(frozen=True, slots=True)
class Positioned:
    """An open table and its position."""

    table: OpenTable
    base: Position


@dataclass(frozen=True, slots=True)
class Planned:
    """The offsets that this round reads. topic: its state before they were chosen."""

    at: Positioned
    topic: TopicState
    start: Begin
    batch: Batch

    @property
    def since(self) -> Offsets:
        """Where the ledger of this round starts: the table's position, before lost offsets and offsets without records."""
        known = self.at.base.of(self.topic.key) or {}
        return {p: known.get(p, o) for p, o in self.start.since.items()}

    @property
    def more(self) -> bool:
        return self.batch.to != self.topic.end

    @property
    def complete_until(self) -> float | None:
        """Every record that arrived before this time (epoch seconds) has been read. None if unknown."""
        return None if self.more else self.topic.complete_until


@dataclass(frozen=True, slots=True)
class Written:
    """The good records as data files that no snapshot contains yet."""

    plan: Planned
    files: Staged = NOTHING
    counts: Counts = field(default_factory=Counts)
    stage_ms: int = 0


@dataclass(frozen=True, slots=True)
class Judged:
    """The rejected records: as dead letters that no snapshot of main names yet (`held`), or only counted."""

    written: Written
    rejects: Staged = NOTHING
    kept: Rejects = field(default_factory=Rejects)
    skipped: Rejects = field(default_factory=Rejects)
    held: DeadLetterRound | None = None


@dataclass(frozen=True, slots=True)
class Audited:
    """The ledger explains every offset. topic: as the audit uses it, from before the round; after: its state now.

    rules: counts by rule. missed: the expectations that too few records met.
    """

    judged: Judged
    topic: TopicState
    after: TopicState
    ledger: Ledger
    rules: Rules
    missed: tuple[Missed, ...]


@dataclass(frozen=True, slots=True)
class Committed:
    """Main has the rows. Dead letters and the output topic follow."""

    judged: Judged
    outcome: Outcome
