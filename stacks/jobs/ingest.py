"""The ingest jobs, and the functions that run them. Stateless."""

from __future__ import annotations

from importlib.metadata import version

from aws_cdk import CfnOutput, Stack, aws_scheduler
from constructs import Construct

from calve.config.deployment import Deployment
from stacks.base.bundling import Runtime
from stacks.base.function import Brokers
from stacks.base.roles import Lake
from stacks.jobs.ingest_job import IngestJob, JobSecurity
from stacks.jobs.job_code import JobCode
from stacks.jobs.job_control import Doctor, JobControl, JobSchedule


class IngestStack(Stack):
    """One Glue job per entry of `jobs:`."""

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        deployment: Deployment,
        lake: Lake,
        runtime: Runtime,
        brokers: Brokers | None = None,
    ) -> None:
        super().__init__(scope, id, description="calve: jobs from topics to tables")
        self.code = JobCode(self, "Code", runtime=runtime)
        self.security = JobSecurity(self, "Security", name=deployment.name, lake=lake)
        self.jobs = [
            IngestJob(
                self,
                each.settings.job,
                deployment=deployment,
                job=each,
                lake=lake,
                code=self.code,
                security=self.security,
                brokers=brokers,
            )
            for each in deployment.jobs
        ]
        self.group = aws_scheduler.CfnScheduleGroup(self, "Group", name=f"{deployment.name}-jobs")
        self.control = JobControl(
            self,
            "Control",
            deployment=deployment,
            jobs=self.jobs,
            lake=lake,
            runtime=runtime,
            group=self.group,
        )
        doctor = Doctor(
            self,
            "Doctor",
            deployment=deployment,
            jobs=self.jobs,
            lake=lake,
            runtime=runtime,
            brokers=brokers,
        )
        CfnOutput(self, "Release", value=version("calve"))
        CfnOutput(self, "DoctorFunction", value=doctor.examine.function.function_name)
        for job in self.jobs:
            if job.definition.schedule:
                JobSchedule(
                    self,
                    f"{job.definition.settings.job}Schedule",
                    name=job.name,
                    deployment=deployment.name,
                    group=self.group,
                    expression=job.definition.schedule,
                    time_zone=job.definition.time_zone,
                    description=f"Starts {job.name}, which drains its topics and ends",
                )
