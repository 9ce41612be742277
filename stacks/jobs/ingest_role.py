"""The rights of an ingest job."""

from __future__ import annotations

from collections.abc import Sequence

from aws_cdk import aws_s3_assets

from calve.config.job import GlueRegistry, Job
from calve.config.publishing import EXPORTS
from calve.names import of_msk
from stacks.base.function import Brokers
from stacks.base.roles import Lake, Statement, allow, arn, deny, msk_key, secret_arn
from stacks.jobs.job_code import FOLDER

CODE = (".py", ".zip", ".egg", ".whl", ".jar", ".so")
WRITING_FILES = ("s3:GetObject", "s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload")
READING_TOPICS = (
    "kafka-cluster:DescribeTopic", "kafka-cluster:DescribeTopicDynamicConfiguration", "kafka-cluster:ReadData",
)  # fmt: skip
DESCRIBING = (
    "ec2:DescribeNetworkInterfaces", "ec2:DescribeRouteTables", "ec2:DescribeSecurityGroups", "ec2:DescribeSubnets",
    "ec2:DescribeVpcEndpoints", "ec2:DescribeVpcs",
)  # fmt: skip
INTERFACES = "Glue makes a network interface per worker"


def lake_statements(lake: Lake, job: str) -> list[Statement]:
    """The tables and their files, the job's control object, and the job's report."""
    writing = ["glue:CreateTable", "glue:UpdateTable", *["glue:CreateDatabase"] * lake.per_cluster]
    return [
        *lake.files(*WRITING_FILES, also=["_calve/staging/"], because="the files of the job's tables"),
        allow(["s3:GetObject"], [f"{lake.bucket_arn}/{lake.control(job)}"]),
        allow(["s3:GetObject", "s3:PutObject"], [lake.status(job)]),
        allow(
            ["s3:GetObject", "s3:DeleteObject"],
            [lake.objects(EXPORTS)],
            because="who is forgotten leaves stored exports, too, also of exports that are configured no more",
        ),
        *lake.finding(
            ["glue:GetDatabase", "glue:GetTable", "glue:GetTables"],
            because="all tables of the database",
            rows=True,
        ),
        *lake.changing(
            writing,
            because="the job makes tables, their dead letters, and databases where there is one per cluster",
        ),
        *lake.key("kms:Decrypt", "kms:GenerateDataKey"),
    ]


def code_statements(file: aws_s3_assets.Asset, lake: Lake) -> list[Statement]:
    """Read the files of the deployment's jobs, where this one lies. Deny reading code from the lake, which others can write."""
    files = file.bucket.arn_for_objects(f"{FOLDER.format(lake.deployment)}*")
    older = "a run of the release before still reads its files, until the hand-over"
    return [
        allow(["s3:GetObject"], [files], because=older),
        deny(["s3:GetObject"], [f"{lake.bucket_arn}/*{end}" for end in CODE]),
    ]


def secret_statements(job: Job) -> list[Statement]:
    """The secrets in AWS that the configuration refers to."""
    registry = job.registry.secrets if job.registry else ()
    kafka = (job.kafka.secret, job.kafka.emit_secret)
    references = {each for each in (*kafka, job.masking, job.lake.secret, *registry) if each}
    arns = sorted(found for each in references if (found := secret_arn(each)))
    reading = [allow(["secretsmanager:GetSecretValue"], arns)] if arns else []
    return reading + ([msk_key("kms:Decrypt")] if any(map(of_msk, references)) else [])


def registry_statements(job: Job) -> list[Statement]:
    registry = job.registry
    if not isinstance(registry, GlueRegistry):
        return []
    of_registry = [
        arn("glue", f"registry/{registry.name}", region=registry.region),
        arn("glue", f"schema/{registry.name}/*", region=registry.region),
    ]
    return [
        allow(["glue:GetSchema", "glue:ListSchemas"], of_registry, because="all schemas of the one registry"),
        allow(
            ["glue:GetSchemaVersion"],
            ["*"],
            because="a record names the version of a schema by its UUID alone, and AWS then checks no other resource",
        ),
    ]


def log_statements(prefix: str) -> list[Statement]:
    """Write into every group below the prefix: a run of the release before has other names, until the hand-over."""
    return [
        allow(
            ["logs:CreateLogStream", "logs:PutLogEvents"],
            [arn("logs", f"log-group:{prefix}/*")],
            because="the streams of the job's log groups",
        ),
        allow(
            ["cloudwatch:PutMetricData"],
            ["*"],
            {"StringEquals": {"cloudwatch:namespace": "Glue"}},
            because="a metric has no ARN; the namespace is a condition",
        ),
    ]


MOST_CHARACTERS, OF_AN_ARN = 4_000, 150
"""Of the topics of a statement, which is a part of a policy of at most 6,144; and of an ARN without its topic."""


def named(topics: Sequence[str]) -> list[str]:
    """These topics; where they are too many for a policy, the longest beginnings that are few enough, with `*`."""
    for length in range(max(map(len, topics), default=0), 0, -1):
        found = sorted({each if len(each) <= length else f"{each[:length]}*" for each in topics})
        if sum(len(each) + OF_AN_ARN for each in found) <= MOST_CHARACTERS:
            return found
    return ["*"]


def kafka_statements(brokers: Brokers, topics: Sequence[str]) -> list[Statement]:
    """Read these topics of an MSK cluster with IAM. The job uses no consumer group."""
    if not brokers.cluster_arn:
        return []
    return [
        allow(["kafka-cluster:Connect", "kafka-cluster:DescribeCluster"], [brokers.cluster_arn]),
        allow(
            READING_TOPICS,
            [arn("kafka", f"topic/{brokers.cluster_path}/{topic}") for topic in named(topics)],
            because="neither the id of a made cluster nor topics of an expression are known; a policy has no room for many",
        ),
    ]


def output_statements(brokers: Brokers, topics: Sequence[str]) -> list[Statement]:
    """Create and write these topics of an MSK cluster with IAM."""
    if not brokers.cluster_arn or not topics:
        return []
    return [
        allow(["kafka-cluster:WriteDataIdempotently"], [brokers.cluster_arn]),
        allow(
            ["kafka-cluster:CreateTopic", "kafka-cluster:DescribeTopic", "kafka-cluster:WriteData"],
            [arn("kafka", f"topic/{brokers.cluster_path}/{topic}") for topic in named(topics)],
            because="the id of a made cluster is not known before, and a policy has no room for many topics",
        ),
    ]


def network_statements(brokers: Brokers) -> list[Statement]:
    """What Glue needs for a job in a VPC."""
    if not brokers.connection:
        return []
    connection = [arn("glue", "catalog"), arn("glue", f"connection/{brokers.connection}")]
    interfaces = arn("ec2", "network-interface/*")
    of_glue = {"ForAllValues:StringEquals": {"aws:TagKeys": ["aws-glue-service-resource"]}}
    in_subnets = {"ArnEquals": {"ec2:Subnet": [arn("ec2", f"subnet/{each}") for each in brokers.subnets]}}
    return [
        allow(["glue:GetConnection"], connection),
        allow(DESCRIBING, ["*"], because="EC2's Describe actions know no resources"),
        allow(
            ["ec2:DescribeVpcAttribute"], [arn("ec2", "vpc/*")], because="Glue looks at the VPC of its subnet"
        ),
        allow(["ec2:CreateNetworkInterface"], [*brokers.places, interfaces], because=INTERFACES),
        allow(["ec2:DeleteNetworkInterface"], [interfaces], in_subnets, because=INTERFACES),
        allow(["ec2:CreateTags", "ec2:DeleteTags"], [interfaces], of_glue, because=INTERFACES),
    ]
