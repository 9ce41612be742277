"""When exports run: one schedule each, in the time zone of its windows."""

from __future__ import annotations

import json
from dataclasses import asdict

from aws_cdk import aws_lambda, aws_scheduler
from constructs import Construct

from calve.deployment import Deployment
from stacks.arns import arn
from stacks.roles import allow, grant, service_role

# The scheduler puts the planned time in its place, so that a late start exports the right window.
SCHEDULED_AT = "<aws.scheduler.scheduled-time>"


class ExportSchedules(Construct):
    """A schedule group with its role; the export function puts its own later looks into the same group."""

    def __init__(self, scope: Construct, id: str, *, deployment: Deployment) -> None:
        super().__init__(scope, id)
        self._deployment = deployment
        self.group = aws_scheduler.CfnScheduleGroup(self, "Group", name=deployment.name)
        self.role = service_role(
            self,
            "Role",
            service="scheduler.amazonaws.com",
            source_arn=arn("scheduler", f"schedule-group/{deployment.name}"),
        )

    def invoke(self, function: aws_lambda.Function) -> None:
        """Have every schedule invoke the export function."""
        grant(self.role, [allow(["lambda:InvokeFunction"], [function.function_arn])])
        types = aws_scheduler.CfnSchedule
        for export in self._deployment.exports:
            schedule = types(
                self,
                export.name,
                name=f"{self._deployment.name}-{export.name}",
                group_name=self._deployment.name,
                description=f"Exports {export.name}",
                schedule_expression=export.schedule,
                schedule_expression_timezone=export.time_zone,
                flexible_time_window=types.FlexibleTimeWindowProperty(mode="OFF"),
                target=types.TargetProperty(
                    arn=function.function_arn,
                    role_arn=self.role.role_arn,
                    input=json.dumps({"export": asdict(export), "scheduled_at": SCHEDULED_AT}),
                    retry_policy=types.RetryPolicyProperty(
                        maximum_retry_attempts=10, maximum_event_age_in_seconds=3600
                    ),
                ),
            )
            schedule.add_resource_dependency(self.group)
            schedule.node.add_dependency(self.role)
