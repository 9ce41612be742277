"""Alarms and events that go to one topic, and one dashboard. Stateless.

The dashboard answers: are all alarms silent, how old are records when they become visible, how far behind is each table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aws_cdk import CfnOutput, CrossStackReferences, ReferenceStrength, Stack, aws_cloudwatch
from constructs import Construct

from calve.config.deployment import Deployment
from calve.outputs.metrics import FRESHNESS, LAG, REJECT_ROUNDS, ROWS, Metric
from stacks.base.roles import dashboard_name
from stacks.base.rotation import KeysStack
from stacks.jobs.ingest import IngestStack
from stacks.jobs.maintenance import MaintenanceStack
from stacks.monitoring import alarms
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
        # It reads names alone. By imports it would keep every job, export and rotation from being removed.
        CrossStackReferences.of(self).consume(ReferenceStrength.BOTH)
        namespace = f"calve/{deployment.name}"
        metrics = {
            job.definition.settings.job: JobMetrics(namespace=namespace, job=job) for job in ingest.jobs
        }
        board = Board(self, "Alarms", deployment=deployment)
        for job in ingest.jobs:
            alarms.of_job(board, job, metrics[job.definition.settings.job])
        alarms.of_stopped_tables(board)
        alarms.of_values(board)
        alarms.of_maintenance(board, maintenance, metrics)
        alarms.of_starts(board, ingest.group, ingest.control)
        if exports:
            alarms.of_exports(board, exports)
        if publish and publish.catalog:
            alarms.of_catalog(board, publish.catalog)
        if publish and publish.delta:
            alarms.of_delta(board, publish.delta)
        if publish and publish.lineage:
            alarms.of_lineage(board, publish.lineage)
        if publish and publish.snowflake:
            alarms.of_snowflake(board, publish.snowflake)
        rotations = dict(keys.rotations) if keys else {}
        if exports and exports.links:
            rotations["link"] = exports.links.rotation
        if publish and publish.snowflake:
            rotations["snowflake"] = publish.snowflake.rotation
        for name, rotation in rotations.items():
            alarms.of_rotation(board, name, rotation)
        dashboard(Construct(self, "Dashboard"), deployment, metrics, board.all)
        CfnOutput(self, "AlertTopic", value=board.topic.topic_arn)
        CfnOutput(self, "DashboardName", value=dashboard_name(deployment.name))


WIDTH = 24
HALF = 12
MOST_ALARMS = 100
"""Of one widget (CloudWatch's dashboard body structure)."""


def dashboard(
    scope: Construct,
    deployment: Deployment,
    metrics: Mapping[str, JobMetrics],
    alarms: Sequence[aws_cloudwatch.Alarm],
) -> None:
    """Alarms, then a graph per question with a line per job, and beside it the worst tables."""

    def of_jobs(title: str, metric: Metric, statistic: str) -> aws_cloudwatch.GraphWidget:
        lines = [each.of_job(metric, statistic).with_(label=job) for job, each in metrics.items()]
        return aws_cloudwatch.GraphWidget(title=title, left=lines, width=HALF)

    def worst(title: str, metric: Metric) -> aws_cloudwatch.GraphWidget:
        any_job = next(iter(metrics.values()))  # a query is about the whole namespace
        return aws_cloudwatch.GraphWidget(title=title, left=[any_job.worst(metric)], width=HALF)

    states = [
        aws_cloudwatch.AlarmStatusWidget(
            alarms=list(alarms[first : first + MOST_ALARMS]), width=WIDTH, title="Alarms"
        )
        for first in range(0, len(alarms), MOST_ALARMS)
    ]
    aws_cloudwatch.Dashboard(
        scope,
        "Page",
        dashboard_name=dashboard_name(deployment.name),
        widgets=[
            *([each] for each in states),
            [
                of_jobs("Age of 95 of 100 records when they become visible, s", FRESHNESS, "Maximum"),
                worst("The same, of the oldest tables", FRESHNESS),
            ],
            [
                of_jobs("Records not read yet", LAG, "Maximum"),
                worst("The same, of the tables furthest behind", LAG),
            ],
            [
                of_jobs("Rows written", ROWS, "Sum"),
                of_jobs("Rounds with dead letters", REJECT_ROUNDS, "Sum"),
            ],
        ],
    )
