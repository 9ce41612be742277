"""The starts of a job that does not run always: each drains the topics and ends."""

from __future__ import annotations

import json

from aws_cdk import Aws, aws_scheduler
from constructs import Construct

from stacks.arns import arn
from stacks.ingest_job import IngestJob
from stacks.roles import allow, service_role


class JobSchedule(Construct):
    """An EventBridge schedule that starts a run; one that is still running is left alone."""

    def __init__(
        self, scope: Construct, id: str, *, job: IngestJob, group: aws_scheduler.CfnScheduleGroup
    ) -> None:
        super().__init__(scope, id)
        role = service_role(
            self,
            "Role",
            service="scheduler.amazonaws.com",
            source_arn=arn("scheduler", f"schedule-group/{group.name}"),
            statements=[allow(["glue:StartJobRun"], [job.arn])],
        )
        types = aws_scheduler.CfnSchedule
        schedule = types(
            self,
            "Schedule",
            name=job.name,
            group_name=group.name,
            description=f"Starts {job.name}, which drains its topics and ends",
            schedule_expression=str(job.definition.schedule),
            schedule_expression_timezone=job.definition.time_zone,
            flexible_time_window=types.FlexibleTimeWindowProperty(mode="OFF"),
            target=types.TargetProperty(
                arn=f"arn:{Aws.PARTITION}:scheduler:::aws-sdk:glue:startJobRun",
                role_arn=role.role_arn,
                input=json.dumps({"JobName": job.name, "Arguments": {"--drain": "true"}}),
                retry_policy=types.RetryPolicyProperty(
                    maximum_retry_attempts=0, maximum_event_age_in_seconds=300
                ),
            ),
        )
        schedule.add_resource_dependency(group)
