"""The deployed alarms, and whether they go off. tests/alarms.json has one for each paragraph of the runbook, as the templates do.

A test that brings a trouble about takes what was really written, and asks whether the alarm sees it:
`goes_off("table-state", lines(out), Table=name)`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import boto3

from tests.synth.log_filters import metrics

Json = dict[str, Any]

FILE = Path(__file__).with_suffix(".json")
STATISTICS: dict[str, Callable[[list[float]], float]] = {
    "Sum": sum,
    "Maximum": max,
    "Minimum": min,
    "SampleCount": len,
}


@dataclass(frozen=True)
class Point:
    """A value of a metric."""

    namespace: str
    metric: str
    dimensions: Mapping[str, str]
    value: float


@cache
def deployed() -> Json:
    """`alarms` and `rules` by paragraph, the `filters` over a job's log, and the `attempts` of queues."""
    found: Json = json.loads(FILE.read_text())
    return found


def lines(log: str) -> Iterator[Point]:
    """What the deployed filters make of the log of a job."""
    for line in log.splitlines():
        for (namespace, metric, dimensions), value in metrics(deployed()["filters"], line).items():
            yield Point(namespace, metric, dict(dimensions), value)


def embedded(log: str) -> Iterator[Point]:
    """The metrics that a function has written among its lines."""
    for line in log.splitlines():
        document = json.loads(line) if line.startswith('{"') and '"_aws"' in line else {}
        for each in document.get("_aws", {}).get("CloudWatchMetrics", ()):
            (names,) = each["Dimensions"]
            for metric in each["Metrics"]:
                values = document[metric["Name"]]
                for value in values if isinstance(values, list) else [values]:
                    yield Point(
                        each["Namespace"], metric["Name"], {name: document[name] for name in names}, value
                    )


def goes_off(paragraph: str, points: Iterable[Point], **dimensions: str) -> bool:
    """Whether the alarm does, where each of its periods measures this. `dimensions`: what they are called in the test."""
    alarm = deployed()["alarms"][paragraph]
    watched = {one["Name"]: one["Value"] for one in alarm.get("Dimensions", ())} | dimensions
    values = [
        each.value
        for each in points
        if (each.namespace, each.metric) == (alarm["Namespace"], alarm["MetricName"])
        and dict(each.dimensions) == watched
    ]
    if not values:
        return bool(alarm["TreatMissingData"] == "breaching")
    measured = STATISTICS[alarm["Statistic"]](values)
    if alarm["ComparisonOperator"] == "LessThanThreshold":
        return bool(measured < alarm["Threshold"])
    return bool(measured > alarm["Threshold"])


def failed(paragraph: str, function: str) -> bool:
    """Whether the alarm goes off where a run of this function ends with an error, as the test has seen."""
    (one,) = deployed()["alarms"][paragraph]["Dimensions"]
    assert function in one["Value"]
    return goes_off(paragraph, [Point("AWS/Lambda", "Errors", {"FunctionName": one["Value"]}, 1)])


def put_aside(paragraph: str, handle: Callable[[Json], Json], message: Json, *, of: str) -> bool:
    """Whether the alarm goes off where a function is handed this message as the deployed queue does. `of`: part of its name."""
    (one,) = deployed()["alarms"][paragraph]["Dimensions"]
    assert of in one["Value"]
    sqs = boto3.client("sqs", "us-east-1")
    failed = sqs.create_queue(QueueName="failed")["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=failed, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    redrive = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": deployed()["attempts"]})
    attributes = {"VisibilityTimeout": "0", "RedrivePolicy": redrive}
    queue = sqs.create_queue(QueueName="queue", Attributes=attributes)["QueueUrl"]
    sqs.send_message(QueueUrl=queue, MessageBody=message["body"])
    for _ in range(deployed()["attempts"] + 1):
        for each in sqs.receive_message(QueueUrl=queue).get("Messages", ()):
            record = {"messageId": each["MessageId"], "body": each["Body"]}
            if not handle({"Records": [record]})["batchItemFailures"]:
                sqs.delete_message(QueueUrl=queue, ReceiptHandle=each["ReceiptHandle"])
    name = "ApproximateNumberOfMessages"
    found = sqs.get_queue_attributes(QueueUrl=failed, AttributeNames=[name])["Attributes"][name]
    metric = "ApproximateNumberOfMessagesVisible"
    return goes_off(paragraph, [Point("AWS/SQS", metric, {"QueueName": one["Value"]}, float(found))])


def mailed(paragraph: str, event: Json) -> bool:
    """Whether the rule mails about this event."""
    return _matches(deployed()["rules"][paragraph], event)


def _matches(pattern: Any, value: Any) -> bool:
    if isinstance(pattern, dict):
        return all(key in value and _matches(each, value[key]) for key, each in pattern.items())
    match pattern:
        case [{"exists": True}]:
            return True
        case [{"anything-but": others}]:
            return value not in others
        case _:
            return value in pattern
