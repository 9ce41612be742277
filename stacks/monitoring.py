"""Who hears of trouble: alarms and events to one topic, and one dashboard. Stateless."""

from __future__ import annotations

from aws_cdk import CfnOutput, Stack
from constructs import Construct

from calve.deployment import Deployment
from stacks.alarms.board import Board
from stacks.alarms.of_exports import of_exports
from stacks.alarms.of_jobs import of_job, of_starts
from stacks.alarms.of_maintenance import of_maintenance
from stacks.alarms.of_publishing import of_catalog, of_snowflake
from stacks.alarms.of_rotations import of_rotation
from stacks.dashboard import Dashboard
from stacks.exports import ExportsStack
from stacks.ingest import IngestStack
from stacks.job_metrics import JobMetrics
from stacks.keys import KeysStack
from stacks.maintenance import MaintenanceStack
from stacks.publish import PublishStack
from stacks.rotation import Rotation


class MonitoringStack(Stack):
    """Alarms of jobs, tables, exports, what is published and keys, mailed to `alerts.emails`."""

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        deployment: Deployment,
        ingest: IngestStack,
        maintenance: MaintenanceStack,
        exports: ExportsStack | None,
        publish: PublishStack | None = None,
        keys: KeysStack | None = None,
    ) -> None:
        super().__init__(scope, id, description="calve: alarms and dashboard")
        namespace = f"calve/{deployment.name}"
        metrics = {
            job.definition.settings.job: JobMetrics(
                self, f"{job.definition.settings.job}Metrics", namespace=namespace, job=job
            )
            for job in ingest.jobs
        }
        board = Board(self, "Alarms", deployment=deployment)
        for job in ingest.jobs:
            of_job(board, job, metrics[job.definition.settings.job])
        of_maintenance(board, maintenance, metrics)
        of_starts(board, ingest.group, ingest.control)
        if exports:
            of_exports(board, exports)
        if publish and publish.catalog:
            of_catalog(board, publish.catalog)
        if publish and publish.snowflake:
            of_snowflake(board, publish.snowflake)
        for name, rotation in _rotations(keys, exports, publish).items():
            of_rotation(board, name, rotation)
        dashboard = Dashboard(self, "Dashboard", deployment=deployment, metrics=metrics, alarms=board.all)
        CfnOutput(self, "AlertTopic", value=board.topic.topic_arn)
        CfnOutput(self, "DashboardName", value=dashboard.name)


def _rotations(
    keys: KeysStack | None, exports: ExportsStack | None, publish: PublishStack | None
) -> dict[str, Rotation]:
    """By what the keys open."""
    found = dict(keys.rotations) if keys else {}
    if exports:
        found["link"] = exports.links.rotation
    if publish and publish.snowflake:
        found["snowflake"] = publish.snowflake.rotation
    return found
