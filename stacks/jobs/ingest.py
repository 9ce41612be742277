"""The ingest jobs, and the functions that run them: hand-over of a deploy, watchdog, starts by schedule, doctor."""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib.metadata import version

from aws_cdk import Aws, CfnOutput, CustomResource, Duration, Stack, aws_scheduler
from constructs import Construct

from calve.config.deployment import UNKNOWN_SERVERS
from stacks.base.function import Function, Site, custom_resource, invoke
from stacks.base.lake_formation import ASKING, NO_RESOURCE, grants
from stacks.base.resources import schedule, scheduler_role, scheduling
from stacks.base.roles import Lake, Statement, allow, arn, grant, start_arn, start_name
from stacks.jobs.ingest_job import IngestJob, JobSecurity
from stacks.jobs.ingest_role import registry_statements, secret_statements
from stacks.jobs.job_code import JobCode, generation, in_folder

HAND_OVER = Duration.minutes(15)
ENDED = ("SUCCEEDED", "FAILED", "TIMEOUT", "ERROR", "EXPIRED", "STOPPED")
GONE = "a job that calve.yaml no longer has ends, too, and a rollback ends the new ones"


class JobControl(Construct):
    """Functions of one code: the hand-over and the acknowledgement (custom resources of each job), the watchdog, the start.

    The acknowledgement cannot start a run. The others pass no argument but the generation in the job's definition (ADR 39).

    watchdog: None if all jobs are scheduled. start: for people and schedules.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        site: Site,
        jobs: Sequence[IngestJob],
        group: aws_scheduler.CfnScheduleGroup,
    ) -> None:
        super().__init__(scope, id)
        self._site = site
        deployed = arn("glue", f"job/{site.deployment.name}-*")
        hand_over = Function(
            self,
            "HandOver",
            site,
            code="job_control",
            timeout=HAND_OVER,
            statements=[
                allow(["glue:StartJobRun"], [job.arn for job in jobs]),
                allow(["glue:GetJob", "glue:GetJobRuns", "glue:BatchStopJobRun"], [deployed], because=GONE),
                *_control_statements(
                    site.lake, [site.lake.control("*")], ["s3:GetObject", "s3:PutObject"], because=GONE
                ),
            ],
        )
        continuous = [job for job in jobs if not job.definition.schedule]
        # Not the hand-over's function: in a rollback its older code would take the end of a wait for the end of a job.
        acknowledgement = self._acknowledgement(continuous) if continuous else None
        wholes: dict[str, list[IngestJob]] = {}
        for job in jobs:
            wholes.setdefault(job.definition.settings.of, []).append(job)
        for name, parts in wholes.items():
            resource = self._handed_over(scope, name, parts, hand_over)
            for job in parts:
                if acknowledgement and not job.definition.schedule:
                    status = {"StatusKey": site.lake.status_key(job.definition.settings.job)}
                    waits = custom_resource(
                        job,
                        "Acknowledged",
                        "Acknowledgement",
                        acknowledgement,
                        self._wanted(job) | status,
                        HAND_OVER,
                    )
                    waits.node.add_dependency(resource)
                    CfnOutput(job, "Tables", value=waits.get_att_string("Tables"))
        self.watchdog = self._watchdog(continuous, group) if continuous else None
        names = [f"{job.name}{beside}" for job in jobs for beside in ("", "-maintenance")]
        starting = allow(["glue:GetJob", "glue:StartJobRun"], [arn("glue", f"job/{each}") for each in names])
        self.start = Function(
            self,
            "Start",
            site,
            code="job_control",
            handler="start",
            name=start_name(site.deployment.name),
            environment={"JOBS": ",".join(names)},
            statements=[starting],
        )

    def _wanted(self, job: IngestJob) -> dict[str, str]:
        return {
            "JobName": job.name,
            "Continuous": "false" if job.definition.schedule else "true",
            "ControlBucket": self._site.lake.bucket,
            "ControlKey": job.control_key,
            "Generation": job.generation,
        }

    def _handed_over(
        self, stack: Construct, whole: str, jobs: Sequence[IngestJob], function: Function
    ) -> CustomResource:
        """The hand-over of a job, or of its parts together.

        It has the same logical id for one job and for parts: a change of their number is an update, which knows the former jobs.
        """
        scope: Construct = jobs[0]
        properties = self._wanted(jobs[0])
        if jobs[0].definition.settings.share:
            scope = Construct(stack, whole)
            properties |= {
                "JobName": f"{self._site.deployment.name}-{whole}",
                "Generation": generation([job.generation for job in jobs]),
                "Parts": json.dumps({job.name: [job.control_key, job.generation] for job in jobs}),
            }
        # The function's own timeout: later no answer can come.
        resource = custom_resource(scope, "HandOver", "HandOver", function, properties, HAND_OVER)
        resource.node.add_dependency(*(job.job for job in jobs))
        return resource

    def _acknowledgement(self, jobs: Sequence[IngestJob]) -> Function:
        lake = self._site.lake
        return Function(
            self,
            "Acknowledge",
            self._site,
            code="job_control",
            handler="acknowledge",
            timeout=HAND_OVER,
            statements=[
                allow(["glue:GetJob", "glue:GetJobRuns"], [job.arn for job in jobs]),
                allow(["s3:GetObject"], [lake.status(job.definition.settings.job) for job in jobs]),
                lake.listing(),
                *lake.key("kms:Decrypt"),
                allow(["cloudformation:DescribeStacks"], [Aws.STACK_ID]),
            ],
        )

    def _watchdog(self, jobs: Sequence[IngestJob], group: aws_scheduler.CfnScheduleGroup) -> Function:
        later = scheduler_role(self, "Later", str(group.name))
        function = Function(
            self,
            "Watchdog",
            self._site,
            code="job_control",
            handler="watchdog",
            timeout=Duration.minutes(1),
            environment={
                "CONTINUOUS_JOBS": ",".join(job.name for job in jobs),
                "RESTARTS": str(self._site.deployment.alerts.restarts),
                "SCHEDULE_GROUP": str(group.name),
                "SCHEDULER_ROLE_ARN": later.role_arn,
            },
            statements=[
                _running(jobs),
                *_control_statements(self._site.lake, [job.control_key for job in jobs], ["s3:GetObject"]),
                *scheduling(f"{group.name}/watchdog-*", later),
            ],
        )
        grant(later, [allow(["lambda:InvokeFunction"], [function.arn])])
        ended = {"jobName": [job.name for job in jobs], "state": list(ENDED)}
        pattern = {"source": ["aws.glue"], "detail-type": ["Glue Job State Change"], "detail": ended}
        invoke(self, "Ended", function, description="A run of a continuous job has ended", pattern=pattern)
        return function


def _running(jobs: Sequence[IngestJob]) -> Statement:
    actions = ["glue:GetJob", "glue:GetJobRun", "glue:GetJobRuns", "glue:StartJobRun"]
    return allow(actions, [job.arn for job in jobs])


def _control_statements(
    lake: Lake, keys: Sequence[str], actions: Sequence[str], *, because: str | None = None
) -> list[Statement]:
    """Jobs' control objects. Listing distinguishes a missing object from a forbidden one."""
    objects = allow(actions, [f"{lake.bucket_arn}/{key}" for key in keys], because=because)
    return [objects, lake.listing(), *lake.key("kms:Decrypt", "kms:GenerateDataKey")]


def job_schedule(
    scope: Construct,
    site: Site,
    *,
    name: str,
    group: aws_scheduler.CfnScheduleGroup,
    expression: str,
    description: str,
    time_zone: str = "UTC",
) -> None:
    """An EventBridge schedule that starts a run, unless one is still running. `scope`: its own."""
    start = start_arn(site.deployment.name)
    role = scheduler_role(scope, "Role", str(group.name), [allow(["lambda:InvokeFunction"], [start])])
    created = schedule(
        scope,
        "Schedule",
        name=name,
        group=str(group.name),
        description=description,
        expression=expression,
        time_zone=time_zone,
        target=start,
        role=role,
        event={"job": name},
        attempts=0,
        max_age_s=300,
    )
    created.add_resource_dependency(group)


TIMEOUT = Duration.minutes(2)


def doctor(scope: Construct, site: Site, jobs: Sequence[IngestJob]) -> Function:
    """A read-only function in the jobs' network that checks what the jobs need. `scope`: its own."""
    lake, brokers, first = site.lake, site.brokers, site.deployment.jobs[0].settings
    files = [asset for job in jobs for asset in job.settings.assets]
    environment = {
        "FILES_BUCKET": files[0].bucket.bucket_name,
        # Only the keys: a function's environment has a size limit.
        "FILES": ",".join(file.s3_object_key for file in files),
        "WAREHOUSE": lake.warehouse,
    }
    if not lake.per_cluster and lake.catalog is None:
        environment["DATABASE"] = lake.database
    unknown = any(job.settings.kafka.bootstrap_servers == UNKNOWN_SERVERS for job in site.deployment.jobs)
    if unknown and brokers.servers:
        environment["SERVERS"] = brokers.servers
    tables = ["glue:GetDatabase", "glue:GetTable"]
    describing = []
    if brokers.cluster_arn:  # an MSK cluster with IAM
        asked = "whether a topic is there is asked of each by name, and no record can be read by that"
        topics = arn("kafka", f"topic/{brokers.cluster_path}/*")
        describing = [
            allow(["kafka-cluster:Connect", "kafka-cluster:DescribeCluster"], [brokers.cluster_arn]),
            allow(["kafka-cluster:DescribeTopic"], [topics], because=asked),
        ]
    return Function(
        scope,
        "Examine",
        site,
        code="doctor",
        environment=environment,
        memory_mb=512,
        timeout=TIMEOUT,
        in_network=True,
        statements=[
            allow(["s3:GetObject"], [each.bucket.arn_for_objects(each.s3_object_key) for each in files]),
            lake.listing(),
            allow(["s3:GetObject"], lake.metadata(), because="the metadata files of all tables"),
            *lake.finding(tables, because="all tables of the lake"),
            allow(ASKING, ["*"], because=NO_RESOURCE),
            *lake.key("kms:Decrypt", through_s3=True),
            *secret_statements(first),
            *registry_statements(first),
            *describing,
        ],
    )


class IngestStack(Stack):
    """One Glue job per entry of `jobs:`."""

    def __init__(self, scope: Construct, id: str, site: Site) -> None:
        name = site.deployment.name
        super().__init__(
            scope, id, description="calve: jobs from topics to tables", synthesizer=in_folder(name)
        )
        self.code = JobCode(self, "Code", runtime=site.runtime)
        self.security = JobSecurity(self, "Security", name=name, lake=site.lake)
        self.jobs = [
            IngestJob(self, each.settings.job, site, each, self.code, self.security)
            for each in site.deployment.jobs
        ]
        self.group = aws_scheduler.CfnScheduleGroup(self, "Group", name=f"{name}-jobs")
        self.control = JobControl(self, "Control", site, self.jobs, self.group)
        examine = doctor(Construct(self, "Doctor"), site, self.jobs)
        grants(
            Construct(self, "Grants"),
            site,
            writers=[each.role.role_arn for each in self.jobs],
            lookers=[examine.role.role_arn],
            before=[each.job for each in self.jobs],
        )
        CfnOutput(self, "Release", value=version("calve"))
        CfnOutput(self, "DoctorFunction", value=examine.function.function_name)
        for job in self.jobs:
            if job.definition.schedule:
                job_schedule(
                    Construct(self, f"{job.definition.settings.job}Schedule"),
                    site,
                    name=job.name,
                    group=self.group,
                    expression=job.definition.schedule,
                    time_zone=job.definition.time_zone,
                    description=f"Starts {job.name}, which drains its topics and ends",
                )
