"""Alarms and events that go to one topic, and one dashboard. Stateless.

The dashboard answers: are all alarms silent, how old are records when they become visible, how far behind is each table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aws_cdk import CfnOutput, Stack, aws_cloudwatch
from constructs import Construct

from calve.config.deployment import Deployment
from calve.outputs.metrics import FRESHNESS, LAG, REJECT_ROUNDS, ROWS, Metric
from stacks.base.rotation import KeysStack, Rotation
from stacks.jobs.ingest import IngestStack
from stacks.jobs.maintenance import MaintenanceStack
from stacks.monitoring.alarms import (
    of_catalog,
    of_exports,
    of_job,
    of_maintenance,
    of_rotation,
    of_snowflake,
    of_starts,
)
from stacks.monitoring.board import Board
from stacks.monitoring.job_metrics import JobMetrics
from stacks.publishing.exports import ExportsStack
from stacks.publishing.publish import PublishStack


class MonitoringStack(Stack):
    """Alarms of jobs, tables, exports, published tables and keys, mailed to `alerts.emails`."""

    def __init__(
        self,
        scope: Construct,
        id: str,
        deployment: Deployment,
        ingest: IngestStack,
        maintenance: MaintenanceStack,
        exports: ExportsStack | None,
        publish: PublishStack | None,
        keys: KeysStack | None,
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
    """By the system that the keys open."""
    found = dict(keys.rotations) if keys else {}
    if exports:
        found["link"] = exports.links.rotation
    if publish and publish.snowflake:
        found["snowflake"] = publish.snowflake.rotation
    return found


WIDTH = 24
HALF = 12


class Dashboard(Construct):
    """Alarms, then a graph per question with a line per table. Tables of patterns are searched when the dashboard is opened."""

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        deployment: Deployment,
        metrics: Mapping[str, JobMetrics],
        alarms: Sequence[aws_cloudwatch.Alarm],
    ) -> None:
        super().__init__(scope, id)
        self.name = deployment.name
        tables = [
            (metrics[job.settings.job], table) for job in deployment.jobs for table in job.settings.tables
        ]

        def graph(title: str, metric: Metric, statistic: str) -> aws_cloudwatch.GraphWidget:
            lines: list[aws_cloudwatch.IMetric] = [
                source.of_table(metric, table, statistic).with_(label=table.name) for source, table in tables
            ]
            if any(job.settings.patterns for job in deployment.jobs):
                lines = [next(iter(metrics.values())).search(metric, statistic)]
            return aws_cloudwatch.GraphWidget(title=title, left=lines, width=HALF)

        of_jobs = [each.of_job(REJECT_ROUNDS).with_(label=job) for job, each in metrics.items()]
        aws_cloudwatch.Dashboard(
            self,
            "Page",
            dashboard_name=deployment.name,
            widgets=[
                [aws_cloudwatch.AlarmStatusWidget(alarms=list(alarms), width=WIDTH, title="Alarms")],
                [
                    graph("Age of 95 of 100 records when they become visible, s", FRESHNESS, "Maximum"),
                    graph("Records not read yet", LAG, "Minimum"),
                ],
                [
                    graph("Rows written", ROWS, "Sum"),
                    aws_cloudwatch.GraphWidget(title="Rounds with dead letters", left=of_jobs, width=HALF),
                ],
            ],
        )
