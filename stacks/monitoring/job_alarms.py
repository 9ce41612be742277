"""Alarms of ingest jobs, their tables, their starts, and maintenance."""

from __future__ import annotations

from collections.abc import Mapping

from aws_cdk import Duration, aws_scheduler

from calve.config.deployment import JobDeployment
from calve.config.job import Table
from calve.outputs.announcement import with_rows
from calve.outputs.metrics import (
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
    WATCHDOG_EXHAUSTED,
)
from stacks.jobs.ingest_job import IngestJob
from stacks.jobs.job_control import JobControl
from stacks.jobs.maintenance import MaintenanceStack
from stacks.monitoring.board import HOUR, HOURS_OF_A_DAY, ONE_HOUR, QUARTER, AlarmText, Board, measured
from stacks.monitoring.job_metrics import JobMetrics


def of_job(board: Board, job: IngestJob, metrics: JobMetrics) -> None:
    """A job and its tables."""
    settings = job.definition.settings
    for table in settings.tables:
        of_table(board, table, metrics, job=job.definition)
    if settings.patterns:
        of_patterns(board, job.definition, metrics)
    board.alarm(
        f"{settings.job}-dead-letters",
        metrics.of_job(REJECT_ROUNDS),
        AlarmText(f"Records read by {settings.job} could not become rows.", "JOB-dead-letters"),
    )
    board.alarm(
        f"{settings.job}-failed",
        metrics.of_job(JOB_FAILED),
        AlarmText(f"The job {job.name} could not go on: its log says why and what to do.", "JOB-failed"),
    )
    board.alarm(
        f"{settings.job}-announcements",
        metrics.of_job(ANNOUNCEMENTS_FAILED),
        AlarmText(f"For an hour nobody has heard of the commits of {job.name}.", "JOB-announcements"),
        periods=HOUR,
    )
    if not job.definition.schedule:
        restarts = board.deployment.alerts.restarts
        board.alarm(
            f"{settings.job}-given-up",
            measured(WATCHDOG_EXHAUSTED, job=job.name),
            AlarmText(
                f"{job.name} failed {restarts} times in a row and is not restarted any more.", "JOB-given-up"
            ),
        )


def of_starts(board: Board, group: aws_scheduler.CfnScheduleGroup, control: JobControl) -> None:
    """Starts of scheduled jobs, the watchdog's delayed checks, and the functions behind them."""
    board.dropped(
        "job-not-started",
        group,
        AlarmText("A schedule could not call the function that starts jobs.", "job-not-started"),
    )
    board.errors(
        "start-errors",
        control.start.function,
        AlarmText("A start of a job failed: a run was still going, or Glue refused.", "start-errors"),
    )
    if control.watchdog:
        board.errors(
            "watchdog-errors",
            control.watchdog.function,
            AlarmText("The function that restarts jobs failed: one may stand still.", "watchdog-errors"),
        )


def of_table(board: Board, table: Table, metrics: JobMetrics, *, job: JobDeployment) -> None:
    """A table with a name."""
    name, alerts = table.name, board.deployment.alerts
    board.alarm(
        f"{name}-state",
        metrics.of_table(TROUBLE, table, "Sum"),
        AlarmText(f"{name} is suspended or failed: calve status says why.", "TABLE-state"),
    )
    if (late_s := alerts.late_after_s(job, [table])) is not None:
        board.alarm(
            f"{name}-freshness",
            metrics.of_table(FRESHNESS, table, "Maximum"),
            AlarmText(f"Records of {table.topic} are seen too late in {name}.", "TABLE-freshness"),
            above=late_s,
            periods=QUARTER,
        )
    board.alarm(
        f"{name}-lag",
        metrics.of_table(LAG, table, "Minimum"),
        AlarmText(f"{name} is far behind {table.topic}.", "TABLE-lag"),
        above=alerts.lag_records,
        periods=QUARTER,
    )
    board.alarm(
        f"{name}-lost",
        metrics.of_table(LOST, table, "Sum"),
        AlarmText(f"Offsets of {table.topic} were gone before they were read.", "TABLE-lost"),
    )
    if not job.schedule:
        board.alarm(
            f"{name}-silent",
            metrics.of_table(HEARD, table, "SampleCount"),
            AlarmText(f"The job says nothing of {name}, not even that it is idle.", "TABLE-silent"),
            below=1,
            periods=QUARTER,
        )
    board.alarm(
        f"{name}-paused",
        metrics.of_table(PAUSED, table, "Sum"),
        AlarmText(f"{name} has been paused for a day.", "TABLE-paused"),
        periods=HOURS_OF_A_DAY,
        period=ONE_HOUR,
    )
    _of_values(board, table)


def of_patterns(board: Board, job: JobDeployment, metrics: JobMetrics) -> None:
    """Tables whose names are not known yet, together with those that have alarms of their own."""
    name, alerts = job.settings.job, board.deployment.alerts
    board.alarm(
        f"{name}-tables-state",
        metrics.of_job(TROUBLE),
        AlarmText(
            f"A table of {name} is suspended or failed: calve status shows which, and why.", "TABLE-state"
        ),
    )
    tables = [*job.settings.tables, *job.settings.patterns]
    if (late_s := alerts.late_after_s(job, tables)) is not None:
        board.alarm(
            f"{name}-tables-freshness",
            metrics.of_job(FRESHNESS, "Maximum"),
            AlarmText(
                f"Records of a table of {name} are seen too late: the dashboard shows which.",
                "TABLE-freshness",
            ),
            above=late_s,
            periods=QUARTER,
        )
    board.alarm(
        f"{name}-tables-lag",
        metrics.of_job(LAG, "Maximum"),
        AlarmText(f"A table of {name} is far behind its topic: the dashboard shows which.", "TABLE-lag"),
        above=alerts.lag_records,
        periods=QUARTER,
    )
    board.alarm(
        f"{name}-tables-lost",
        metrics.of_job(LOST),
        AlarmText(
            f"Offsets of a topic of {name} were gone before they were read: the log has which.", "TABLE-lost"
        ),
    )
    board.alarm(
        f"{name}-tables-paused",
        metrics.of_job(PAUSED),
        AlarmText(f"A table of {name} has been paused for a day: calve status shows which.", "TABLE-paused"),
        periods=HOURS_OF_A_DAY,
        period=ONE_HOUR,
    )
    board.alarm(
        f"{name}-topics-not-kept",
        metrics.of_job(TOPICS_NOT_KEPT),
        AlarmText(
            f"An expression of {name} matches a topic that no table can be named after.",
            "JOB-topics-not-kept",
        ),
    )


def _of_values(board: Board, table: Table) -> None:
    """Commits with rows whose values somebody must know at once (`alert_on`)."""
    announce, column = table.announce, table.count_by
    for value in announce.alert_on if announce else ():
        board.mail_on(
            f"{table.name}-{value}",
            with_rows(board.deployment.name, table.name, value),
            AlarmText(
                f"<table> has rows with {column} {value}, since snapshot <id> of <at>.",
                "TABLE-VALUE",
            ),
            about=f"{table.name} has rows with {column} {value}",
            paths={
                "table": "$.detail.table",
                "at": "$.detail.committed_at",
                "id": "$.detail.snapshot_id",
            },
        )


EVERY = Duration.hours(6)
A_DAY = 4
BAD_ENDS = ("FAILED", "TIMEOUT", "ERROR")


def of_maintenance(board: Board, maintenance: MaintenanceStack, metrics: Mapping[str, JobMetrics]) -> None:
    """Runs that do not start or that fail, and tasks that were not done for a day."""
    board.dropped(
        "maintenance-not-started",
        maintenance.group,
        AlarmText(
            "A start of maintenance was dropped: a run was still going, or Glue refused.",
            "maintenance-not-started",
        ),
    )
    for job in maintenance.jobs:
        metrics[job.of].add_maintenance(job)
        board.alarm(
            f"{job.of}-maintenance-failed",
            metrics[job.of].of_job(MAINTENANCE_FAILED),
            AlarmText(
                f"For a day something could not be done to a table of {job.of}.", "JOB-maintenance-failed"
            ),
            period=EVERY,
            periods=A_DAY,
        )
    board.mail_on(
        "MaintenanceEnded",
        {
            "source": ["aws.glue"],
            "detail-type": ["Glue Job State Change"],
            "detail": {"jobName": [job.name for job in maintenance.jobs], "state": list(BAD_ENDS)},
        },
        AlarmText("A run of <job> ended as <state>; the next one goes on.", "MAINTENANCE-ended"),
        about="A run of maintenance ended badly",
        paths={"job": "$.detail.jobName", "state": "$.detail.state"},
    )
