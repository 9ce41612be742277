"""The maintenance of the tables, as jobs of their own beside those that keep them. Stateless."""

from __future__ import annotations

from aws_cdk import Stack, aws_scheduler
from constructs import Construct

from calve.deployment import Deployment
from stacks.ingest import IngestStack
from stacks.job_schedule import JobSchedule
from stacks.lake import LakeStack
from stacks.maintenance_job import MaintenanceJob

EVERY = "rate(6 hours)"
"""Rows leave within a day of their time, and what the ingest job does not merge itself is not felt sooner."""


class MaintenanceStack(Stack):
    """One Glue job per entry of `jobs:`, which looks after the tables of that one and ends.

    Attributes:
        group: of the schedules that start them.
    """

    def __init__(
        self, scope: Construct, id: str, *, deployment: Deployment, lake: LakeStack, ingest: IngestStack
    ) -> None:
        super().__init__(scope, id, description="calve: maintenance of tables")
        self.group = aws_scheduler.CfnScheduleGroup(self, "Group", name=f"{deployment.name}-maintenance")
        self.jobs: list[MaintenanceJob] = []
        for each in deployment.jobs:
            name = each.settings.job
            job = MaintenanceJob(self, name, deployment=deployment, job=each, lake=lake, ingest=ingest)
            self.jobs.append(job)
            JobSchedule(
                self,
                f"{name}Schedule",
                name=job.name,
                deployment=deployment.name,
                group=self.group,
                expression=EVERY,
                description=f"Starts {job.name}, which does what the tables need and ends",
            )
