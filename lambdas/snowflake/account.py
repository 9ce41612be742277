"""An account of Snowflake as one user sees it: how a session is begun, and what is asked of the system's functions."""

from __future__ import annotations

import json
from typing import Any

from calve.publishing import Snowflake
from calve.secrets import read_secret, value_of
from lambdas.snowflake.key_pair import KeyPair
from lambdas.snowflake.sql import call, name
from lambdas.snowflake.sql_api import Session

PRIVATE_KEY = "private_key"


def administrator(config: Snowflake) -> Session:
    """The administrator's session.

    Raises:
        ConfigError: the secret is not there, or holds no private key.
        Retryable: Secrets Manager does not answer.
    """
    return _session(config, config.user, config.secret, config.admin_role)


def service(config: Snowflake, secret: str) -> Session:
    """The session of the deployment's own user; `secret` is the ARN of its key. Raises as `administrator`."""
    return _session(config, config.service_user, f"aws:{secret}", config.publisher)


def _session(config: Snowflake, user: str, reference: str, role: str) -> Session:
    pem = value_of(read_secret(reference), PRIVATE_KEY, reference)
    return Session(config.url, config.account, user, KeyPair.of_pem(pem), role)


def told(session: Session, function: str, *arguments: str) -> dict[str, Any]:
    """The JSON object that a system function answers. Raises as `Session.execute`."""
    answer = json.loads(session.value(call(function, *arguments)))
    return answer if isinstance(answer, dict) else {}


def properties(session: Session, kind: str, *parts: str) -> dict[str, str]:
    """What `DESC` says of an object: property -> value. Raises as `Session.execute`."""
    rows = session.execute(f"DESC {kind} {name(*parts)}")
    return {str(row["property"]): row.get("property_value", row.get("value")) or "" for row in rows}
