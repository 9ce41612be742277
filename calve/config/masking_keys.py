"""The keys that hash personal data, and the choice of the key for a value.

The timestamp of the record chooses the key, not the current time: so a replay, a redrive and other tables make the same token.
To rotate a key, add one whose time begins later. Tokens join within the time of one key.
"""

from __future__ import annotations

import binascii
import hmac
import json
import re
from base64 import b64decode
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any

from calve.errors import ConfigError, Suspended
from calve.secrets import secret_text

EXAMPLE = '{"keys": [{"id": "2026a", "from": "2026-01-01T00:00:00Z", "key": "<base64 of 32 random bytes>"}]}'
LEAST_BYTES = 32
BLOCK_BYTES = 64
"""Of SHA-256. A longer key is hashed before it is padded (RFC 2104)."""
SEAL = b"calve.dead-letters"
FIRST_YEAR_DAY, FIRST_YEAR_US = -2_147_483_456, -9_223_371_158_400_000_000
"""The start of the first full year of dates, or timestamps; Spark fails on earlier values."""

KEY_ID = re.compile(r"[a-z0-9_-]{1,16}")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Key:
    """One version of the key. id: the prefix of its tokens. since_us: the start of its time, in microseconds since epoch."""

    id: str
    since_us: int
    secret: bytes = field(repr=False)

    @property
    def seal(self) -> bytes:
        """The 32-byte key that encrypts dead letters.

        It uses another hash than the tokens: with the same one, a record could contain the text whose token is this key.
        """
        return hmac.digest(self.secret, SEAL, "sha512")[:32]


def read_keys(reference: str) -> tuple[Key, ...]:
    """The keys of a secret, ordered by the start of their time; at least one.

    Raises:
        ConfigError: the secret does not exist, cannot be read, or is invalid; the message does not quote it.
        Retryable: AWS Secrets Manager did not answer.
    """
    problem, keys = _parsed(secret_text(reference, EXAMPLE))
    if problem:
        # Raised outside the handlers: an error of JSON or base64 contains its input.
        raise ConfigError(f"the secret {reference} {problem}", fix=f"write it as {EXAMPLE}")
    return tuple(sorted(keys, key=lambda each: each.since_us))


def newest(keys: Sequence[Key], now_us: int) -> Key:
    """The key at a time: the last of `read_keys` whose time has begun, else the first."""
    begun = [each for each in keys if each.since_us <= now_us]
    return begun[-1] if begun else keys[0]


def hashing(keys: Sequence[Key], masking_key: str | None) -> tuple[Key, ...]:
    """The one of the keys with this id, or all: they make the tokens.

    Raises Suspended: `step_unusable`: no key has the id.
    """
    found = tuple(each for each in keys if masking_key in (None, each.id))
    if not found:
        raise Suspended(
            "step_unusable",
            f"`masking_key` is {masking_key}, and the secret has no key with this id: it has"
            f" {', '.join(each.id for each in keys)}",
            fix="name one of them in calve.yaml, or put the key back into the secret",
        )
    return found


def pads(secret: bytes) -> tuple[bytes, bytes]:
    """The blocks before the data of the inner and of the outer hash."""
    secret = sha256(secret).digest() if len(secret) > BLOCK_BYTES else secret
    block = secret.ljust(BLOCK_BYTES, b"\0")
    return bytes(each ^ 0x36 for each in block), bytes(each ^ 0x5C for each in block)


def _parsed(text: str) -> tuple[str | None, list[Key]]:
    try:
        raw = json.loads(text)
    except (ValueError, RecursionError):
        return "is not JSON", []
    listed = raw.get("keys") if isinstance(raw, dict) else None
    if not isinstance(listed, list) or not listed:
        return 'has no list of "keys"', []
    keys: list[Key] = []
    for place, each in enumerate(listed):
        key = _key(each)
        if isinstance(key, str):
            return f"cannot be used: keys[{place}] {key}", []
        if any(key.id == other.id or key.since_us == other.since_us for other in keys):
            return f'cannot be used: keys[{place}] has the "id" or the "from" of an earlier one', []
        keys.append(key)
    return None, keys


def _key(raw: Any) -> Key | str:
    if not isinstance(raw, dict) or not all(isinstance(raw.get(name), str) for name in ("id", "from", "key")):
        return 'is not an object with the texts "id", "from" and "key"'
    if not KEY_ID.fullmatch(raw["id"]):
        return 'has an "id" that is not of 1 to 16 of a-z, 0-9, _ and -'
    no_time = 'has a "from" that is not a time with a time zone'
    try:
        since = datetime.fromisoformat(raw["from"])
    except ValueError:
        return no_time
    if since.tzinfo is None:
        return no_time
    try:
        secret = b64decode(raw["key"], validate=True)
    except (binascii.Error, ValueError):
        return 'has a "key" that is not base64'
    if len(secret) < LEAST_BYTES:
        return f'has a "key" of less than {LEAST_BYTES} bytes'
    return Key(raw["id"], (since - _EPOCH) // timedelta(microseconds=1), secret)
