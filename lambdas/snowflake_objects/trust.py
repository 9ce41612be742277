"""Two roles of AWS trust Snowflake's IAM user, which only Snowflake knows; then both sides say whether it works."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from calve.errors import Fatal
from calve.publishing import Snowflake
from lambdas.snowflake.account import properties, told
from lambdas.snowflake.sql_api import Session
from lambdas.snowflake.statements import Lake

VERIFY_S = 90.0
"""AWS says that a trust policy takes seconds to be everywhere; it is mostly less than this."""
PAUSES_S = (1.0, 2.0, 4.0, 8.0)


@dataclass(frozen=True, slots=True)
class Principal:
    """Whom Snowflake comes as, and the id that it shows."""

    user_arn: str
    external_id: str

    def policy(self) -> str:
        """The trust policy that lets it, and nobody else, take a role."""
        statement = {
            "Effect": "Allow",
            "Principal": {"AWS": self.user_arn},
            "Action": "sts:AssumeRole",
            "Condition": {"StringEquals": {"sts:ExternalId": self.external_id}},
        }
        return json.dumps({"Version": "2012-10-17", "Statement": [statement]})


def of_volume(session: Session, config: Snowflake) -> Principal:
    """Raises: as `Session.execute`."""
    said = properties(session, "EXTERNAL VOLUME", config.volume)
    location = json.loads(said["STORAGE_LOCATION_1"])
    return Principal(location["STORAGE_AWS_IAM_USER_ARN"], location["STORAGE_AWS_EXTERNAL_ID"])


def of_integration(session: Session, config: Snowflake) -> Principal:
    """Raises: as `Session.execute`."""
    said = properties(session, "CATALOG INTEGRATION", config.integration)
    kind = "GLUE" if config.catalog == "glue" else "API"
    return Principal(said[f"{kind}_AWS_IAM_USER_ARN"], said[f"{kind}_AWS_EXTERNAL_ID"])


def establish(session: Session, config: Snowflake, lake: Lake, iam: Any) -> None:
    """Let Snowflake take the roles, unless they trust it from the start. Raises: as `Session.execute`."""
    if config.iam_user_arn is None:
        trusted = {lake.volume_role: of_volume(session, config)}
        if lake.catalog_role:
            trusted[lake.catalog_role] = of_integration(session, config)
        for role, principal in trusted.items():
            iam.update_assume_role_policy(RoleName=role.rpartition("/")[2], PolicyDocument=principal.policy())


def verify(
    session: Session,
    config: Snowflake,
    *,
    wait_s: float = VERIFY_S,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Have Snowflake try both, again and again for a while.

    Raises:
        Fatal: one of them does not work; with what Snowflake says of it.
    """
    deadline = time.monotonic() + wait_s
    for function, subject in (
        ("SYSTEM$VERIFY_EXTERNAL_VOLUME", config.volume),
        ("SYSTEM$VERIFY_CATALOG_INTEGRATION", config.integration),
    ):
        attempt = 0
        while not _passed(said := told(session, function, subject)):
            if time.monotonic() > deadline:
                raise Fatal(f"Snowflake cannot use {subject}: {json.dumps(said)}")
            sleep(PAUSES_S[min(attempt, len(PAUSES_S) - 1)])
            attempt += 1


def _passed(said: dict[str, Any]) -> bool:
    return str(said.get("success")).lower() == "true"
