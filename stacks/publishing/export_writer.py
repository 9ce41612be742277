"""The function that writes an export's files into the lake's bucket, and the schedules by which it runs."""

from __future__ import annotations

import json
from dataclasses import asdict

from aws_cdk import Duration, aws_dynamodb, aws_lambda, aws_scheduler
from constructs import Construct

from calve.config.deployment import Deployment
from calve.config.export import EXPORTS
from calve.outputs.announcement import EXPORT_FAILED
from stacks.base.bundling import Runtime
from stacks.base.function import Function
from stacks.base.roles import Lake, allow, announcing, arn, grant, service_role

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


MEMORY_MB = 2048
TABLES = "an export may name any table of its database, which is known to the job alone where it is named after a cluster"
FILES = "the files of exports have their windows in their names"


class ExportWriter(Construct):
    """Reads the exported tables, writes below `exports/`, and looks again later where a window is not complete."""

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        deployment: Deployment,
        lake: Lake,
        runtime: Runtime,
        schedules: ExportSchedules,
        done: aws_dynamodb.Table,
    ) -> None:
        super().__init__(scope, id)
        files = lake.objects(EXPORTS)
        self.name = f"{deployment.name}-export"
        function_arn = arn("lambda", f"function:{self.name}")
        statements = [
            allow(
                ["glue:GetDatabase", "glue:GetTable", *["glue:GetDatabases"] * lake.per_cluster],
                lake.catalog_arns,
                because=TABLES,
            ),
            allow(["s3:GetBucketLocation"], [lake.bucket_arn]),
            lake.listing(),
            allow(["s3:GetObject"], [lake.objects(prefix) for prefix in lake.data_prefixes], because=TABLES),
            allow(
                ["s3:GetObject", "s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload"],
                [files],
                because=FILES,
            ),
            allow(["s3:ListBucketMultipartUploads"], [lake.bucket_arn]),
            allow(["s3:ListMultipartUploadParts"], [files], because=FILES),
            allow(
                ["scheduler:CreateSchedule"],
                [arn("scheduler", f"schedule/{deployment.name}/*-again-*")],
                because="one schedule per later look",
            ),
            allow(
                ["iam:PassRole"],
                [schedules.role.role_arn],
                {"StringEquals": {"iam:PassedToService": "scheduler.amazonaws.com"}},
            ),
            allow(
                ["dynamodb:DeleteItem", "dynamodb:GetItem", "dynamodb:PutItem", "dynamodb:UpdateItem"],
                [done.table_arn],
            ),
            announcing([EXPORT_FAILED]),
        ]
        statements += lake.key("kms:Decrypt", "kms:GenerateDataKey")
        part = Function(
            self,
            "Export",
            code="csv_export",
            name=self.name,
            runtime=runtime,
            deployment=deployment.name,
            memory_mb=MEMORY_MB,
            timeout=Duration.minutes(15),
            statements=statements,
            environment={
                "LAKE_BUCKET": lake.bucket,
                "EXPORTS_PREFIX": f"{lake.prefix}{EXPORTS}",
                "SCHEDULE_GROUP": deployment.name,
                "SCHEDULER_ROLE_ARN": schedules.role.role_arn,
                "FUNCTION_ARN": function_arn,
                "IDEMPOTENCY_TABLE": done.table_name,
            },
        )
        self.function = part.function
        self.log_group = part.log_group
