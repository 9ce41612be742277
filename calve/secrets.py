"""Secrets, fetched by reference at the moment of use: `env:NAME`, `file:PATH`, `aws:SECRET_ID`.

A secret is a JSON object of texts: `username` and `password`, or `certificate` and `key` in PEM; `calve.config.masking_keys` has
one that holds a list of keys. No message and no `repr` holds a value.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from calve.errors import CalveError, ConfigError, Retryable
from calve.log import event

EXAMPLE = '{"username": "...", "password": "..."}'
DENIED = {
    "AccessDeniedException",
    "UnrecognizedClientException",
    "InvalidSignatureException",
    "ExpiredTokenException",
}


class Redacted(dict[str, str]):
    """Texts of which some are secret: `repr` shows the keys alone."""

    def __repr__(self) -> str:
        return f"Redacted({', '.join(sorted(self))})"

    __str__ = __repr__

    def __or__(self, more: Mapping[str, str]) -> Redacted:  # type: ignore[override]
        """A union stays redacted; a plain dict's would not."""
        return Redacted({**self, **more})


def read_secret(reference: str) -> Redacted:
    """The texts that a reference stands for.

    Raises:
        ConfigError: there is no such secret, it may not be read, or it is not a JSON object of texts.
        Retryable: AWS Secrets Manager did not answer.
    """
    return _parsed(secret_text(reference, EXAMPLE), reference)


def secret_text(reference: str, example: str) -> str:
    """What a reference stands for, whatever it is; `example`: what should stand there.
    Raises ConfigError: there is no such secret, or it may not be read. Retryable: AWS Secrets Manager did not answer.
    """
    kind, _, name = reference.partition(":")
    match kind:
        case "env":
            if text := os.environ.get(name):
                return text
            raise ConfigError(
                f"the environment variable {name} of the secret env:{name} is not set",
                fix=f"export {name}='{example}'",
            )
        case "file":
            return _from_file(name, example)
        case "aws":
            return _from_aws(name)
    raise ConfigError(
        "a secret's reference has no known kind", fix="use env:NAME, file:PATH or aws:SECRET_ID"
    )


def value_of(secret: Redacted, key: str, reference: str) -> str:
    """One text of a secret; absent or empty is a `ConfigError` that names the key."""
    if value := secret.get(key):
        return value
    raise ConfigError(f'the secret {reference} has no "{key}"', fix=f'add "{key}" to its JSON object')


def catalog_credential(reference: str | None) -> dict[str, str]:
    """The property `credential` of a REST catalog's client, `ID:SECRET`; none without a secret. Raises: as `read_secret`."""
    if reference is None:
        return {}
    found = read_secret(reference)
    return {"credential": ":".join(value_of(found, key, reference) for key in ("client_id", "client_secret"))}


def _from_file(name: str, example: str) -> str:
    try:
        return Path(name).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(
            f"the secret file:{name} does not exist", fix=f"make the file; it holds {example}"
        ) from None
    except UnicodeDecodeError:
        raise ConfigError(f"the secret file:{name} is not UTF-8 text") from None
    except OSError as error:
        raise ConfigError(f"the secret file:{name} cannot be read: {error.strerror}") from None


def _from_aws(name: str) -> str:
    import boto3
    from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError, NoRegionError

    try:
        answer = boto3.client("secretsmanager").get_secret_value(SecretId=name)
    except ClientError as error:
        code = error.response["Error"]["Code"]
        if code == "ResourceNotFoundException":
            raise ConfigError(f"the secret aws:{name} does not exist in this account and region") from None
        if code in DENIED:
            fix = "allow secretsmanager:GetSecretValue (and kms:Decrypt on its key)"
            raise ConfigError(f"the secret aws:{name} may not be read: {code}", fix=fix) from None
        raise Retryable(f"AWS Secrets Manager refused to read the secret aws:{name}: {code}") from None
    except (NoCredentialsError, NoRegionError) as error:
        raise ConfigError(f"the secret aws:{name} cannot be read: {error}") from None
    except BotoCoreError as error:
        raise Retryable(
            f"AWS Secrets Manager did not answer for the secret aws:{name}: {type(error).__name__}"
        ) from None
    text = answer.get("SecretString")
    if text is None:
        raise ConfigError(f"the secret aws:{name} is binary", fix="store it as a SecretString")
    return str(text)


def _parsed(text: str, reference: str) -> Redacted:
    try:
        raw = json.loads(text)
    except ValueError:
        raw = None
    if not isinstance(raw, dict) or not all(isinstance(value, str) for value in raw.values()):
        # Raised outside the handler: a JSON error carries the text that it could not read.
        raise ConfigError(
            f"the secret {reference} is not a JSON object of texts", fix=f"write it as {EXAMPLE}"
        )
    return Redacted(raw)


MAX_AGE_S = 300.0
"""A key that a rotation replaces must stay valid for longer."""
LEAST_AGE_S = 10.0
SPREADING_S = 900.0
"""A new key may be refused for so long before all servers know it: MSK fetches it from Secrets Manager, Confluent Cloud hands it
from one to the next.
"""


@dataclass(frozen=True, slots=True)
class Held:
    """What a secret holds. `number`: how many times it has changed since it was first read."""

    texts: Redacted
    number: int = 0


class HeldSecret:
    """A reference and what it stands for now: read again every few minutes, and when refused. Threads may share it."""

    def __init__(
        self,
        reference: str,
        *,
        read: Callable[[str], Redacted] = read_secret,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.reference = reference
        self._read = read
        self._clock = clock
        self._lock = threading.Lock()
        self._held: Held | None = None
        self._read_at = 0.0
        self._changed_at: float | None = None

    def current(self) -> Held:
        """What it holds, at most some minutes old, or held before if it cannot be read again. Raises as `read_secret`."""
        with self._lock:
            return self._not_older_than(MAX_AGE_S)

    def doubted(self) -> None:
        """Something failed, for which a key that is no longer valid may be the reason: look at it again, but not all the time."""
        with self._lock:
            self._not_older_than(LEAST_AGE_S)

    def refused(self) -> bool:
        """Whether a refusal may pass: the secret has changed, now or a short while ago. Raises as `read_secret`."""
        with self._lock:
            self._look()
            return self._changed_at is not None and self._clock() - self._changed_at < SPREADING_S

    def _not_older_than(self, age_s: float) -> Held:
        held = self._held
        if held is None:
            return self._look()
        if self._clock() - self._read_at < age_s:
            return held
        try:
            return self._look()
        except CalveError as error:
            self._read_at = self._clock()
            event("secret.failed", secret=self.reference, why=error.message)
            return held

    def _look(self) -> Held:
        texts, now, held = self._read(self.reference), self._clock(), self._held
        self._read_at = now
        if held is None:
            held = Held(texts)
        elif texts != held.texts:
            held = Held(texts, held.number + 1)
            self._changed_at = now
            event("secret.changed", secret=self.reference)
        self._held = held
        return held
