"""What becomes of records that cannot be rows: a table's `on_error`, and the budget that it may spend on them (ADR 9).

Like `calve.protocol`, free of Spark and Kafka. All that is known of the past is what main's ancestors say of themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

from calve.errors import Suspended
from calve.job import Budget, Table
from calve.position import Ledger, ledger_of
from calve.protocol import Commit

BY_SCHEMA = ("unknown_schema_id", "incompatible_schema")
"""Reasons that all records with one schema id share within a round; they need not be true for ever."""
MAX_GROUPS = 100
SAMPLES = 3


@dataclass(frozen=True, slots=True)
class Group:
    """Rejects of one reason and schema id (`Wire.name`); `partition` and `offset` are of the first of them."""

    reason: str
    schema_id: str | None
    records: int
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class Rejects:
    """The rejects of a round: all of them by reason, and the `MAX_GROUPS` largest groups, the largest first."""

    reasons: Mapping[str, int] = field(default_factory=dict)
    groups: tuple[Group, ...] = ()

    @property
    def schemas(self) -> dict[str, int]:
        """Schema id -> records, of those that were rejected for their schema."""
        return {
            each.schema_id: each.records
            for each in self.groups
            if each.schema_id and each.reason in BY_SCHEMA
        }


@dataclass(frozen=True, slots=True)
class Tally:
    """Records read that are not other tables', and those of them that were rejected."""

    records: int = 0
    rejects: int = 0

    def plus(self, records: int, rejects: int) -> Tally:
        return Tally(self.records + records, self.rejects + rejects)

    @classmethod
    def of(cls, ledger: Ledger) -> Self:
        own = ledger.consumed - ledger.filtered + ledger.filtered_by_steps
        return cls(own, ledger.dead_lettered + sum(ledger.skipped.values()))


@dataclass(frozen=True, slots=True)
class Spent:
    """What rounds up to the moment `at` had, whose snapshots have expired (`calve.earlier`)."""

    at: float
    tally: Tally


def limit(budget: Budget, records: int) -> int:
    """How many of so many records may be rejected."""
    share = budget.share * (1 + 1e-12)  # 0.29 * 100 is less than 29
    return max(budget.records, int(share * records))


def exceeded(budget: Budget, tally: Tally) -> bool:
    return tally.rejects > limit(budget, tally.records)


def spent(past: Iterable[Commit], budget: Budget, *, now: float, expired: Sequence[Spent] = ()) -> Tally:
    """What the rounds within the budget's time have used up; `past` runs from the head of main towards the root, `expired` are
    those before it, the oldest first.

    Rounds that together were beyond the budget are in the table all the same, so a person has let them through: they count
    no more. Else a budget that was raised for them and lowered again would suspend the table for what it holds already.
    """
    rounds: dict[str, Ledger] = {}
    for commit in past:
        if now - commit.committed_at > budget.within_s:
            break
        if "calve.ledger" in commit.summary:
            rounds.setdefault(commit.summary["calve.round"], ledger_of(commit.summary))
    tallies = [each.tally for each in expired if now - each.at <= budget.within_s]
    tally = Tally()
    for each in (*tallies, *map(Tally.of, reversed(rounds.values()))):
        tally = tally.plus(each.records, each.rejects)
        if exceeded(budget, tally):
            tally = Tally()
    return tally


def check_rejects(
    table: Table,
    past: Iterable[Commit],
    *,
    now: float,
    read: Tally,
    found: Callable[[], Rejects],
    misfit: Callable[[str], str],
    expired: Sequence[Spent] = (),
) -> None:
    """Whether a round that `read` so much may be published.

    `found` and `misfit` (why records of a schema id are no rows) are asked only where it may not.

    Raises:
        Suspended: a record was rejected and the table's policy is to stop there (`record_rejected`), or there are more
            than its budget allows (`rejects_over_budget`). The message names counts and places, never a value.
    """
    if not read.rejects:
        return
    if table.on_error == "suspend":
        raise Suspended(
            "record_rejected",
            f"{read.rejects:,} of {read.records:,} records cannot be rows: {describe(table.topic, found(), misfit)}",
            fix=f"correct their source (a schema that is missing may be registered), or set on_error for table {table.name}:"
            " dead_letter keeps such records beside the table, skip leaves them out; then start the job again",
        )
    budget = table.dead_letter_budget
    before = spent(past, budget, now=now, expired=expired)
    total = before.plus(read.records, read.rejects)
    if not exceeded(budget, total):
        return
    earlier = f", {before.rejects:,} of them in earlier rounds" if before.rejects else ""
    raise Suspended(
        "rejects_over_budget",
        f"{total.rejects:,} of {total.records:,} records of the last {_time(budget.within_s)} cannot be rows{earlier};"
        f" the budget is {limit(budget, total.records):,}: {describe(table.topic, found(), misfit)}",
        fix=f"correct their source, or let them through: raise dead_letter_budget of table {table.name} to"
        f" {{records: {total.rejects}}} at least, and start the job again",
    )


def describe(topic: str, rejects: Rejects, misfit: Callable[[str], str]) -> str:
    """Counts by reason and the places of some."""
    counts = sorted(rejects.reasons.items(), key=lambda each: (-each[1], each[0]))
    samples = [
        f"partition {each.partition} offset {each.offset} ({_why(each, misfit)})"
        for each in rejects.groups[:SAMPLES]
    ]
    return (
        f"{', '.join(f'{n:,} {reason}' for reason, n in counts)}; such as topic {topic} {', '.join(samples)}"
    )


def _why(group: Group, misfit: Callable[[str], str]) -> str:
    if group.schema_id is None:
        return group.reason
    why = f"{group.reason}, schema id {group.schema_id}"
    return f"{why}: {misfit(group.schema_id)}" if group.reason == "incompatible_schema" else why


def _time(seconds: float) -> str:
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds >= size and seconds % size == 0:
            return f"{seconds / size:g}{unit}"
    return f"{seconds:g}s"
