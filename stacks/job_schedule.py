"""The starts of a job that does not run always."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from aws_cdk import Aws, aws_scheduler
from constructs import Construct

from stacks.arns import arn
from stacks.roles import allow, service_role


class JobSchedule(Construct):
    """An EventBridge schedule that starts a run; one that is still running is left alone."""

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        name: str,
        job_arn: str,
        group: aws_scheduler.CfnScheduleGroup,
        expression: str,
        description: str,
        time_zone: str = "UTC",
        arguments: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(scope, id)
        role = service_role(
            self,
            "Role",
            service="scheduler.amazonaws.com",
            source_arn=arn("scheduler", f"schedule-group/{group.name}"),
            statements=[allow(["glue:StartJobRun"], [job_arn])],
        )
        types = aws_scheduler.CfnSchedule
        started: dict[str, Any] = {"JobName": name} | ({"Arguments": dict(arguments)} if arguments else {})
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
                arn=f"arn:{Aws.PARTITION}:scheduler:::aws-sdk:glue:startJobRun",
                role_arn=role.role_arn,
                input=json.dumps(started),
                retry_policy=types.RetryPolicyProperty(
                    maximum_retry_attempts=0, maximum_event_age_in_seconds=300
                ),
            ),
        )
        schedule.add_resource_dependency(group)
