"""The first of the two keys to the data: deployed with it, a stack carries what removes the lake when it is destroyed.

`cdk deploy -c delete_data=yes-delete-NAME` adds this, an ordinary deploy takes it away again; neither touches data. Only
`cdk destroy`, the second key, makes it act.
"""

from __future__ import annotations

from aws_cdk import Aws, CustomResource, Duration
from constructs import Construct

from calve.deployment import Deployment
from calve.errors import ConfigError
from calve.names import OWNER_TAG
from stacks.bundling import Runtime
from stacks.function import Function
from stacks.lake_storage import OWN_KEYS, own_key_alias
from stacks.roles import allow, arn, bucket_arn, catalog_arns


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
