"""Tokens of key pairs, checked as Snowflake checks them; none of this is shared with what signs them."""

from __future__ import annotations

import base64
import json
import time
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from tests.standins.snowflake.account import Account

LONGEST_S = 3600
SKEW_S = 60


class Unauthorized(Exception):
    """The token lets nobody in."""


def user_of(token: str, account: Account) -> str:
    """The user whom a token lets in.

    Raises:
        Unauthorized: it is none, is expired, is signed by a key that the user does not have, or names somebody else.
    """
    try:
        header, claims, signature = token.split(".")
        if _part(header) != {"alg": "RS256", "typ": "JWT"}:
            raise Unauthorized("algorithm")
        said = _part(claims)
        name, user, key = str(said["iss"]).split(".")
        signed = f"{header}.{claims}".encode()
        issued, expires = int(said["iat"]), int(said["exp"])
    except (ValueError, KeyError):
        raise Unauthorized("form") from None
    if name != account.name or said["sub"] != f"{name}.{user}":
        raise Unauthorized("subject")
    now = time.time()
    if not issued - SKEW_S <= now < expires or expires - issued > LONGEST_S:
        raise Unauthorized("expired")
    registered = account.public_keys(user).get(key)
    if registered is None:
        raise Unauthorized("fingerprint")
    public = serialization.load_der_public_key(base64.b64decode(registered))
    if not isinstance(public, rsa.RSAPublicKey):
        raise Unauthorized("key")
    try:
        public.verify(_bytes(signature), signed, padding.PKCS1v15(), hashes.SHA256())
    except InvalidSignature:
        raise Unauthorized("signature") from None
    return user


def _part(text: str) -> dict[str, Any]:
    parsed: dict[str, Any] = json.loads(_bytes(text))
    return parsed


def _bytes(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
