"""Creates or adopts the lake's bucket, key and database, and sets their configuration.

CloudFormation cannot create what exists, so a lake that a destroy kept would make the next deploy fail. Every step finds or
creates, then configures, and can be repeated. Resources without this deployment's mark are refused. A delete keeps everything:
only `lambdas.lake.removal` deletes data.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import boto3
from aws_lambda_powertools import Logger, Tracer
from aws_lambda_powertools.utilities.data_classes import CloudFormationCustomResourceEvent
from botocore.exceptions import ClientError

from calve.errors import ConfigError
from calve.names import OWNER_TAG
from lambdas.aws import code_of, tolerating
from lambdas.custom_resource import handler_of
from lambdas.function import from_properties
from lambdas.lake.key import keep_key
from lambdas.lake_formation import PAGE, REFUSAL

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
