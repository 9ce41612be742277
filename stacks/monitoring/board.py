"""The topic of all alarms, and the ways to make an alarm."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aws_cdk import Aws, Duration, aws_cloudwatch, aws_events, aws_iam, aws_scheduler, aws_sqs
from aws_cdk import aws_cloudwatch_actions as actions
from constructs import Construct

from calve.config.deployment import Deployment
from calve.outputs.metrics import DROPPED_STARTS, ERRORS, WAITING_MESSAGES, Metric, Service
from calve.outputs.metrics import Function as Written
from stacks.base.function import METRICS_NAMESPACE, Function
from stacks.base.resources import mail_topic

PERIOD = Duration.minutes(5)
QUARTER = 3
"""Periods."""
HOUR = 12
A_WHOLE_DAY: dict[str, Any] = {"periods": 24, "period": Duration.hours(1)}
RUNBOOK = "docs/operations.md"


class Board(Construct):
    """The operators' topic. `all`: the alarms made so far."""

    def __init__(self, scope: Construct, id: str, *, deployment: Deployment) -> None:
        super().__init__(scope, id)
        self.deployment = deployment
        self.all: list[aws_cloudwatch.Alarm] = []
        self.topic = mail_topic(
            self, "Topic", recipients=deployment.alerts.emails, title=f"calve {deployment.name}"
        )
        self._let_publish(
            "cloudwatch.amazonaws.com",
            f"arn:{Aws.PARTITION}:cloudwatch:{Aws.REGION}:{Aws.ACCOUNT_ID}:alarm:*",
        )

    def alarm(
        self,
        name: str,
        metric: aws_cloudwatch.Metric,
        says: str,
        *,
        runbook: str | None = None,
        above: float = 0,
        below: float | None = None,
        periods: int = 1,
        period: Duration = PERIOD,
    ) -> None:
        """An alarm on a value that is too high (no data is good) or too low (no data is bad).

        `says`: the sentence of the mail. `runbook`: the heading of the paragraph with the fix, if it is not the alarm's name.
        """
        operators, missing = aws_cloudwatch.ComparisonOperator, aws_cloudwatch.TreatMissingData
        is_bad, absent = operators.GREATER_THAN_THRESHOLD, missing.NOT_BREACHING
        if below is not None:
            is_bad, absent = operators.LESS_THAN_THRESHOLD, missing.BREACHING
        alarm = aws_cloudwatch.Alarm(
            self,
            name,
            alarm_name=f"{self.deployment.name}-{name}",
            alarm_description=_text(says, runbook or name),
            metric=metric.with_(period=period),
            threshold=above if below is None else below,
            comparison_operator=is_bad,
            evaluation_periods=periods,
            treat_missing_data=absent,
        )
        alarm.add_alarm_action(actions.SnsAction(self.topic))
        self.all.append(alarm)

    def errors(self, name: str, function: Function, says: str, runbook: str | None = None) -> None:
        """Invocations of a function that ended with an error."""
        metric = measured(ERRORS, FunctionName=function.function.function_name)
        self.alarm(name, metric, says, runbook=runbook)

    def put_aside(self, name: str, queue: aws_sqs.Queue, says: str) -> None:
        """Messages in a function's dead-letter queue."""
        self.alarm(name, measured(WAITING_MESSAGES, "Maximum", QueueName=queue.queue_name), says)

    def dropped(self, name: str, group: aws_scheduler.CfnScheduleGroup, says: str) -> None:
        """Starts that a schedule dropped."""
        self.alarm(name, measured(DROPPED_STARTS, ScheduleGroup=str(group.name)), says)

    def mail_on(
        self,
        id: str,
        pattern: Mapping[str, Any],
        says: str,
        runbook: str,
        about: str,
        paths: Mapping[str, str],
    ) -> None:
        """A mail for each of these events. `says` may contain values of the event, by `paths`."""
        transformer = aws_events.CfnRule.InputTransformerProperty(
            input_paths_map=paths, input_template=f'"{_text(says, runbook)}"'
        )
        target = aws_events.CfnRule.TargetProperty(
            arn=self.topic.topic_arn, id="Alert", input_transformer=transformer
        )
        rule = aws_events.CfnRule(self, id, description=about, event_pattern=pattern, targets=[target])
        self._let_publish("events.amazonaws.com", rule.attr_arn)

    def _let_publish(self, service: str, source_arn: str) -> None:
        conditions = {
            "StringEquals": {"aws:SourceAccount": Aws.ACCOUNT_ID},
            "ArnLike": {"aws:SourceArn": source_arn},
        }
        self.topic.add_to_resource_policy(
            aws_iam.PolicyStatement(
                principals=[aws_iam.ServicePrincipal(service)],
                actions=["sns:Publish"],
                resources=[self.topic.topic_arn],
                conditions=conditions,
            )
        )


def _text(says: str, runbook: str) -> str:
    return f"{says} What now: {RUNBOOK}#{runbook.lower()}"


def measured(metric: Metric, statistic: str = "Sum", **dimensions: str) -> aws_cloudwatch.Metric:
    """A metric of AWS or of our functions. Ours have the function's folder as `service`."""
    match metric.source:
        case Service(namespace):
            pass
        case Written(folder):
            namespace, dimensions = METRICS_NAMESPACE, {"service": folder, **dimensions}
        case other:
            raise TypeError(f"{metric.name} is made by filters of {other}")
    return aws_cloudwatch.Metric(
        namespace=namespace,
        metric_name=metric.name,
        dimensions_map=dimensions or None,
        statistic=statistic,
    )
