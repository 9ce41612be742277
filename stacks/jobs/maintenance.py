"""Maintenance of the tables, as jobs of their own. Stateless."""

from __future__ import annotations

from aws_cdk import Stack, aws_glue, aws_s3_assets, aws_scheduler
from constructs import Construct

from calve.config.deployment import JobDeployment
from stacks.base.bundling import ROOT
from stacks.base.function import Site
from stacks.base.lake_formation import grants
from stacks.base.roles import Lake, Statement
from stacks.jobs.ingest import IngestStack, job_schedule
from stacks.jobs.ingest_job import GLUE_VERSION, GlueJob
from stacks.jobs.ingest_role import WRITING_FILES
from stacks.jobs.job_code import in_folder

SCRIPT = ROOT / "glue_jobs" / "maintain.py"
WORKER, WORKERS = "G.1X", 2
TIMEOUT_MINUTES = 120


class MaintenanceJob(GlueJob):
    """A Glue job that ends. The next run does what a failed one left. `of`: the ingest job whose tables it maintains."""

    def __init__(
        self, scope: Construct, id: str, site: Site, job: JobDeployment, ingest: IngestStack
    ) -> None:
        super().__init__(scope, id, site, job, ingest.security, beside="-maintenance")
        self.of = job.settings.job
        script = aws_s3_assets.Asset(self, "Script", path=str(SCRIPT))
        self.grant(lake_statements(site.lake))
        self.job = self.define(
            f"Keeps the tables of {job.settings.job} fast and small",
            self.arguments(ingest.code),
            glue_version=GLUE_VERSION,
            worker_type=WORKER,
            number_of_workers=WORKERS,
            timeout=TIMEOUT_MINUTES,
            command=aws_glue.CfnJob.JobCommandProperty(
                name="glueetl", python_version="3", script_location=script.s3_object_url
            ),
        )


KNOWN_BY_NAME = "tables of topics by expression, and databases of clusters, are known by their names alone"


def lake_statements(lake: Lake) -> list[Statement]:
    """Existing tables and their files. The job creates no table."""
    glue = ["glue:GetDatabase", "glue:GetTable", "glue:GetTables"]
    return [
        *lake.files(*WRITING_FILES, because="the files of the tables"),
        *lake.finding([*glue, *["glue:GetDatabases"] * lake.per_cluster], because=KNOWN_BY_NAME, rows=True),
        *lake.changing(["glue:UpdateTable"], because=KNOWN_BY_NAME),
        *lake.secret(),
        *lake.key("kms:Decrypt", "kms:GenerateDataKey"),
    ]


EVERY = "rate(6 hours)"
"""Rows expire within a day of their time. Compaction beside the ingest job is less urgent."""


class MaintenanceStack(Stack):
    """One Glue job per entry of `jobs:`, which maintains the tables of that job. `group`: of their schedules."""

    def __init__(self, scope: Construct, id: str, site: Site, ingest: IngestStack) -> None:
        name = site.deployment.name
        super().__init__(scope, id, description="calve: maintenance of tables", synthesizer=in_folder(name))
        self.group = aws_scheduler.CfnScheduleGroup(self, "Group", name=f"{name}-maintenance")
        self.jobs = [
            MaintenanceJob(self, each.settings.job, site, each, ingest) for each in site.deployment.jobs
        ]
        writers = [each.role.role_arn for each in self.jobs]
        grants(Construct(self, "Grants"), site, writers=writers, before=[each.job for each in self.jobs])
        for job in self.jobs:
            job_schedule(
                Construct(self, f"{job.of}Schedule"),
                site,
                name=job.name,
                group=self.group,
                expression=EVERY,
                description=f"Starts {job.name}, which does what the tables need and ends",
            )
