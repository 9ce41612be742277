"""The lake's bucket, key and database: `lambdas/lake_adoption` makes or adopts them, and a destroy keeps them.

Deleting the data needs two keys. `cdk deploy -c delete_data=yes-delete-NAME` adds `LakeRemoval`; an ordinary deploy removes it
again; neither touches data. `cdk destroy` is the second key: only then `LakeRemoval` deletes the lake.
"""

from __future__ import annotations

import json

from aws_cdk import Aws, CustomResource, Duration, RemovalPolicy, Stack
from constructs import Construct

from calve.config.deployment import Deployment
from calve.config.publishing import EXPORTS
from calve.errors import ConfigError
from calve.names import OWNER_TAG
from stacks.base.bundling import Runtime
from stacks.base.function import Function
from stacks.base.roles import Statement, allow, arn, bucket_arn, catalog_arns

STAGING_DAYS = 7
SIGNATURE_AGE_MS = 300_000
OWN_KEYS = "a key's id is not known before it is made; by its tag only this deployment's own is admitted"
KEY_ADMINISTRATION = (
    "kms:CancelKeyDeletion", "kms:CreateAlias", "kms:CreateGrant", "kms:Decrypt", "kms:DeleteAlias", "kms:DescribeKey",
    "kms:DisableKey", "kms:DisableKeyRotation", "kms:EnableKey", "kms:EnableKeyRotation", "kms:Encrypt",
    "kms:GenerateDataKey", "kms:GetKeyPolicy", "kms:GetKeyRotationStatus", "kms:ListGrants", "kms:ListKeyPolicies",
    "kms:ListResourceTags", "kms:PutKeyPolicy", "kms:ReEncryptFrom", "kms:ReEncryptTo", "kms:RevokeGrant",
    "kms:ScheduleKeyDeletion", "kms:TagResource", "kms:UntagResource", "kms:UpdateAlias", "kms:UpdateKeyDescription",
)  # fmt: skip


def own_key_alias(deployment: Deployment) -> str:
    """The alias of the deployment's own key; empty if the bucket or the key is imported."""
    lake = deployment.lake
    return f"alias/{deployment.name}-lake" if lake.bucket is None and lake.kms_key is None else ""


class LakeStorage(Construct):
    """Not plain CloudFormation resources: these cannot be adopted, so a kept bucket would make the next deploy fail."""

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        deployment: Deployment,
        runtime: Runtime,
        bucket: str,
        staging: str,
        location: str,
    ) -> None:
        super().__init__(scope, id)
        lake = deployment.lake
        made = {
            "bucket": bucket if lake.bucket is None else "",
            "key": own_key_alias(deployment),
            "database": "" if lake.import_database else lake.database,
            "notify": bucket if deployment.exports else "",
        }
        self.key_arn = lake.kms_key
        if not any(made.values()):
            return
        function = Function(
            self,
            "Function",
            code="lake_adoption",
            runtime=runtime,
            deployment=deployment.name,
            timeout=Duration.minutes(2),
            statements=_statements(deployment.name, made),
        )
        stack = Stack.of(self)
        resource = CustomResource(
            self,
            "Lake",
            resource_type="Custom::CalveLake",
            service_token=function.function.function_arn,
            service_timeout=Duration.minutes(5),
            removal_policy=RemovalPolicy.DESTROY,
            properties={
                "Deployment": deployment.name,
                "Bucket": made["bucket"],
                "BucketPolicy": stack.to_json_string(bucket_policy(bucket)) if made["bucket"] else "",
                "Expiring": json.dumps(_expiring(deployment, staging if made["bucket"] else None)),
                "KeyAlias": made["key"],
                "KeyPolicy": stack.to_json_string(key_policy(deployment.name)) if made["key"] else "",
                "KeyArn": lake.kms_key or "",
                "Database": made["database"],
                "Location": location,
                "NotifyBucket": made["notify"],
            },
        )
        resource.node.add_dependency(function)
        if made["key"]:
            self.key_arn = resource.get_att_string("KeyArn")


def bucket_policy(bucket: str) -> dict[str, object]:
    """Require TLS. A signature expires soon after a redirect can use it."""
    everything = [bucket_arn(bucket), f"{bucket_arn(bucket)}/*"]
    return {
        "Version": "2012-10-17",
        "Statement": [
            {
                "Sid": "OnlyTls",
                "Effect": "Deny",
                "Principal": "*",
                "Action": "s3:*",
                "Resource": everything,
                "Condition": {"Bool": {"aws:SecureTransport": "false"}},
            },
            {
                "Sid": "NoOldSignatures",
                "Effect": "Deny",
                "Principal": "*",
                "Action": "s3:*",
                "Resource": everything,
                "Condition": {"NumericGreaterThan": {"s3:signatureAge": str(SIGNATURE_AGE_MS)}},
            },
        ],
    }


def key_policy(name: str) -> dict[str, object]:
    """The account's roles may use the key by their policies; CloudWatch Logs for the jobs' log groups."""
    return {
        "Version": "2012-10-17",
        "Statement": [
            {
                "Sid": "Account",
                "Effect": "Allow",
                "Principal": {"AWS": f"arn:{Aws.PARTITION}:iam::{Aws.ACCOUNT_ID}:root"},
                "Action": list(KEY_ADMINISTRATION),
                "Resource": "*",
            },
            {
                "Sid": "Logs",
                "Effect": "Allow",
                "Principal": {"Service": f"logs.{Aws.REGION}.{Aws.URL_SUFFIX}"},
                "Action": ["kms:Decrypt", "kms:DescribeKey", "kms:Encrypt", "kms:GenerateDataKey"],
                "Resource": "*",
                "Condition": {
                    "ArnLike": {
                        "kms:EncryptionContext:aws:logs:arn": arn("logs", f"log-group:/calve/{name}/*")
                    }
                },
            },
        ],
    }


def _expiring(deployment: Deployment, staging: str | None) -> dict[str, int]:
    """Days until objects are deleted, by prefix."""
    within = deployment.lake.prefix
    exports = f"{within.strip('/')}/{EXPORTS}" if within else EXPORTS
    files = {f"{exports}{export.name}/": export.keep_days for export in deployment.exports}
    return files | ({staging: STAGING_DAYS} if staging else {})


def _statements(name: str, made: dict[str, str]) -> list[Statement]:
    statements: list[Statement] = []
    if made["bucket"]:
        statements.append(
            allow(
                [
                    *("s3:CreateBucket", "s3:ListBucket", "s3:GetBucketTagging", "s3:PutBucketTagging"),
                    *("s3:PutBucketPolicy", "s3:PutBucketPublicAccessBlock", "s3:PutEncryptionConfiguration"),
                ],
                [bucket_arn(made["bucket"])],
            )
        )
    if made["notify"]:
        statements.append(
            allow(["s3:GetBucketNotification", "s3:PutBucketNotification"], [bucket_arn(made["notify"])])
        )
    if bucket := made["bucket"] or made["notify"]:
        statements.append(
            allow(["s3:GetLifecycleConfiguration", "s3:PutLifecycleConfiguration"], [bucket_arn(bucket)])
        )
    if made["database"]:
        database = [arn("glue", "catalog"), arn("glue", f"database/{made['database']}")]
        statements.append(allow(["glue:CreateDatabase", "glue:GetDatabase"], database))
    if made["key"]:
        keys = [arn("kms", "key/*")]
        asked = {"StringEquals": {f"aws:RequestTag/{OWNER_TAG}": name}}
        own = {"StringEquals": {f"aws:ResourceTag/{OWNER_TAG}": name}}
        statements += [
            allow(["kms:CreateKey"], ["*"], asked, because="a key that is not made yet has no ARN"),
            allow(["kms:TagResource"], keys, asked, because=OWN_KEYS),
            allow(
                [
                    *("kms:DescribeKey", "kms:PutKeyPolicy", "kms:EnableKeyRotation", "kms:EnableKey"),
                    "kms:CancelKeyDeletion",
                ],
                keys,
                own,
                because=OWN_KEYS,
            ),
            allow(
                ["kms:CreateAlias"], [*keys, arn("kms", made["key"])], because="one alias, to a key just made"
            ),
        ]
    return statements


def delete_data_requested(context: str | None, name: str) -> bool:
    """Whether the context value `delete_data` is given for this deployment.

    Raises:
        ConfigError: it names another deployment.
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
    """Deletes bucket, tables, database and key when the stack is destroyed. Imported resources stay."""

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
                # Glue also checks the functions of a database when it deletes one.
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
