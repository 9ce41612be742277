"""The starts of a job that does not run always."""

from __future__ import annotations

import json

from aws_cdk import aws_scheduler
from constructs import Construct

from stacks.base.roles import allow, arn, service_role


def start_name(deployment: str) -> str:
    """The name of the function that starts the deployment's jobs."""
    return f"{deployment}-start"


def start_arn(deployment: str) -> str:
    return arn("lambda", f"function:{start_name(deployment)}")


class JobSchedule(Construct):
    """An EventBridge schedule that starts a run; one that is still running is left alone."""

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        name: str,
        deployment: str,
        group: aws_scheduler.CfnScheduleGroup,
        expression: str,
        description: str,
        time_zone: str = "UTC",
    ) -> None:
        super().__init__(scope, id)
        role = service_role(
            self,
            "Role",
            service="scheduler.amazonaws.com",
            source_arn=arn("scheduler", f"schedule-group/{group.name}"),
            statements=[allow(["lambda:InvokeFunction"], [start_arn(deployment)])],
        )
        types = aws_scheduler.CfnSchedule
        schedule = types(
            self,
            "Schedule",
            name=name,
            group_name=group.name,
            description=description,
            schedule_expression=expression,
            schedule_expression_timezone=time_zone,
            flexible_time_window=types.FlexibleTimeWindowProperty(mode="OFF"),
            target=types.TargetProperty(
                arn=start_arn(deployment),
                role_arn=role.role_arn,
                input=json.dumps({"job": name}),
                retry_policy=types.RetryPolicyProperty(
                    maximum_retry_attempts=0, maximum_event_age_in_seconds=300
                ),
            ),
        )
        schedule.add_resource_dependency(group)
