"""Alarms of tables, each of its own where its name is known, else of all tables of a job together."""

from __future__ import annotations

from calve.announcement import with_rows
from calve.deployment import JobDeployment
from calve.job import Table
from calve.metrics.metric import FRESHNESS, HEARD, LAG, LOST, PAUSED, TOPICS_NOT_KEPT, TROUBLE
from stacks.alarms.board import HOURS_OF_A_DAY, ONE_HOUR, QUARTER, Board, Says
from stacks.job_metrics import JobMetrics


def of_table(board: Board, table: Table, metrics: JobMetrics, *, job: JobDeployment) -> None:
    """A table with a name."""
    name, alerts = table.name, board.deployment.alerts
    board.alarm(
        f"{name}-state",
        metrics.of_table(TROUBLE, table, "Sum"),
        Says(f"{name} is suspended or failed: calve status says why.", "TABLE-state"),
    )
    if (late_s := alerts.late_after_s(job, [table])) is not None:
        board.alarm(
            f"{name}-freshness",
            metrics.of_table(FRESHNESS, table, "Maximum"),
            Says(f"Records of {table.topic} are seen too late in {name}.", "TABLE-freshness"),
            above=late_s,
            periods=QUARTER,
        )
    board.alarm(
        f"{name}-lag",
        metrics.of_table(LAG, table, "Minimum"),
        Says(f"{name} is far behind {table.topic}.", "TABLE-lag"),
        above=alerts.lag_records,
        periods=QUARTER,
    )
    board.alarm(
        f"{name}-lost",
        metrics.of_table(LOST, table, "Sum"),
        Says(f"Offsets of {table.topic} were gone before they were read.", "TABLE-lost"),
    )
    if not job.schedule:
        board.alarm(
            f"{name}-silent",
            metrics.of_table(HEARD, table, "SampleCount"),
            Says(f"The job says nothing of {name}, not even that it is idle.", "TABLE-silent"),
            below=1,
            periods=QUARTER,
        )
    board.alarm(
        f"{name}-paused",
        metrics.of_table(PAUSED, table, "Sum"),
        Says(f"{name} has been paused for a day.", "TABLE-paused"),
        periods=HOURS_OF_A_DAY,
        period=ONE_HOUR,
    )
    _of_values(board, table)


def of_patterns(board: Board, job: JobDeployment, metrics: JobMetrics) -> None:
    """The tables of a job whose names nobody knows yet, and with them those that alarms of their own watch, too."""
    name, alerts = job.settings.job, board.deployment.alerts
    board.alarm(
        f"{name}-tables-state",
        metrics.of_job(TROUBLE),
        Says(f"A table of {name} is suspended or failed: calve status shows which, and why.", "TABLE-state"),
    )
    tables = [*job.settings.tables, *job.settings.patterns]
    if (late_s := alerts.late_after_s(job, tables)) is not None:
        board.alarm(
            f"{name}-tables-freshness",
            metrics.of_job(FRESHNESS, "Maximum"),
            Says(
                f"Records of a table of {name} are seen too late: the dashboard shows which.",
                "TABLE-freshness",
            ),
            above=late_s,
            periods=QUARTER,
        )
    board.alarm(
        f"{name}-tables-lag",
        metrics.of_job(LAG, "Maximum"),
        Says(f"A table of {name} is far behind its topic: the dashboard shows which.", "TABLE-lag"),
        above=alerts.lag_records,
        periods=QUARTER,
    )
    board.alarm(
        f"{name}-tables-lost",
        metrics.of_job(LOST),
        Says(
            f"Offsets of a topic of {name} were gone before they were read: the log has which.", "TABLE-lost"
        ),
    )
    board.alarm(
        f"{name}-tables-paused",
        metrics.of_job(PAUSED),
        Says(f"A table of {name} has been paused for a day: calve status shows which.", "TABLE-paused"),
        periods=HOURS_OF_A_DAY,
        period=ONE_HOUR,
    )
    board.alarm(
        f"{name}-topics-not-kept",
        metrics.of_job(TOPICS_NOT_KEPT),
        Says(
            f"An expression of {name} matches a topic that no table can be named after.",
            "JOB-topics-not-kept",
        ),
    )


def _of_values(board: Board, table: Table) -> None:
    """Commits with rows of values that somebody must hear of at once."""
    announce, column = table.announce, table.count_by
    for value in announce.alert_on if announce else ():
        board.mail_on(
            f"{table.name}-{value}",
            with_rows(board.deployment.name, table.name, value),
            Says(
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
