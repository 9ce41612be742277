"""A user's RSA key pair, and the tokens that it signs.

https://docs.snowflake.com/en/developer-guide/sql-api/authenticating
"""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import dataclass
from typing import Self

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from calve.errors import ConfigError

BITS = 2048
TOKEN_S = 3300
"""How long a token is valid; Snowflake admits an hour at most, from its own clock."""


@dataclass(frozen=True, slots=True, repr=False)
class KeyPair:
    """An RSA key pair; its `repr` shows nothing of it."""

    private: rsa.RSAPrivateKey

    @classmethod
    def generate(cls) -> Self:
        return cls(rsa.generate_private_key(public_exponent=65537, key_size=BITS))

    @classmethod
    def of_pem(cls, pem: str) -> Self:
        """The pair of an unencrypted private key in PEM.

        Raises:
            ConfigError: it is none.
        """
        try:
            key = serialization.load_pem_private_key(pem.encode(), password=None)
        except (ValueError, TypeError, UnsupportedAlgorithm):
            key = None
        if not isinstance(
            key, rsa.RSAPrivateKey
        ):  # outside the handler: the library's error may quote the key
            raise ConfigError(
                "the private key for Snowflake is no unencrypted RSA key in PEM",
                fix="openssl genrsa 2048 | openssl pkcs8 -topk8 -nocrypt -out key.p8, and put its text into the secret",
            )
        return cls(key)

    def to_pem(self) -> str:
        return self.private.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ).decode()

    @property
    def public_text(self) -> str:
        """The public key as `ALTER USER ... SET RSA_PUBLIC_KEY` takes it: PEM without its first and last line."""
        return base64.b64encode(self._public_der()).decode()

    @property
    def fingerprint(self) -> str:
        """As `DESC USER` shows it: `SHA256:...`."""
        return "SHA256:" + base64.b64encode(hashlib.sha256(self._public_der()).digest()).decode()

    def token(self, account: str, user: str, *, now_s: int) -> str:
        """A JWT by which the user logs in to the account."""
        subject = f"{account_name(account)}.{user.upper()}"
        claims = {
            "iss": f"{subject}.{self.fingerprint}",
            "sub": subject,
            "iat": now_s,
            "exp": now_s + TOKEN_S,
        }
        signed = f"{_encoded({'alg': 'RS256', 'typ': 'JWT'})}.{_encoded(claims)}"
        signature = self.private.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256())
        return f"{signed}.{_base64url(signature)}"

    def _public_der(self) -> bytes:
        return self.private.public_key().public_bytes(
            serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        )


def account_name(account: str) -> str:
    """An account identifier as tokens name it: in capitals, a locator without its region."""
    return account.partition(".")[0].upper()


def _encoded(part: dict[str, object]) -> str:
    return _base64url(json.dumps(part, separators=(",", ":")).encode())


def _base64url(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()
