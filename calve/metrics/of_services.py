"""Metrics that AWS has of what a deployment uses, as far as its alarms watch them."""

from __future__ import annotations

from calve.metrics.metric import Metric, Service

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
