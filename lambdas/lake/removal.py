"""Deletes what calve created: tables and databases, every object, the bucket, and the key (after AWS's waiting period).

A delete request is no proof that the data should go: CloudFormation also deletes a resource that leaves the template, and at a
rollback. Only the destruction of the whole stack counts.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import boto3
from aws_lambda_powertools import Logger, Tracer
from aws_lambda_powertools.utilities.data_classes import CloudFormationCustomResourceEvent

from calve.errors import Retryable
from calve.names import OWNER_TAG
from lambdas.aws import databases_of, tolerating
from lambdas.custom_resource import handler_of, stack_status
from lambdas.function import from_properties
from lambdas.lake.adoption import key_of

SERVICE = "lake_removal"
logger = Logger(service=SERVICE)
tracer = Tracer(service=SERVICE)

KEY_WAIT_DAYS = 7
GLUE_BATCH = 100


@dataclass(frozen=True, slots=True)
class Clients:
    """The AWS clients of a lake and of its stack."""

    s3: Any
    kms: Any
    glue: Any
    cloudformation: Any


@dataclass(frozen=True, slots=True)
class Lake:
    """The properties of the custom resource: the parts to delete. An empty name: that part was imported, and stays.

    Tables of others stay, and so do their databases. But tables whose files are in the bucket are deleted with it.
    """

    deployment: str
    bucket: str
    database: str
    imported_database: str
    key_alias: str
    warehouse: str
    cluster_databases: bool

    @property
    def id(self) -> str:
        return f"removal-of-{self.bucket or '-'}-{self.database or '-'}"


def remove(lake: Lake, clients: Clients, *, time_left_s: float) -> None:
    """Delete the lake; can be repeated, and continues where it stopped.

    Raises:
        Retryable: the bucket holds more objects than the function can delete in its time.
    """
    deadline = time.monotonic() + time_left_s
    glue, bucket = clients.glue, [f"s3://{lake.bucket}"] if lake.bucket else []
    for database in _databases(lake, glue):
        # The tables first: Glue deletes them asynchronously, and a new database of the same name would show them.
        with tolerating("EntityNotFoundException"):
            if not _remove_tables(database, [f"{lake.warehouse}/{database}", *bucket], glue):
                glue.delete_database(Name=database)
    if lake.bucket and lake.imported_database:
        _remove_tables(lake.imported_database, bucket, glue)
    if lake.bucket:
        with tolerating("NoSuchBucket"):
            _remove_bucket(lake.bucket, clients.s3, deadline)
    if lake.key_alias and (key := key_of(clients.kms, lake.key_alias)):
        with tolerating("NotFoundException"):
            if clients.kms.describe_key(KeyId=key)["KeyMetadata"]["KeyState"] != "PendingDeletion":
                clients.kms.schedule_key_deletion(KeyId=key, PendingWindowInDays=KEY_WAIT_DAYS)
            clients.kms.delete_alias(AliasName=lake.key_alias)


def _databases(lake: Lake, glue: Any) -> Iterator[str]:
    """The deployment's database, and those that its jobs made per cluster; a property names the deployment."""
    if lake.cluster_databases:
        yield from databases_of(glue, lake.deployment)
    elif lake.database:
        try:
            found = glue.get_database(Name=lake.database)["Database"]
        except glue.exceptions.EntityNotFoundException:
            return
        if found.get("Parameters", {}).get(OWNER_TAG) == lake.deployment:
            yield lake.database


def _remove_tables(database: str, folders: Sequence[str], glue: Any) -> bool:
    """Delete the tables whose files are in one of the folders; returns whether there are others."""
    pages = glue.get_paginator("get_tables").paginate(DatabaseName=database)
    tables = [table for page in pages for table in page["TableList"]]
    below = tuple(f"{folder}/" for folder in folders)
    doomed = [
        each["Name"]
        for each in tables
        if (each.get("StorageDescriptor", {}).get("Location") or "").rstrip("/").startswith(below)
    ]
    for first in range(0, len(doomed), GLUE_BATCH):
        glue.batch_delete_table(DatabaseName=database, TablesToDelete=doomed[first : first + GLUE_BATCH])
    return len(doomed) < len(tables)


def _remove_bucket(bucket: str, s3: Any, deadline: float) -> None:
    """Delete the bucket with every version of every object, as versioning may be on."""
    for page in s3.get_paginator("list_multipart_uploads").paginate(Bucket=bucket):
        for upload in page.get("Uploads", []):
            s3.abort_multipart_upload(Bucket=bucket, Key=upload["Key"], UploadId=upload["UploadId"])
    while True:
        if time.monotonic() > deadline:
            raise Retryable(
                f"the bucket {bucket} holds more objects than could be deleted in one run",
                fix="destroy again: it goes on where it stopped",
            )
        page = s3.list_object_versions(Bucket=bucket)
        found = [*page.get("Versions", []), *page.get("DeleteMarkers", [])]
        if not found:
            break
        objects = [{"Key": each["Key"], "VersionId": each["VersionId"]} for each in found]
        answer = s3.delete_objects(Bucket=bucket, Delete={"Objects": objects, "Quiet": True})
        if errors := answer.get("Errors"):
            raise Retryable(f"{errors[0]['Key']} could not be deleted: {errors[0]['Code']}")
    s3.delete_bucket(Bucket=bucket)


def _act(request: CloudFormationCustomResourceEvent, time_left_s: float) -> None:
    lake = from_properties(Lake, request.resource_properties)
    if request.request_type != "Delete":
        return
    cloudformation = boto3.client("cloudformation")
    if stack_status(request.stack_id, cloudformation) != "DELETE_IN_PROGRESS":
        logger.info("lake.kept", extra={"lake": lake.id})
        return
    clients = Clients(boto3.client("s3"), boto3.client("kms"), boto3.client("glue"), cloudformation)
    remove(lake, clients, time_left_s=time_left_s)
    logger.info("lake.removed", extra={"lake": lake.id})


handle = handler_of(
    _act,
    identify=lambda properties: from_properties(Lake, properties).id,
    logger=logger,
    tracer=tracer,
    failed="lake.not_removed",
)
