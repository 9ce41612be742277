"""What CloudFormation and Glue leave to us: a deploy hands jobs over to the new code, a failed run is followed by another."""

from __future__ import annotations

from collections.abc import Sequence

from aws_cdk import CustomResource, Duration, aws_scheduler
from constructs import Construct

from calve.config.deployment import Deployment
from stacks.base.bundling import Runtime
from stacks.base.function import Function, invoke
from stacks.base.job_schedule import start_name
from stacks.base.roles import Lake, Statement, allow, arn, grant, service_role
from stacks.jobs.ingest_job import IngestJob

HAND_OVER = Duration.minutes(15)
ENDED = ("SUCCEEDED", "FAILED", "TIMEOUT", "ERROR", "EXPIRED")
"""All ends of a run but STOPPED: what an operator stops stays stopped."""


class JobControl(Construct):
    """Three functions of one code: the hand-over, a custom resource per job; the watchdog; and the one that starts jobs.

    They alone may start a run. Their code passes no argument but the generation that the job's definition has (ADR 39).

    Attributes:
        watchdog: None where all jobs are scheduled. start: for people and schedules.
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
                service_timeout=HAND_OVER,  # the function's own limit: it answers, or it is dead
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
    """The jobs' control objects; listing tells one that is not there from one that may not be read."""
    statements = [allow(actions, [f"{lake.bucket_arn}/{job.control_key}" for job in jobs]), lake.listing()]
    return statements + lake.key("kms:Decrypt", "kms:GenerateDataKey")
