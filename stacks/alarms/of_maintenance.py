"""Alarms of maintenance that is not done."""

from __future__ import annotations

from collections.abc import Mapping

from aws_cdk import Duration

from calve.metrics.metric import MAINTENANCE_FAILED
from stacks.alarms.board import Board, Says
from stacks.job_metrics import JobMetrics
from stacks.maintenance import MaintenanceStack

EVERY = Duration.hours(6)
A_DAY = 4
BAD_ENDS = ("FAILED", "TIMEOUT", "ERROR")


def of_maintenance(board: Board, maintenance: MaintenanceStack, metrics: Mapping[str, JobMetrics]) -> None:
    """Runs that do not start, that end badly, and what they could not do for a day."""
    board.dropped(
        "maintenance-not-started",
        maintenance.group,
        Says(
            "A start of maintenance was dropped: a run was still going, or Glue refused.",
            "maintenance-not-started",
        ),
    )
    for job in maintenance.jobs:
        metrics[job.of].add_maintenance(job)
        board.alarm(
            f"{job.of}-maintenance-failed",
            metrics[job.of].of_job(MAINTENANCE_FAILED),
            Says(f"For a day something could not be done to a table of {job.of}.", "JOB-maintenance-failed"),
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
        Says("A run of <job> ended as <state>; the next one goes on.", "MAINTENANCE-ended"),
        about="A run of maintenance ended badly",
        paths={"job": "$.detail.jobName", "state": "$.detail.state"},
    )
