"""How Snowflake reaches the lake: as its own IAM user it takes a role, if that trusts it, and may do what the role may do.

The emulator enforces no policies, so they are read here and held against what Snowflake needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any
from urllib.parse import urlsplit

from botocore.exceptions import ClientError

IAM_USER = "arn:aws:iam::123456789001:user/abc1-b-self1234"


class OutOfReach(Exception):
    """AWS does not let Snowflake do it; the message says why."""


@dataclass(frozen=True, slots=True)
class Reach:
    """AWS as Snowflake sees it; `client` makes a client of a service there."""

    client: Callable[[str], Any]
    region: str

    def volume(self, location: dict[str, Any]) -> None:
        """Try what an external volume needs.

        Raises:
            OutOfReach: something of it may not be done, or the bucket is not there.
        """
        role = self._assume(location["STORAGE_AWS_ROLE_ARN"], location["STORAGE_AWS_EXTERNAL_ID"])
        where = urlsplit(location["STORAGE_BASE_URL"])
        bucket = f"arn:aws:s3:::{where.netloc}"
        for action, resource in (
            ("s3:GetBucketLocation", bucket),
            ("s3:ListBucket", bucket),
            ("s3:GetObject", f"{bucket}{where.path}any/table/data/file"),
            ("s3:GetObjectVersion", f"{bucket}{where.path}any/table/data/file"),
        ):
            self._allowed(role, action, resource)
        s3 = self.client("s3")
        try:
            s3.head_bucket(Bucket=where.netloc)
            encryption = s3.get_bucket_encryption(Bucket=where.netloc)["ServerSideEncryptionConfiguration"]
        except ClientError as error:
            if error.response["Error"]["Code"] == "ServerSideEncryptionConfigurationNotFoundError":
                return
            raise OutOfReach(f"{where.netloc}: {error}") from None
        key = encryption["Rules"][0]["ApplyServerSideEncryptionByDefault"].get("KMSMasterKeyID")
        if key:
            self._allowed(role, "kms:Decrypt", key)

    def catalog(self, role_arn: str, external_id: str, namespace: str) -> None:
        """Try what a catalog integration with Glue needs; `namespace` may be empty. Raises: as `volume`."""
        role = self._assume(role_arn, external_id)
        account = role_arn.split(":")[4]
        prefix = f"arn:aws:glue:{self.region}:{account}"
        for action, resource in (
            ("glue:GetCatalog", f"{prefix}:catalog"),
            ("glue:GetDatabase", f"{prefix}:database/{namespace}"),
            ("glue:GetDatabases", f"{prefix}:catalog"),
            ("glue:GetTable", f"{prefix}:table/{namespace}/any"),
            ("glue:GetTables", f"{prefix}:table/{namespace}/any"),
        ):
            self._allowed(role, action, resource)
        if not namespace:
            return
        glue = self.client("glue")
        try:
            glue.get_database(Name=namespace)
        except glue.exceptions.EntityNotFoundException:
            raise OutOfReach(f"Namespace {namespace} does not exist") from None

    def metadata(self, namespace: str, table: str) -> str | None:
        """What Glue names as a table's metadata; None where it has no such Iceberg table."""
        glue = self.client("glue")
        try:
            found = glue.get_table(DatabaseName=namespace, Name=table)["Table"]
        except glue.exceptions.EntityNotFoundException:
            return None
        location: str | None = found.get("Parameters", {}).get("metadata_location")
        return location

    def tables(self, namespace: str) -> list[str]:
        """The Iceberg tables of a namespace."""
        pages = self.client("glue").get_paginator("get_tables").paginate(DatabaseName=namespace)
        found = [each for page in pages for each in page["TableList"]]
        return [each["Name"] for each in found if "metadata_location" in each.get("Parameters", {})]

    def _assume(self, role_arn: str, external_id: str) -> str:
        """The name of a role, if it may be taken."""
        name = role_arn.rpartition("/")[2]
        iam = self.client("iam")
        try:
            trust = iam.get_role(RoleName=name)["Role"]["AssumeRolePolicyDocument"]
        except iam.exceptions.NoSuchEntityException:
            raise OutOfReach(f"Role {role_arn} does not exist") from None
        asked = {"sts:ExternalId": [external_id]}
        for each in _statements(trust):
            principals = _list(each.get("Principal", {}).get("AWS", []))
            conditions = each.get("Condition", {}).get("StringEquals", {})
            if (
                IAM_USER in principals
                and "sts:AssumeRole" in _list(each["Action"])
                and {key: _list(value) for key, value in conditions.items()} == asked
            ):
                return name
        raise OutOfReach(
            f"Error assuming AWS_ROLE: User: {IAM_USER} is not authorized to perform: sts:AssumeRole "
            f"on resource: {role_arn}"
        )

    def _allowed(self, role: str, action: str, resource: str) -> None:
        iam = self.client("iam")
        for policy in iam.list_role_policies(RoleName=role)["PolicyNames"]:
            document = iam.get_role_policy(RoleName=role, PolicyName=policy)["PolicyDocument"]
            for each in _statements(document):
                if action in _list(each["Action"]) and any(
                    fnmatchcase(resource, pattern) for pattern in _list(each["Resource"])
                ):
                    return
        raise OutOfReach(f"{role} is not authorized to perform: {action} on resource: {resource}")


def _statements(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield from (each for each in _list(document["Statement"]) if each["Effect"] == "Allow")


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
