"""What looks at the systems around the jobs from where the jobs stand, for `calve doctor --remote`."""

from __future__ import annotations

from collections.abc import Sequence

from aws_cdk import Duration
from constructs import Construct

from calve.config.deployment import UNKNOWN_SERVERS, Deployment
from stacks.base.bundling import Runtime
from stacks.base.function import Brokers, Function, Place
from stacks.base.roles import Lake, Statement, allow, arn
from stacks.jobs.ingest_job import IngestJob
from stacks.jobs.ingest_role import registry_statements, secret_statements

TIMEOUT = Duration.minutes(2)


class Doctor(Construct):
    """A function beside the jobs that reads what they read, and writes nothing."""

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
            ),  # short: a function's environment is small
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
    """Seeing the topics of an MSK cluster with IAM, and nothing in them."""
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
