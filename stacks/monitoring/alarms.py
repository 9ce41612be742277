"""The alarms: of jobs, their tables, starts and maintenance; of exports, published tables, and keys that rotate."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aws_cdk import Duration, aws_cloudwatch, aws_scheduler

from calve.config.deployment import TOLERANCE, JobDeployment
from calve.outputs import metrics as listed
from calve.outputs.announcement import SUSPENDED, pattern, with_alerts
from calve.outputs.metrics import Metric
from stacks.base.rotation import Rotation
from stacks.jobs.ingest import JobControl
from stacks.jobs.ingest_job import IngestJob
from stacks.jobs.maintenance import MaintenanceStack
from stacks.monitoring.board import A_WHOLE_DAY, HOUR, QUARTER, Board, measured
from stacks.monitoring.job_metrics import JobMetrics
from stacks.publishing.exports import ExportsStack, failures, writer_name
from stacks.publishing.publish import Followers
from stacks.publishing.snowflake import SnowflakePublisher


def of_job(board: Board, job: IngestJob, metrics: JobMetrics) -> None:
    settings, restarts = job.definition.settings, board.deployment.alerts.restarts
    of_tables(board, job.definition, metrics)

    def alarm(what: str, metric: aws_cloudwatch.Metric, says: str, **limits: Any) -> None:
        board.alarm(f"{settings.job}-{what}", metric, says, runbook=f"JOB-{what}", **limits)

    rejected = f"Records read by {settings.job} could not become rows."
    failed = f"The job {job.name} could not go on: its log says why and what to do."
    unheard = f"For an hour nobody has heard of the commits of {job.name}."
    silent = f"For a quarter of an hour {job.name} has not said that it is alive."
    given_up = f"{job.name} failed {restarts} times in a row and is not restarted any more."
    not_kept = f"An expression of {settings.job} matches a topic that no table can be named after."
    alarm("dead-letters", metrics.of_job(listed.REJECT_ROUNDS), rejected)
    alarm("failed", metrics.of_job(listed.JOB_FAILED), failed)
    alarm("announcements", metrics.of_job(listed.ANNOUNCEMENTS_FAILED), unheard, periods=HOUR)
    if not job.definition.schedule:
        alarm("silent", metrics.of_job(listed.HEARD, "SampleCount"), silent, below=1, periods=QUARTER)
        alarm("given-up", measured(listed.WATCHDOG_EXHAUSTED, job=job.name), given_up)
    if settings.patterns:
        alarm("topics-not-kept", metrics.of_job(listed.TOPICS_NOT_KEPT), not_kept)


def of_starts(board: Board, group: aws_scheduler.CfnScheduleGroup, control: JobControl) -> None:
    """Starts of scheduled jobs, the watchdog's delayed checks, and the functions behind them."""
    not_called = "A schedule could not call the function that starts jobs."
    not_started = "A start of a job failed: a run was still going, or Glue refused."
    not_restarted = "The function that restarts jobs failed: one may be stopped."
    board.dropped("job-not-started", group, not_called)
    board.errors("start-errors", control.start, not_started)
    if control.watchdog:
        board.errors("watchdog-errors", control.watchdog, not_restarted)


def of_tables(board: Board, job: JobDeployment, metrics: JobMetrics) -> None:
    """One alarm of each kind for all tables of a job. `calve status` shows which table it is."""
    name, alerts = job.settings.job, board.deployment.alerts

    def alarm(what: str, metric: Metric, statistic: str, says: str, **limits: Any) -> None:
        measure = metrics.of_job(metric, statistic)
        board.alarm(f"{name}-tables-{what}", measure, says, runbook=f"TABLE-{what}", **limits)

    stopped = f"A table of {name} is suspended or failed: calve status shows which, and why."
    late = f"Records of a table of {name} are seen too late: calve status shows which."
    far_behind = f"A table of {name} is far behind its topic: calve status shows which."
    lost = f"Offsets of a topic of {name} were gone before they were read: the log has which."
    paused = f"For a day some table of {name} has been paused: calve status shows which."
    unmet = f"Too few records of a table of {name} meet an expectation: calve status shows which."
    silent = f"{name} says nothing of a table, not even that it is idle: the log has which."
    alarm("state", listed.TROUBLE, "Sum", stopped)
    if alerts.freshness_s is not None:
        alarm("freshness", listed.FRESHNESS, "Maximum", late, above=alerts.freshness_s, periods=QUARTER)
    elif alerts.on_late_tables(job):
        alarm("freshness", listed.LATENESS, "Maximum", late, above=TOLERANCE, periods=QUARTER)
    alarm("lag", listed.LAG, "Maximum", far_behind, above=alerts.lag_records, periods=QUARTER)
    alarm("lost", listed.LOST, "Sum", lost)
    alarm("paused", listed.PAUSED, "Sum", paused, **A_WHOLE_DAY)
    if job.reports_expectations:
        alarm("expectations", listed.EXPECTATIONS_MISSED, "Sum", unmet)
    if not job.schedule:
        alarm("silent", listed.SILENT, "Maximum", silent)


def of_values(board: Board) -> None:
    """Rows with values of `alert_on` somebody must know at once."""
    board.mail_on(
        "Values",
        with_alerts(board.deployment.name),
        "<table> has rows with <alert>, since snapshot <id> of <at>.",
        "TABLE-VALUE",
        "A commit has rows with a value of alert_on",
        {
            "table": "$.detail.table",
            "alert": "$.detail.alert",
            "at": "$.detail.committed_at",
            "id": "$.detail.snapshot_id",
        },
    )


def of_stopped_tables(board: Board) -> None:
    """A mail for each table that stops by itself: the alarm of its job mails for the first one alone.

    Not where a system does not answer: that stops many tables, and passes.
    """
    stopped = pattern(board.deployment.name, SUSPENDED)
    stopped["detail"] |= {"code": [{"anything-but": ["retries_exhausted"]}]}
    board.mail_on(
        "TableStopped",
        stopped,
        "<table> of the job <job> is <state> (<code>): <reason>",
        "TABLE-stopped",
        "A table was suspended, or failed",
        {each: f"$.detail.{each}" for each in ("table", "job", "state", "code", "reason")},
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
            metrics[job.of].of_job(listed.MAINTENANCE_FAILED),
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


TWO_LOOKS = 2


def of_catalog(board: Board, catalog: Followers) -> None:
    """An Iceberg REST catalog that is not synchronized with Glue."""
    failed = "Tables of the Iceberg REST catalog differ from Glue: calve status says which."
    not_compared = "The Iceberg REST catalog was not compared with Glue."
    not_followed = "Commits could not be followed in the Iceberg REST catalog."
    _of_followers(board, "catalog", catalog, listed.CATALOG_FAILED, failed, not_compared, not_followed)


def of_delta(board: Board, delta: Followers) -> None:
    """Delta logs that stay behind the tables."""
    failed = "Delta logs stay behind their tables: calve status says which, and why."
    not_compared = "The Delta logs were not compared with the tables."
    not_followed = "Commits could not be followed in the Delta logs."
    _of_followers(board, "delta", delta, listed.DELTA_FAILED, failed, not_compared, not_followed)


def of_lineage(board: Board, lineage: Followers) -> None:
    """OpenLineage events that do not arrive."""
    failed = "Lineage of tables is not sent: calve status says which, and why."
    not_compared = "The function that sends lineage failed."
    not_followed = "Commits could not be followed for lineage."
    _of_followers(board, "lineage", lineage, listed.LINEAGE_FAILED, failed, not_compared, not_followed)


def _of_followers(
    board: Board,
    target: str,
    followers: Followers,
    metric: listed.Metric,
    failed: str,
    not_compared: str,
    not_followed: str,
) -> None:
    measure = measured(metric, "Maximum", function=followers.reconcile.function.function_name)
    board.alarm(f"{target}-failed", measure, failed, periods=TWO_LOOKS)
    board.errors(f"{target}-reconcile-errors", followers.reconcile, not_compared)
    board.put_aside(f"{target}-messages-failed", followers.feed.failed, not_followed)


def of_snowflake(board: Board, snowflake: SnowflakePublisher) -> None:
    of = {"deployment": board.deployment.name}
    late_s = board.deployment.alerts.published_late_s
    failed = "Tables in Snowflake stay behind the lake's: calve status says which."
    late = "Commits are seen too late in Snowflake."
    stuck = "Snowflake keeps stopping to refresh tables by itself."
    not_compared = "Snowflake was not compared with the lake."
    not_followed = "Commits could not be followed in Snowflake."
    lag = measured(listed.SNOWFLAKE_LAG, "Maximum", **of)
    board.alarm("snowflake-failed", measured(listed.SNOWFLAKE_FAILED, **of), failed, periods=QUARTER)
    board.alarm("snowflake-lag", lag, late, above=late_s, periods=QUARTER)
    board.alarm("snowflake-stuck", measured(listed.SNOWFLAKE_STUCK, **of), stuck, periods=QUARTER)
    board.errors("snowflake-not-reconciled", snowflake.reconcile, not_compared)
    board.put_aside("snowflake-messages-failed", snowflake.feed.failed, not_followed)


def of_exports(board: Board, exports: ExportsStack) -> None:
    """Files that are late or missing, mails that fail, links that do not open."""
    deployment = board.deployment
    run_failed = "A run of the export function failed; it is tried twice more."
    not_mailed = "A file was written, and a mail about it was not sent."
    refused = "A link was refused since a system did not answer."
    board.errors("export-errors", exports.writer, run_failed)
    board.dropped("export-not-started", exports.group, "A schedule could not start its export.")
    for export in deployment.exports:
        board.alarm(
            f"{export.name}-late",
            measured(listed.EXPORT_INCOMPLETE, export=export.name, function=writer_name(deployment.name)),
            f"{export.name} was written before its window was complete: {export.source} lags.",
            runbook="EXPORT-late",
        )
    board.errors("export-mail-errors", exports.mails.function, not_mailed)
    for name, topic in exports.mails.topics.items():
        board.alarm(
            f"{name}-mail-undelivered",
            measured(listed.UNDELIVERED, TopicName=topic.topic_name),
            f"A mail about {name} did not reach a recipient.",
            runbook="EXPORT-mail-undelivered",
        )
    if any(export.channel == "ses" for export in deployment.exports):
        board.alarm("export-mail-bounced", measured(listed.BOUNCES), "A mail by SES came back.")
    if exports.links:
        board.alarm("export-link-faults", measured(listed.LINK_FAULTS, deployment=deployment.name), refused)
    board.mail_on(
        "ExportFailed",
        failures(deployment.name),
        "The export <name> has failed: <reason>.",
        "EXPORT-failed",
        "An export was given up",
        {"name": "$.detail.export.name", "reason": "$.detail.reason"},
    )


def of_rotation(board: Board, keys: str, rotation: Rotation) -> None:
    says = f"The keys of {keys} were not changed; the old ones stay valid."
    board.errors(f"{keys}-keys-not-rotated", rotation.function, says, "KEYS-keys-not-rotated")
