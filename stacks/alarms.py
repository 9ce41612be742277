"""Alarms, each with what to do about it in its description."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aws_cdk import Aws, Duration, aws_cloudwatch, aws_events, aws_iam, aws_scheduler
from aws_cdk import aws_cloudwatch_actions as actions
from constructs import Construct

from calve.announcement import with_rows
from calve.deployment import Deployment
from calve.job import Table
from stacks.catalog_sync import CatalogSync
from stacks.export_mails import failures
from stacks.exports import ExportsStack
from stacks.function import METRICS_NAMESPACE
from stacks.ingest_job import IngestJob
from stacks.job_metrics import JobMetrics
from stacks.snowflake import SnowflakePublisher
from stacks.topic import mail_topic

PERIOD = Duration.minutes(5)


class Alarms(Construct):
    """The topic that all alarms go to, and the alarms."""

    def __init__(self, scope: Construct, id: str, *, deployment: Deployment) -> None:
        super().__init__(scope, id)
        self._deployment = deployment
        self.all: list[aws_cloudwatch.Alarm] = []
        self.topic = mail_topic(
            self, "Topic", recipients=deployment.alerts.emails, title=f"calve {deployment.name}"
        )
        self._let_publish(
            "cloudwatch.amazonaws.com",
            f"arn:{Aws.PARTITION}:cloudwatch:{Aws.REGION}:{Aws.ACCOUNT_ID}:alarm:*",
        )

    def of_job(self, job: IngestJob, metrics: JobMetrics) -> None:
        """A job and its tables."""
        settings, alerts = job.definition.settings, self._deployment.alerts
        for table in settings.tables:
            name = table.name
            self._alarm(
                f"{table.name}-freshness",
                metrics.of_table("Freshness", table, "Maximum"),
                above=alerts.freshness_s,
                periods=3,
                text=f"Records of {table.topic} are seen too late in {name}: give the job more workers, or look at its log.",
            )
            self._alarm(
                f"{table.name}-lag",
                metrics.of_table("Lag", table, "Minimum"),
                above=alerts.lag_records,
                periods=3,
                text=f"{name} is far behind {table.topic}: give the job more workers.",
            )
            self._alarm(
                f"{table.name}-state",
                metrics.of_table("Trouble", table, "Sum"),
                text=f"{name} is suspended or failed: its property calve.state says why and what to do.",
            )
            self._alarm(
                f"{table.name}-lost",
                metrics.of_table("Lost", table, "Sum"),
                text=f"Offsets of {table.topic} were gone before they were read.",
            )
            if not job.definition.schedule:
                self._silence(table, metrics)
            self._of_values(table)
        if settings.patterns:
            self._of_patterns(settings.job, metrics)
        self._alarm(
            f"{settings.job}-dead-letters",
            metrics.of_job("RejectRounds"),
            text=f"Records read by {settings.job} could not be decoded: look at the tables' dead letters.",
        )
        self._alarm(
            f"{settings.job}-failed",
            metrics.of_job("JobFailed"),
            text=f"The job {job.name} could not go on: its log says why and what to do.",
        )
        if not job.definition.schedule:
            self._watchdog(job)

    def of_schedules(self, group: aws_scheduler.CfnScheduleGroup) -> None:
        """Starts of scheduled jobs, and the watchdog's later looks."""
        text = "A start was dropped. The run before it was still going, or Glue refused: more workers, or a rarer schedule."
        self._dropped("job-not-started", group, text=text)

    def of_exports(self, exports: ExportsStack) -> None:
        """Exports that failed or did not start, and mails that were not sent."""
        self._alarm(
            "export-errors",
            exports.writer.function.metric_errors(statistic="Sum"),
            text="A run of the export function failed: its log says why. It is tried twice more.",
        )
        self._alarm(
            "export-mail-errors",
            exports.mails.function.function.metric_errors(statistic="Sum"),
            text="A file was written, and a mail about it was not sent.",
        )
        self._dropped(
            "export-not-started", exports.schedules.group, text="A schedule could not start its export."
        )
        for export in self._deployment.exports:
            self._alarm(
                f"{export.name}-late",
                aws_cloudwatch.Metric(
                    namespace=METRICS_NAMESPACE,
                    metric_name="Incomplete",
                    dimensions_map={
                        "service": "csv_export",
                        "export": export.name,
                        "function": exports.writer.name,
                    },
                    statistic="Sum",
                ),
                text=f"{export.name} was written before its window was complete: {export.database}.{export.table} lags.",
            )
        self._export_failed()

    def of_catalog(self, catalog: CatalogSync) -> None:
        """An Iceberg REST catalog that does not become equal to Glue."""
        self._alarm(
            "catalog-failed",
            catalog.metric("CatalogFailed", catalog.reconcile),
            periods=2,
            text="Tables of the Iceberg REST catalog differ from Glue: calve status says which, and why.",
        )
        self._alarm(
            "catalog-reconcile-errors",
            catalog.reconcile.function.metric_errors(statistic="Sum"),
            text="The Iceberg REST catalog was not compared with Glue: the function's log says why.",
        )
        self._alarm(
            "catalog-messages-failed",
            catalog.feed.failed.metric_approximate_number_of_messages_visible(),
            text="Commits could not be followed in the Iceberg REST catalog; the reconcile repairs what they left.",
        )

    def of_snowflake(self, snowflake: SnowflakePublisher) -> None:
        """Tables in Snowflake that do not become what the lake's are."""
        self._alarm(
            "snowflake-failed",
            snowflake.metric("SnowflakeFailed", "Sum"),
            periods=3,
            text="Tables in Snowflake stay behind the lake's: calve status says which, and why.",
        )
        self._alarm(
            "snowflake-lag",
            snowflake.metric("SnowflakeLag", "Maximum"),
            above=self._deployment.alerts.freshness_s,
            periods=3,
            text="Commits are seen too late in Snowflake: the log of the function Feed says of which tables.",
        )
        self._alarm(
            "snowflake-stuck",
            snowflake.metric("SnowflakeStuck", "Sum"),
            periods=3,
            text="Snowflake keeps stopping to refresh tables by itself: the log of the function Reconcile says why.",
        )
        self._alarm(
            "snowflake-not-reconciled",
            snowflake.reconcile.function.metric_errors(statistic="Sum"),
            text="Snowflake was not compared with the lake: the function's log says why.",
        )
        self._alarm(
            "snowflake-messages-failed",
            snowflake.feed.failed.metric_approximate_number_of_messages_visible(),
            text="Commits could not be followed in Snowflake; the comparison every five minutes makes up for them.",
        )

    def _of_patterns(self, job: str, metrics: JobMetrics) -> None:
        """The tables of a job whose names nobody knows yet, and with them those that alarms of their own watch, too."""
        alerts = self._deployment.alerts
        self._alarm(
            f"{job}-tables-freshness",
            metrics.of_job("Freshness", "Maximum"),
            above=alerts.freshness_s,
            periods=3,
            text=f"Records of a table of {job} are seen too late: the dashboard shows which. Give the job more workers.",
        )
        self._alarm(
            f"{job}-tables-lag",
            metrics.of_job("Lag", "Maximum"),
            above=alerts.lag_records,
            periods=3,
            text=f"A table of {job} is far behind its topic: the dashboard shows which. Give the job more workers.",
        )
        self._alarm(
            f"{job}-tables-state",
            metrics.of_job("Trouble"),
            text=f"A table of {job} is suspended or failed: calve status shows which, why, and what to do.",
        )
        self._alarm(
            f"{job}-tables-lost",
            metrics.of_job("Lost"),
            text=f"Offsets of a topic of {job} were gone before they were read: the log has which.",
        )
        self._alarm(
            f"{job}-topics-not-kept",
            metrics.of_job("TopicsNotKept"),
            text=f"An expression of {job} matches a topic that no table can be named after: calve status shows it, and the cure.",
        )

    def _dropped(self, name: str, group: aws_scheduler.CfnScheduleGroup, *, text: str) -> None:
        metric = aws_cloudwatch.Metric(
            namespace="AWS/Scheduler",
            metric_name="InvocationDroppedCount",
            dimensions_map={"ScheduleGroup": str(group.name)},
            statistic="Sum",
        )
        self._alarm(name, metric, text=text)

    def _silence(self, table: Table, metrics: JobMetrics) -> None:
        """An idle table says so every five minutes: one that says nothing hangs, which no other alarm would tell."""
        self._alarm(
            f"{table.name}-silent",
            metrics.of_table("Heard", table, "SampleCount"),
            below=1,
            periods=3,
            text=f"The job says nothing of {table.name}: its loop hangs, its topic has an open transaction, or nothing runs.",
        )

    def _watchdog(self, job: IngestJob) -> None:
        self._alarm(
            f"{job.definition.settings.job}-given-up",
            aws_cloudwatch.Metric(
                namespace=METRICS_NAMESPACE,
                metric_name="WatchdogExhausted",
                dimensions_map={"service": "job_control", "job": job.name},
                statistic="Sum",
            ),
            text=f"{job.name} failed {self._deployment.alerts.restarts} times in a row and is not restarted any more.",
        )

    def _alarm(
        self,
        name: str,
        metric: aws_cloudwatch.Metric,
        *,
        text: str,
        above: float = 0,
        below: float | None = None,
        periods: int = 1,
    ) -> None:
        """An alarm on what is too much, for which no data is good news; or on too little, for which it is the worst."""
        operators, missing = aws_cloudwatch.ComparisonOperator, aws_cloudwatch.TreatMissingData
        alarm = aws_cloudwatch.Alarm(
            self,
            name,
            alarm_name=f"{self._deployment.name}-{name}",
            alarm_description=text,
            metric=metric.with_(period=PERIOD),
            threshold=above if below is None else below,
            comparison_operator=operators.GREATER_THAN_THRESHOLD
            if below is None
            else operators.LESS_THAN_THRESHOLD,
            evaluation_periods=periods,
            treat_missing_data=missing.NOT_BREACHING if below is None else missing.BREACHING,
        )
        alarm.add_alarm_action(actions.SnsAction(self.topic))
        self.all.append(alarm)

    def _export_failed(self) -> None:
        self._mail_on(
            "ExportFailed",
            failures(self._deployment.name),
            about="An export was given up",
            paths={"name": "$.detail.export.name", "reason": "$.detail.reason"},
            text="The export <name> has failed: <reason>",
        )

    def _of_values(self, table: Table) -> None:
        """Commits with rows of values that somebody must hear of at once."""
        announce = table.announce
        for value in announce.alert_on if announce else ():
            column = table.count_by
            self._mail_on(
                f"{table.name}-{value}",
                with_rows(self._deployment.name, table.name, value),
                about=f"{table.name} has rows with {column} {value}",
                paths={
                    "table": "$.detail.table",
                    "at": "$.detail.committed_at",
                    "id": "$.detail.snapshot_id",
                },
                text=f"<table> has rows with {column} {value}, since snapshot <id> of <at>",
            )

    def _mail_on(
        self, id: str, pattern: Mapping[str, Any], *, about: str, paths: Mapping[str, str], text: str
    ) -> None:
        rule = aws_events.CfnRule(
            self,
            id,
            description=about,
            event_pattern=pattern,
            targets=[
                aws_events.CfnRule.TargetProperty(
                    arn=self.topic.topic_arn,
                    id="Alert",
                    input_transformer=aws_events.CfnRule.InputTransformerProperty(
                        input_paths_map=paths, input_template=f'"{text}"'
                    ),
                )
            ],
        )
        self._let_publish("events.amazonaws.com", rule.attr_arn)

    def _let_publish(self, service: str, source_arn: str) -> None:
        conditions = {
            "StringEquals": {"aws:SourceAccount": Aws.ACCOUNT_ID},
            "ArnLike": {"aws:SourceArn": source_arn},
        }
        self.topic.add_to_resource_policy(
            aws_iam.PolicyStatement(
                principals=[aws_iam.ServicePrincipal(service)],
                actions=["sns:Publish"],
                resources=[self.topic.topic_arn],
                conditions=conditions,
            )
        )
