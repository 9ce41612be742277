"""The function that writes an export's files into the lake's bucket."""

from __future__ import annotations

from aws_cdk import Duration, aws_dynamodb
from constructs import Construct

from calve.announcement import EXPORT_FAILED
from calve.deployment import Deployment
from calve.export import EXPORTS
from stacks.arns import arn
from stacks.bundling import Runtime
from stacks.export_schedules import ExportSchedules
from stacks.function import Function
from stacks.lake import LakeStack
from stacks.roles import allow, announcing

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
        lake: LakeStack,
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
        if lake.key_arn:
            statements.append(allow(["kms:Decrypt", "kms:GenerateDataKey"], [lake.key_arn]))
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
