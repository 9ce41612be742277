"""The ingest jobs, and the functions that run them. Stateless."""

from __future__ import annotations

from importlib.metadata import version

from aws_cdk import CfnOutput, Stack, aws_scheduler
from constructs import Construct

from stacks.base.function import Site
from stacks.base.lake_formation import grants
from stacks.jobs.ingest_job import IngestJob, JobSecurity
from stacks.jobs.job_code import JobCode, in_folder
from stacks.jobs.job_control import JobControl, doctor, job_schedule


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
