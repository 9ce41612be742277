"""A Snowflake account: sessions of users, and system functions.

A user has two places for a public key: one is in use, the other is for the next key.
"""

from __future__ import annotations

import json
from typing import Any

from calve.config.publishing import Snowflake
from calve.errors import ConfigError
from calve.secrets import read_secret, value_of
from lambdas.snowflake.sql import call, name, options
from lambdas.snowflake.sql_api import KeyPair, Session

PRIVATE_KEY = "private_key"


def administrator(config: Snowflake) -> Session:
    """The administrator's session.

    Raises:
        ConfigError: the secret does not exist, or holds no private key.
        Retryable: Secrets Manager does not answer.
    """
    return _session(config, config.user, config.secret, config.admin_role)


def service(config: Snowflake, secret: str) -> Session:
    """The session of the deployment's user; `secret`: ARN of its key. Raises as `administrator`."""
    return _session(config, config.service_user, f"aws:{secret}", config.publisher)


def _session(config: Snowflake, user: str, reference: str, role: str) -> Session:
    pem = value_of(read_secret(reference), PRIVATE_KEY, reference)
    return Session(config.url, config.account, user, KeyPair.of_pem(pem), role)


def system_status(session: Session, function: str, *arguments: str) -> dict[str, Any]:
    """The JSON object that a system function returns. Raises as `Session.execute`."""
    answer = json.loads(session.value(call(function, *arguments)))
    return answer if isinstance(answer, dict) else {}


def properties(session: Session, kind: str, *parts: str) -> dict[str, str]:
    """The properties from `DESC`: name -> value. Raises as `Session.execute`."""
    rows = session.execute(f"DESC {kind} {name(*parts)}")
    return {str(row["property"]): row.get("property_value", row.get("value")) or "" for row in rows}


SLOTS = ("RSA_PUBLIC_KEY", "RSA_PUBLIC_KEY_2")


def register(session: Session, user: str, new: KeyPair, *, kept: KeyPair | None = None) -> bool:
    """Give a user a key, unless it has it. The place of the key `keep` is not changed.

    Raises: as `Session.execute`.
    """
    said = properties(session, "USER", user)
    held = {slot: said.get(f"{slot}_FP", "") for slot in SLOTS}
    if new.fingerprint in held.values():
        return False
    free = next(slot for slot in SLOTS if kept is None or held[slot] != kept.fingerprint)
    session.execute(f"ALTER USER {name(user)} SET {options({free: new.public_text})}")
    return True


def first(secret: str, client: Any) -> KeyPair:
    """The pair in a secret; a new pair if the text is none, such as a generated one."""
    held = stored(client.get_secret_value(SecretId=secret)["SecretString"])
    if held is None:
        held = KeyPair.generate()
        client.put_secret_value(SecretId=secret, SecretString=to_store(held))
    return held


def stored(text: str | None) -> KeyPair | None:
    """The pair in a secret's text; None if there is none."""
    try:
        held = json.loads(text or "")
        return KeyPair.of_pem(held[PRIVATE_KEY])
    except (ValueError, KeyError, TypeError, ConfigError):
        return None


def to_store(pair: KeyPair) -> str:
    return json.dumps({PRIVATE_KEY: pair.to_pem()})
