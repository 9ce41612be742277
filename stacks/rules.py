"""Rules of EventBridge that set functions off, and nobody else's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aws_cdk import Aws, aws_events, aws_lambda
from constructs import Construct

from stacks.function import Function


def invoke(
    scope: Construct,
    id: str,
    function: Function,
    *,
    pattern: Mapping[str, Any] | None = None,
    schedule: str | None = None,
    description: str | None = None,
) -> aws_events.CfnRule:
    """A rule by a pattern of events, or by a schedule, and the permission for it to invoke the function."""
    arn = function.function.function_arn
    rule = aws_events.CfnRule(
        scope,
        id,
        description=description,
        event_pattern=pattern,
        schedule_expression=schedule,
        targets=[aws_events.CfnRule.TargetProperty(arn=arn, id=function.node.id)],
    )
    aws_lambda.CfnPermission(
        scope,
        f"{id}Permission",
        action="lambda:InvokeFunction",
        function_name=arn,
        principal="events.amazonaws.com",
        source_arn=rule.attr_arn,
        source_account=Aws.ACCOUNT_ID,
    )
    return rule
