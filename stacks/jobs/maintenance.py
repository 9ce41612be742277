"""Maintenance of the tables, as jobs of their own. Stateless."""

from __future__ import annotations

from dataclasses import replace

from aws_cdk import Aws, Stack, aws_glue, aws_s3_assets, aws_scheduler
from constructs import Construct

from calve.config.deployment import Deployment, JobDeployment
from calve.config.spark_conf import spark_conf
from stacks.base.bundling import ROOT
from stacks.base.roles import Lake, Statement, allow, arn, grant, service_role
from stacks.jobs.ingest import IngestStack
from stacks.jobs.ingest_job import GLUE_VERSION, log_group, portable
from stacks.jobs.ingest_role import code_statements, log_statements
from stacks.jobs.job_code import JobSettings
from stacks.jobs.job_control import JobSchedule

SCRIPT = ROOT / "glue_jobs" / "maintain.py"
WORKER, WORKERS = "G.1X", 2
TIMEOUT_MINUTES = 120


class MaintenanceJob(Construct):
    """A Glue job that ends. Glue refuses a second concurrent run.

    Attributes:
        log_group: of its events. of: the ingest job whose tables it maintains.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        deployment: Deployment,
        job: JobDeployment,
        lake: Lake,
        ingest: IngestStack,
    ) -> None:
        super().__init__(scope, id)
        self.name = f"{deployment.name}-{job.settings.job}-maintenance"
        self.of = job.settings.job
        code, security = ingest.code, ingest.security
        script = aws_s3_assets.Asset(self, "Script", path=str(SCRIPT))
        settings = JobSettings(self, "Settings", job=portable(job.settings))
        role = service_role(self, "Role", service="glue.amazonaws.com", source_arn=arn("glue", "*"))
        prefix = f"/calve/{deployment.name}/{job.settings.job}-maintenance"
        groups = [
            log_group(self, stream.title(), security, prefix, role.role_name, stream)
            for stream in ("output", "error")
        ]
        self.log_group = groups[0]
        assets = [script, code.packages, *settings.assets]
        grant(
            role,
            [
                *lake_statements(lake),
                *code_statements(assets, lake),
                *log_statements([str(group.log_group_name) for group in groups]),
            ],
        )
        types = aws_glue.CfnJob
        self.job = types(
            self,
            "Job",
            name=self.name,
            role=role.role_arn,
            description=f"Keeps the tables of {job.settings.job} fast and small",
            glue_version=GLUE_VERSION,
            worker_type=WORKER,
            number_of_workers=WORKERS,
            timeout=TIMEOUT_MINUTES,
            command=types.JobCommandProperty(
                name="glueetl", python_version="3", script_location=script.s3_object_url
            ),
            max_retries=0,  # the next run does the rest
            execution_property=types.ExecutionPropertyProperty(max_concurrent_runs=1),
            default_arguments=_arguments(job, lake, code.packages, settings, prefix),
        )
        security.secure(self.job)
        self.job.node.add_dependency(role, *groups)

    @property
    def arn(self) -> str:
        return arn("glue", f"job/{self.name}")


def lake_statements(lake: Lake) -> list[Statement]:
    """Existing tables and their files. The job creates no table."""
    statements = [
        allow(["s3:GetBucketLocation"], [lake.bucket_arn]),
        lake.listing(),
        allow(
            ["s3:GetObject", "s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload"],
            [lake.objects(prefix) for prefix in lake.data_prefixes],
            because="the files of the tables",
        ),
        allow(
            [
                *("glue:GetDatabase", "glue:GetTable", "glue:GetTables", "glue:UpdateTable"),
                *(["glue:GetDatabases"] if lake.per_cluster else []),
            ],
            lake.catalog_arns,
            because="tables of topics by expression, and databases of clusters, are known by their names alone",
        ),
    ]
    return statements + lake.key("kms:Decrypt", "kms:GenerateDataKey")


def _arguments(
    job: JobDeployment, lake: Lake, packages: aws_s3_assets.Asset, settings: JobSettings, log_prefix: str
) -> dict[str, str]:
    here = replace(
        job.settings.lake, warehouse=lake.warehouse, region=Aws.REGION, endpoint=None, kms_key=lake.key_arn
    )
    conf = spark_conf(replace(job.settings, lake=here)) | job.conf
    arguments = {
        "--datalake-formats": "iceberg",
        "--conf": " --conf ".join(f"{key}={value}" for key, value in conf.items()),
        "--extra-py-files": packages.s3_object_url,
        "--extra-files": ",".join(asset.s3_object_url for asset in settings.assets),
        "--settings-file": settings.file_name,
        "--warehouse": lake.warehouse,
        "--region": Aws.REGION,
        "--job-bookmark-option": "job-bookmark-disable",
        "--enable-metrics": "true",
        "--custom-logGroup-prefix": log_prefix,
    }
    return arguments | ({"--kms-key": lake.key_arn} if lake.key_arn else {})


EVERY = "rate(6 hours)"
"""Rows expire within a day of their time. Compaction beside the ingest job is less urgent."""


class MaintenanceStack(Stack):
    """One Glue job per entry of `jobs:`, which maintains the tables of that job.

    Attributes:
        group: of the schedules that start the jobs.
    """

    def __init__(
        self, scope: Construct, id: str, *, deployment: Deployment, lake: Lake, ingest: IngestStack
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
