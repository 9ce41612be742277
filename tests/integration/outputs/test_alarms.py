"""The deployed alarms go off, and the operators hear of it.

The emulator has no metric filters and does not miss data. So what the deployed filters make of a line is worked out here, and the
alarm on a missing heartbeat is left out.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from calve.log import event
from cli.embedded import aws
from tests.integration.support.engine import until
from tests.integration.support.exporting import NAME, Deployment
from tests.synth.log_filters import metrics

QUEUE = f"{NAME}-operators"


class Operator:
    """A subscriber of the deployment's alerts."""

    def __init__(self, weekly: Deployment) -> None:
        self._sqs = weekly.client("sqs")
        self._url, arn = aws.open_queue(QUEUE, weekly.stack.aws_endpoint)
        self._cloudwatch = weekly.client("cloudwatch")
        self._heard: set[str] = set()
        topics = weekly.client("sns").list_topics()["Topics"]
        (topic,) = (each["TopicArn"] for each in topics if f":{NAME}-monitoring-" in each["TopicArn"])
        weekly.client("sns").subscribe(TopicArn=topic, Protocol="sqs", Endpoint=arn)
        found = self._cloudwatch.describe_alarms(AlarmNamePrefix=NAME, MaxRecords=100)["MetricAlarms"]
        self.alarms = {self._short(each["AlarmName"]): each for each in found}

    def measure(self, namespace: str, metric: str, dimensions: Mapping[str, str], value: float) -> None:
        named = [{"Name": key, "Value": each} for key, each in dimensions.items()]
        datum = {"MetricName": metric, "Dimensions": named, "Value": value}
        self._cloudwatch.put_metric_data(Namespace=namespace, MetricData=[datum])

    def heard(self) -> set[str]:
        """The alarms that went off until now."""
        while found := self._sqs.receive_message(QueueUrl=self._url, MaxNumberOfMessages=10).get("Messages"):
            for each in found:
                told = json.loads(json.loads(each["Body"])["Message"])
                assert (told["NewStateValue"], bool(told["AlarmDescription"])) == ("ALARM", True)
                self._heard.add(self._short(told["AlarmName"]))
                self._sqs.delete_message(QueueUrl=self._url, ReceiptHandle=each["ReceiptHandle"])
        return self._heard

    def _short(self, alarm: str) -> str:
        return alarm.removeprefix(f"{NAME}-")


@pytest.fixture(scope="module")
def operator(weekly: Deployment) -> Operator:
    return Operator(weekly)


def filters(weekly: Deployment) -> list[dict[str, Any]]:
    """What is deployed, as a template writes it."""
    return [
        {
            "FilterPattern": each["filterPattern"],
            "MetricTransformations": [
                {
                    "MetricNamespace": made["metricNamespace"],
                    "MetricName": made["metricName"],
                    "MetricValue": made["metricValue"],
                    "Dimensions": [{"Key": k, "Value": v} for k, v in made.get("dimensions", {}).items()],
                }
                for made in each["metricTransformations"]
            ],
        }
        for each in weekly.client("logs").describe_metric_filters(filterNamePrefix=NAME)["metricFilters"]
    ]


def test_a_suspended_table_is_told_to_the_operators(
    weekly: Deployment, operator: Operator, capsys: pytest.CaptureFixture[str]
) -> None:
    topic = weekly.trades.topic
    table = f"{NAME}.{topic}"
    event("table.state", table=table, topic=topic, state="suspended", code="lost", reason="r", fix=None)
    for (namespace, metric, dimensions), value in metrics(filters(weekly), capsys.readouterr().out).items():
        operator.measure(namespace, metric, dict(dimensions), value)
    until(lambda: "main-tables-state" in operator.heard())
    assert "main-failed" not in operator.heard()


def test_every_alarm_reaches_the_operators(operator: Operator) -> None:
    loud = {name: each for name, each in operator.alarms.items() if each["TreatMissingData"] != "breaching"}
    assert len(loud) < len(operator.alarms)
    for each in loud.values():
        dimensions = {one["Name"]: one["Value"] for one in each.get("Dimensions", ())}
        operator.measure(each["Namespace"], each["MetricName"], dimensions, each["Threshold"] + 1)
    until(lambda: operator.heard() == set(loud))
