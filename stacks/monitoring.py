"""Who hears of trouble: alarms and events to one topic, and one dashboard. Stateless."""

from __future__ import annotations

from aws_cdk import CfnOutput, Stack
from constructs import Construct

from calve.deployment import Deployment
from stacks.alarms import Alarms
from stacks.dashboard import Dashboard
from stacks.exports import ExportsStack
from stacks.ingest import IngestStack
from stacks.job_metrics import JobMetrics
from stacks.publish import PublishStack


class MonitoringStack(Stack):
    """Alarms of jobs, tables, exports and what is published, mailed to `alerts.emails`."""

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        deployment: Deployment,
        ingest: IngestStack,
        exports: ExportsStack | None,
        publish: PublishStack | None = None,
    ) -> None:
        super().__init__(scope, id, description="calve: alarms and dashboard")
        namespace = f"calve/{deployment.name}"
        metrics = {
            job.definition.settings.job: JobMetrics(
                self, f"{job.definition.settings.job}Metrics", namespace=namespace, job=job
            )
            for job in ingest.jobs
        }
        alarms = Alarms(self, "Alarms", deployment=deployment)
        for job in ingest.jobs:
            alarms.of_job(job, metrics[job.definition.settings.job])
        alarms.of_schedules(ingest.group)
        if exports:
            alarms.of_exports(exports)
        if publish and publish.catalog:
            alarms.of_catalog(publish.catalog)
        if publish and publish.snowflake:
            alarms.of_snowflake(publish.snowflake)
        dashboard = Dashboard(self, "Dashboard", deployment=deployment, metrics=metrics, alarms=alarms.all)
        CfnOutput(self, "AlertTopic", value=alarms.topic.topic_arn)
        CfnOutput(self, "DashboardName", value=dashboard.name)
