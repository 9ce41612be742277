"""Creates or adopts the lake's bucket, key and database, and sets their configuration.

CloudFormation cannot create what exists, so a lake that a destroy kept would make the next deploy fail. Every step finds or
creates, then configures, and can be repeated. Resources without this deployment's mark are refused. A delete keeps everything:
only `lambdas.lake.removal` deletes data.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import boto3
from aws_lambda_powertools import Logger, Tracer
from aws_lambda_powertools.utilities.data_classes import CloudFormationCustomResourceEvent
from botocore.exceptions import ClientError

from calve.errors import ConfigError
from calve.names import OWNER_TAG
from lambdas.aws import PAGE, REFUSAL, code_of, tolerating
from lambdas.custom_resource import handler_of
from lambdas.function import from_properties

SERVICE = "lake_adoption"
logger = Logger(service=SERVICE)
tracer = Tracer(service=SERVICE)


@dataclass(frozen=True, slots=True)
class Clients:
    """The AWS clients that a lake needs."""

    s3: Any
    kms: Any
    glue: Any
    region: str
    account: str


@dataclass(frozen=True, slots=True)
class Lake:
    """The properties of the custom resource. An empty name: that part is imported, and not changed.

    `expiring`: days until objects are deleted, by prefix.
    """

    deployment: str
    bucket: str
    bucket_policy: str
    expiring: dict[str, int]
    key_alias: str
    key_policy: str
    key_arn: str
    database: str
    location: str
    notify_bucket: str

    @property
    def id(self) -> str:
        """Another bucket, key or database is another lake."""
        names = (self.bucket, self.key_alias.removeprefix("alias/"), self.database)
        return "/".join(name or "-" for name in names)


def adopt(lake: Lake, clients: Clients) -> dict[str, str]:
    """Create or adopt the lake; returns the attribute `KeyArn`, empty if the lake has no key of its own.

    Raises:
        ConfigError: a bucket or a database of that name exists and is not this deployment's; Lake Formation refuses the database.
    """
    if lake.database:
        try:
            _database(lake, clients.glue)
        except ClientError as error:
            if REFUSAL not in str(error):
                raise
            raise ConfigError(
                f"Lake Formation does not let calve make the Glue database {lake.database}: {error}",
                fix=f"let a data lake administrator make it, set lake.import_database: true, deploy again: {PAGE}",
            ) from None
    key_arn = lake.key_arn
    if lake.key_alias:
        key_arn = keep_key(clients.kms, lake.key_alias, lake.deployment, lake.key_policy)
    if lake.bucket:
        _bucket(lake, clients, key_arn)
    if lake.notify_bucket:
        _notifications(lake.notify_bucket, clients.s3)
    if bucket := lake.bucket or lake.notify_bucket:
        _lifecycle(lake, bucket, clients.s3)
    return {"KeyArn": key_arn}


def _bucket(lake: Lake, clients: Clients, key_arn: str) -> None:
    s3, bucket, own = clients.s3, lake.bucket, {"Key": OWNER_TAG, "Value": lake.deployment}
    try:
        s3.head_bucket(Bucket=bucket, ExpectedBucketOwner=clients.account)
    except ClientError as error:
        code = code_of(error)
        if code not in {"404", "NoSuchBucket"}:
            raise ConfigError(
                f"the bucket {bucket} belongs to somebody else ({code})",
                fix="name a bucket of yours under lake.bucket, or choose another name",
            ) from None
        where = {"CreateBucketConfiguration": {"LocationConstraint": clients.region}}
        s3.create_bucket(Bucket=bucket, **({} if clients.region == "us-east-1" else where))
        s3.put_bucket_tagging(Bucket=bucket, Tagging={"TagSet": [own]})
    else:
        tags: list[dict[str, str]] = []
        with tolerating("NoSuchTagSet"):
            tags = s3.get_bucket_tagging(Bucket=bucket)["TagSet"]
        if own not in tags:
            raise ConfigError(
                f"the bucket {bucket} exists, and its tag {OWNER_TAG} is not {lake.deployment}",
                fix=f"import it: lake.bucket: {bucket}; or tag it to hand it over",
            )
    closed = ("BlockPublicAcls", "IgnorePublicAcls", "BlockPublicPolicy", "RestrictPublicBuckets")
    s3.put_public_access_block(Bucket=bucket, PublicAccessBlockConfiguration=dict.fromkeys(closed, True))
    encryption = {"SSEAlgorithm": "aws:kms", "KMSMasterKeyID": key_arn}
    rule = {"ApplyServerSideEncryptionByDefault": encryption, "BucketKeyEnabled": True}
    s3.put_bucket_encryption(Bucket=bucket, ServerSideEncryptionConfiguration={"Rules": [rule]})
    s3.put_bucket_policy(Bucket=bucket, Policy=lake.bucket_policy)


def _lifecycle(lake: Lake, bucket: str, s3: Any) -> None:
    """Add or replace the deployment's own rules. The rule of a removed export stays, so its files still expire."""
    found: dict[str, Any] = {"Rules": []}
    with tolerating("NoSuchLifecycleConfiguration"):
        found = s3.get_bucket_lifecycle_configuration(Bucket=bucket)
    rules = {each["ID"]: each for each in found["Rules"]}
    for rule in rules.values():
        if "Prefix" in rule:  # S3 refuses such old rules beside rules with a filter
            rule["Filter"] = {"Prefix": rule.pop("Prefix")}
    for prefix, days in lake.expiring.items():
        id = f"calve-{lake.deployment}-{prefix}"
        rules[id] = {
            "ID": id,
            "Status": "Enabled",
            "Filter": {"Prefix": prefix},
            "Expiration": {"Days": days},
            "NoncurrentVersionExpiration": {"NoncurrentDays": 1},
            "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 1},
        }
    smallest = "TransitionDefaultMinimumObjectSize"
    s3.put_bucket_lifecycle_configuration(
        Bucket=bucket,
        LifecycleConfiguration={"Rules": list(rules.values())},
        **({smallest: found[smallest]} if smallest in found else {}),
    )


def _notifications(bucket: str, s3: Any) -> None:
    """Send the bucket's events to EventBridge; other notifications stay."""
    found = s3.get_bucket_notification_configuration(Bucket=bucket)
    found.pop("ResponseMetadata", None)
    if "EventBridgeConfiguration" not in found:
        s3.put_bucket_notification_configuration(
            Bucket=bucket, NotificationConfiguration=found | {"EventBridgeConfiguration": {}}
        )


def _database(lake: Lake, glue: Any) -> None:
    own = {OWNER_TAG: lake.deployment}
    try:
        found = glue.get_database(Name=lake.database)["Database"].get("Parameters", {})
    except glue.exceptions.EntityNotFoundException:
        made = {"Name": lake.database, "LocationUri": lake.location, "Parameters": own}
        glue.create_database(DatabaseInput=made)
        return
    if found.get(OWNER_TAG) != lake.deployment:
        raise ConfigError(
            f"the Glue database {lake.database} exists, and its parameter {OWNER_TAG} is not {lake.deployment}",
            fix="import it, and it is never deleted: lake.import_database: true; or name another: lake.database",
        )


def _act(request: CloudFormationCustomResourceEvent, time_left_s: float) -> dict[str, str]:
    lake = from_properties(Lake, request.resource_properties)
    if request.request_type == "Delete":
        logger.info("lake.kept", extra={"lake": lake.id})
        return {}
    region, account = request.stack_id.split(":")[3:5]
    clients = Clients(boto3.client("s3"), boto3.client("kms"), boto3.client("glue"), region, account)
    attributes = adopt(lake, clients)
    logger.info("lake.adopted", extra={"lake": lake.id})
    return attributes


handle = handler_of(
    _act,
    identify=lambda properties: from_properties(Lake, properties).id,
    logger=logger,
    tracer=tracer,
    failed="lake.not_adopted",
)


TAGS_S = 360.0
POLL_S = 5.0


def key_of(kms: Any, alias: str) -> str | None:
    """The id of the alias's key; None if there is no such alias. An absent alias has no tags: only the list tells."""
    for page in kms.get_paginator("list_aliases").paginate():
        for each in page["Aliases"]:
            if each["AliasName"] == alias:
                return str(each["TargetKeyId"])
    return None


def keep_key(kms: Any, alias: str, deployment: str, policy: str, *, clock: Any = time) -> str:
    """Create or adopt the key, give it its policy and rotation; returns its ARN. A key that awaits deletion is kept.

    The role may change only keys with this deployment's tag. KMS sees the tags of a new key up to five minutes late, and refuses
    until then.
    """
    key = key_of(kms, alias)
    if key is None:
        # Without the policy: KMS admits one only from callers who may change it, and that needs the tag.
        tags = [{"TagKey": OWNER_TAG, "TagValue": deployment}]
        key = str(kms.create_key(Description=f"Lake of {deployment}", Tags=tags)["KeyMetadata"]["KeyId"])
        kms.create_alias(AliasName=alias, TargetKeyId=key)
    return _persistently(lambda: _set(kms, key, policy), clock)


def _set(kms: Any, key: str, policy: str) -> str:
    found = kms.describe_key(KeyId=key)["KeyMetadata"]
    if found["KeyState"] == "PendingDeletion":
        kms.cancel_key_deletion(KeyId=key)
    if found["KeyState"] in {"PendingDeletion", "Disabled"}:
        kms.enable_key(KeyId=key)
    kms.put_key_policy(KeyId=key, PolicyName="default", Policy=policy)
    kms.enable_key_rotation(KeyId=key)
    return str(found["Arn"])


def _persistently(act: Callable[[], str], clock: Any) -> str:
    """Repeat a refused act until KMS must have seen the tags."""
    until = clock.monotonic() + TAGS_S
    while clock.monotonic() < until:
        with tolerating("AccessDeniedException"):
            return act()
        clock.sleep(POLL_S)
    return act()
