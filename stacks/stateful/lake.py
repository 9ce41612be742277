"""The lake: bucket, key and database, which outlive their stack, and what people need to query them. Stateful.

`LakeRemoval` is the first of the two keys to the data: deployed with it, a stack carries what removes the lake when it is
destroyed. `cdk deploy -c delete_data=yes-delete-NAME` adds it, an ordinary deploy takes it away again; neither touches data. Only
`cdk destroy`, the second key, makes it act.
"""

from __future__ import annotations

from collections.abc import Sequence

from aws_cdk import Aws, CfnOutput, CustomResource, Duration, Stack, aws_athena, aws_iam
from constructs import Construct

from calve.config.deployment import Deployment
from calve.config.maintenance import ORPHANS_NOTE
from calve.errors import ConfigError
from calve.names import OWNER_TAG
from calve.outputs.job_status import FOLDER
from stacks.base.bundling import Runtime
from stacks.base.function import Function
from stacks.base.roles import Statement, allow, arn, bucket_arn, catalog_arns, explain
from stacks.stateful.lake_storage import OWN_KEYS, LakeStorage, own_key_alias
from stacks.stateful.operators import Operators


def is_asked_for(context: str | None, name: str) -> bool:
    """Tell whether the context value `delete_data` is given, for this very deployment.

    Raises:
        ConfigError: it names anything else.
    """
    if context is None:
        return False
    if context != f"yes-delete-{name}":
        raise ConfigError(
            f'delete_data "{context}" does not name this deployment',
            fix=f"to make everything of {name} removable: -c delete_data=yes-delete-{name}",
        )
    return True


class LakeRemoval(Construct):
    """Removes bucket, tables, database and key when the stack is destroyed; what was imported stays."""

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        deployment: Deployment,
        runtime: Runtime,
        bucket: str,
        warehouse: str,
    ) -> None:
        super().__init__(scope, id)
        lake = deployment.lake
        per_cluster = lake.namespace == "cluster_id"
        databases = "*" if per_cluster else lake.database
        statements = [
            allow(["cloudformation:DescribeStacks"], [Aws.STACK_ID]),
            allow(
                [
                    *("glue:GetTables", "glue:BatchDeleteTable", "glue:DeleteTable", "glue:DeleteDatabase"),
                    *("glue:GetDatabase", "glue:GetDatabases"),
                ],
                # Glue checks the functions of a database, too, where it deletes one.
                [*catalog_arns(databases), arn("glue", f"userDefinedFunction/{databases}/*")],
                because="tables are made by the job, and so are databases where there is one per cluster",
            ),
        ]
        if lake.bucket is None:
            statements.append(
                allow(
                    [
                        *("s3:ListBucketVersions", "s3:ListBucketMultipartUploads", "s3:DeleteBucket"),
                        *("s3:DeleteObject", "s3:DeleteObjectVersion", "s3:AbortMultipartUpload"),
                    ],
                    [bucket_arn(bucket), f"{bucket_arn(bucket)}/*"],
                    because="all of the bucket goes",
                )
            )
        key_alias = own_key_alias(deployment)
        if key_alias:
            statements += [
                allow(
                    ["kms:DescribeKey", "kms:ScheduleKeyDeletion"],
                    [arn("kms", "key/*")],
                    {"StringEquals": {f"aws:ResourceTag/{OWNER_TAG}": deployment.name}},
                    because=OWN_KEYS,
                ),
                allow(
                    ["kms:DeleteAlias"],
                    [arn("kms", "key/*"), arn("kms", key_alias)],
                    because="one alias, of one key",
                ),
            ]
        function = Function(
            self,
            "Function",
            code="lake_removal",
            runtime=runtime,
            deployment=deployment.name,
            timeout=Duration.minutes(15),
            statements=statements,
        )
        resource = CustomResource(
            self,
            "Resource",
            resource_type="Custom::CalveLakeRemoval",
            service_token=function.function.function_arn,
            service_timeout=Duration.minutes(30),
            properties={
                "Deployment": deployment.name,
                "Bucket": bucket if lake.bucket is None else "",
                "Database": "" if lake.import_database else lake.database,
                "ImportedDatabase": lake.database if lake.import_database else "",
                "KeyAlias": key_alias,
                "Warehouse": warehouse,
                "ClusterDatabases": "true" if per_cluster else "false",
            },
        )
        resource.node.add_dependency(function)


STAGING = "_calve/staging/"
METADATA = (".metadata.json", ".avro", f"/{ORPHANS_NOTE}")
"""How names of files below `metadata/` end. In a policy `*` matches folders, too: any other end may be a data file's."""


class LakeStack(Stack):
    """Bucket, key and database: made, adopted from an earlier deployment, or imported.

    Attributes:
        warehouse: S3 URI below which every table lies, without a trailing slash.
        key_arn: the key that encrypts the bucket; None where an imported bucket takes care of itself.
        key_made: whether the key is the deployment's own, with the policy that it needs.
    """

    def __init__(
        self, scope: Construct, id: str, *, deployment: Deployment, runtime: Runtime, delete_data: bool
    ) -> None:
        super().__init__(scope, id, description="calve: the lake (stateful)")
        lake = deployment.lake
        self.deployment_name = deployment.name
        self.bucket = lake.bucket or f"{deployment.name}-lake-{Aws.ACCOUNT_ID}-{Aws.REGION}"
        self.bucket_arn = bucket_arn(self.bucket)
        self.prefix = f"{lake.prefix.strip('/')}/" if lake.prefix else ""
        self.database = lake.database
        self.per_cluster = lake.namespace == "cluster_id"
        self.warehouse = f"s3://{self.bucket}/{self.prefix}".rstrip("/")
        self.key_made = bool(own_key_alias(deployment))

        storage = LakeStorage(
            self,
            "Storage",
            deployment=deployment,
            runtime=runtime,
            bucket=self.bucket,
            staging=self.prefix + STAGING,
            location=f"{self.warehouse}/{lake.database}",
        )
        self.key_arn = storage.key_arn
        if delete_data:
            removal = LakeRemoval(
                self,
                "Removal",
                deployment=deployment,
                runtime=runtime,
                bucket=self.bucket,
                warehouse=self.warehouse,
            )
            removal.node.add_dependency(storage)
        readers = LakeReaders(self, "Readers", lake=self, results=self.prefix + STAGING + "athena/")
        readers.node.add_dependency(storage)
        operators = Operators(self, "Operators", deployment=deployment, lake=self)
        operators.node.add_dependency(storage)

        CfnOutput(self, "Bucket", value=self.bucket)
        CfnOutput(self, "Database", value=self.database)
        CfnOutput(self, "Warehouse", value=self.warehouse)
        CfnOutput(self, "ReadersPolicy", value=readers.policy.managed_policy_arn)
        CfnOutput(self, "OperatorsReadPolicy", value=operators.read.managed_policy_arn)
        CfnOutput(self, "OperatorsPolicy", value=operators.act.managed_policy_arn)
        CfnOutput(self, "Workgroup", value=readers.workgroup.name)

    def objects(self, prefix: str) -> str:
        """The ARN of the lake's objects below a prefix of its own."""
        return f"{self.bucket_arn}/{self.prefix}{prefix}*"

    def metadata(self, ends: Sequence[str] = METADATA) -> list[str]:
        """The ARNs of files below `metadata/` of all tables, whose folders lie in those of their databases."""
        database = "*" if self.per_cluster else self.database
        below = f"{self.bucket_arn}/{self.prefix}{database}/*/metadata"
        return [f"{below}{end}" if end.startswith("/") else f"{below}/*{end}" for end in ends]

    def listing(self) -> Statement:
        """Looking around in the bucket; in one that is shared, below the lake's prefix alone."""
        below = {"StringLike": {"s3:prefix": [f"{self.prefix}*"]}} if self.prefix else None
        return allow(["s3:ListBucket"], [self.bucket_arn], below)

    def control(self, job: str) -> str:
        """The key of a job's control object."""
        return f"{self.prefix}_calve/jobs/{job}.json"

    def status(self, job: str) -> str:
        """The ARN of what a job says of its tables; `*`: of any."""
        return f"{self.bucket_arn}/{self.prefix}{FOLDER}{self.deployment_name}/{job}.json"

    @property
    def data_prefixes(self) -> list[str]:
        """Where tables lie: their database's folder; unknown before the job has asked its cluster, if one per cluster."""
        return [""] if self.per_cluster else [f"{self.database}/"]

    @property
    def catalog_arns(self) -> list[str]:
        """What Glue checks where tables are read or written."""
        return catalog_arns("*" if self.per_cluster else self.database)


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
