"""One ingest job on Glue."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from aws_cdk import Aws, RemovalPolicy, Stack, aws_glue, aws_logs
from constructs import Construct

from calve.config.deployment import UNKNOWN_SERVERS, Deployment, JobDeployment
from calve.config.job import Job
from calve.config.spark_conf import LEAST_EXECUTORS, spark_conf
from calve.config.topics import literal_prefix
from calve.outputs.announcement import OF_TABLES
from stacks.base.function import Brokers
from stacks.base.roles import Lake, acknowledge, announcing, arn, grant, service_role
from stacks.jobs.ingest_role import (
    code_statements,
    kafka_statements,
    lake_statements,
    log_statements,
    network_statements,
    output_statements,
    registry_statements,
    secret_statements,
)
from stacks.jobs.job_code import JobCode, JobSettings, generation


class JobSecurity(Construct):
    """A security configuration with the lake's key.

    The key's policy must name CloudWatch Logs. We cannot change the policy of an imported key: then AWS's own key encrypts logs.
    """

    def __init__(self, scope: Construct, id: str, *, name: str, lake: Lake) -> None:
        super().__init__(scope, id)
        types = aws_glue.CfnSecurityConfiguration
        own, key = lake.key_made, lake.key_arn
        self._key = key
        self.log_key = key if own else None
        self.name = name
        # Not the L2: it keeps a resource with a fixed name when the stack is destroyed, and the next deploy fails.
        self.configuration = types(
            self,
            "Configuration",
            name=name,
            encryption_configuration=types.EncryptionConfigurationProperty(
                s3_encryptions=[
                    types.S3EncryptionProperty(s3_encryption_mode="SSE-KMS", kms_key_arn=key)
                    if key
                    else types.S3EncryptionProperty(s3_encryption_mode="SSE-S3")
                ],
                cloud_watch_encryption=types.CloudWatchEncryptionProperty(
                    cloud_watch_encryption_mode="SSE-KMS" if own else "DISABLED", kms_key_arn=self.log_key
                ),
                job_bookmarks_encryption=types.JobBookmarksEncryptionProperty(
                    job_bookmarks_encryption_mode="CSE-KMS" if key else "DISABLED", kms_key_arn=key
                ),
            ),
        )

    def secure(self, job: aws_glue.CfnJob) -> None:
        """Apply the security configuration to a job."""
        job.security_configuration = self.name
        job.add_resource_dependency(self.configuration)
        if not self.log_key:
            acknowledge(
                job,
                {"GL1": "an imported key's policy is not ours to change; AWS's own key encrypts the logs"},
            )
        if not self._key:
            acknowledge(job, {"GL3": "the job uses no bookmarks: its position is in the tables"})

    def name_of_logs(self, prefix: str, role: str, stream: str) -> str:
        """The log group that Glue writes. A security configuration with a key for logs changes its name."""
        return f"{prefix}/{self.name}-role/{role}/{stream}" if self.log_key else f"{prefix}/{stream}"


def log_group(
    scope: Construct, id: str, security: JobSecurity, prefix: str, role: str, stream: str
) -> aws_logs.CfnLogGroup:
    """The log group of one stream of a job."""
    group = aws_logs.CfnLogGroup(
        scope,
        id,
        log_group_name=security.name_of_logs(prefix, role, stream),
        retention_in_days=90,
        kms_key_id=security.log_key,
    )
    group.apply_removal_policy(RemovalPolicy.DESTROY)
    return group


GLUE_VERSION = "6.0"
SMALLEST_WORKER = "G.025X"


class IngestJob(Construct):
    """A Glue streaming job: it may run without end, and its runtime has Spark's Kafka sink. A scheduled one drains and ends.

    Attributes:
        settings: the files with its configuration.
        log_group: of its events, one JSON object per line.
        generation: a hash of its code, settings and definition.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        deployment: Deployment,
        job: JobDeployment,
        lake: Lake,
        code: JobCode,
        security: JobSecurity,
        brokers: Brokers | None,
    ) -> None:
        super().__init__(scope, id)
        self.definition = job
        self.name = f"{deployment.name}-{job.settings.job}"
        self.control_key = lake.control(job.settings.job)
        brokers = brokers or Brokers()
        self.settings = settings = JobSettings(self, "Settings", job=portable(job.settings))
        self.role = service_role(self, "Role", service="glue.amazonaws.com", source_arn=arn("glue", "*"))
        prefix = f"/calve/{deployment.name}/{job.settings.job}"
        groups = [
            log_group(self, stream.title(), security, prefix, self.role.role_name, stream)
            for stream in ("output", "error")
        ]
        self.log_group = groups[0]
        # Not inline: the names of the log groups contain the role's name.
        statements = [
            *lake_statements(lake, job.settings.job),
            *code_statements([*code.assets, *settings.assets], lake),
            *secret_statements(job.settings),
            *registry_statements(job.settings),
            *kafka_statements(brokers, sorted(_topics(job.settings))),
            *output_statements(
                brokers, sorted({each.emit.topic for each in job.settings.tables if each.emit})
            ),
            *network_statements(brokers),
            announcing(OF_TABLES),
            *log_statements([str(group.log_group_name) for group in groups]),
        ]
        grant(self.role, statements)
        arguments = self._arguments(job, lake, code, settings, brokers, prefix)
        types = aws_glue.CfnJob
        definition: dict[str, Any] = {
            "glue_version": GLUE_VERSION,
            "worker_type": job.worker,
            "number_of_workers": job.workers.max,
            "maintenance_window": None if job.schedule else job.maintenance_window,
            "connections": types.ConnectionsListProperty(connections=[brokers.connection])
            if brokers.connection
            else None,
            "command": types.JobCommandProperty(
                name="gluestreaming", python_version="3", script_location=code.script.s3_object_url
            ),
        }
        # Role, connection and security configuration keep their names when their content changes.
        behind = [job.schedule is None, brokers.zone, *brokers.subnets, *brokers.security_groups]
        self.generation = generation(Stack.of(self).resolve([definition, arguments, behind]))
        self.job = types(
            self,
            "Job",
            **definition,
            name=self.name,
            role=self.role.role_arn,
            description=f"Keeps the topics of {job.settings.job} as Iceberg tables",
            max_retries=0,  # the watchdog restarts it, and knows when to stop
            execution_property=types.ExecutionPropertyProperty(max_concurrent_runs=1),
            default_arguments=arguments | {"--generation": self.generation},
        )
        security.secure(self.job)
        self.job.node.add_dependency(self.role, *groups)

    @property
    def arn(self) -> str:
        return arn("glue", f"job/{self.name}")

    @staticmethod
    def _arguments(
        job: JobDeployment,
        lake: Lake,
        code: JobCode,
        settings: JobSettings,
        brokers: Brokers,
        log_prefix: str,
    ) -> dict[str, str]:
        deployed = replace(
            job.settings,
            lake=replace(
                job.settings.lake,
                warehouse=lake.warehouse,
                region=Aws.REGION,
                endpoint=None,
                kms_key=lake.key_arn,
            ),
        )
        conf = spark_conf(deployed) | job.conf
        scales = job.workers.max > job.workers.min and job.worker != SMALLEST_WORKER
        if scales:
            conf[LEAST_EXECUTORS] = str(job.workers.min - 1)  # one worker is the driver
        arguments = {
            "--datalake-formats": "iceberg",
            "--conf": " --conf ".join(f"{key}={value}" for key, value in conf.items()),
            "--extra-py-files": code.packages.s3_object_url,
            "--extra-jars": ",".join(jar.s3_object_url for jar in code.jars),
            "--user-jars-first": "true",
            "--extra-files": ",".join(
                each.s3_object_url for each in (*settings.assets, code.columnar) if each
            ),
            "--settings-file": settings.file_name,
            "--warehouse": lake.warehouse,
            "--region": Aws.REGION,
            "--announce": "true",
            "--control": f"s3://{lake.bucket}/{lake.control(job.settings.job)}",
            "--job-bookmark-option": "job-bookmark-disable",
            "--enable-metrics": "true",
            "--custom-logGroup-prefix": log_prefix,
        }
        if code.columnar:
            arguments["--packages"] = f"{code.columnar.asset_hash}.zip"
        if scales:
            arguments["--enable-auto-scaling"] = "true"
        if job.schedule:
            arguments["--drain"] = "true"
        if lake.key_arn:
            arguments["--kms-key"] = lake.key_arn
        if brokers.servers or job.settings.kafka.bootstrap_servers == UNKNOWN_SERVERS:
            arguments["--bootstrap-servers"] = brokers.servers or UNKNOWN_SERVERS
        return arguments


def _topics(job: Job) -> set[str]:
    """The topics of a job; of an expression, all topics with its literal prefix."""
    wide = {f"{literal_prefix(each.topic)}*" for each in job.patterns}
    return {table.topic for table in job.tables} | wide


def portable(job: Job) -> Job:
    """Settings without values that only a deploy knows, so the file and its hash are the same in every account."""
    return replace(job, lake=replace(job.lake, endpoint=None))
