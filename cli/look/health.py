"""The health of a table: its state by its job's report and its own properties, and for each problem a sentence and a fix."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from functools import cache
from typing import Any, Literal

from calve.config.deployment import UNKNOWN_WAREHOUSE
from calve.config.job import Job
from calve.config.maintenance import Due
from calve.config.topics import NotKept
from calve.errors import CalveError
from calve.names import TableName
from calve.outputs.job_status import EVERY_S, JobStatus, ReportedTable, Run, TableState, place
from cli.account import Account, outputs
from cli.console import duration
from cli.lake import aws_errors
from lambdas.aws import tolerating
from lambdas.publish_states import PublishState, State

GONE_AFTER_S = 5 * EVERY_S
"""A run without a report for this long has ended."""
STOPPED = ("refused", "suspended", "failed")
"""The table gets nothing until a person acts."""


@dataclass(frozen=True, slots=True)
class Condition:
    """The state of a table, its reason and its fix.

    `pending`: no run has begun it yet; `starting`: its first round is under way; `running`, `paused`: as the table says;
    `retrying`: the newest round failed and is tried again; `refused`: the job cannot make it; `suspended`, `failed`: it gets
    nothing, or the job as a whole failed; `ended`: the job has ended, and left it in order.
    """

    state: str
    code: str | None = None
    reason: str | None = None
    fix: str | None = None
    since: str | None = None

    @property
    def words(self) -> str:
        """The reason, in a sentence without the state."""
        if self.state == "pending":
            return "no job has read its topic yet"
        if self.state == "starting":
            return "its first round is under way"
        return ": ".join(each for each in (self.code, self.reason) if each)


@dataclass(frozen=True, slots=True)
class Conditions:
    """The conditions of one job's tables. reports: the report of each table, with its run. start: how to start the job."""

    start: str = "start the job: calve ingest"
    reports: dict[str, tuple[ReportedTable, Run]] = field(default_factory=dict)

    @classmethod
    def of(cls, jobs: Sequence[Job]) -> list[Conditions]:
        """What the newest runs of each job of a configuration report, here and deployed.

        Nothing if access is refused, or if earlier releases ran.
        """
        lake = jobs[0].lake
        account = Account(lake.region, lake.endpoint)
        warehouses = {lake.warehouse} - {UNKNOWN_WAREHOUSE}
        with suppress(CalveError):
            warehouses.add(outputs(account, f"{jobs[0].name}-lake", fix="")["Warehouse"])
        lakes = [replace(lake, warehouse=each) for each in sorted(warehouses)]

        def found(job: Job) -> Conditions:
            reports: list[JobStatus] = []
            for each in lakes:
                with suppress(CalveError, ValueError):
                    reports.append(reported_by(replace(job, lake=each)))
            if lake.endpoint:
                return cls(reports=newest(reports))
            return cls(f"see in AWS Glue why {job.name}-{job.job} does not run", newest(reports))

        _s3(account)  # threads that begin together would each make a client
        with ThreadPoolExecutor() as pool:
            return list(pool.map(found, jobs))

    def of_table(self, name: str, written: TableState | None, now: datetime | None = None) -> Condition:
        """The condition of one table. written: the state in its properties; None: the table does not exist."""
        report, run = self.reports.get(name, (None, None))
        found, over = written or TableState(), False
        if report and run and not (written and written.since and _later(written.since, run.at)):
            found, over = report.state, run.ended is not None
        if found.state in ("suspended", "failed"):
            fix = found.fix or f"docs/states.md has the fix for {found.code or found.state}"
            word = "refused" if found.state == "suspended" and not written else found.state
            fix = f"{fix}; then {self.start}" if over else fix
            return Condition(word, found.code, found.reason, fix, found.since)
        if found.state == "paused":
            return Condition("paused", found.code, found.reason, f"calve resume {name}", found.since)
        if report and run:
            return _of_run(found, report, run, now or datetime.now(UTC), self.start)
        return Condition(found.state, since=found.since, fix=self.start if found.state == "pending" else None)

    def missing(self, name: TableName) -> CalveError:
        found = self.of_table(name.table, None)
        reason = f"{found.state}: {found.words}" if found.state in STOPPED else found.words
        return CalveError(f"there is no table {name} yet: {reason}", fix=found.fix)


def _of_run(found: TableState, report: ReportedTable, run: Run, now: datetime, start: str) -> Condition:
    """The condition of a table that reports no problem, by its run."""
    if run.reason:
        return Condition("failed", "job_failed", run.reason, run.fix or start, run.ended)
    if report.failures:
        tries = "1 round" if report.failures == 1 else f"{report.failures} rounds"
        fix = report.fix or "wait; the job tries again by itself"
        return Condition("retrying", None, f"{tries} failed: {report.why}", start if run.ended else fix)
    if run.ended:
        if found.state == "pending":
            return Condition("pending", fix=start)
        return Condition("ended", fix=start, since=run.ended)
    silent_s = (now - datetime.fromisoformat(run.at)).total_seconds()
    if silent_s > GONE_AFTER_S:
        silence = f"the job said nothing for {duration(silent_s)}"
        reason = f"{silence}: it was killed, or cannot write into the lake"
        return Condition("ended", None, reason, start, run.at)
    if found.state == "pending":
        return Condition("starting", since=run.began)
    return Condition(found.state, since=found.since)


def newest(found: Iterable[JobStatus]) -> dict[str, tuple[ReportedTable, Run]]:
    tables: dict[str, tuple[ReportedTable, Run]] = {}
    for status in found:
        for name, report in status.tables.items():
            run = status.runs.get(report.run)
            if run and (name not in tables or _later(run.at, tables[name][1].at)):
                tables[name] = (report, run)
    return tables


def reported_by(job: Job) -> JobStatus:
    """What a job reports of its tables; nothing if it never ran."""
    uri = place(job.lake.warehouse, job.name, job.job)
    bucket, _, key = uri.removeprefix("s3://").partition("/")
    s3 = _s3(Account(job.lake.region, job.lake.endpoint))
    with aws_errors(f"what the job says of its tables, {uri},"):
        # An operator may not list the bucket, so S3 denies an absent object.
        with tolerating("NoSuchKey", "NoSuchBucket", "AccessDenied"):
            return JobStatus.from_dict(json.loads(s3.get_object(Bucket=bucket, Key=key)["Body"].read()))
        return JobStatus()


@cache
def _s3(account: Account) -> Any:
    return account.client("s3")


def _later(one: str, other: str) -> bool:
    return datetime.fromisoformat(one) > datetime.fromisoformat(other)


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
