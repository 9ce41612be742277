"""The lake's bucket, key and database: `lambdas/lake/adoption.py` makes or adopts them, and a destroy keeps them.

Deleting the data needs two keys. `cdk deploy -c delete_data=yes-delete-NAME` adds `lake_removal`; an ordinary deploy removes it
again; neither touches data. `cdk destroy` is the second key: only then `lake_removal` deletes the lake.
"""

from __future__ import annotations

import json

from aws_cdk import Aws, Duration, Stack
from constructs import Construct

from calve.config.deployment import Deployment
from calve.config.publishing import EXPORTS
from calve.errors import ConfigError
from calve.names import OWNER_TAG
from stacks.base.function import Function, Site, custom_resource
from stacks.base.lake_formation import grants
from stacks.base.roles import Statement, allow, arn, bucket_arn, catalog_arns

ADOPTION = Duration.minutes(10)
"""Six minutes of it may pass until KMS admits the changes of a new key."""
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
MAKING_BUCKET = (
    "s3:CreateBucket", "s3:ListBucket", "s3:GetBucketTagging", "s3:PutBucketTagging", "s3:PutBucketPolicy",
    "s3:PutBucketPublicAccessBlock", "s3:PutEncryptionConfiguration",
)  # fmt: skip
CHANGING_KEY = (
    "kms:DescribeKey", "kms:PutKeyPolicy", "kms:EnableKeyRotation", "kms:EnableKey", "kms:CancelKeyDeletion",
)  # fmt: skip
LISTING_ALIASES = allow(["kms:ListAliases"], ["*"], because="the list of aliases knows no resource")
DELETING_TABLES = (
    "glue:GetTables", "glue:BatchDeleteTable", "glue:DeleteTable", "glue:DeleteDatabase", "glue:GetDatabase",
    "glue:GetDatabases",
)  # fmt: skip
DELETING_BUCKET = (
    "s3:ListBucketVersions", "s3:ListBucketMultipartUploads", "s3:DeleteBucket", "s3:DeleteObject",
    "s3:DeleteObjectVersion", "s3:AbortMultipartUpload",
)  # fmt: skip


def own_key_alias(deployment: Deployment) -> str:
    """The alias of the deployment's own key; empty if the bucket or the key is imported."""
    lake = deployment.lake
    return f"alias/{deployment.name}-lake" if lake.bucket is None and lake.kms_key is None else ""


class LakeStorage(Construct):
    """Not plain CloudFormation resources: these cannot be adopted, so a kept bucket would make the next deploy fail."""

    def __init__(self, scope: Construct, id: str, site: Site, *, staging: str) -> None:
        super().__init__(scope, id)
        deployment, lake, bucket = site.deployment, site.deployment.lake, site.lake.bucket
        made = {
            "bucket": bucket if lake.bucket is None else "",
            "key": own_key_alias(deployment),
            "database": "" if lake.import_database or lake.catalog else lake.database,
            "notify": bucket if deployment.exports else "",
        }
        self.key_arn = lake.kms_key
        if not any(made.values()):
            return
        function = Function(
            self,
            "Function",
            site,
            code="lake.adoption",
            timeout=ADOPTION,
            statements=_statements(deployment.name, made),
        )
        stack = Stack.of(self)
        exports = f"{lake.prefix.strip('/')}/{EXPORTS}" if lake.prefix else EXPORTS
        expiring = {f"{exports}{export.name}/": export.keep_days for export in deployment.exports}
        if made["bucket"]:
            expiring[staging] = STAGING_DAYS
        properties = {
            "Deployment": deployment.name,
            "Bucket": made["bucket"],
            "BucketPolicy": stack.to_json_string(bucket_policy(bucket)) if made["bucket"] else "",
            "Expiring": json.dumps(expiring),
            "KeyAlias": made["key"],
            "KeyPolicy": stack.to_json_string(key_policy(deployment.name)) if made["key"] else "",
            "KeyArn": lake.kms_key or "",
            "Database": made["database"],
            "Location": f"{site.lake.warehouse}/{lake.database}",
            "NotifyBucket": made["notify"],
        }
        resource = custom_resource(self, "Lake", "Lake", function, properties, ADOPTION)
        if made["key"]:
            self.key_arn = resource.get_att_string("KeyArn")


def bucket_policy(bucket: str) -> dict[str, object]:
    """Require TLS. A signature expires soon after a redirect can use it."""
    refused = {
        "OnlyTls": {"Bool": {"aws:SecureTransport": "false"}},
        "NoOldSignatures": {"NumericGreaterThan": {"s3:signatureAge": str(SIGNATURE_AGE_MS)}},
    }
    everything = {
        "Principal": "*",
        "Action": "s3:*",
        "Resource": [bucket_arn(bucket), f"{bucket_arn(bucket)}/*"],
    }
    statements = [
        {"Sid": sid, "Effect": "Deny", **everything, "Condition": condition}
        for sid, condition in refused.items()
    ]
    return {"Version": "2012-10-17", "Statement": statements}


def key_policy(name: str) -> dict[str, object]:
    """The account's roles may use the key by their policies; CloudWatch Logs for the jobs' log groups."""
    groups = arn("logs", f"log-group:/calve/{name}/*")
    account = {
        "Sid": "Account",
        "Effect": "Allow",
        "Principal": {"AWS": f"arn:{Aws.PARTITION}:iam::{Aws.ACCOUNT_ID}:root"},
        "Action": list(KEY_ADMINISTRATION),
        "Resource": "*",
    }
    logs = {
        "Sid": "Logs",
        "Effect": "Allow",
        "Principal": {"Service": f"logs.{Aws.REGION}.{Aws.URL_SUFFIX}"},
        "Action": ["kms:Decrypt", "kms:DescribeKey", "kms:Encrypt", "kms:GenerateDataKey"],
        "Resource": "*",
        "Condition": {"ArnLike": {"kms:EncryptionContext:aws:logs:arn": groups}},
    }
    return {"Version": "2012-10-17", "Statement": [account, logs]}


def _statements(name: str, made: dict[str, str]) -> list[Statement]:
    statements: list[Statement] = []
    if made["bucket"]:
        statements.append(allow(MAKING_BUCKET, [bucket_arn(made["bucket"])]))
    if made["notify"]:
        notifying = ["s3:GetBucketNotification", "s3:PutBucketNotification"]
        statements.append(allow(notifying, [bucket_arn(made["notify"])]))
    if bucket := made["bucket"] or made["notify"]:
        expiring = ["s3:GetLifecycleConfiguration", "s3:PutLifecycleConfiguration"]
        statements.append(allow(expiring, [bucket_arn(bucket)]))
    if made["database"]:
        database = [arn("glue", "catalog"), arn("glue", f"database/{made['database']}")]
        statements.append(allow(["glue:CreateDatabase", "glue:GetDatabase"], database))
    if made["key"]:
        keys = [arn("kms", "key/*")]
        requested = {"StringEquals": {f"aws:RequestTag/{OWNER_TAG}": name}}
        aliased = [*keys, arn("kms", made["key"])]
        statements += [
            LISTING_ALIASES,
            allow(["kms:CreateKey"], ["*"], requested, because="a key that is not made yet has no ARN"),
            allow(["kms:TagResource"], keys, requested, because=OWN_KEYS),
            allow(CHANGING_KEY, keys, _tagged(name), because=OWN_KEYS),
            allow(["kms:CreateAlias"], aliased, because="one alias, to a key just made"),
        ]
    return statements


def _tagged(deployment: str) -> dict[str, dict[str, object]]:
    """Only the keys of this deployment."""
    return {"StringEquals": {f"aws:ResourceTag/{OWNER_TAG}": deployment}}


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


def lake_removal(scope: Construct, site: Site) -> Construct:
    """Deletes bucket, tables, database and key when the stack is destroyed. Imported resources stay. Returns `scope`, its own."""
    deployment, lake, bucket = site.deployment, site.deployment.lake, site.lake.bucket
    per_cluster = site.lake.per_cluster
    databases = "*" if per_cluster else lake.database
    statements = [
        allow(["cloudformation:DescribeStacks"], [Aws.STACK_ID]),
        allow(
            DELETING_TABLES,
            # Glue also checks the functions of a database when it deletes one.
            [*catalog_arns(databases), arn("glue", f"userDefinedFunction/{databases}/*")],
            because="tables are made by the job, and so are databases where there is one per cluster",
        ),
    ]
    if lake.bucket is None:
        whole = [bucket_arn(bucket), f"{bucket_arn(bucket)}/*"]
        statements.append(allow(DELETING_BUCKET, whole, because="all of the bucket goes"))
    key_alias = own_key_alias(deployment)
    if key_alias:
        keys, own = [arn("kms", "key/*")], _tagged(deployment.name)
        aliased = [*keys, arn("kms", key_alias)]
        statements += [
            LISTING_ALIASES,
            allow(["kms:DescribeKey", "kms:ScheduleKeyDeletion"], keys, own, because=OWN_KEYS),
            allow(["kms:DeleteAlias"], aliased, because="one alias, of one key"),
        ]
    longest = Duration.minutes(15)
    function = Function(scope, "Function", site, code="lake.removal", timeout=longest, statements=statements)
    properties = {
        "Deployment": deployment.name,
        "Bucket": bucket if lake.bucket is None else "",
        "Database": "" if lake.import_database or lake.catalog else lake.database,
        "ImportedDatabase": lake.database if lake.import_database else "",
        "KeyAlias": key_alias,
        "Warehouse": site.lake.warehouse,
        "ClusterDatabases": "true" if per_cluster else "false",
    }
    resource = custom_resource(scope, "Resource", "LakeRemoval", function, properties, Duration.minutes(30))
    grants(Construct(scope, "Grants"), site, removers=[function.role.role_arn], before=[resource])
    return scope
