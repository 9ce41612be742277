"""The jobs on Glue, and the job that ingests."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from aws_cdk import Aws, RemovalPolicy, Stack, aws_glue, aws_logs, aws_s3_assets
from constructs import Construct

from calve.config.deployment import UNKNOWN_SERVERS, JobDeployment
from calve.config.spark_conf import LEAST_EXECUTORS, spark_conf
from calve.config.topics import literal_prefix
from calve.names import log_prefix
from calve.outputs.announcement import OF_TABLES
from stacks.base.function import Site
from stacks.base.roles import Lake, Statement, acknowledge, announcing, arn, grant, service_role
from stacks.jobs import ingest_role as rights
from stacks.jobs.job_code import JobCode, JobSettings, generation


class JobSecurity(Construct):
    """A security configuration: the lake's key encrypts files that Glue itself writes.

    It encrypts no logs: with it Glue changes the names of the log groups. The groups have the key themselves, if its policy is
    ours to change and so names CloudWatch Logs. Every change replaces it, so a hash of its content is in its name.
    """

    def __init__(self, scope: Construct, id: str, *, name: str, lake: Lake) -> None:
        super().__init__(scope, id)
        types = aws_glue.CfnSecurityConfiguration
        key = lake.key_arn
        self.log_key = key if lake.key_made else None
        files = types.S3EncryptionProperty(s3_encryption_mode="SSE-KMS" if key else "SSE-S3", kms_key_arn=key)
        content = types.EncryptionConfigurationProperty(
            s3_encryptions=[files],
            cloud_watch_encryption=types.CloudWatchEncryptionProperty(cloud_watch_encryption_mode="DISABLED"),
            job_bookmarks_encryption=types.JobBookmarksEncryptionProperty(
                job_bookmarks_encryption_mode="DISABLED"
            ),
        )
        self.name = f"{name}-{generation(Stack.of(self).resolve(content))}"
        # Not the L2: it keeps a resource with a fixed name when the stack is destroyed, and the next deploy fails.
        self.configuration = types(self, "Configuration", name=self.name, encryption_configuration=content)

    def secure(self, job: aws_glue.CfnJob) -> None:
        job.security_configuration = self.name
        job.add_resource_dependency(self.configuration)
        reasons = {
            "GL1": "the log groups have the key themselves, or AWS's own if an imported key's policy is not ours to change",
            "GL3": "the job uses no bookmarks: its position is in the tables",
        }
        acknowledge(job, reasons)


GLUE_VERSION = "6.0"
SMALLEST_WORKER = "G.025X"
LONGEST_RUN_MINUTES = 7 * 24 * 60 - 1
"""Glue refuses seven days and more."""


class GlueJob(Construct):
    """The parts that every Glue job of a deployment has.

    settings: the files with its configuration. log_group: of its events, one JSON object per line.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        site: Site,
        job: JobDeployment,
        security: JobSecurity,
        beside: str = "",
    ) -> None:
        super().__init__(scope, id)
        self._site = site
        self._security = security
        self.definition = job
        self.name = f"{site.deployment.name}-{job.settings.job}{beside}"
        # Without values that only a deploy knows: the file and its hash are the same in every account.
        portable = replace(job.settings, lake=replace(job.settings.lake, endpoint=None))
        self.settings = JobSettings(self, "Settings", job=portable)
        self.role = service_role(self, "Role", service="glue.amazonaws.com", on_behalf=True)
        # Monitoring of release 0.1.0 imports this name; CloudFormation refuses to remove it before monitoring is updated.
        Stack.of(self).export_value(self.role.role_name)
        self._logs = log_prefix(site.deployment.name, job.settings.job, beside)
        self.groups = []
        for stream in ("output", "error"):
            group = aws_logs.CfnLogGroup(
                self,
                stream.title(),
                log_group_name=f"{self._logs}/{stream}",
                retention_in_days=90,
                kms_key_id=security.log_key,
            )
            group.apply_removal_policy(RemovalPolicy.DESTROY)
            self.groups.append(group)
        self.log_group = self.groups[0]

    @property
    def arn(self) -> str:
        return arn("glue", f"job/{self.name}")

    def grant(self, of_lake: Iterable[Statement], statements: Iterable[Statement] = ()) -> None:
        """Let the job read its code and write its logs, and give it these rights."""
        logs = rights.log_statements(self._logs)
        reading = rights.code_statements(self.settings.assets[0], self._site.lake)
        grant(self.role, [*of_lake, *reading, *statements, *logs])

    def arguments(self, code: JobCode, *files: aws_s3_assets.Asset, **conf: str) -> dict[str, str]:
        """The arguments of every job. `files`: beside its settings. `conf`: for Spark, beside those of calve.yaml."""
        lake, job = self._site.lake, self.definition
        here = replace(
            job.settings.lake,
            warehouse=lake.warehouse,
            region=Aws.REGION,
            endpoint=None,
            kms_key=lake.key_arn,
        )
        conf = spark_conf(replace(job.settings, lake=here)) | job.conf | conf
        arguments = {
            "--conf": " --conf ".join(f"{key}={value}" for key, value in conf.items()),
            "--extra-py-files": code.packages.s3_object_url,
            "--extra-jars": ",".join(jar.s3_object_url for jar in code.jars),
            "--user-jars-first": "true",
            "--extra-files": ",".join(each.s3_object_url for each in (*self.settings.assets, *files)),
            "--settings-file": self.settings.file_name,
            "--warehouse": lake.warehouse,
            "--region": Aws.REGION,
            "--job-bookmark-option": "job-bookmark-disable",
            "--enable-metrics": "true",
            "--custom-logGroup-prefix": self._logs,
        }
        return arguments | ({"--kms-key": lake.key_arn} if lake.key_arn else {})

    def define(self, description: str, arguments: dict[str, str], **definition: Any) -> aws_glue.CfnJob:
        """The job itself. Glue refuses a second concurrent run, and nobody but us repeats a failed one."""
        types = aws_glue.CfnJob
        job = types(
            self,
            "Job",
            **definition,
            name=self.name,
            role=self.role.role_arn,
            description=description,
            max_retries=0,
            execution_property=types.ExecutionPropertyProperty(max_concurrent_runs=1),
            default_arguments=arguments,
        )
        self._security.secure(job)
        job.node.add_dependency(self.role, *self.groups)
        return job


class IngestJob(GlueJob):
    """A Glue streaming job: its runtime has Spark's Kafka sink. A scheduled one drains and ends.

    A continuous one ends in its weekly window, finishing its rounds, and the watchdog starts the next run. It does not rely on
    Glue: a run without a timeout is documented to end after 8 hours, or never; one with a timeout is not restarted by Glue.

    generation: a hash of its code, settings and definition.
    """

    def __init__(
        self, scope: Construct, id: str, site: Site, job: JobDeployment, code: JobCode, security: JobSecurity
    ) -> None:
        super().__init__(scope, id, site, job, security)
        self.control_key = site.lake.control(job.settings.job)
        brokers = site.brokers
        emitted = sorted({each.emit.topic for each in job.settings.tables if each.emit})
        # Of an expression, all topics with its literal prefix.
        topics = {f"{literal_prefix(each.topic)}*" for each in job.settings.patterns}
        topics |= {table.topic for table in job.settings.tables}
        self.grant(
            rights.lake_statements(site.lake, job.settings.job),
            [
                *rights.secret_statements(job.settings),
                *rights.registry_statements(job.settings),
                *rights.kafka_statements(brokers, sorted(topics)),
                *rights.output_statements(brokers, emitted),
                *rights.network_statements(brokers),
                announcing(OF_TABLES),
            ],
        )
        arguments = self._arguments(code)
        types = aws_glue.CfnJob
        connection = [brokers.connection] if brokers.connection else []
        definition: dict[str, Any] = {
            "glue_version": GLUE_VERSION,
            "worker_type": job.worker,
            "number_of_workers": job.workers.max,
            "timeout": LONGEST_RUN_MINUTES,
            "maintenance_window": None if job.schedule else job.maintenance_window,
            "connections": types.ConnectionsListProperty(connections=connection) if connection else None,
            "command": types.JobCommandProperty(
                name="gluestreaming", python_version="3", script_location=code.script.s3_object_url
            ),
        }
        # Role and connection keep their names when their content changes.
        behind = [job.schedule is None, security.name, brokers.zone, *brokers.subnets]
        behind += brokers.security_groups
        self.generation = generation(Stack.of(self).resolve([definition, arguments, behind]))
        self.job = self.define(
            f"Keeps the topics of {job.settings.job} as Iceberg tables",
            arguments | {"--generation": self.generation},
            **definition,
        )

    def _arguments(self, code: JobCode) -> dict[str, str]:
        job, lake, servers = self.definition, self._site.lake, self._site.brokers.servers
        scales = job.workers.max > job.workers.min and job.worker != SMALLEST_WORKER
        # One worker is the driver.
        least = {LEAST_EXECUTORS: str(job.workers.min - 1)} if scales else {}
        arguments = self.arguments(code, *([code.columnar] if code.columnar else []), **least) | {
            "--announce": "true",
            "--control": f"s3://{lake.bucket}/{self.control_key}",
        }
        if code.columnar:
            arguments["--packages-file"] = f"{code.columnar.asset_hash}.zip"
        if scales:
            arguments["--enable-auto-scaling"] = "true"
        if job.schedule:
            arguments["--drain"] = "true"
        else:
            arguments["--restart-at"] = job.maintenance_window
        if servers or job.settings.kafka.bootstrap_servers == UNKNOWN_SERVERS:
            arguments["--bootstrap-servers"] = servers or UNKNOWN_SERVERS
        return arguments
