"""Calls of AWS that may be refused for a known reason, objects, schedules that invoke a function, and Lake Formation's grants."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from botocore.exceptions import ClientError

from calve.names import OWNER_TAG


def code_of(error: ClientError) -> str:
    return str(error.response["Error"]["Code"])


class tolerating:
    """As `contextlib.suppress`: ends the block, without an error, at a refusal with one of these codes."""

    def __init__(self, *codes: str) -> None:
        self._codes = codes

    def __enter__(self) -> None: ...

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> bool:
        return isinstance(error, ClientError) and code_of(error) in self._codes


def databases_of(glue: Any, deployment: str) -> list[str]:
    """The databases that a deployment made, one per cluster; a property names the deployment."""
    pages = glue.get_paginator("get_databases").paginate()
    found = (each for page in pages for each in page["DatabaseList"])
    return [each["Name"] for each in found if each.get("Parameters", {}).get(OWNER_TAG) == deployment]


def read_text(s3: Any, uri: str) -> str:
    """An object; `s3` is the client."""
    bucket, _, key = uri.removeprefix("s3://").partition("/")
    return str(s3.get_object(Bucket=bucket, Key=key)["Body"].read().decode())


def read_if_there(s3: Any, bucket: str, key: str) -> bytes | None:
    """An object's content. S3 denies an absent one to a role that may list only a part of its bucket, as in a shared one."""
    found = s3.list_objects_v2(Bucket=bucket, Prefix=key, MaxKeys=1)
    if all(each["Key"] != key for each in found.get("Contents", ())):
        return None
    return bytes(s3.get_object(Bucket=bucket, Key=key)["Body"].read())


@dataclass(frozen=True, slots=True)
class Schedules:
    """The schedules of one group that invoke a function once, and then delete themselves."""

    scheduler: Any
    group: str
    role_arn: str
    function_arn: str

    def invoke(self, name: str, at: datetime, event: Mapping[str, Any]) -> None:
        """Invoke the function with the event at `at`; nothing if there is a schedule of this name."""
        with tolerating("ConflictException"):
            self.scheduler.create_schedule(
                Name=name,
                GroupName=self.group,
                ScheduleExpression=f"at({at.astimezone(UTC):%Y-%m-%dT%H:%M:%S})",
                ScheduleExpressionTimezone="UTC",
                FlexibleTimeWindow={"Mode": "OFF"},
                ActionAfterCompletion="DELETE",
                Target={
                    "Arn": self.function_arn,
                    "RoleArn": self.role_arn,
                    "Input": json.dumps(event, sort_keys=True),
                },
            )


EVERYBODY = "IAM_ALLOWED_PRINCIPALS"
"""The group of all that IAM admits. Where it has all rights, Lake Formation leaves the decision to IAM."""
REFUSAL = "Lake Formation"
"""Glue's refusals name it: "Insufficient Lake Formation permission(s): Required Describe on trading"."""
PAGE = "docs/before-a-deploy.md#lake-formation"

Entry = Mapping[str, Any]


def governs(formation: Any, glue: Any, database: str | None) -> bool:
    """Whether Lake Formation governs a database, or, with None, those that will be made. `formation`, `glue`: clients.

    Then a right to the catalog in IAM needs a grant beside it. Lake Formation may show a caller fewer grants than there are, so
    an empty list says nothing.

    Raises:
        ClientError: its settings may not be read, or Glue does not know the database.
    """
    settings = formation.get_data_lake_settings()["DataLakeSettings"]
    databases = _leaves_to_iam(settings.get("CreateDatabaseDefaultPermissions", ()))
    tables = settings.get("CreateTableDefaultPermissions", ())
    if database:
        try:
            described = glue.get_database(Name=database)["Database"]
        except ClientError as error:
            if REFUSAL not in str(error):
                raise
            return True
        tables = described.get("CreateTableDefaultPermissions", tables)
        if granted := grants_on(formation, database):
            databases = _leaves_to_iam(granted)
    return not (databases and _leaves_to_iam(tables))


def grants_on(formation: Any, database: str) -> list[Entry]:
    """The grants on the database that the caller may see."""
    on = {"Database": {"Name": database}}
    return list(pages(formation.list_permissions, "PrincipalResourcePermissions", Resource=on))


def pages(ask: Callable[..., Any], listed: str, **request: Any) -> Iterator[Entry]:
    """All that a request lists; boto3 has no paginator for Lake Formation."""
    token: str | None = ""
    while token is not None:
        page = ask(**request, **({"NextToken": token} if token else {}))
        yield from page[listed]
        token = page.get("NextToken")


def principal_of(entry: Entry) -> str:
    return str(entry["Principal"]["DataLakePrincipalIdentifier"])


def _leaves_to_iam(entries: Iterable[Entry]) -> bool:
    return any(principal_of(each) == EVERYBODY and "ALL" in each["Permissions"] for each in entries)
