"""Scheduled exports: a function writes the file, another mails a link to it, a third answers the link. Stateless but links."""

from __future__ import annotations

from aws_cdk import CfnOutput, Stack
from constructs import Construct

from calve.config.deployment import Deployment
from stacks.base.bundling import Runtime
from stacks.base.roles import Lake
from stacks.base.tables import expiring_table
from stacks.publishing.export_mails import ExportLinks, ExportMails
from stacks.publishing.export_writer import ExportSchedules, ExportWriter


class ExportsStack(Stack):
    """Everything between a table and an analyst's mailbox."""

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
