"""Every metric of a deployment. docs/metrics.md says when each one is bad; a test compares the page with this list."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Unit = Literal["Count", "Seconds", "Bytes"]


@dataclass(frozen=True, slots=True)
class Log:
    """Lines of a job's log with this `event`. `key`: the value to use; None: each line counts 1."""

    event: str
    key: str | None = None


@dataclass(frozen=True, slots=True)
class Function:
    """A function writes it in CloudWatch's embedded format. folder: its folder of `lambdas/`, or folder and module."""

    folder: str


@dataclass(frozen=True, slots=True)
class Service:
    """AWS measures it."""

    namespace: str


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric, where its values come from, and the names of its dimensions.

    One with the dimension `Table` is also a metric of its job, without a dimension.
    """

    name: str
    unit: Unit
    source: Log | Function | Service
    dimensions: tuple[str, ...] = ()


# Of jobs. A metric of a job as a whole has its name in its own name, because a text filter has no dimensions.
_TABLE = ("Table",)
FRESHNESS = Metric("Freshness", "Seconds", Log("round.committed", "freshness_p95_s"), _TABLE)
LAG = Metric("Lag", "Count", Log("round.committed", "lag_records"), _TABLE)
ROWS = Metric("Rows", "Count", Log("round.committed", "rows"), _TABLE)
LATENESS = Metric("Lateness", "Count", Log("round.committed", "lateness"))
LOST = Metric("Lost", "Count", Log("round.committed", "lost"))
TROUBLE = Metric("Trouble", "Count", Log("table.state"))
PAUSED = Metric("Paused", "Count", Log("table.state"))
SILENT = Metric("Silent", "Count", Log("job.tables", "silent"))
HEARD = Metric("Heard", "Count", Log("job.tables"))
REJECT_ROUNDS = Metric("RejectRounds", "Count", Log("round.committed"))
JOB_FAILED = Metric("JobFailed", "Count", Log("job.failed"))
EXPECTATIONS_MISSED = Metric("ExpectationsMissed", "Count", Log("expectation.missed"))
TOPICS_NOT_KEPT = Metric("TopicsNotKept", "Count", Log("topic.refused"))
ANNOUNCEMENTS_FAILED = Metric("AnnouncementsFailed", "Count", Log("announcement.failed"))
MAINTENANCE_FAILED = Metric("MaintenanceFailed", "Count", Log("maintenance.failed"))
MOST_TABLES = 500
"""A job of more tables has metrics of the job alone. CloudWatch Logs disables a filter that finds 1,000 tables within an hour."""

_WRITER, _EXPORT = Function("csv_export"), ("service", "export", "function")
EXPORT_RUNS = Metric("ExportRuns", "Count", _WRITER, _EXPORT)
EXPORT_WRITTEN = Metric("ExportWritten", "Count", _WRITER, _EXPORT)
EXPORT_UNCHANGED = Metric("ExportUnchanged", "Count", _WRITER, _EXPORT)
EXPORT_WAITING = Metric("ExportWaiting", "Count", _WRITER, _EXPORT)
EXPORT_REDEFINED = Metric("ExportRedefined", "Count", _WRITER, _EXPORT)
EXPORT_FAILED = Metric("ExportFailed", "Count", _WRITER, _EXPORT)
EXPORT_ROWS = Metric("ExportRows", "Count", _WRITER, _EXPORT)
EXPORT_BYTES = Metric("ExportBytes", "Bytes", _WRITER, _EXPORT)
EXPORT_INCOMPLETE = Metric("ExportIncomplete", "Count", _WRITER, _EXPORT)
EXPORT_CORRECTIONS = Metric("ExportCorrections", "Count", _WRITER, _EXPORT)

_MAIL = Function("export_notify")
NOTICES = Metric("Notices", "Count", _MAIL, ("service",))
MAILS_SENT = Metric("MailsSent", "Count", _MAIL, ("service",))
MAILS_FAILED = Metric("MailsFailed", "Count", _MAIL, ("service",))

_LINK, _DEPLOYMENT = Function("download"), ("service", "deployment")
LINK_PAGES = Metric("LinkPages", "Count", _LINK, _DEPLOYMENT)
LINK_DOWNLOADS = Metric("LinkDownloads", "Count", _LINK, _DEPLOYMENT)
LINK_FAULTS = Metric("LinkFaults", "Count", _LINK, _DEPLOYMENT)

_SYNC, _FUNCTION = Function("catalog_sync"), ("service", "function")
CATALOG_FOLLOWED = Metric("CatalogFollowed", "Count", _SYNC, _FUNCTION)
CATALOG_LAG = Metric("CatalogLag", "Seconds", _SYNC, _FUNCTION)
CATALOG_REPAIRS = Metric("CatalogRepairs", "Count", _SYNC, _FUNCTION)
CATALOG_FAILED = Metric("CatalogFailed", "Count", _SYNC, _FUNCTION)

_DELTA = Function("delta")
DELTA_FOLLOWED = Metric("DeltaFollowed", "Count", _DELTA, _FUNCTION)
DELTA_LAG = Metric("DeltaLag", "Seconds", _DELTA, _FUNCTION)
DELTA_FAILED = Metric("DeltaFailed", "Count", _DELTA, _FUNCTION)

_LINEAGE = Function("lineage")
LINEAGE_FOLLOWED = Metric("LineageFollowed", "Count", _LINEAGE, _FUNCTION)
LINEAGE_LAG = Metric("LineageLag", "Seconds", _LINEAGE, _FUNCTION)
LINEAGE_FAILED = Metric("LineageFailed", "Count", _LINEAGE, _FUNCTION)

_SNOWFLAKE = Function("snowflake_refresh")
SNOWFLAKE_LAG = Metric("SnowflakeLag", "Seconds", _SNOWFLAKE, _DEPLOYMENT)
SNOWFLAKE_FAILED = Metric("SnowflakeFailed", "Count", _SNOWFLAKE, _DEPLOYMENT)
SNOWFLAKE_STUCK = Metric("SnowflakeStuck", "Count", _SNOWFLAKE, _DEPLOYMENT)

WATCHDOG_EXHAUSTED = Metric("WatchdogExhausted", "Count", Function("job_control"), ("service", "job"))

ERRORS = Metric("Errors", "Count", Service("AWS/Lambda"), ("FunctionName",))
WAITING_MESSAGES = Metric("ApproximateNumberOfMessagesVisible", "Count", Service("AWS/SQS"), ("QueueName",))
DROPPED_STARTS = Metric("InvocationDroppedCount", "Count", Service("AWS/Scheduler"), ("ScheduleGroup",))
UNDELIVERED = Metric("NumberOfNotificationsFailed", "Count", Service("AWS/SNS"), ("TopicName",))
BOUNCES = Metric("Bounce", "Count", Service("AWS/SES"))

METRICS: tuple[Metric, ...] = tuple(each for each in list(globals().values()) if isinstance(each, Metric))
"""All of them, in the order of the page."""
