"""Resources that several stacks use: tables of small items, files, topics that send mail, and the feed of commits."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from aws_cdk import (
    Aws,
    Duration,
    RemovalPolicy,
    aws_dynamodb,
    aws_events,
    aws_iam,
    aws_lambda,
    aws_s3_assets,
    aws_scheduler,
    aws_sns,
    aws_sqs,
)
from aws_cdk import aws_secretsmanager as secrets
from aws_cdk import aws_sns_subscriptions as subscriptions
from constructs import Construct

from calve.names import schedule_name
from calve.outputs.announcement import COMMITTED, EVOLVED, pattern
from stacks.base.function import Function, Site
from stacks.base.roles import Statement, allow, arn, grant, service_role


def expiring_table(scope: Construct, id: str, *, expires: str) -> aws_dynamodb.Table:
    """A table keyed by `id`. DynamoDB deletes an item at the epoch second in its attribute `expires`. Deleted with its stack."""
    return _table(scope, id, "id", time_to_live_attribute=expires)


def table_of_states(scope: Construct, id: str) -> aws_dynamodb.Table:
    """The table of `lambdas/publish_states.py`: one item per target and table. Deleted with its stack."""
    return _table(scope, id, "target", sort_key=_text("table"))


WRITING_STATES = ("dynamodb:GetItem", "dynamodb:UpdateItem", "dynamodb:DeleteItem", "dynamodb:Scan")


def _table(scope: Construct, id: str, key: str, **options: Any) -> aws_dynamodb.Table:
    recovery = aws_dynamodb.PointInTimeRecoverySpecification(point_in_time_recovery_enabled=True)
    return aws_dynamodb.Table(
        scope,
        id,
        partition_key=_text(key),
        billing_mode=aws_dynamodb.BillingMode.PAY_PER_REQUEST,
        point_in_time_recovery_specification=recovery,
        removal_policy=RemovalPolicy.DESTROY,
        **options,
    )


def _text(name: str) -> aws_dynamodb.Attribute:
    return aws_dynamodb.Attribute(name=name, type=aws_dynamodb.AttributeType.STRING)


def generated_secret(scope: Construct, id: str, description: str) -> secrets.CfnSecret:
    """A secret that is deleted with its stack. Its generated text is a placeholder: a function writes the first real version."""
    placeholder = secrets.CfnSecret.GenerateSecretStringProperty(exclude_punctuation=True)
    secret = secrets.CfnSecret(scope, id, description=description, generate_secret_string=placeholder)
    secret.apply_removal_policy(RemovalPolicy.DESTROY)
    return secret


def text_file(scope: Construct, id: str, text: str) -> aws_s3_assets.Asset:
    """A file beside the templates, for what has no room in a template or in a function's variables."""
    with tempfile.TemporaryDirectory() as folder:  # an asset is copied when it is made
        file = Path(folder) / "file.json"
        file.write_text(text)
        return aws_s3_assets.Asset(scope, id, path=str(file))


def reading(file: aws_s3_assets.Asset) -> Statement:
    return allow(["s3:GetObject"], [file.bucket.arn_for_objects(file.s3_object_key)])


def mail_topic(scope: Construct, id: str, *, recipients: Sequence[str], title: str) -> aws_sns.Topic:
    """A topic with one mail subscription per recipient. `title`: the sender that a mail shows."""
    topic = aws_sns.Topic(scope, id, display_name=title, enforce_ssl=True)
    for address in recipients:
        topic.add_subscription(subscriptions.EmailSubscription(address))
    return topic


GATHER = Duration.seconds(5)
"""How long commits are batched: several commits of one table need one look at it."""
ATTEMPTS = 5
RECEIVING = ("sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:GetQueueAttributes")


class CommitFeed(Construct):
    """EventBridge -> queue -> function. A message that fails five times goes to a dead-letter queue for two weeks.

    The function must accept any order and repetition, because the queue guarantees neither.
    """

    def __init__(self, scope: Construct, id: str, site: Site, function: Function, timeout: Duration) -> None:
        super().__init__(scope, id)
        self.failed = self._queue("Failed", retention_period=Duration.days(14))
        self.queue = self._queue(
            "Queue",
            # AWS recommends six times the function's timeout, so that a waiting batch is not delivered twice.
            visibility_timeout=Duration.seconds(6 * timeout.to_seconds()),
            dead_letter_queue=aws_sqs.DeadLetterQueue(max_receive_count=ATTEMPTS, queue=self.failed),
        )
        rule = aws_events.CfnRule(
            self,
            "Committed",
            event_pattern=pattern(site.deployment.name, COMMITTED, EVOLVED),
            targets=[aws_events.CfnRule.TargetProperty(arn=self.queue.queue_arn, id="Queue")],
        )
        self.queue.add_to_resource_policy(
            aws_iam.PolicyStatement(
                actions=["sqs:SendMessage"],
                resources=[self.queue.queue_arn],
                principals=[aws_iam.ServicePrincipal("events.amazonaws.com")],
                conditions={
                    "ArnEquals": {"aws:SourceArn": rule.attr_arn},
                    "StringEquals": {"aws:SourceAccount": Aws.ACCOUNT_ID},
                },
            )
        )
        grant(function.role, [allow(RECEIVING, [self.queue.queue_arn])])
        types = aws_lambda.CfnEventSourceMapping
        types(
            self,
            "Mapping",
            function_name=function.function.function_name,
            event_source_arn=self.queue.queue_arn,
            batch_size=100,
            maximum_batching_window_in_seconds=int(GATHER.to_seconds()),
            function_response_types=["ReportBatchItemFailures"],
            scaling_config=types.ScalingConfigProperty(maximum_concurrency=2),
        )

    def _queue(self, id: str, **options: Any) -> aws_sqs.Queue:
        encryption = aws_sqs.QueueEncryption.SQS_MANAGED
        return aws_sqs.Queue(self, id, encryption=encryption, enforce_ssl=True, **options)


def scheduler_role(
    scope: Construct, id: str, group: str, statements: Sequence[Statement] = ()
) -> aws_iam.Role:
    """The role of the schedules of one group."""
    return service_role(
        scope,
        id,
        service="scheduler.amazonaws.com",
        source_arn=arn("scheduler", f"schedule-group/{group}"),
        statements=statements,
    )


LATER = "one schedule per later look"


def scheduling(schedules: str, role: aws_iam.Role) -> list[Statement]:
    """Create schedules of these names (`GROUP/PATTERN`) with this role."""
    to_scheduler = {"StringEquals": {"iam:PassedToService": "scheduler.amazonaws.com"}}
    return [
        allow(["scheduler:CreateSchedule"], [arn("scheduler", f"schedule/{schedules}")], because=LATER),
        allow(["iam:PassRole"], [role.role_arn], to_scheduler),
    ]


def schedule(
    scope: Construct,
    id: str,
    *,
    name: str,
    group: str,
    description: str,
    expression: str,
    time_zone: str,
    target: str,
    role: aws_iam.Role,
    event: Mapping[str, Any],
    attempts: int,
    max_age_s: int,
) -> aws_scheduler.CfnSchedule:
    """A schedule that invokes the function with this ARN. `attempts`: repetitions of a start, until it is `max_age_s` old."""
    types = aws_scheduler.CfnSchedule
    retry = types.RetryPolicyProperty(maximum_retry_attempts=attempts, maximum_event_age_in_seconds=max_age_s)
    return types(
        scope,
        id,
        name=schedule_name(name),
        group_name=group,
        description=description,
        schedule_expression=expression,
        schedule_expression_timezone=time_zone,
        flexible_time_window=types.FlexibleTimeWindowProperty(mode="OFF"),
        target=types.TargetProperty(
            arn=target, role_arn=role.role_arn, input=json.dumps(event), retry_policy=retry
        ),
    )
