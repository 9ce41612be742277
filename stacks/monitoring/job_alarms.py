"""Alarms of ingest jobs, their tables, their starts, and maintenance."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aws_cdk import Duration, aws_cloudwatch, aws_scheduler

from calve.config.deployment import JobDeployment
from calve.config.job import Table
from calve.outputs.announcement import with_rows
from calve.outputs.metrics.function_metrics import WATCHDOG_EXHAUSTED
from calve.outputs.metrics.metric import (
    ANNOUNCEMENTS_FAILED,
    FRESHNESS,
    HEARD,
    JOB_FAILED,
    LAG,
    LOST,
    MAINTENANCE_FAILED,
    PAUSED,
    REJECT_ROUNDS,
    TOPICS_NOT_KEPT,
    TROUBLE,
    Metric,
)
from stacks.jobs.ingest_job import IngestJob
from stacks.jobs.job_control import JobControl
from stacks.jobs.maintenance import MaintenanceStack
from stacks.monitoring.board import A_WHOLE_DAY, HOUR, QUARTER, Board, measured
from stacks.monitoring.job_metrics import JobMetrics


def of_job(board: Board, job: IngestJob, metrics: JobMetrics) -> None:
    settings, restarts = job.definition.settings, board.deployment.alerts.restarts
    for table in settings.tables:
        of_table(board, table, metrics, job=job.definition)
    if settings.patterns:
        of_patterns(board, job.definition, metrics)

    def alarm(what: str, metric: aws_cloudwatch.Metric, says: str, periods: int = 1) -> None:
        board.alarm(f"{settings.job}-{what}", metric, says, runbook=f"JOB-{what}", periods=periods)

    rejected = f"Records read by {settings.job} could not become rows."
    failed = f"The job {job.name} could not go on: its log says why and what to do."
    silent = f"For an hour nobody has heard of the commits of {job.name}."
    given_up = f"{job.name} failed {restarts} times in a row and is not restarted any more."
    alarm("dead-letters", metrics.of_job(REJECT_ROUNDS), rejected)
    alarm("failed", metrics.of_job(JOB_FAILED), failed)
    alarm("announcements", metrics.of_job(ANNOUNCEMENTS_FAILED), silent, periods=HOUR)
    if not job.definition.schedule:
        alarm("given-up", measured(WATCHDOG_EXHAUSTED, job=job.name), given_up)


def of_starts(board: Board, group: aws_scheduler.CfnScheduleGroup, control: JobControl) -> None:
    """Starts of scheduled jobs, the watchdog's delayed checks, and the functions behind them."""
    not_called = "A schedule could not call the function that starts jobs."
    not_started = "A start of a job failed: a run was still going, or Glue refused."
    not_restarted = "The function that restarts jobs failed: one may stand still."
    board.dropped("job-not-started", group, not_called)
    board.errors("start-errors", control.start, not_started)
    if control.watchdog:
        board.errors("watchdog-errors", control.watchdog, not_restarted)


def of_table(board: Board, table: Table, metrics: JobMetrics, *, job: JobDeployment) -> None:
    name, alerts = table.name, board.deployment.alerts

    def alarm(what: str, metric: Metric, statistic: str, says: str, **limits: Any) -> None:
        measure = metrics.of_table(metric, table, statistic)
        board.alarm(f"{name}-{what}", measure, says, runbook=f"TABLE-{what}", **limits)

    late = f"Records of {table.topic} are seen too late in {name}."
    silent = f"The job says nothing of {name}, not even that it is idle."
    alarm("state", TROUBLE, "Sum", f"{name} is suspended or failed: calve status says why.")
    if (late_s := alerts.late_after_s(job, [table])) is not None:
        alarm("freshness", FRESHNESS, "Maximum", late, above=late_s, periods=QUARTER)
    behind = {"above": alerts.lag_records, "periods": QUARTER}
    alarm("lag", LAG, "Minimum", f"{name} is far behind {table.topic}.", **behind)
    alarm("lost", LOST, "Sum", f"Offsets of {table.topic} were gone before they were read.")
    if not job.schedule:
        alarm("silent", HEARD, "SampleCount", silent, below=1, periods=QUARTER)
    alarm("paused", PAUSED, "Sum", f"{name} has been paused for a day.", **A_WHOLE_DAY)
    _of_values(board, table)


def of_patterns(board: Board, job: JobDeployment, metrics: JobMetrics) -> None:
    """Tables whose names are not known yet, together with those that have alarms of their own."""
    name, alerts = job.settings.job, board.deployment.alerts

    def alarm(what: str, metric: Metric, statistic: str, says: str, **limits: Any) -> None:
        measure = metrics.of_job(metric, statistic)
        board.alarm(f"{name}-tables-{what}", measure, says, runbook=f"TABLE-{what}", **limits)

    stopped = f"A table of {name} is suspended or failed: calve status shows which, and why."
    late = f"Records of a table of {name} are seen too late: the dashboard shows which."
    far_behind = f"A table of {name} is far behind its topic: the dashboard shows which."
    lost = f"Offsets of a topic of {name} were gone before they were read: the log has which."
    paused = f"A table of {name} has been paused for a day: calve status shows which."
    not_kept = f"An expression of {name} matches a topic that no table can be named after."
    alarm("state", TROUBLE, "Sum", stopped)
    tables = [*job.settings.tables, *job.settings.patterns]
    if (late_s := alerts.late_after_s(job, tables)) is not None:
        alarm("freshness", FRESHNESS, "Maximum", late, above=late_s, periods=QUARTER)
    alarm("lag", LAG, "Maximum", far_behind, above=alerts.lag_records, periods=QUARTER)
    alarm("lost", LOST, "Sum", lost)
    alarm("paused", PAUSED, "Sum", paused, **A_WHOLE_DAY)
    board.alarm(
        f"{name}-topics-not-kept", metrics.of_job(TOPICS_NOT_KEPT), not_kept, runbook="JOB-topics-not-kept"
    )


def _of_values(board: Board, table: Table) -> None:
    """Commits with rows whose values somebody must know at once (`alert_on`)."""
    announce, column = table.announce, table.count_by
    for value in announce.alert_on if announce else ():
        board.mail_on(
            f"{table.name}-{value}",
            with_rows(board.deployment.name, table.name, value),
            f"<table> has rows with {column} {value}, since snapshot <id> of <at>.",
            "TABLE-VALUE",
            f"{table.name} has rows with {column} {value}",
            {"table": "$.detail.table", "at": "$.detail.committed_at", "id": "$.detail.snapshot_id"},
        )


EVERY = Duration.hours(6)
A_DAY = 4
BAD_ENDS = ("FAILED", "TIMEOUT", "ERROR")


def of_maintenance(board: Board, maintenance: MaintenanceStack, metrics: Mapping[str, JobMetrics]) -> None:
    """Runs that do not start or that fail, and tasks that were not done for a day."""
    dropped = "A start of maintenance was dropped: a run was still going, or Glue refused."
    board.dropped("maintenance-not-started", maintenance.group, dropped)
    for job in maintenance.jobs:
        metrics[job.of].add_maintenance(job)
        board.alarm(
            f"{job.of}-maintenance-failed",
            metrics[job.of].of_job(MAINTENANCE_FAILED),
            f"For a day something could not be done to a table of {job.of}.",
            runbook="JOB-maintenance-failed",
            period=EVERY,
            periods=A_DAY,
        )
    ended = {"jobName": [job.name for job in maintenance.jobs], "state": list(BAD_ENDS)}
    board.mail_on(
        "MaintenanceEnded",
        {"source": ["aws.glue"], "detail-type": ["Glue Job State Change"], "detail": ended},
        "A run of <job> ended as <state>; the next one goes on.",
        "MAINTENANCE-ended",
        "A run of maintenance ended badly",
        {"job": "$.detail.jobName", "state": "$.detail.state"},
    )
