"""The condition of each table of a job: by what the job reports of it, and by the table's own properties."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cache
from typing import Any

from calve.config.deployment import UNKNOWN_WAREHOUSE
from calve.config.job import Job
from calve.errors import CalveError
from calve.names import TableName
from calve.outputs.job_status import EVERY_S, JobStatus, ReportedTable, Run, TableState, place
from cli.account import Account, outputs
from cli.console import duration
from cli.lake import aws_errors
from lambdas.aws import tolerating

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
