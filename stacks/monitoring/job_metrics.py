"""Metrics of a job, made from its log by filters over its events (docs/events.md).

Alarms watch metrics of the job, which do not grow with its tables and have no limit. Metrics of a table are for the dashboard.
Their dimension is the table's name. Under `namespace: cluster_id` the database is not known before the job has run, so the
dimension is the topic, and tables of one topic share their metrics.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from aws_cdk import aws_cloudwatch, aws_logs
from constructs import Construct

from calve.config.job import Job
from calve.outputs import metrics as listed
from calve.outputs.metrics import MOST_TABLES, Log, Metric
from stacks.jobs.ingest_job import IngestJob
from stacks.jobs.maintenance import MaintenanceJob

ROUND = '{ $.event = "round.committed" }'
STOPPED = '{ $.event = "table.state" && ($.state = "suspended" || $.state = "failed") }'
IS_PAUSED = '{ $.event = "table.state" && $.state = "paused" }'
ALIVE = '{ $.event = "job.tables" }'
FAILED = '{ $.event = "job.failed" }'
SOME_LOST = '{ $.event = "round.committed" && $.lost > 0 }'
NOT_KEPT = '{ $.event = "topic.refused" }'
MISSED = '{ $.event = "expectation.missed" }'
NOT_MAINTAINED = '{ $.event = "maintenance.failed" }'
NOT_ANNOUNCED = '{ $.event = "announcement.failed" }'
# As text: the reasons are keys of an object, which a JSON filter cannot list or add. So it counts rounds, not records.
REJECTS = '"\\"event\\": \\"round.committed\\"" "\\"dead_letters\\": {\\""'


@dataclass(frozen=True, slots=True)
class _Filter:
    metric: Metric
    pattern: str

    @property
    def value(self) -> str:
        source = self.metric.source
        return f"$.{source.key}" if isinstance(source, Log) and source.key else "1"


OF_TABLES = (_Filter(listed.FRESHNESS, ROUND), _Filter(listed.LAG, ROUND), _Filter(listed.ROWS, ROUND))
"""Metrics of each table and, without a dimension, of all together."""
OF_JOB = (
    *OF_TABLES,
    _Filter(listed.LATENESS, ROUND),
    _Filter(listed.LOST, SOME_LOST),
    _Filter(listed.TROUBLE, STOPPED),
    _Filter(listed.PAUSED, IS_PAUSED),
    _Filter(listed.SILENT, ALIVE),
    _Filter(listed.HEARD, ALIVE),
    _Filter(listed.REJECT_ROUNDS, REJECTS),
    _Filter(listed.JOB_FAILED, FAILED),
    _Filter(listed.ANNOUNCEMENTS_FAILED, NOT_ANNOUNCED),
)
OF_PATTERNS = (_Filter(listed.TOPICS_NOT_KEPT, NOT_KEPT),)
OF_EXPECTATIONS = (_Filter(listed.EXPECTATIONS_MISSED, MISSED),)
OF_MAINTENANCE = (_Filter(listed.MAINTENANCE_FAILED, NOT_MAINTAINED),)
"""From the log of the job's maintenance."""


WORST = 20


class JobMetrics:
    """The filters of one job, and its metrics by name. A filter is in the stack of the log group that it filters."""

    def __init__(self, *, namespace: str, job: IngestJob) -> None:
        self._namespace = namespace
        self._job: Job = job.definition.settings
        self._dimension = "Table" if self._job.lake.namespace == "database" else "Topic"
        expects = job.definition.reports_expectations
        filters = [
            *OF_JOB,
            *(OF_PATTERNS if self._job.patterns else ()),
            *(OF_EXPECTATIONS if expects else ()),
        ]
        self._add(Construct(job, "Metrics"), filters, job.log_group)
        if len(self._job.tables) <= MOST_TABLES:
            self._add(Construct(job, "TableMetrics"), OF_TABLES, job.log_group, per_table=True)

    def add_maintenance(self, job: MaintenanceJob) -> None:
        self._add(Construct(job, "Metrics"), OF_MAINTENANCE, job.log_group)

    def _add(
        self,
        scope: Construct,
        filters: Sequence[_Filter],
        log_group: aws_logs.CfnLogGroup,
        *,
        per_table: bool = False,
    ) -> None:
        dimension = aws_logs.CfnMetricFilter.DimensionProperty
        of_table = dimension(key=self._dimension, value=f"$.{self._dimension.lower()}")
        for each in filters:
            properties = aws_logs.CfnMetricFilter.MetricTransformationProperty(
                metric_namespace=self._namespace,
                metric_name=each.metric.name if per_table else self._of_job(each.metric),
                unit=each.metric.unit,
                metric_value=each.value,
                dimensions=[of_table] if per_table else None,
            )
            made = aws_logs.CfnMetricFilter(
                scope,
                each.metric.name,
                log_group_name=str(log_group.log_group_name),
                filter_pattern=each.pattern,
                metric_transformations=[properties],
            )
            made.add_dependency(log_group)  # CloudFormation does not see that its name depends on it

    def of_job(self, metric: Metric, statistic: str = "Sum") -> aws_cloudwatch.Metric:
        return aws_cloudwatch.Metric(
            namespace=self._namespace, metric_name=self._of_job(metric), statistic=statistic
        )

    def worst(self, metric: Metric) -> aws_cloudwatch.MathExpression:
        """The tables of the deployment with the greatest values, asked for when the dashboard is opened."""
        of = f'SELECT MAX({metric.name}) FROM SCHEMA("{self._namespace}", {self._dimension})'  # noqa: S608 no SQL database
        query = f"{of} GROUP BY {self._dimension} ORDER BY MAX() DESC LIMIT {WORST}"
        return aws_cloudwatch.MathExpression(expression=query, using_metrics={}, label="")

    def _of_job(self, metric: Metric) -> str:
        """A filter over text has no dimensions, so the metric's name contains the job."""
        return f"{metric.name}.{self._job.job}"
