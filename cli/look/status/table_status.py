"""What is known of a table: from its newest metadata, and from its topic."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from calve.config.maintenance import Due
from cli.look.condition import Condition

LagSource = Literal["kafka", "job"]
ANY_REASON = "any"
"""Stands for the reasons of dead letters that were not read."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """A request that no job has answered yet. `request`: what is asked for; `at`: since when."""

    request: str
    at: str | None = None


@dataclass(frozen=True, slots=True)
class TableStatus:
    """One table. None stands for what is not known: nothing was committed, or neither the topic nor a commit says it.

    fix: what the job says cures the state. lag_records: offsets from the table's position to the end of the topic; lag_s: the
    age of the oldest record that is not in the table. lag_source: who says so, as of `lag_as_of`. freshness_s, and of
    the records in the middle and at the 95th of 100: what the last commit achieved; freshness_target_s: the promise;
    freshness_missed: why that commit did not keep it. dead_letters: open ones by reason. lost: offsets that were gone before
    they could be read, in the commits that are kept.
    """

    job: str
    table: str
    topic: str
    state: str
    code: str | None = None
    reason: str | None = None
    fix: str | None = None
    since: str | None = None
    rows: int = 0
    snapshot_id: int | None = None
    committed_at: str | None = None
    commit_age_s: float | None = None
    lag_records: int | None = None
    lag_s: float | None = None
    lag_source: LagSource | None = None
    lag_as_of: str | None = None
    freshness_s: float | None = None
    freshness_p50_s: float | None = None
    freshness_p95_s: float | None = None
    freshness_target_s: float = 0.0
    freshness_missed: str | None = None
    dead_letters: dict[str, int] = field(default_factory=dict)
    lost: int = 0
    files: int = 0
    bytes: int = 0
    delete_files: int = 0
    snapshots: int = 0
    due: tuple[Due, ...] = ()
    waiting: tuple[Waiting, ...] = ()

    @property
    def condition(self) -> Condition:
        """The state with its reason and what to do."""
        return Condition(self.state, self.code, self.reason, self.fix, self.since)

    @property
    def name(self) -> str:
        """The table's, without its database."""
        return self.table.rpartition(".")[2]
