"""Calls of AWS that may be refused for a known reason, objects, and schedules that invoke a function later."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from botocore.exceptions import ClientError


def code_of(error: ClientError) -> str:
    return str(error.response["Error"]["Code"])


class tolerating:
    """As `contextlib.suppress`: ends the block, without an error, at a refusal with one of these codes."""

    def __init__(self, *codes: str) -> None:
        self._codes = codes

    def __enter__(self) -> None: ...

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> bool:
        return isinstance(error, ClientError) and code_of(error) in self._codes


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
