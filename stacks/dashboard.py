"""One page: are all alarms silent, how old are the records that become visible, how far behind is each table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aws_cdk import aws_cloudwatch
from constructs import Construct

from calve.deployment import Deployment
from calve.metrics.metric import FRESHNESS, LAG, REJECT_ROUNDS, ROWS, Metric
from stacks.job_metrics import JobMetrics

WIDTH = 24
HALF = 12


class Dashboard(Construct):
    """Alarms above, then a graph per question with a line per table; those of patterns are searched for by who looks."""

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
