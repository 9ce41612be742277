"""The lake: bucket, key and database, which outlive their stack, and what people need to query them. Stateful."""

from __future__ import annotations

from collections.abc import Sequence

from aws_cdk import Aws, CfnOutput, Stack
from constructs import Construct

from calve.deployment import Deployment
from calve.job_status import FOLDER
from calve.maintenance import ORPHANS_NOTE
from stacks.arns import bucket_arn, catalog_arns
from stacks.bundling import Runtime
from stacks.lake_readers import LakeReaders
from stacks.lake_removal import LakeRemoval
from stacks.lake_storage import LakeStorage, own_key_alias
from stacks.operators import Operators
from stacks.roles import Statement, allow

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
