"""Alarms of jobs, and of what keeps them running."""

from __future__ import annotations

from aws_cdk import aws_scheduler

from calve.metrics.metric import ANNOUNCEMENTS_FAILED, JOB_FAILED, REJECT_ROUNDS
from calve.metrics.of_functions import WATCHDOG_EXHAUSTED
from stacks.alarms.board import HOUR, Board, Says, measured
from stacks.alarms.of_tables import of_patterns, of_table
from stacks.ingest_job import IngestJob
from stacks.job_control import JobControl
from stacks.job_metrics import JobMetrics


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
        Says(f"Records read by {settings.job} could not become rows.", "JOB-dead-letters"),
    )
    board.alarm(
        f"{settings.job}-failed",
        metrics.of_job(JOB_FAILED),
        Says(f"The job {job.name} could not go on: its log says why and what to do.", "JOB-failed"),
    )
    board.alarm(
        f"{settings.job}-announcements",
        metrics.of_job(ANNOUNCEMENTS_FAILED),
        Says(f"For an hour nobody has heard of the commits of {job.name}.", "JOB-announcements"),
        periods=HOUR,
    )
    if not job.definition.schedule:
        restarts = board.deployment.alerts.restarts
        board.alarm(
            f"{settings.job}-given-up",
            measured(WATCHDOG_EXHAUSTED, job=job.name),
            Says(
                f"{job.name} failed {restarts} times in a row and is not restarted any more.", "JOB-given-up"
            ),
        )


def of_starts(board: Board, group: aws_scheduler.CfnScheduleGroup, control: JobControl) -> None:
    """Starts of scheduled jobs, the watchdog's later looks, and the functions behind them."""
    board.dropped(
        "job-not-started",
        group,
        Says("A schedule could not call the function that starts jobs.", "job-not-started"),
    )
    board.errors(
        "start-errors",
        control.start.function,
        Says("A start of a job failed: a run was still going, or Glue refused.", "start-errors"),
    )
    if control.watchdog:
        board.errors(
            "watchdog-errors",
            control.watchdog.function,
            Says("The function that restarts jobs failed: one may stand still.", "watchdog-errors"),
        )
