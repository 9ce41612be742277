"""What people who query the lake are given: a policy for their roles, and a place where Athena puts its answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aws_cdk import Aws, aws_athena, aws_iam
from constructs import Construct

from stacks.arns import arn
from stacks.roles import allow, explain

if TYPE_CHECKING:
    from stacks.lake import LakeStack


class LakeReaders(Construct):
    """A read-only policy, and a workgroup whose results lie with the staging objects and expire with them."""

    def __init__(self, scope: Construct, id: str, *, lake: LakeStack, results: str) -> None:
        super().__init__(scope, id)
        name = lake.deployment_name
        encryption = aws_athena.CfnWorkGroup.EncryptionConfigurationProperty(
            encryption_option="SSE_KMS" if lake.key_arn else "SSE_S3", kms_key=lake.key_arn
        )
        self.workgroup = aws_athena.CfnWorkGroup(
            self,
            "Workgroup",
            name=name,
            description=f"Queries on the tables of {name}",
            recursive_delete_option=True,  # of its history of queries, not of data
            work_group_configuration=aws_athena.CfnWorkGroup.WorkGroupConfigurationProperty(
                enforce_work_group_configuration=True,
                publish_cloud_watch_metrics_enabled=True,
                result_configuration=aws_athena.CfnWorkGroup.ResultConfigurationProperty(
                    output_location=f"s3://{lake.bucket}/{results}", encryption_configuration=encryption
                ),
            ),
        )
        statements = [
            allow(
                [
                    "glue:GetDatabase",
                    "glue:GetDatabases",
                    "glue:GetTable",
                    "glue:GetTables",
                    "glue:GetPartitions",
                ],
                lake.catalog_arns,
                because="all tables of the lake",
            ),
            allow(["s3:GetBucketLocation"], [lake.bucket_arn]),
            lake.listing(),
            allow(
                ["s3:GetObject"],
                [lake.objects(prefix) for prefix in lake.data_prefixes],
                because="all tables of the lake",
            ),
            allow(
                [
                    *("athena:GetWorkGroup", "athena:StartQueryExecution", "athena:StopQueryExecution"),
                    *("athena:GetQueryExecution", "athena:GetQueryResults", "athena:ListQueryExecutions"),
                ],
                [arn("athena", f"workgroup/{name}")],
            ),
            allow(
                ["s3:GetObject", "s3:PutObject", "s3:AbortMultipartUpload"],
                [f"{lake.bucket_arn}/{results}*"],
                because="Athena names its results",
            ),
        ]
        if lake.key_arn:
            through_s3 = {"StringEquals": {"kms:ViaService": f"s3.{Aws.REGION}.{Aws.URL_SUFFIX}"}}
            statements.append(allow(["kms:Decrypt", "kms:GenerateDataKey"], [lake.key_arn], through_s3))
        self.policy = aws_iam.ManagedPolicy(
            self,
            "Policy",
            # Identity Center refers to a policy by its name. IAM has no regions.
            managed_policy_name=f"{name}-lake-readers-{Aws.REGION}",
            description=f"Reads the tables of {name}, and queries them with Athena",
            statements=[each.policy() for each in statements],
        )
        explain(self.policy, statements)
