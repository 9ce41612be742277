"""The health of a table: its condition with its figures, and for each problem a sentence and a fix."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Literal

from calve.config.maintenance import Due
from calve.config.topics import NotKept
from cli.conditions import STOPPED, Condition
from cli.console import duration
from lambdas.publish_states import PublishState, State

LagSource = Literal["kafka", "job"]
ANY_REASON = "any"
"""Replaces the reasons of dead letters that were not read."""
SILENT_AFTER_S = 300.0
"""No job runs if records wait and no commit came for this long, and for several times the freshness target."""
SILENT_TARGETS = 5
UNANSWERED_S = 120.0
LOOK_AT_THE_JOB = "see whether the job runs: start it with calve ingest, or look at its runs in AWS Glue"
CAUSES = {
    "capacity": (": more arrives than the job gets done", "more workers: `workers` of the job in calve.yaml"),
    "catalog": (": commits take long", "see the catalog's limits, or promise a little less: `freshness`"),
    "source": (
        ": records come late into the topic",
        "see their producers: the job has them as soon as they are there",
    ),
    "outage": (": it catches up with what an outage left", "wait; it ends by itself"),
    "paused": (": it catches up with what a pause left", "wait; it ends by itself"),
}
"""Why a freshness target was missed, by the job's commits, with the fix."""
LASTING = ("capacity", "catalog", "source")
"""Causes that go on when no records wait."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """A request that no job has answered yet. `request`: its kind; `at`: since when."""

    request: str
    at: str | None = None


@dataclass(frozen=True, slots=True)
class TableStatus:
    """One table. None: not known, since nothing was committed, or neither the topic nor a commit tells.

    fix: of the state. lag_records: offsets from the table's position to the end of the topic; lag_s: age of the oldest record
    that is not in the table; lag_source: who reports it, as of `lag_as_of`. freshness_s, freshness_p50_s, freshness_p95_s: of the
    last commit; freshness_target_s: the target; freshness_missed: why that commit missed it. dead_letters: open ones by reason.
    expectations_missed: what too few records of the hour before the last commit met, in sentences.
    lost: offsets that expired before they were read, in the commits that are kept.
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
    expectations_missed: tuple[str, ...] = ()
    lost: int = 0
    files: int = 0
    bytes: int = 0
    delete_files: int = 0
    snapshots: int = 0
    due: tuple[Due, ...] = ()
    waiting: tuple[Waiting, ...] = ()

    @property
    def name(self) -> str:
        return self.table.rpartition(".")[2]


class Urgency(StrEnum):
    """STOPPED: a table gets nothing. LATE: it misses its freshness target. NOTE: records or a person wait."""

    STOPPED = "stopped"
    LATE = "late"
    NOTE = "note"


ORDER = list(Urgency)


@dataclass(frozen=True, slots=True)
class Trouble:
    """A problem of a table, a topic, or several, with its fix."""

    urgency: Urgency
    where: str
    what: str
    fix: str | None = None


def troubles(
    tables: Sequence[TableStatus],
    published: Iterable[PublishState],
    not_kept: Iterable[NotKept],
    now: datetime,
) -> list[Trouble]:
    """All problems, the most urgent first; tables with the same problem and fix are named together."""
    found = [trouble for table in tables for trouble in _of_table(table, now)]
    for each in published:
        if each.state is State.FAILED:
            long = duration(max(0.0, now.timestamp() - each.since_ms / 1000))
            where = f"{each.table.rpartition('.')[2]} in {each.target}"
            fix = f"fix that; calve tries again every five minutes (docs/{each.target}.md)"
            found.append(Trouble(Urgency.NOTE, where, f"failed for {long}: {each.reason}", fix))
    for topic in not_kept:
        found.append(Trouble(Urgency.NOTE, topic.topic, f"is no table: {topic.reason}", topic.fix))
    return _together(found)


def of_states(conditions: Iterable[tuple[str, Condition]], now: datetime) -> list[Trouble]:
    return _together(found for name, each in conditions if (found := _of_condition(name, each, now)))


def _together(found: Iterable[Trouble]) -> list[Trouble]:
    """The most urgent first; those with the same words are one that names the first three."""
    together: dict[tuple[Urgency, str, str | None], list[str]] = {}
    for each in found:
        together.setdefault((each.urgency, each.what, each.fix), []).append(each.where)
    troubles = []
    for (urgency, what, fix), names in together.items():
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        troubles.append(Trouble(urgency, ", ".join(names[:3]) + more, what, fix))
    return sorted(troubles, key=lambda each: ORDER.index(each.urgency))


def _of_condition(name: str, found: Condition, now: datetime) -> Trouble | None:
    """The problem of a table, by its state alone."""
    age_s = _age_s(found.since, now)
    lasting = found.state + ("" if age_s is None else f" for {duration(age_s)}")
    if found.state in (*STOPPED, "retrying"):
        urgent = Urgency.LATE if found.state == "retrying" else Urgency.STOPPED
        return Trouble(urgent, name, f"{lasting}: {found.words}", found.fix)
    if found.state == "paused":
        return Trouble(Urgency.NOTE, name, f"{lasting} {found.reason or ''}".rstrip(), found.fix)
    if found.reason:
        return Trouble(Urgency.STOPPED, name, found.reason, found.fix)
    if found.state == "pending":
        return Trouble(Urgency.NOTE, name, f"not made yet: {found.words}", found.fix)
    return None


def urgency(table: TableStatus, now: datetime) -> int:
    """A table's rank in the list: the smaller, the more urgent."""
    return min((ORDER.index(each.urgency) for each in _of_table(table, now)), default=len(ORDER))


def _of_table(table: TableStatus, now: datetime) -> Iterator[Trouble]:
    name = table.name
    condition = Condition(table.state, table.code, table.reason, table.fix, table.since)
    if found := _of_condition(name, condition, now):
        yield found
    elif table.state != "starting" or (_age_s(table.since, now) or 0.0) > SILENT_AFTER_S:
        yield from _of_lag(table, now)
    if table.lost:
        what = f"{table.lost:,} offsets were gone before they could be read; its kept snapshots say when"
        fix = f"lengthen the topic's retention.ms; see calve status {name}"
        yield Trouble(Urgency.NOTE, name, what, fix)
    for missed in table.expectations_missed:
        fix = f"correct the source of the records; calve dead-letters list {name}"
        yield Trouble(Urgency.NOTE, name, missed, fix)
    if dead_letters := sum(table.dead_letters.values()):
        known = Counter({reason: n for reason, n in table.dead_letters.items() if reason != ANY_REASON})
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in known.most_common())
        what = f"{dead_letters:,} dead letters" + (f": {reasons}" if reasons else "")
        yield Trouble(Urgency.NOTE, name, what, f"calve dead-letters list {name}")
    for each in table.waiting:
        age_s = _age_s(each.at, now)
        if age_s is not None and age_s > max(UNANSWERED_S, 2 * table.freshness_target_s):
            what = f"its {each.request} has waited for a job for {duration(age_s)}"
            yield Trouble(Urgency.NOTE, name, what, LOOK_AT_THE_JOB)


def _of_lag(table: TableStatus, now: datetime) -> Iterator[Trouble]:
    lag_s, target_s, age_s = table.lag_s, table.freshness_target_s, table.commit_age_s
    silent_s = max(SILENT_AFTER_S, SILENT_TARGETS * target_s)
    ended = table.state == "ended"
    if table.lag_source == "job":
        reported_s = _age_s(table.lag_as_of, now) or 0.0
        if reported_s > SILENT_AFTER_S + silent_s:
            said = "ended" if ended else "last said something"
            what = f"its job {said} {duration(reported_s)} ago; whether records wait is not known here"
            yield Trouble(Urgency.LATE, table.name, what, table.fix or LOOK_AT_THE_JOB)
    why, fix = CAUSES.get(table.freshness_missed or "", ("", f"calve status {table.name} shows its rounds"))
    if not table.lag_records or lag_s is None or lag_s <= target_s:
        if table.freshness_missed in LASTING and age_s is not None and age_s < SILENT_AFTER_S:
            old = f"records of the last commit were {duration(table.freshness_p95_s or target_s)} old"
            yield Trouble(Urgency.LATE, table.name, f"late: {old}; {duration(target_s)} promised{why}", fix)
        return
    wait = f"{table.lag_records:,} records wait, the oldest for {duration(lag_s)}"
    if ended and table.lag_source == "kafka":
        what = f"the job ended {duration(_age_s(table.since, now) or 0.0)} ago, and {wait}"
        yield Trouble(Urgency.STOPPED, table.name, what, table.fix)
    elif table.lag_source == "kafka" and (age_s is None or min(age_s, lag_s) > silent_s):
        since = "nothing was ever committed" if age_s is None else f"no commit for {duration(age_s)}"
        yield Trouble(Urgency.STOPPED, table.name, f"{since}, though {wait}", LOOK_AT_THE_JOB)
    else:
        yield Trouble(Urgency.LATE, table.name, f"late: {wait}; {duration(target_s)} promised{why}", fix)


def _age_s(moment: str | None, now: datetime) -> float | None:
    if moment is None:
        return None
    then = datetime.fromisoformat(moment)
    return max(0.0, (now - (then if then.tzinfo else then.replace(tzinfo=UTC))).total_seconds())
