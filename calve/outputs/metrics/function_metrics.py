"""Metrics that functions write to their logs (CloudWatch's embedded metric format), in the namespace `calve`."""

from __future__ import annotations

from calve.outputs.metrics.metric import Function, Metric

_EXPORT = ("service", "export", "function")
_MAIL = ("service",)
_LINK = ("service", "deployment")
_CATALOG = ("service", "function")
_SNOWFLAKE = ("service", "deployment")
_WRITER = Function("csv_export")

EXPORT_RUNS = Metric(
    "ExportRuns", "Count", _WRITER, _EXPORT, "starts of an export", "fewer than its schedule has"
)
EXPORT_WRITTEN = Metric(
    "ExportWritten", "Count", _WRITER, _EXPORT, "windows that were written", "none where one is due"
)
EXPORT_UNCHANGED = Metric(
    "ExportUnchanged", "Count", _WRITER, _EXPORT, "windows whose rows are those of their file", "never"
)
EXPORT_WAITING = Metric(
    "ExportWaiting",
    "Count",
    _WRITER,
    _EXPORT,
    "windows that were not complete yet, and are looked at again",
    "many for one window: its table lags",
)
EXPORT_REDEFINED = Metric(
    "ExportRedefined",
    "Count",
    _WRITER,
    _EXPORT,
    "windows left as they are, since the export was changed after they were written",
    "never",
)
EXPORT_FAILED = Metric(
    "ExportFailed",
    "Count",
    _WRITER,
    _EXPORT,
    "windows that have no file",
    "above 0: a mail has the reason; after the cure `calve export run NAME`",
)
EXPORT_ROWS = Metric("ExportRows", "Count", _WRITER, _EXPORT, "rows of files", "none where there should be")
EXPORT_BYTES = Metric("ExportBytes", "Bytes", _WRITER, _EXPORT, "size of files", "none where there are rows")
EXPORT_INCOMPLETE = Metric(
    "ExportIncomplete",
    "Count",
    _WRITER,
    _EXPORT,
    "files that were written before their window was complete",
    "above 0: why does the table lag?",
)
EXPORT_CORRECTIONS = Metric(
    "ExportCorrections",
    "Count",
    _WRITER,
    _EXPORT,
    "files that take the place of an earlier one, for late rows",
    "in each run: let the export `wait` longer",
)
NOTICES = Metric(
    "Notices", "Count", Function("export_notify"), _MAIL, "files and failures to mail about", "never"
)
MAILS_SENT = Metric(
    "MailsSent", "Count", Function("export_notify"), _MAIL, "mails handed to SNS or SES", "none for a notice"
)
MAILS_FAILED = Metric(
    "MailsFailed",
    "Count",
    Function("export_notify"),
    _MAIL,
    "mails that SNS or SES did not take",
    "above 0: the function's log says what they answered",
)
LINK_PAGES = Metric(
    "LinkPages",
    "Count",
    Function("download"),
    _LINK,
    "links that were opened",
    "many for few mails: passed on",
)
LINK_DOWNLOADS = Metric(
    "LinkDownloads", "Count", Function("download"), _LINK, "files that were downloaded", "as `LinkPages`"
)
LINK_FAULTS = Metric(
    "LinkFaults",
    "Count",
    Function("download"),
    _LINK,
    "requests that were answered like a link that is not there, since a system did not answer",
    "above 0: the function's log names the system's answer",
)
CATALOG_FOLLOWED = Metric(
    "CatalogFollowed",
    "Count",
    Function("catalog_sync"),
    _CATALOG,
    "tables that were looked at for a commit",
    "none while tables are committed to: commits are announced no more",
)
CATALOG_LAG = Metric(
    "CatalogLag",
    "Seconds",
    Function("catalog_sync"),
    _CATALOG,
    "from a commit to the Iceberg REST catalog's showing it",
    "above 60: the catalog is slow, or announcements fail and the comparison makes up for them",
)
CATALOG_REPAIRS = Metric(
    "CatalogRepairs",
    "Count",
    Function("catalog_sync"),
    _CATALOG,
    "differences that the comparison found and repaired",
    "in each run: announcements do not arrive",
)
CATALOG_FAILED = Metric(
    "CatalogFailed",
    "Count",
    Function("catalog_sync"),
    _CATALOG,
    "tables of the Iceberg REST catalog that differ from Glue",
    "above 0: `calve status` has the catalog's words",
)
SNOWFLAKE_LAG = Metric(
    "SnowflakeLag",
    "Seconds",
    Function("snowflake_refresh"),
    _SNOWFLAKE,
    "from a commit to Snowflake's showing it",
    "above `alerts.freshness`: the log of the function Feed says of which tables",
)
SNOWFLAKE_FAILED = Metric(
    "SnowflakeFailed",
    "Count",
    Function("snowflake_refresh"),
    _SNOWFLAKE,
    "tables that could not be brought up to date",
    "above 0: `calve status` has Snowflake's words",
)
SNOWFLAKE_STUCK = Metric(
    "SnowflakeStuck",
    "Count",
    Function("snowflake_refresh"),
    _SNOWFLAKE,
    "tables that Snowflake has stopped to refresh by itself",
    "again and again: a right was taken away, or a change that it cannot read",
)
WATCHDOG_EXHAUSTED = Metric(
    "WatchdogExhausted",
    "Count",
    Function("job_control"),
    ("service", "job"),
    "jobs that are not restarted any more",
    "above 0: the cause is in the log of the last runs; then start the job",
)

OF_FUNCTIONS = (
    EXPORT_RUNS,
    EXPORT_WRITTEN,
    EXPORT_UNCHANGED,
    EXPORT_WAITING,
    EXPORT_REDEFINED,
    EXPORT_FAILED,
    EXPORT_ROWS,
    EXPORT_BYTES,
    EXPORT_INCOMPLETE,
    EXPORT_CORRECTIONS,
    NOTICES,
    MAILS_SENT,
    MAILS_FAILED,
    LINK_PAGES,
    LINK_DOWNLOADS,
    LINK_FAULTS,
    CATALOG_FOLLOWED,
    CATALOG_LAG,
    CATALOG_REPAIRS,
    CATALOG_FAILED,
    SNOWFLAKE_LAG,
    SNOWFLAKE_FAILED,
    SNOWFLAKE_STUCK,
    WATCHDOG_EXHAUSTED,
)
