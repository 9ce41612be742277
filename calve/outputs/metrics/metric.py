"""The definition of a metric; the metrics of jobs, and AWS metrics of the services that a deployment uses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Unit = Literal["Count", "Seconds", "Bytes"]


@dataclass(frozen=True, slots=True)
class Log:
    """Lines of a job's log with this `event`; None: all about a table. `key`: the value to use; None: each line counts 1."""

    event: str | None
    key: str | None = None


@dataclass(frozen=True, slots=True)
class Function:
    """A function that writes the metric itself: its folder of `lambdas/`, or folder and module (`snowflake_refresh`)."""

    folder: str


@dataclass(frozen=True, slots=True)
class Service:
    """AWS measures it."""

    namespace: str


@dataclass(frozen=True, slots=True)
class Metric:
    """tells: what it measures. bad: when it is bad, and what to do. peers: names in other products."""

    name: str
    unit: Unit
    source: Log | Function | Service
    dimensions: tuple[str, ...]
    tells: str
    bad: str
    peers: str = ""


ERRORS = Metric(
    "Errors",
    "Count",
    Service("AWS/Lambda"),
    ("FunctionName",),
    "runs of a function that ended with an error",
    "above 0: the function's log says why",
)
WAITING_MESSAGES = Metric(
    "ApproximateNumberOfMessagesVisible",
    "Count",
    Service("AWS/SQS"),
    ("QueueName",),
    "announcements that a function failed at five times",
    "above 0: the log of the function says at what",
)
DROPPED_STARTS = Metric(
    "InvocationDroppedCount",
    "Count",
    Service("AWS/Scheduler"),
    ("ScheduleGroup",),
    "starts by a schedule that were given up",
    "above 0: what should have started did not",
)
UNDELIVERED = Metric(
    "NumberOfNotificationsFailed",
    "Count",
    Service("AWS/SNS"),
    ("TopicName",),
    "mails of an export's topic that did not reach a recipient",
    "above 0: is the address right, and the mailbox open?",
)
BOUNCES = Metric(
    "Bounce",
    "Count",
    Service("AWS/SES"),
    (),
    "mails of the account, by SES, that came back",
    "above 0: is each recipient's address right? SES stops an account that goes on",
)

OF_SERVICES = (ERRORS, WAITING_MESSAGES, DROPPED_STARTS, UNDELIVERED, BOUNCES)


_TABLE = ("Table",)
_JOB = ()
"""The job's name is part of the metric's name: a text filter has no dimensions."""

FRESHNESS = Metric(
    "Freshness",
    "Seconds",
    Log("round.committed", "freshness_p95_s"),
    _TABLE,
    "age that 95 of 100 records of a round did not exceed when they became visible",
    "above the table's `freshness`: `freshness.missed` in the log names the [cause](freshness.md#why-a-promise-is-missed)",
    "AutoMQ `kafka_tabletopic_delay`; Tableflow's materialization lag",
)
LAG = Metric(
    "Lag",
    "Count",
    Log("round.committed", "lag_records"),
    _TABLE,
    "records that the topic held beyond a round when it became visible",
    "growing: others write faster than the job reads; more workers",
    "Redpanda `redpanda_iceberg_pending_translation_lag`",
)
ROWS = Metric(
    "Rows",
    "Count",
    Log("round.committed", "rows"),
    _TABLE,
    "rows appended",
    "none, where there should be some: do producers write? Is the table suspended?",
    "Redpanda `redpanda_iceberg_translation_parquet_rows_added`",
)
LOST = Metric(
    "Lost",
    "Count",
    Log("round.committed", "lost"),
    _TABLE,
    "offsets that were gone before they were read, under `on_data_loss: continue`",
    "above 0: a longer retention of the topic",
)
TROUBLE = Metric(
    "Trouble",
    "Count",
    Log("table.state"),
    _TABLE,
    "says once a minute that a table is `suspended` or `failed`",
    "above 0: `calve status` says why, and what to do",
)
PAUSED = Metric(
    "Paused",
    "Count",
    Log("table.state"),
    _TABLE,
    "says once a minute that somebody has stopped the table",
    "for a day: `calve status` says who and why; `calve resume`, before the topic's retention is over",
)
HEARD = Metric(
    "Heard",
    "Count",
    Log(None),
    _TABLE,
    "lines of the log about a table; an idle one has one every five minutes",
    "none for a quarter of an hour: its loop hangs, or nothing runs",
)
REJECT_ROUNDS = Metric(
    "RejectRounds",
    "Count",
    Log("round.committed"),
    _JOB,
    "rounds with dead letters",
    "above 0: `calve dead-letters TABLE` says which records, and why",
    "Redpanda `redpanda_iceberg_translation_invalid_records`",
)
JOB_FAILED = Metric(
    "JobFailed",
    "Count",
    Log("job.failed"),
    _JOB,
    "runs that could not go on",
    "above 0: the event has the reason and the cure",
)
TOPICS_NOT_KEPT = Metric(
    "TopicsNotKept",
    "Count",
    Log("topic.not_kept"),
    _JOB,
    "says every few minutes that an expression matches a topic, and no table can be named after it",
    "above 0: nobody reads the topic; `calve status` shows it, and the cure",
)
ANNOUNCEMENTS_FAILED = Metric(
    "AnnouncementsFailed",
    "Count",
    Log("announcement.failed"),
    _JOB,
    "tries to announce commits that EventBridge did not take; once a minute at least while it takes none",
    "for an hour: others do not hear of commits; the event has what EventBridge said",
)
MAINTENANCE_FAILED = Metric(
    "MaintenanceFailed",
    "Count",
    Log("maintenance.failed"),
    _JOB,
    "kinds of [maintenance](maintenance.md) that could not be done to a table; the next run tries again",
    "for a day: the event says what went wrong",
)

OF_JOBS = (
    FRESHNESS,
    LAG,
    ROWS,
    LOST,
    TROUBLE,
    PAUSED,
    HEARD,
    REJECT_ROUNDS,
    JOB_FAILED,
    TOPICS_NOT_KEPT,
    ANNOUNCEMENTS_FAILED,
    MAINTENANCE_FAILED,
)
