"""Mails: a manifest was written, or an export has failed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from aws_cdk import Duration, Stack, aws_dynamodb, aws_sns
from constructs import Construct

from calve.announcement import EXPORT_CREATED, EXPORT_FAILED, pattern
from calve.deployment import Deployment
from calve.export import EXPORTS, Export
from stacks.bundling import Runtime
from stacks.export_links import ExportLinks
from stacks.export_writer import FILES
from stacks.function import Function, invoke
from stacks.lake import LakeStack
from stacks.roles import Statement, allow, announcing, arn
from stacks.topic import mail_topic


class ExportMails(Construct):
    """A topic per export that mails by SNS, and the function that mails once per file and per failure; `done` remembers which."""

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        deployment: Deployment,
        lake: LakeStack,
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
        if lake.key_arn:
            statements.append(allow(["kms:Decrypt"], [lake.key_arn]))
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
        # Only manifests, which come last, and which the function never writes: it cannot set itself off.
        manifests = {"bucket": {"name": [lake.bucket]}, "object": {"key": [{"wildcard": _manifests(lake)}]}}
        invoke(
            self,
            "Written",
            self.function,
            pattern={"source": ["aws.s3"], "detail-type": ["Object Created"], "detail": manifests},
        )
        invoke(self, "Failed", self.function, pattern=failures(deployment.name))


def failures(deployment: str) -> dict[str, Any]:
    """The events by which exports of the deployment are given up."""
    return pattern(deployment, EXPORT_FAILED)


def _manifests(lake: LakeStack) -> str:
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
