"""One-time schedules of EventBridge Scheduler by which the watchdog looks again."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

if TYPE_CHECKING:
    from lambdas.job_control.watchdog import Ended


@dataclass(frozen=True, slots=True)
class Later:
    """Schedules the function of this very code; each schedule deletes itself once it has fired."""

    scheduler: Any
    function_arn: str
    role_arn: str
    group: str

    def again(self, ended: Ended, at: datetime) -> None:
        """Look at an ended run once more; the same event, delivered twice, makes one schedule."""
        checks = ended.checks + 1
        digest = hashlib.sha256(f"{ended.run}/{checks}".encode()).hexdigest()[:24]
        detail = {"jobName": ended.job, "jobRunId": ended.run, "state": ended.state, "checks": checks}
        try:
            self.scheduler.create_schedule(
                Name=f"watchdog-{digest}",
                GroupName=self.group,
                Description=f"Restart of job {ended.job}",
                ScheduleExpression=f"at({at:%Y-%m-%dT%H:%M:%S})",
                ScheduleExpressionTimezone="UTC",
                FlexibleTimeWindow={"Mode": "OFF"},
                ActionAfterCompletion="DELETE",
                Target={
                    "Arn": self.function_arn,
                    "RoleArn": self.role_arn,
                    "Input": json.dumps(
                        {"source": "calve", "detail-type": "Glue Job State Change", "detail": detail}
                    ),
                },
            )
        except ClientError as error:
            if error.response["Error"]["Code"] != "ConflictException":
                raise
