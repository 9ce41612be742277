"""The signed token of a link: its id and expiry.

`base64url(payload) "." base64url(HMAC-SHA256(key, payload))` with payload = version (1 byte), link id (16), expiry in epoch
seconds (8, big endian), key id (ASCII). A check needs no I/O except to read the keys.
The signing keys come from Secrets Manager, and are cached for a few minutes.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import math
import re
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Self

from aws_lambda_powertools.utilities.parameters import SecretsProvider

VERSION = 1
ID_BYTES = 16
KEY_BYTES = 32
MAX_LENGTH = 256
_HEAD = 1 + ID_BYTES + 8
_TOKEN = re.compile(r"([A-Za-z0-9_-]{34,100})\.([A-Za-z0-9_-]{43})", re.ASCII)
_KEY_ID = re.compile(r"k[1-9][0-9]{0,8}", re.ASCII)
_ABSENT = secrets.token_bytes(KEY_BYTES)


class BadKeys(ValueError):
    """A secret without valid keys; the message never quotes it."""


@dataclass(frozen=True, slots=True)
class Keys:
    """The signing keys by id, at most two; new tokens are signed with `current`."""

    current: str
    keys: dict[str, bytes] = field(repr=False)

    @classmethod
    def first(cls) -> Self:
        return cls("k1", {"k1": secrets.token_bytes(KEY_BYTES)})

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read the secret's JSON: `{"current": "k2", "keys": {"k1": "<base64>", "k2": "<base64>"}}`."""
        try:
            raw = json.loads(text)
            keys = {name: base64.b64decode(key, validate=True) for name, key in raw["keys"].items()}
            current = str(raw["current"])
        except (ValueError, TypeError, KeyError, AttributeError):
            keys, current = {}, ""
        if current not in keys or not all(
            _KEY_ID.fullmatch(name) and len(key) == KEY_BYTES for name, key in keys.items()
        ):
            # Raised outside the handler: a JSON error contains its input.
            raise BadKeys("the secret of the link keys holds no keys")
        return cls(current, keys)

    def to_json(self) -> str:
        coded = {name: base64.b64encode(key).decode() for name, key in self.keys.items()}
        return json.dumps({"current": self.current, "keys": coded})

    def rotated(self) -> Self:
        """A new current key beside the previous one; older ones are invalid."""
        name = f"k{1 + max(int(each[1:]) for each in self.keys)}"
        return type(self)(name, {self.current: self.keys[self.current], name: secrets.token_bytes(KEY_BYTES)})


@dataclass(frozen=True, slots=True)
class Claim:
    """The content of a token; trustworthy only if `verify` returned it."""

    link_id: str
    key_id: str
    expires_at: int


def new_link_id() -> str:
    """A random id; alone it opens nothing. A command would take one that begins with a hyphen for an option."""
    while (made := _encode(secrets.token_bytes(ID_BYTES))).startswith("-"):
        pass
    return made


def sign(keys: Keys, link_id: str, expires_at: int) -> str:
    payload = bytes([VERSION]) + _decode(link_id) + expires_at.to_bytes(8, "big") + keys.current.encode()
    return f"{_encode(payload)}.{_encode(_mac(keys.keys[keys.current], payload))}"


def key_id_of(token: str) -> str | None:
    """The key that a token names, not verified; None if the token is malformed."""
    parsed = _parse(token)
    return parsed[0].key_id if parsed else None


def verify(keys: Keys, token: str, *, now: float) -> Claim | None:
    """The content of a token, if one of the keys signed it and it has not expired.

    A link has exactly one valid token: base64url with other spare bits, padding or foreign characters is refused. An unknown key
    costs the same work as a wrong MAC.
    """
    parsed = _parse(token)
    if parsed is None:
        return None
    claim, payload, mac = parsed
    signed = hmac.compare_digest(_mac(keys.keys.get(claim.key_id, _ABSENT), payload), mac)
    return claim if signed and claim.key_id in keys.keys and now < claim.expires_at else None


def reference(link_id: str) -> str:
    """How logs name a link: a hash, from which the id cannot be found."""
    return hashlib.sha256(link_id.encode()).hexdigest()[:12]


def _parse(token: str) -> tuple[Claim, bytes, bytes] | None:
    match = _TOKEN.fullmatch(token) if len(token) <= MAX_LENGTH else None
    if match is None:
        return None
    try:
        payload, mac = (_decode(part) for part in match.groups())
        key_id = payload[_HEAD:].decode("ascii")
    except (binascii.Error, UnicodeDecodeError):
        return None
    canonical = (_encode(payload), _encode(mac)) == match.groups()
    if not canonical or payload[0] != VERSION or not _KEY_ID.fullmatch(key_id):
        return None
    claim = Claim(
        _encode(payload[1 : 1 + ID_BYTES]), key_id, int.from_bytes(payload[1 + ID_BYTES : _HEAD], "big")
    )
    return claim, payload, mac


def _mac(key: bytes, payload: bytes) -> bytes:
    return hmac.digest(key, payload, "sha256")


def _encode(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def _decode(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


MAX_AGE_S = 300
REREAD_S = 60.0


class Keyring:
    """Reads the keys when they are needed.

    An unknown key id (after a rotation) causes one early read, at most one a minute: invented key ids cannot put load on Secrets
    Manager.
    """

    def __init__(
        self, secret: str, provider: SecretsProvider, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._secret = secret
        self._provider = provider
        self._clock = clock
        self._reread_at = -math.inf

    def keys(self, *, fresh: bool = False) -> Keys:
        text = self._provider.get(
            self._secret, max_age=MAX_AGE_S, force_fetch=fresh, VersionStage="AWSCURRENT"
        )
        return Keys.parse(str(text))

    def verify(self, token: str, *, now: float) -> Claim | None:
        """As `tokens.verify`; a malformed token does not read the keys."""
        key_id = key_id_of(token)
        if key_id is None:
            return None
        keys, read_at = self.keys(), self._clock()
        if key_id not in keys.keys and read_at - self._reread_at >= REREAD_S:
            self._reread_at = read_at
            keys = self.keys(fresh=True)
        return verify(keys, token, now=now)
