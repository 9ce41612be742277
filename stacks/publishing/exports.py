"""Scheduled exports: one function writes files, one mails links to them, one answers the links. Only the links have state."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from aws_cdk import (
    CfnOutput,
    CustomResource,
    Duration,
    RemovalPolicy,
    Stack,
    aws_dynamodb,
    aws_lambda,
    aws_scheduler,
    aws_sns,
)
from aws_cdk import aws_secretsmanager as secrets
from constructs import Construct

from calve.config.deployment import Deployment
from calve.config.publishing import EXPORTS, Export
from calve.outputs.announcement import EXPORT_CREATED, EXPORT_FAILED, pattern
from stacks.base.bundling import Runtime
from stacks.base.function import Function, invoke
from stacks.base.resources import expiring_table, mail_topic
from stacks.base.roles import Lake, Statement, allow, announcing, arn, grant, service_role
from stacks.base.rotation import Rotation, rotating

# The scheduler replaces it by the planned time, so that a late start exports the right window.
SCHEDULED_AT = "<aws.scheduler.scheduled-time>"


class ExportSchedules(Construct):
    """A schedule group with its role. The export function adds its own retries to the group."""

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
    """Reads the exported tables and writes below `exports/`. Retries later if a window is not complete."""

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


SECRET = "LINK_KEYS_SECRET"  # noqa: S105 the name of a variable that names the secret
ROTATION_DAYS = 30
"""Two keys are valid at a time, so a link survives one rotation: `link_days` may not exceed this."""


class ExportLinks(Construct):
    """The links' table, their keys, and the only public endpoint of the deployment.

    It reserves no concurrency, as a new account has a quota of 10. Without a valid signature it reads no table and no bucket.
    Table and keys are deleted with the stack: another deploy has another URL, so old links cannot work.
    """

    def __init__(
        self, scope: Construct, id: str, *, deployment: Deployment, lake: Lake, runtime: Runtime
    ) -> None:
        super().__init__(scope, id)
        self._deployment = deployment
        self._runtime = runtime
        self.table = expiring_table(self, "Table", expires="expires_at")
        self.keys = secrets.CfnSecret(
            self,
            "Keys",
            description=f"Signs the download links of {deployment.name}",
            # A placeholder for the first version: `lambdas/link_keys` replaces it.
            generate_secret_string=secrets.CfnSecret.GenerateSecretStringProperty(exclude_punctuation=True),
        )
        self.keys.apply_removal_policy(RemovalPolicy.DESTROY)
        first = self._first_key()
        self.rotation = Rotation(
            self,
            "Rotation",
            secret=self.keys.ref,
            days=ROTATION_DAYS,
            code="link_keys",
            runtime=runtime,
            deployment=deployment.name,
            environment={SECRET: self.keys.ref},
        )
        self.rotation.node.add_dependency(first)  # a schedule is tested with what is there
        self.url = self._download(lake)

    def read_keys(self) -> Statement:
        return allow(["secretsmanager:GetSecretValue"], [self.keys.ref])

    def _first_key(self) -> CustomResource:
        function = Function(
            self,
            "FirstKey",
            code="link_keys",
            handler="handler.first",
            runtime=self._runtime,
            deployment=self._deployment.name,
            environment={SECRET: self.keys.ref},
            statements=[rotating(self.keys.ref)],
        )
        resource = CustomResource(
            self,
            "First",
            resource_type="Custom::CalveLinkKeys",
            service_token=function.function.function_arn,
            service_timeout=Duration.minutes(2),
            properties={"Secret": self.keys.ref},
        )
        resource.node.add_dependency(function)
        return resource

    def _download(self, lake: Lake) -> str:
        statements = [
            allow(["s3:GetObject"], [lake.objects(EXPORTS)], because=FILES),
            allow(["dynamodb:GetItem", "dynamodb:UpdateItem"], [self.table.table_arn]),
            self.read_keys(),
        ]
        statements += lake.key("kms:Decrypt", through_s3=True)
        function = Function(
            self,
            "Download",
            code="download",
            runtime=self._runtime,
            deployment=self._deployment.name,
            timeout=Duration.seconds(10),
            environment={
                "LINKS_TABLE": self.table.table_name,
                SECRET: self.keys.ref,
                "LAKE_BUCKET": lake.bucket,
            },
            statements=statements,
        )
        url = function.function.add_function_url(auth_type=aws_lambda.FunctionUrlAuthType.NONE)
        return url.url


class ExportMails(Construct):
    """A topic per export that mails by SNS, and a function that mails once per file and per failure; `done` remembers them."""

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        deployment: Deployment,
        lake: Lake,
        runtime: Runtime,
        links: ExportLinks,
        done: aws_dynamodb.Table,
    ) -> None:
        super().__init__(scope, id)
        self.topics = {
            export.name: mail_topic(
                self, f"{export.name}Topic", recipients=export.recipients, title=export.name
            )
            for export in deployment.exports
            if export.channel == "sns"
        }
        statements = [
            allow(["s3:GetObject"], [lake.objects(EXPORTS)], because=FILES),
            allow(["dynamodb:PutItem"], [links.table.table_arn]),
            allow(
                ["dynamodb:DeleteItem", "dynamodb:GetItem", "dynamodb:PutItem", "dynamodb:UpdateItem"],
                [done.table_arn],
            ),
            links.read_keys(),
            announcing([EXPORT_CREATED]),
            *_sending(deployment.exports, self.topics),
        ]
        statements += lake.key("kms:Decrypt")
        self.function = Function(
            self,
            "Notify",
            code="export_notify",
            runtime=runtime,
            deployment=deployment.name,
            timeout=Duration.minutes(1),
            environment={
                "LINKS_TABLE": links.table.table_name,
                "IDEMPOTENCY_TABLE": done.table_name,
                "LINK_KEYS_SECRET": links.keys.ref,
                "DOWNLOAD_URL": links.url,
                "EXPORTS_PREFIX": f"{lake.prefix}{EXPORTS}",
                "MAIL_TOPICS": Stack.of(self).to_json_string(
                    {name: topic.topic_arn for name, topic in self.topics.items()}
                ),
            },
            statements=statements,
        )
        # Only manifests. They are written last, and not by this function: it cannot trigger itself.
        manifests = {"bucket": {"name": [lake.bucket]}, "object": {"key": [{"wildcard": _manifests(lake)}]}}
        invoke(
            self,
            "Written",
            self.function,
            pattern={"source": ["aws.s3"], "detail-type": ["Object Created"], "detail": manifests},
        )
        invoke(self, "Failed", self.function, pattern=failures(deployment.name))


def failures(deployment: str) -> dict[str, Any]:
    """The events of exports that have failed for good."""
    return pattern(deployment, EXPORT_FAILED)


def _manifests(lake: Lake) -> str:
    return f"{lake.prefix}{EXPORTS}*/manifest.json"


def _sending(exports: Sequence[Export], topics: Mapping[str, aws_sns.Topic]) -> list[Statement]:
    statements = []
    if topics:
        statements.append(allow(["sns:Publish"], [topic.topic_arn for topic in topics.values()]))
    if senders := sorted({each.sender for each in exports if each.channel == "ses" and each.sender}):
        # SES checks the identity that covers the sender: the address, or its domain.
        identities = sorted({name for each in senders for name in (each, each.rpartition("@")[2])})
        statements.append(
            allow(
                ["ses:SendEmail"],
                [arn("ses", f"identity/{name}") for name in identities],
                {"StringEquals": {"ses:FromAddress": senders}},
            )
        )
    return statements


class ExportsStack(Stack):
    """All functions between a table and the mail with its file."""

    def __init__(
        self, scope: Construct, id: str, *, deployment: Deployment, lake: Lake, runtime: Runtime
    ) -> None:
        super().__init__(scope, id, description="calve: exports by schedule, mail and link")
        done = expiring_table(self, "Done", expires="expiration")
        self.schedules = ExportSchedules(self, "Schedules", deployment=deployment)
        self.writer = ExportWriter(
            self,
            "Writer",
            deployment=deployment,
            lake=lake,
            runtime=runtime,
            schedules=self.schedules,
            done=done,
        )
        self.schedules.invoke(self.writer.function)
        self.links = ExportLinks(self, "Links", deployment=deployment, lake=lake, runtime=runtime)
        self.mails = ExportMails(
            self, "Mails", deployment=deployment, lake=lake, runtime=runtime, links=self.links, done=done
        )
        CfnOutput(self, "DownloadUrl", value=self.links.url)
        CfnOutput(self, "ExportFunction", value=self.writer.function.function_name)
        CfnOutput(self, "LinksTable", value=self.links.table.table_name)
