"""Scheduled exports: one function writes files, one mails addresses, one answers public links. Only links have state."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from aws_cdk import CfnOutput, Duration, Stack, aws_dynamodb, aws_iam, aws_lambda, aws_scheduler, aws_ssm
from constructs import Construct

from calve.config.publishing import EXPORTS, Export, topic_parameter
from calve.outputs.announcement import EXPORT_CREATED, EXPORT_FAILED, pattern
from stacks.base.function import Function, Site, custom_resource, invoke
from stacks.base.lake_formation import grants
from stacks.base.resources import (
    expiring_table,
    generated_secret,
    mail_topic,
    schedule,
    scheduler_role,
    scheduling,
)
from stacks.base.roles import Statement, allow, announcing, arn, grant
from stacks.base.rotation import Rotation, rotating

# The scheduler replaces it by the planned time, so that a late start exports the right window.
SCHEDULED_AT = "<aws.scheduler.scheduled-time>"


FILES = "the files of exports have their windows in their names"
ONCE = ("dynamodb:DeleteItem", "dynamodb:GetItem", "dynamodb:PutItem", "dynamodb:UpdateItem")
"""What powertools' idempotency does to its table."""


def export_schedules(
    scope: Construct,
    site: Site,
    group: aws_scheduler.CfnScheduleGroup,
    role: aws_iam.Role,
    function: Function,
) -> None:
    """A schedule for each export, which invokes the export function. `scope`: their own."""
    name = site.deployment.name
    grant(role, [allow(["lambda:InvokeFunction"], [function.arn])])
    for export in site.deployment.exports:
        created = schedule(
            scope,
            export.name,
            name=f"{name}-{export.name}",
            group=name,
            description=f"Exports {export.name}",
            expression=export.schedule,
            time_zone=export.time_zone,
            target=function.arn,
            role=role,
            event={"export": asdict(export), "scheduled_at": SCHEDULED_AT},
            attempts=10,
            max_age_s=3600,
        )
        created.add_resource_dependency(group)
        created.node.add_dependency(role)


MEMORY_MB = 2048
TABLES = "an export may name any table of its database, which is known to the job alone where it is named after a cluster"


def export_writer(scope: Construct, site: Site, role: aws_iam.Role, done: aws_dynamodb.Table) -> Function:
    """Reads the exported tables and writes below `exports/`. Retries later if a window is not complete. `scope`: its own."""
    lake, deployment = site.lake, site.deployment.name
    name = writer_name(deployment)
    files = [lake.objects(EXPORTS)]
    glue = ["glue:GetDatabase", "glue:GetTable", *["glue:GetDatabases"] * lake.per_cluster]
    writing = ["s3:GetObject", "s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload"]
    return Function(
        scope,
        "Export",
        site,
        code="csv_export",
        name=name,
        memory_mb=MEMORY_MB,
        timeout=Duration.minutes(15),
        statements=[
            *lake.finding(glue, because=TABLES, rows=True),
            *lake.secret(),
            *lake.files("s3:GetObject", because=TABLES),
            allow(writing, files, because=FILES),
            allow(["s3:ListBucketMultipartUploads"], [lake.bucket_arn]),
            allow(["s3:ListMultipartUploadParts"], files, because=FILES),
            *scheduling(f"{deployment}/*-again-*", role),
            allow(ONCE, [done.table_arn]),
            announcing([EXPORT_FAILED]),
            *lake.key("kms:Decrypt", "kms:GenerateDataKey"),
        ],
        environment={
            "LAKE_BUCKET": lake.bucket,
            "EXPORTS_PREFIX": f"{lake.prefix}{EXPORTS}",
            "SCHEDULE_GROUP": deployment,
            "SCHEDULER_ROLE_ARN": role.role_arn,
            "FUNCTION_ARN": arn("lambda", f"function:{name}"),
            "IDEMPOTENCY_TABLE": done.table_name,
            **({"CATALOG": json.dumps(asdict(lake.catalog))} if lake.catalog else {}),
        },
    )


def writer_name(deployment: str) -> str:
    return f"{deployment}-export"


SECRET = "LINK_KEYS_SECRET"  # noqa: S105 the name of a variable that names the secret
ROTATION_DAYS = 30
"""Two keys are valid at a time, so a link survives one rotation: `link_days` may not exceed this."""


class ExportLinks(Construct):
    """The links' table, their keys, and the only public endpoint of the deployment.

    It reserves no concurrency, as a new account has a quota of 10. Without a valid signature it reads no table and no bucket.
    Made where an export has a public link. Table and keys are deleted with it. The next one has another URL, so old links
    cannot work.
    """

    def __init__(self, scope: Construct, id: str, site: Site) -> None:
        super().__init__(scope, id)
        self.table = expiring_table(self, "Table", expires="expires_at")
        self.keys = generated_secret(self, "Keys", f"Signs the download links of {site.deployment.name}")
        reading = allow(["secretsmanager:GetSecretValue"], [self.keys.ref])
        make_first = Function(
            self,
            "FirstKey",
            site,
            code="keys.link",
            handler="first",
            environment={SECRET: self.keys.ref},
            statements=[rotating(self.keys.ref)],
        )
        properties = {"Secret": self.keys.ref}
        first = custom_resource(self, "First", "LinkKeys", make_first, properties, Duration.minutes(2))
        self.rotation = Rotation(
            self,
            "Rotation",
            site,
            secret=self.keys.ref,
            days=ROTATION_DAYS,
            code="keys.link",
            environment={SECRET: self.keys.ref},
        )
        self.rotation.node.add_dependency(first)  # a schedule is tested with what is there
        download = Function(
            self,
            "Download",
            site,
            code="download",
            timeout=Duration.seconds(10),
            environment={
                "LINKS_TABLE": self.table.table_name,
                SECRET: self.keys.ref,
                "LAKE_BUCKET": site.lake.bucket,
            },
            statements=[
                allow(["s3:GetObject"], [site.lake.objects(EXPORTS)], because=FILES),
                allow(["dynamodb:GetItem", "dynamodb:UpdateItem"], [self.table.table_arn]),
                reading,
                *site.lake.key("kms:Decrypt", through_s3=True),
            ],
        )
        self.url = download.function.add_function_url(auth_type=aws_lambda.FunctionUrlAuthType.NONE).url
        self.variables = {
            "LINKS_TABLE": self.table.table_name,
            SECRET: self.keys.ref,
            "DOWNLOAD_URL": self.url,
        }
        self.making = (allow(["dynamodb:PutItem"], [self.table.table_arn]), reading)


class ExportMails(Construct):
    """A topic per export that mails by SNS, and a function that mails once per file and per failure; `done` remembers them."""

    def __init__(
        self, scope: Construct, id: str, site: Site, links: ExportLinks | None, done: aws_dynamodb.Table
    ) -> None:
        super().__init__(scope, id)
        lake, exports = site.lake, site.deployment.exports
        self.topics = {
            name: mail_topic(self, f"{name}Topic", recipients=each.recipients, title=name)
            for name, each in ((each.name, each) for each in exports)
            if each.channel == "sns"
        }
        deployment = site.deployment.name
        for name, topic in self.topics.items():  # not variables of the function, which have a size limit
            parameter = topic_parameter(deployment, name)
            aws_ssm.CfnParameter(
                self, f"{name}TopicArn", type="String", name=parameter, value=topic.topic_arn
            )
        self.function = Function(
            self,
            "Notify",
            site,
            code="export_notify",
            timeout=Duration.minutes(1),
            environment={
                "IDEMPOTENCY_TABLE": done.table_name,
                "EXPORTS_PREFIX": f"{lake.prefix}{EXPORTS}",
                **(links.variables if links else {}),
            },
            statements=[
                allow(["s3:GetObject"], [lake.objects(EXPORTS)], because=FILES),
                allow(ONCE, [done.table_arn]),
                *(links.making if links else ()),
                announcing([EXPORT_CREATED]),
                *_sending(exports, deployment),
                *lake.key("kms:Decrypt"),
            ],
        )
        # Only manifests. They are written last, and not by this function: it cannot trigger itself.
        keys = [{"wildcard": f"{lake.prefix}{EXPORTS}*/manifest.json"}]
        written = {"bucket": {"name": [lake.bucket]}, "object": {"key": keys}}
        created = {"source": ["aws.s3"], "detail-type": ["Object Created"], "detail": written}
        invoke(self, "Written", self.function, pattern=created)
        invoke(self, "Failed", self.function, pattern=failures(site.deployment.name))


TOPICS = "each export has a topic, which CloudFormation names; a policy has no room for many"


def failures(deployment: str) -> dict[str, Any]:
    return pattern(deployment, EXPORT_FAILED)


def _sending(exports: Sequence[Export], deployment: str) -> list[Statement]:
    known = arn("ssm", f"parameter{topic_parameter(deployment, '*')}")
    statements = [
        allow(["sns:Publish"], [arn("sns", f"{deployment}-exports-*")], because=TOPICS),
        allow(["ssm:GetParameter"], [known], because=TOPICS),
    ]
    if not any(each.channel == "sns" for each in exports):
        statements = []
    if senders := sorted({each.sender for each in exports if each.channel == "ses" and each.sender}):
        # SES checks the identity that covers the sender: the address, or its domain.
        identities = sorted({name for each in senders for name in (each, each.rpartition("@")[2])})
        covering = [arn("ses", f"identity/{name}") for name in identities]
        statements.append(allow(["ses:SendEmail"], covering, {"StringEquals": {"ses:FromAddress": senders}}))
    return statements


class ExportsStack(Stack):
    """All functions between a table and the mail with its file."""

    def __init__(self, scope: Construct, id: str, site: Site) -> None:
        super().__init__(scope, id, description="calve: exports by schedule, mail and link")
        done = expiring_table(self, "Done", expires="expiration")
        schedules, name = Construct(self, "Schedules"), site.deployment.name
        self.group = aws_scheduler.CfnScheduleGroup(schedules, "Group", name=name)
        role = scheduler_role(schedules, "Role", name)
        self.writer = export_writer(Construct(self, "Writer"), site, role, done)
        grants(Construct(self, "Grants"), site, lookers=[self.writer.role.role_arn])
        export_schedules(schedules, site, self.group, role, self.writer)
        self.links = ExportLinks(self, "Links", site) if site.deployment.public_links else None
        self.mails = ExportMails(self, "Mails", site, self.links, done)
        CfnOutput(self, "ExportFunction", value=self.writer.function.function_name)
        if self.links:
            CfnOutput(self, "DownloadUrl", value=self.links.url)
            CfnOutput(self, "LinksTable", value=self.links.table.table_name)
