"""The lake: bucket, key and database, which outlive their stack, and the rights to query them. Stateful."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from aws_cdk import Aws, CfnOutput, Duration, Fn, Stack, aws_athena, aws_iam
from constructs import Construct

from calve.config.deployment import Deployment
from calve.config.job import S3Tables
from calve.config.publishing import EXPORTS, export_readers
from calve.names import DEAD_LETTERS_SUFFIX, database_for_cluster
from stacks.base.function import Function, Site, custom_resource
from stacks.base.lake_formation import lake_formation
from stacks.base.roles import Lake, Statement, allow, arn, deny, policy_for_people
from stacks.stateful.lake_storage import LakeStorage, lake_removal, own_key_alias
from stacks.stateful.operators import operators_policies

STAGING = "_calve/staging/"
LETTERS_RESULTS = "athena-dead-letters/"
"""Below `STAGING`: Athena's results of those who may read dead letters."""


def names_of_lake(deployment: Deployment) -> Lake:
    """The lake as calve.yaml names it; the stack adds the ARN of a key that it makes."""
    settings = deployment.lake
    return Lake(
        deployment=deployment.name,
        bucket=settings.bucket or f"{deployment.name}-lake-{Aws.ACCOUNT_ID}-{Aws.REGION}",
        prefix=f"{settings.prefix.strip('/')}/" if settings.prefix else "",
        database=settings.database,
        per_cluster=settings.namespace == "cluster_id",
        clusters=tuple(map(database_for_cluster, settings.cluster_ids)),
        key_arn=settings.kms_key,
        key_made=bool(own_key_alias(deployment)),
        catalog=settings.catalog,
    )


class LakeStack(Stack):
    """Bucket, key and database: made, adopted from an earlier deployment, or imported.

    lake: its names and ARNs, for the other stacks.
    """

    def __init__(self, scope: Construct, id: str, site: Site) -> None:
        super().__init__(scope, id, description="calve: the lake (stateful)")
        storage = LakeStorage(self, "Storage", site, staging=site.lake.prefix + STAGING)
        self.lake = lake = replace(site.lake, key_arn=storage.key_arn)
        readers, operators = Construct(self, "Readers"), Construct(self, "Operators")
        reading = lake_readers(readers, lake)
        letters = Construct(self, "DeadLetterReaders")
        with_letters = dead_letter_readers(letters, lake)
        read, act = operators_policies(operators, site.deployment, lake)
        exported = Construct(self, "ExportReaders")
        files = export_readers_policy(exported, replace(site, lake=lake))
        attachments(Construct(self, "Attachments"), site, [reading, with_letters, read, act, files])
        behind: list[Construct] = [readers, letters, operators, exported]
        granting = lake_formation(Construct(self, "Formation"), site)
        if site.delete_data:
            removal = lake_removal(Construct(self, "Removal"), site)
            if granting:
                removal.node.add_dependency(granting)
            behind.append(removal)
        for each in behind:
            each.node.add_dependency(storage)

        CfnOutput(self, "Bucket", value=lake.bucket)
        CfnOutput(self, "Database", value=lake.database)
        CfnOutput(self, "Warehouse", value=lake.warehouse)
        CfnOutput(self, "ReadersPolicy", value=reading.managed_policy_arn)
        CfnOutput(self, "DeadLetterReadersPolicy", value=with_letters.managed_policy_arn)
        CfnOutput(self, "ExportReadersPolicy", value=files.managed_policy_arn)
        CfnOutput(self, "OperatorsReadPolicy", value=read.managed_policy_arn)
        CfnOutput(self, "OperatorsPolicy", value=act.managed_policy_arn)
        CfnOutput(self, "Workgroup", value=lake.deployment)


READING = ("glue:GetDatabase", "glue:GetDatabases", "glue:GetTable", "glue:GetTables", "glue:GetPartitions")
QUERYING = (
    "athena:GetWorkGroup", "athena:StartQueryExecution", "athena:StopQueryExecution", "athena:GetQueryExecution",
    "athena:GetQueryResults", "athena:ListQueryExecutions",
)  # fmt: skip


def lake_readers(scope: Construct, lake: Lake) -> aws_iam.ManagedPolicy:
    """A policy to read the tables without their dead letters, and its workgroup. `scope`: their own.

    It denies dead letters, since S3 knows no exception to a prefix. So it closes them to a person with both policies, too.
    """
    closed = [f"{lake.objects('')}{DEAD_LETTERS_SUFFIX}/*", lake.objects(f"{STAGING}{LETTERS_RESULTS}")]
    name, results = lake.deployment, f"{lake.prefix}{STAGING}athena/"
    statements = [*_reading(scope, lake, name, results), deny(["s3:GetObject"], closed)]
    if isinstance(lake.catalog, S3Tables):
        named = {"StringLike": {"s3tables:tableName": f"*{DEAD_LETTERS_SUFFIX}"}}
        statements.append(deny(["s3tables:GetTableData"], [f"{lake.catalog.bucket_arn}/table/*"], named))
    says = f"Reads the tables of {name}, and queries them with Athena"
    return policy_for_people(scope, "Policy", f"{name}-lake-readers", says, statements)


def dead_letter_readers(scope: Construct, lake: Lake) -> aws_iam.ManagedPolicy:
    """A policy to read the tables with their dead letters, and its workgroup. `scope`: their own."""
    name, results = f"{lake.deployment}-dead-letters", f"{lake.prefix}{STAGING}{LETTERS_RESULTS}"
    statements = _reading(scope, lake, name, results)
    says = f"Reads tables and dead letters of {lake.deployment}, and queries them with Athena"
    return policy_for_people(scope, "Policy", f"{lake.deployment}-dead-letter-readers", says, statements)


def _reading(scope: Construct, lake: Lake, workgroup: str, results: str) -> list[Statement]:
    """Rights to read all tables of the lake, and a workgroup whose results expire with the staging objects."""
    encryption = aws_athena.CfnWorkGroup.EncryptionConfigurationProperty(
        encryption_option="SSE_KMS" if lake.key_arn else "SSE_S3", kms_key=lake.key_arn
    )
    aws_athena.CfnWorkGroup(
        scope,
        "Workgroup",
        name=workgroup,
        description=f"Queries on the tables of {lake.deployment}",
        recursive_delete_option=True,  # deletes its query history, not data
        work_group_configuration=aws_athena.CfnWorkGroup.WorkGroupConfigurationProperty(
            enforce_work_group_configuration=True,
            publish_cloud_watch_metrics_enabled=True,
            result_configuration=aws_athena.CfnWorkGroup.ResultConfigurationProperty(
                output_location=f"s3://{lake.bucket}/{results}", encryption_configuration=encryption
            ),
        ),
    )
    return [
        *lake.finding(READING, because="all tables of the lake", rows=True),
        allow(
            ["lakeformation:GetDataAccess"],
            ["*"],
            because="Lake Formation's actions know no resources; it gives what it granted to the reader, and nothing else",
        ),
        *lake.files("s3:GetObject", because="all tables of the lake"),
        allow(QUERYING, [arn("athena", f"workgroup/{workgroup}")]),
        allow(
            ["s3:GetObject", "s3:PutObject", "s3:AbortMultipartUpload"],
            [f"{lake.bucket_arn}/{results}*"],
            because="Athena names its results",
        ),
        *lake.key("kms:Decrypt", "kms:GenerateDataKey", through_s3=True),
    ]


def export_readers_policy(scope: Construct, site: Site) -> aws_iam.ManagedPolicy:
    """A policy to open exported files in the console of S3. `scope`: its own."""
    lake = site.lake
    here = {"StringLike": {"s3:prefix": f"{lake.prefix}{EXPORTS}*"}}
    statements = [
        allow(
            ["s3:GetObject"],
            [lake.objects(EXPORTS)],
            because="the files of exports have their windows in their names",
        ),
        allow(["s3:ListBucket"], [lake.bucket_arn], here),
        allow(["s3:GetBucketLocation"], [lake.bucket_arn]),
        *lake.key("kms:Decrypt", through_s3=True),
    ]
    name = export_readers(lake.deployment)
    return policy_for_people(
        scope, "Policy", name, f"Reads the exported files of {lake.deployment}", statements
    )


def attachments(scope: Construct, site: Site, policies: Sequence[aws_iam.ManagedPolicy]) -> None:
    """Takes the policies, when the stack is destroyed, from those who were given them. `scope`: its own."""
    arns = [each.managed_policy_arn for each in policies]
    holders = [arn("iam", f"{kind}/*", region="") for kind in ("role", "user", "group")]
    taking = ["iam:DetachRolePolicy", "iam:DetachUserPolicy", "iam:DetachGroupPolicy"]
    these = {"ArnEquals": {"iam:PolicyARN": arns}}
    limit = Duration.minutes(5)
    function = Function(
        scope,
        "Function",
        site,
        code="lake.attachments",
        timeout=limit,
        statements=[
            allow(["cloudformation:DescribeStacks"], [Aws.STACK_ID]),
            allow(["iam:ListEntitiesForPolicy"], arns),
            allow(taking, holders, these, because="people choose the holders; the policies are a condition"),
        ],
    )
    properties = {"Deployment": site.deployment.name, "Attached": Fn.join(",", arns)}
    custom_resource(scope, "Resource", "Attachments", function, properties, limit)
