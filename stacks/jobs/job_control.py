"""Functions that run the jobs: the hand-over of a deploy, the watchdog, the starts by schedule, and the doctor."""

from __future__ import annotations

import json
from collections.abc import Sequence

from aws_cdk import CustomResource, Duration, aws_scheduler
from constructs import Construct

from calve.config.deployment import UNKNOWN_SERVERS, Deployment
from stacks.base.bundling import Runtime
from stacks.base.function import Brokers, Function, Place, invoke
from stacks.base.roles import Lake, Statement, allow, arn, grant, service_role, start_arn, start_name
from stacks.jobs.ingest_job import IngestJob
from stacks.jobs.ingest_role import registry_statements, secret_statements

HAND_OVER = Duration.minutes(15)
ENDED = ("SUCCEEDED", "FAILED", "TIMEOUT", "ERROR", "EXPIRED")
"""All final states but STOPPED: a run that an operator stops stays stopped."""


class JobControl(Construct):
    """Three functions of one code: the hand-over (a custom resource per job), the watchdog, and the function that starts jobs.

    Only they can start a run. They pass no argument but the generation in the job's definition (ADR 39).

    Attributes:
        watchdog: None if all jobs are scheduled. start: for people and schedules.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        deployment: Deployment,
        jobs: Sequence[IngestJob],
        lake: Lake,
        runtime: Runtime,
        group: aws_scheduler.CfnScheduleGroup,
    ) -> None:
        super().__init__(scope, id)
        self._hand_over(deployment, jobs, lake, runtime)
        continuous = [job for job in jobs if not job.definition.schedule]
        self.watchdog = self._watchdog(deployment, continuous, lake, runtime, group) if continuous else None
        names = [f"{job.name}{beside}" for job in jobs for beside in ("", "-maintenance")]
        self.start = Function(
            self,
            "Start",
            code="job_control",
            handler="handler.start",
            name=start_name(deployment.name),
            runtime=runtime,
            deployment=deployment.name,
            environment={"JOBS": ",".join(names)},
            statements=[
                allow(["glue:GetJob", "glue:StartJobRun"], [arn("glue", f"job/{each}") for each in names])
            ],
        )

    def _hand_over(
        self, deployment: Deployment, jobs: Sequence[IngestJob], lake: Lake, runtime: Runtime
    ) -> None:
        function = Function(
            self,
            "HandOver",
            code="job_control",
            runtime=runtime,
            deployment=deployment.name,
            timeout=HAND_OVER,
            statements=[
                *_run_statements(jobs),
                allow(["glue:BatchStopJobRun"], [job.arn for job in jobs]),
                *_control_statements(lake, jobs, ["s3:GetObject", "s3:PutObject"]),
            ],
        )
        for job in jobs:
            resource = CustomResource(
                job,
                "HandOver",
                resource_type="Custom::CalveHandOver",
                service_token=function.function.function_arn,
                service_timeout=HAND_OVER,  # the function's own timeout: later no answer can come
                properties={
                    "JobName": job.name,
                    "Continuous": "false" if job.definition.schedule else "true",
                    "ControlBucket": lake.bucket,
                    "ControlKey": job.control_key,
                    "Generation": job.generation,
                },
            )
            resource.node.add_dependency(job.job, function)

    def _watchdog(
        self,
        deployment: Deployment,
        jobs: Sequence[IngestJob],
        lake: Lake,
        runtime: Runtime,
        group: aws_scheduler.CfnScheduleGroup,
    ) -> Function:
        group_arn = arn("scheduler", f"schedule-group/{group.name}")
        later = service_role(self, "Later", service="scheduler.amazonaws.com", source_arn=group_arn)
        function = Function(
            self,
            "Watchdog",
            code="job_control",
            handler="handler.watchdog",
            runtime=runtime,
            deployment=deployment.name,
            timeout=Duration.minutes(1),
            environment={
                "CONTINUOUS_JOBS": ",".join(job.name for job in jobs),
                "RESTARTS": str(deployment.alerts.restarts),
                "SCHEDULE_GROUP": str(group.name),
                "SCHEDULER_ROLE_ARN": later.role_arn,
            },
            statements=[
                *_run_statements(jobs),
                *_control_statements(lake, jobs, ["s3:GetObject"]),
                allow(
                    ["scheduler:CreateSchedule"],
                    [arn("scheduler", f"schedule/{group.name}/watchdog-*")],
                    because="one schedule per later look",
                ),
                allow(
                    ["iam:PassRole"],
                    [later.role_arn],
                    {"StringEquals": {"iam:PassedToService": "scheduler.amazonaws.com"}},
                ),
            ],
        )
        grant(later, [allow(["lambda:InvokeFunction"], [function.function.function_arn])])
        invoke(
            self,
            "Ended",
            function,
            description="A run of a continuous job has ended",
            pattern={
                "source": ["aws.glue"],
                "detail-type": ["Glue Job State Change"],
                "detail": {"jobName": [job.name for job in jobs], "state": list(ENDED)},
            },
        )
        return function


def _run_statements(jobs: Sequence[IngestJob]) -> list[Statement]:
    return [
        allow(
            ["glue:GetJob", "glue:GetJobRun", "glue:GetJobRuns", "glue:StartJobRun"],
            [job.arn for job in jobs],
        )
    ]


def _control_statements(lake: Lake, jobs: Sequence[IngestJob], actions: Sequence[str]) -> list[Statement]:
    """The jobs' control objects. Listing distinguishes a missing object from a forbidden one."""
    statements = [allow(actions, [f"{lake.bucket_arn}/{job.control_key}" for job in jobs]), lake.listing()]
    return statements + lake.key("kms:Decrypt", "kms:GenerateDataKey")


class JobSchedule(Construct):
    """An EventBridge schedule that starts a run, unless one is still running."""

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        name: str,
        deployment: str,
        group: aws_scheduler.CfnScheduleGroup,
        expression: str,
        description: str,
        time_zone: str = "UTC",
    ) -> None:
        super().__init__(scope, id)
        role = service_role(
            self,
            "Role",
            service="scheduler.amazonaws.com",
            source_arn=arn("scheduler", f"schedule-group/{group.name}"),
            statements=[allow(["lambda:InvokeFunction"], [start_arn(deployment)])],
        )
        types = aws_scheduler.CfnSchedule
        schedule = types(
            self,
            "Schedule",
            name=name,
            group_name=group.name,
            description=description,
            schedule_expression=expression,
            schedule_expression_timezone=time_zone,
            flexible_time_window=types.FlexibleTimeWindowProperty(mode="OFF"),
            target=types.TargetProperty(
                arn=start_arn(deployment),
                role_arn=role.role_arn,
                input=json.dumps({"job": name}),
                retry_policy=types.RetryPolicyProperty(
                    maximum_retry_attempts=0, maximum_event_age_in_seconds=300
                ),
            ),
        )
        schedule.add_resource_dependency(group)


TIMEOUT = Duration.minutes(2)


class Doctor(Construct):
    """A read-only function in the jobs' network that checks what the jobs need."""

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        deployment: Deployment,
        jobs: Sequence[IngestJob],
        lake: Lake,
        runtime: Runtime,
        brokers: Brokers | None,
    ) -> None:
        super().__init__(scope, id)
        brokers = brokers or Brokers()
        files = [asset for job in jobs for asset in job.settings.assets]
        environment = {
            "FILES_BUCKET": files[0].bucket.bucket_name,
            "FILES": ",".join(
                file.s3_object_key for file in files
            ),  # short: a function's environment has a size limit
            "WAREHOUSE": lake.warehouse,
        }
        if not lake.per_cluster:
            environment["DATABASE"] = lake.database
        unknown = any(job.settings.kafka.bootstrap_servers == UNKNOWN_SERVERS for job in deployment.jobs)
        if unknown and brokers.servers:
            environment["SERVERS"] = brokers.servers
        self.examine = Function(
            self,
            "Examine",
            code="doctor",
            runtime=runtime,
            deployment=deployment.name,
            environment=environment,
            memory_mb=512,
            timeout=TIMEOUT,
            place=Place(brokers.subnets, brokers.security_groups) if brokers.subnets else None,
            statements=[
                allow(["s3:GetObject"], [each.bucket.arn_for_objects(each.s3_object_key) for each in files]),
                *_lake_statements(lake),
                *secret_statements(deployment.jobs[0].settings),
                *registry_statements(deployment.jobs[0].settings),
                *_kafka_statements(brokers),
            ],
        )


def _lake_statements(lake: Lake) -> list[Statement]:
    statements = [
        lake.listing(),
        allow(
            ["s3:GetObject"],
            lake.metadata(),
            because="the metadata files of all tables",
        ),
        allow(["glue:GetDatabase", "glue:GetTable"], lake.catalog_arns, because="all tables of the lake"),
    ]
    return statements + lake.key("kms:Decrypt", through_s3=True)


def _kafka_statements(brokers: Brokers) -> list[Statement]:
    """Describe the topics of an MSK cluster with IAM, without their records."""
    if not brokers.cluster_arn:
        return []
    return [
        allow(["kafka-cluster:Connect", "kafka-cluster:DescribeCluster"], [brokers.cluster_arn]),
        allow(
            ["kafka-cluster:DescribeTopic"],
            [arn("kafka", f"topic/{brokers.cluster_path}/*")],
            because="whether a topic is there is asked of each by name, and no record can be read by that",
        ),
    ]
