"""Run the same order again later: a one-time schedule that removes itself."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from botocore.exceptions import ClientError


@dataclass(frozen=True, slots=True)
class Waiting:
    """Makes schedules of the function itself. `event` is what the function was invoked with."""

    scheduler: Any
    group: str
    role_arn: str
    function_arn: str
    event: dict[str, Any]

    def until(self, at: datetime) -> None:
        """Invoke the function with its event at `at`; once, however often the same run asks."""
        text = json.dumps(self.event, sort_keys=True)
        digest = hashlib.sha256(f"{text}{at:%Y%m%d%H%M}".encode()).hexdigest()[:16]
        try:
            self.scheduler.create_schedule(
                Name=f"{self.event['export']['name'][:40]}-again-{digest}",
                GroupName=self.group,
                ScheduleExpression=f"at({at.astimezone(UTC):%Y-%m-%dT%H:%M:%S})",
                ScheduleExpressionTimezone="UTC",
                FlexibleTimeWindow={"Mode": "OFF"},
                ActionAfterCompletion="DELETE",
                Target={"Arn": self.function_arn, "RoleArn": self.role_arn, "Input": text},
            )
        except ClientError as error:
            if error.response["Error"]["Code"] != "ConflictException":
                raise
