"""Metrics of a job, made from its log by filters over its events (docs/events.md).

The dimension of a table's metrics is its name. Under `namespace: cluster_id` the database is not known before the job has run,
so the dimension is the topic, and tables of one topic share their metrics. Tables of patterns are not known either: their
alarms use metrics of the whole job.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from aws_cdk import aws_cloudwatch, aws_logs
from constructs import Construct

from calve.config.job import Job, Table
from calve.outputs import metrics as listed
from calve.outputs.metrics import Log, Metric
from stacks.jobs.ingest_job import IngestJob
from stacks.jobs.maintenance import MaintenanceJob

ROUND = '{ $.event = "round.committed" }'
STOPPED = '{ $.event = "table.state" && ($.state = "suspended" || $.state = "failed") }'
IS_PAUSED = '{ $.event = "table.state" && $.state = "paused" }'
FAILED = '{ $.event = "job.failed" }'
ANYTHING = '{ $.table = "*" }'
SOME_LOST = '{ $.event = "round.committed" && $.lost > 0 }'
NOT_KEPT = '{ $.event = "topic.refused" }'
NOT_MAINTAINED = '{ $.event = "maintenance.failed" }'
NOT_ANNOUNCED = '{ $.event = "announcement.failed" }'
# As text: the reasons are keys of an object, which a JSON filter cannot list or add. So it counts rounds, not records.
REJECTS = '"\\"event\\": \\"round.committed\\"" "\\"dead_letters\\": {\\""'


@dataclass(frozen=True, slots=True)
class _Filter:
    metric: Metric
    pattern: str
    per_table: bool = True

    @property
    def value(self) -> str:
        source = self.metric.source
        return f"$.{source.key}" if isinstance(source, Log) and source.key else "1"


FILTERS = (
    _Filter(listed.FRESHNESS, ROUND),
    _Filter(listed.LAG, ROUND),
    _Filter(listed.ROWS, ROUND),
    _Filter(listed.LOST, SOME_LOST),
    _Filter(listed.TROUBLE, STOPPED),
    _Filter(listed.PAUSED, IS_PAUSED),
    _Filter(listed.HEARD, ANYTHING),
    _Filter(listed.REJECT_ROUNDS, REJECTS, per_table=False),
    _Filter(listed.JOB_FAILED, FAILED, per_table=False),
    _Filter(listed.ANNOUNCEMENTS_FAILED, NOT_ANNOUNCED, per_table=False),
)
OF_PATTERNS = (
    _Filter(listed.FRESHNESS, ROUND, per_table=False),
    _Filter(listed.LAG, ROUND, per_table=False),
    _Filter(listed.LOST, SOME_LOST, per_table=False),
    _Filter(listed.TROUBLE, STOPPED, per_table=False),
    _Filter(listed.PAUSED, IS_PAUSED, per_table=False),
    _Filter(listed.TOPICS_NOT_KEPT, NOT_KEPT, per_table=False),
)
"""Further metrics of a job with patterns: of all its tables together."""
OF_MAINTENANCE = (_Filter(listed.MAINTENANCE_FAILED, NOT_MAINTAINED, per_table=False),)
"""From the log of the job's maintenance."""


class JobMetrics(Construct):
    """The filters of one job, and its metrics by name: per table or per job."""

    def __init__(self, scope: Construct, id: str, *, namespace: str, job: IngestJob) -> None:
        super().__init__(scope, id)
        self._namespace = namespace
        self._job: Job = job.definition.settings
        self._dimension = "Table" if self._job.lake.namespace == "database" else "Topic"
        filters = {each.metric.name: each for each in FILTERS}
        if self._job.patterns:
            filters |= {f"All{each.metric.name}": each for each in OF_PATTERNS}
        self._add(filters, job.log_group)

    def add_maintenance(self, job: MaintenanceJob) -> None:
        self._add({each.metric.name: each for each in OF_MAINTENANCE}, job.log_group)

    def _add(self, filters: Mapping[str, _Filter], log_group: aws_logs.CfnLogGroup) -> None:
        dimension = aws_logs.CfnMetricFilter.DimensionProperty
        for name, each in filters.items():
            of_table = dimension(key=self._dimension, value=f"$.{self._dimension.lower()}")
            properties = aws_logs.CfnMetricFilter.MetricTransformationProperty(
                metric_namespace=self._namespace,
                metric_name=each.metric.name if each.per_table else self._of_job(each.metric),
                unit=each.metric.unit,
                metric_value=each.value,
                dimensions=[of_table] if each.per_table else None,
            )
            made = aws_logs.CfnMetricFilter(
                self,
                name,
                log_group_name=str(log_group.log_group_name),
                filter_pattern=each.pattern,
                metric_transformations=[properties],
            )
            made.add_dependency(log_group)  # CloudFormation does not see that its name depends on it

    def of_table(self, metric: Metric, table: Table, statistic: str) -> aws_cloudwatch.Metric:
        name = str(self._job.table_name(table)) if self._dimension == "Table" else table.topic
        return aws_cloudwatch.Metric(
            namespace=self._namespace,
            metric_name=metric.name,
            dimensions_map={self._dimension: name},
            statistic=statistic,
        )

    def of_job(self, metric: Metric, statistic: str = "Sum") -> aws_cloudwatch.Metric:
        return aws_cloudwatch.Metric(
            namespace=self._namespace, metric_name=self._of_job(metric), statistic=statistic
        )

    def search(self, metric: Metric, statistic: str) -> aws_cloudwatch.MathExpression:
        """A metric of every table of the deployment, searched when the dashboard is opened."""
        found = f'{{{self._namespace},{self._dimension}}} MetricName="{metric.name}"'
        return aws_cloudwatch.MathExpression(
            expression=f"SEARCH('{found}', '{statistic}')", using_metrics={}, label=""
        )

    def _of_job(self, metric: Metric) -> str:
        """A filter over text has no dimensions, so the metric's name contains the job."""
        return f"{metric.name}.{self._job.job}"
