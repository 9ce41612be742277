"""Snowflake's SQL API: one statement at a time, authenticated by a token that an RSA key pair signs; and the keys of users.

A statement has an id of our own. If its answer is lost, it is sent again under that id, and Snowflake does not run it twice.
A user has two places for a public key: one is in use, the other is for the next key.
https://docs.snowflake.com/en/developer-guide/sql-api/reference and .../sql-api/authenticating
"""

from __future__ import annotations

import base64
import hashlib
import json
import time
import uuid
from dataclasses import dataclass, field
from typing import Any, Self

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from calve import http_client
from calve.config.publishing import Snowflake
from calve.errors import CalveError, ConfigError, Fatal, Retryable
from calve.secrets import read_secret, value_of
from lambdas.snowflake.sql import call, name, options

BITS = 2048
TOKEN_S = 3300
"""How long a token is valid; Snowflake's limit is an hour, by its own clock."""


@dataclass(frozen=True, slots=True, repr=False)
class KeyPair:
    """An RSA key pair; its `repr` shows nothing."""

    private: rsa.RSAPrivateKey

    @classmethod
    def generate(cls) -> Self:
        return cls(rsa.generate_private_key(public_exponent=65537, key_size=BITS))

    @classmethod
    def of_pem(cls, pem: str) -> Self:
        """The pair of an unencrypted private key in PEM. Raises ConfigError: it is not a private key."""
        try:
            key = serialization.load_pem_private_key(pem.encode(), password=None)
        except (ValueError, TypeError, UnsupportedAlgorithm):
            key = None
        # Raised outside the handler: the library's error may quote the key.
        if not isinstance(key, rsa.RSAPrivateKey):
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
        """The public key for `ALTER USER ... SET RSA_PUBLIC_KEY`: PEM without its first and last line."""
        return base64.b64encode(self._public_der()).decode()

    @property
    def fingerprint(self) -> str:
        """As in `DESC USER`: `SHA256:...`."""
        return "SHA256:" + base64.b64encode(hashlib.sha256(self._public_der()).digest()).decode()

    def token(self, account: str, user: str, *, now_s: int) -> str:
        """A JSON Web Token (RFC 7519)."""
        subject = f"{account_name(account)}.{user.upper()}"
        issuer = f"{subject}.{self.fingerprint}"
        header = {"alg": "RS256", "typ": "JWT"}
        claims = {"iss": issuer, "sub": subject, "iat": now_s, "exp": now_s + TOKEN_S}
        signed = ".".join(_base64url(json.dumps(part).encode()) for part in (header, claims))
        signature = self.private.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256())
        return f"{signed}.{_base64url(signature)}"

    def _public_der(self) -> bytes:
        return self.private.public_key().public_bytes(
            serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        )


def account_name(account: str) -> str:
    """An account identifier as in tokens: upper case, a locator without its region."""
    return account.partition(".")[0].upper()


def _base64url(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


TIMEOUT_S = 60
ATTEMPTS = 6
FIRST_PAUSE_S = 0.2
LONGEST_PAUSE_S = 5.0
LONGEST_S = 120.0
"""The time limit of one statement."""
OVERLOADED = {408, 429, 500, 502, 503, 504}

Row = dict[str, str | None]


class Refused(CalveError):
    """Snowflake refuses the statement; message, `code` and `state` (SQLSTATE) are Snowflake's."""

    def __init__(self, message: str, code: str, state: str) -> None:
        super().__init__(message)
        self.code = code
        self.state = state

    @property
    def absent(self) -> bool:
        """Whether the object does not exist, or is not visible: Snowflake does not distinguish them."""
        return self.state == "02000" or self.code in {"002003", "002043"}


@dataclass(slots=True)
class Session:
    """A user of an account, in one role. It holds no connection; a token is renewed after half of its lifetime."""

    url: str
    account: str
    user: str
    key: KeyPair
    role: str
    _token: str = field(default="", repr=False)
    _signed_s: float = 0.0

    def execute(self, sql: str) -> list[Row]:
        """Run a statement; returns its rows, by column name.

        Raises:
            Refused: Snowflake refuses it.
            Retryable: it does not answer, is overloaded, or takes too long.
            Fatal: unknown user or key.
        """
        statement = {"statement": sql, "timeout": TIMEOUT_S, "role": self.role}
        deadline = time.monotonic() + LONGEST_S
        status, answer = self._ask(f"?requestId={uuid.uuid4()}", statement)
        pause_s = FIRST_PAUSE_S
        while status == 202:
            if time.monotonic() > deadline:
                raise Retryable(f"Snowflake took more than {LONGEST_S:.0f} s for one statement")
            time.sleep(pause_s)
            pause_s = min(pause_s * 2, LONGEST_PAUSE_S)
            status, answer = self._ask(f"/{answer['statementHandle']}")
        described = answer.get("resultSetMetaData", {})
        names = [each["name"] for each in described.get("rowType", [])]
        data = list(answer.get("data") or [])
        for number in range(1, len(described.get("partitionInfo", []))):
            data += self._ask(f"/{answer['statementHandle']}?partition={number}")[1]["data"]
        return [dict(zip(names, row, strict=True)) for row in data]

    def value(self, sql: str) -> str:
        """The single value of a statement's result; empty if it is null."""
        (row,) = self.execute(sql)
        (value,) = row.values()
        return value or ""

    def _ask(self, path: str, statement: dict[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
        """Repeat until there is a final answer; waits if Snowflake is overloaded or does not answer."""
        why, renewed, url = "", False, f"{self.url}/api/v2/statements{path}"
        for attempt in range(ATTEMPTS):
            if attempt:
                time.sleep(min(FIRST_PAUSE_S * 2**attempt, LONGEST_PAUSE_S))
            again = "&retry=true" if statement and attempt else ""
            try:
                status, answer = self._send(url + again, statement)
            except http_client.NoAnswer as error:
                why = error.message
                continue
            if status in (200, 202):
                return status, answer
            if status == 401 and not renewed:
                self._token, renewed = "", True
                continue
            if status not in OVERLOADED:
                raise _refusal(status, answer, self.user)
            why = f"Snowflake answered HTTP {status}"
        raise Retryable(f"{why}, {ATTEMPTS} times in a row")

    def _send(self, url: str, statement: dict[str, Any] | None) -> tuple[int, dict[str, Any]]:
        kind = {"X-Snowflake-Authorization-Token-Type": "KEYPAIR_JWT", "User-Agent": "calve"}
        answer = http_client.send_json(
            url,
            statement,
            server="Snowflake",
            method="POST" if statement else "GET",
            headers=http_client.bearer(self._current_token()) | kind,
            timeout_s=TIMEOUT_S,
        )
        try:
            found = answer.json()
        except http_client.NoAnswer:
            if answer.status < 300:
                raise
            found = {}  # the status of a refusal says enough
        return answer.status, found if isinstance(found, dict) else {}

    def _current_token(self) -> str:
        now_s = time.time()
        if not self._token or now_s - self._signed_s > TOKEN_S / 2:
            self._signed_s = now_s
            self._token = self.key.token(self.account, self.user, now_s=int(now_s))
        return self._token


def _refusal(status: int, answer: dict[str, Any], user: str) -> CalveError:
    said = str(answer.get("message") or f"HTTP {status}")
    if status in (401, 403):
        fix = "compare the fingerprint of the secret's key with DESC USER, and the network policies"
        return Fatal(f"Snowflake does not let {user} in: {said}", fix=fix)
    return Refused(f"Snowflake: {said}", str(answer.get("code", "")), str(answer.get("sqlState", "")))


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
