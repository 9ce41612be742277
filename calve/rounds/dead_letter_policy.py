"""The policy for records that cannot be rows: a table's `on_error`, and its budget for them, by main's history (ADR 9)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Self

from calve.config.job import Budget, Table
from calve.errors import Suspended
from calve.table.position import Ledger
from calve.table.protocol import Commit, each_round
from calve.table.summary import ledger_of

BY_SCHEMA = ("unknown_schema_id", "incompatible_schema")
"""Reasons that all records with one schema id share within a round; they may change later."""
MAX_GROUPS = 100
SAMPLES = 3
NEW_RECORDS, MANY_RECORDS, NEARLY_ALL = 100, 10_000, 0.95
"""A table is new until its rounds have read `MANY_RECORDS`. If `NEARLY_ALL` of at least `NEW_RECORDS` are rejects, it stops."""


@dataclass(frozen=True, slots=True)
class Group:
    """Rejects with one reason and schema id (`Wire.name`), and the place of the first one. message: why it fits no schema."""

    reason: str
    schema_id: str | None
    records: int
    partition: int
    offset: int
    message: str | None = None


@dataclass(frozen=True, slots=True)
class Rejects:
    """The rejects of a round: all by reason, and the `MAX_GROUPS` largest groups, largest first.

    unmet: those that do not meet an expectation, by the number of its step.
    """

    reasons: Mapping[str, int] = field(default_factory=dict)
    groups: tuple[Group, ...] = ()
    unmet: Mapping[int, int] = field(default_factory=dict)

    @property
    def schemas(self) -> dict[str, int]:
        """Schema id -> records, of those that were rejected for their schema."""
        return {
            each.schema_id: each.records
            for each in self.groups
            if each.schema_id and each.reason in BY_SCHEMA
        }


@dataclass(frozen=True, slots=True)
class RejectCounts:
    """Records read without those of other tables, and the number of rejects among them."""

    records: int = 0
    rejects: int = 0

    def __add__(self, other: RejectCounts) -> RejectCounts:
        return RejectCounts(self.records + other.records, self.rejects + other.rejects)

    @classmethod
    def of(cls, ledger: Ledger) -> Self:
        own = ledger.consumed - ledger.filtered + ledger.filtered_by_steps
        return cls(own, ledger.dead_lettered + sum(ledger.skipped.values()))


@dataclass(frozen=True, slots=True)
class UsedBudget:
    """The counts of rounds up to the time `at`: of one, or of those whose snapshots have expired."""

    at: float
    counts: RejectCounts


def limit(budget: Budget, records: int) -> int:
    share = budget.share * (1 + 1e-12)  # 0.29 * 100 is less than 29
    return max(budget.records, int(share * records))


def exceeded(budget: Budget, counts: RejectCounts) -> bool:
    return counts.rejects > limit(budget, counts.records)


def spent(
    past: Iterable[Commit], budget: Budget, *, now: float, expired: Sequence[UsedBudget] = ()
) -> RejectCounts:
    """The budget that the rounds within its time have used.

    `past` runs from the head of main towards the root; `expired` are the counts before it, oldest first.
    If rounds together exceeded the budget and are in the table, a person has allowed them: they no longer count.
    Otherwise a budget that was raised for them and lowered again would suspend the table for its existing data.
    """
    recent = list(takewhile(lambda each: now - each.at <= budget.within_s, _rounds(past)))
    counts = RejectCounts()
    for each in (*(each for each in expired if now - each.at <= budget.within_s), *reversed(recent)):
        counts += each.counts
        if exceeded(budget, counts):
            counts = RejectCounts()
    return counts


def _rounds(past: Iterable[Commit]) -> Iterator[UsedBudget]:
    """The counts of each round; newest first, as `past`."""
    for commit in each_round(past):
        yield UsedBudget(commit.committed_at, RejectCounts.of(ledger_of(commit.summary)))


def check_rejects(
    table: Table,
    past: Iterable[Commit],
    *,
    now: float,
    read: RejectCounts,
    found: Callable[[], Rejects],
    misfit: Callable[[str], str],
    expired: Sequence[UsedBudget] = (),
) -> None:
    """Check whether a round that `read` these counts may be published.

    `found` and `misfit` (why records of a schema id cannot be rows) are called only for an error.

    Raises:
        Suspended: `record_rejected`: a record was rejected and the policy is to stop. `rejects_over_budget`: too many
            rejects.
            `nearly_all_rejected`: nearly all records of a new table with the default budget were rejected.
            The message has counts and places, never a value.
    """
    if not read.rejects:
        return
    if table.on_error == "suspend":
        raise Suspended(
            "record_rejected",
            f"{read.rejects:,} of {read.records:,} records cannot be rows: {describe(table.topic, found(), misfit)}",
            fix=f"correct their source (register a missing schema), or set on_error for table {table.name}."
            " dead_letter keeps such records beside the table, skip leaves them out. Then start the job again",
        )
    budget = table.dead_letter_budget
    if budget == Budget() and not expired:
        _check_new(table, past, read, found, misfit)
    before = spent(past, budget, now=now, expired=expired)
    total = before + read
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


def _check_new(
    table: Table,
    past: Iterable[Commit],
    read: RejectCounts,
    found: Callable[[], Rejects],
    misfit: Callable[[str], str],
) -> None:
    """Raises Suspended if nearly all records of a new table were rejected: its configuration is probably wrong."""
    before = RejectCounts()
    for each in _rounds(past):
        before += each.counts
        if before.records >= MANY_RECORDS:
            return
    every = before + read
    if _nearly_all(before) or not _nearly_all(every):  # a person has allowed what is in the table
        return
    rejects = found()
    raise Suspended(
        "nearly_all_rejected",
        f"{every.rejects:,} of all {every.records:,} records that table {table.name} has read cannot be rows:"
        f" {describe(table.topic, rejects, misfit)}",
        fix=f"{_fix_of(table, rejects)}, and start the job again. To let such records through, give table {table.name} a budget:"
        " `dead_letter_budget: {share: 100%}`",
    )


def _nearly_all(counts: RejectCounts) -> bool:
    return counts.records >= NEW_RECORDS and counts.rejects >= NEARLY_ALL * counts.records


_FIXES = {
    "null_value": "give table {table} a mode in which records without a value delete rows: `upsert`",
    "null_key": "name a key in the mode of table {table} that its records have",
    "truncation": "let the database not empty the table whose history table {table} keeps",
    "bad_event": "in calve.yaml, remove `value: {{cloudevents: NAME}}` of table {table}: its records are no CloudEvents",
    "expectation_unmet": "correct `expect` of table {table}: its records do not meet it",
    "value_unavailable": "let the database log whole rows (PostgreSQL: REPLICA IDENTITY FULL), or let the steps of table {table}"
    " not compute with columns that may be large",
}


def _fix_of(table: Table, rejects: Rejects) -> str:
    """The probable error in calve.yaml if nearly all records are rejected, by the most frequent reason."""
    most = max(rejects.reasons, key=lambda each: rejects.reasons[each], default="")
    why = next((each.message for each in rejects.groups if each.reason == most and each.message), "")
    match most:
        case "incompatible_schema" if "the message" in why:
            return f"in calve.yaml, name the message of table {table.name}: `value: {{message: NAME}}`"
        case "unknown_schema_id" | "incompatible_schema":
            return f"in calve.yaml, name the registry and the subject of table {table.name}: `value: {{subject: NAME}}`"
        case "truncated" | "bad_magic":
            return (
                f"in calve.yaml, say how the values of table {table.name} are written: they do not begin with a schema id."
                " `value: {format: json, schema: FILE}` (or avro, protobuf) needs no registry; `value: {prefix: none}` reads"
                " values of a registered subject"
            )
        case "malformed" | "trailing_bytes":
            said = (
                "`value: {subject: NAME}`"
                if table.value.registered
                else "`value: {format: FORMAT, schema: FILE}`"
            )
            return f"in calve.yaml, name the schema that wrote the values of table {table.name}: {said}"
        case "bad_change" if table.value.document is not None:
            return f"in calve.yaml, correct the file of `value.document` of table {table.name}"
        case "bad_change":
            mode = "of: change_data" if table.history else "change_data"
            return f"remove `{mode}` of table {table.name}: its records are not change events of Debezium"
        case _ if most in _FIXES:
            return _FIXES[most].format(table=table.name)
        case _ if most.startswith("key_"):
            return f"in calve.yaml, say how the keys of table {table.name} are written: `key: {{format: FORMAT}}`"
    return f"in calve.yaml, correct the steps of table {table.name}"


def describe(topic: str, rejects: Rejects, misfit: Callable[[str], str]) -> str:
    """Counts by reason, and the places of some rejects."""
    counts = sorted(rejects.reasons.items(), key=lambda each: (-each[1], each[0]))
    samples = [
        f"partition {each.partition} offset {each.offset} ({_why(each, misfit)})"
        for each in rejects.groups[:SAMPLES]
    ]
    return (
        f"{', '.join(f'{n:,} {reason}' for reason, n in counts)}; such as topic {topic} {', '.join(samples)}"
    )


def _why(group: Group, misfit: Callable[[str], str]) -> str:
    why = group.reason if group.schema_id is None else f"{group.reason}, schema id {group.schema_id}"
    message = group.message
    if message is None and group.schema_id is not None and group.reason == "incompatible_schema":
        message = misfit(group.schema_id)
    return f"{why}: {message}" if message else why


def _time(seconds: float) -> str:
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds >= size and seconds % size == 0:
            return f"{seconds / size:g}{unit}"
    return f"{seconds:g}s"
