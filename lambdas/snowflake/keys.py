"""The two places for a public key that a user of Snowflake has. One is in use, the other is free for its successor."""

from __future__ import annotations

import json
from typing import Any

from calve.errors import ConfigError
from lambdas.snowflake.account import PRIVATE_KEY, properties
from lambdas.snowflake.key_pair import KeyPair
from lambdas.snowflake.sql import name, options
from lambdas.snowflake.sql_api import Session

SLOTS = ("RSA_PUBLIC_KEY", "RSA_PUBLIC_KEY_2")


def register(session: Session, user: str, new: KeyPair, *, kept: KeyPair | None = None) -> bool:
    """Give a user a key, unless it has it; the place of the key that is to be kept stays as it is.

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
    """The pair that a secret holds; a text that is none, such as a generated one, gives way to a new pair."""
    held = stored(client.get_secret_value(SecretId=secret)["SecretString"])
    if held is None:
        held = KeyPair.generate()
        client.put_secret_value(SecretId=secret, SecretString=to_store(held))
    return held


def stored(text: str | None) -> KeyPair | None:
    """The pair in a secret's text; None where there is none."""
    try:
        held = json.loads(text or "")
        return KeyPair.of_pem(held[PRIVATE_KEY])
    except (ValueError, KeyError, TypeError, ConfigError):
        return None


def to_store(pair: KeyPair) -> str:
    return json.dumps({PRIVATE_KEY: pair.to_pem()})
