"""Secrets, fetched by reference at the moment of use: `env:NAME`, `file:PATH`, `aws:SECRET_ID`.

A secret is a JSON object of texts: `username` and `password`, or `certificate` and `key` in PEM; `calve.masking` has one that
holds a list of keys. No message and no `repr` holds a value.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

from calve.errors import ConfigError, Retryable

if TYPE_CHECKING:
    from collections.abc import Mapping

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

    Raises:
        ConfigError: there is no such secret, or it may not be read.
        Retryable: AWS Secrets Manager did not answer.
    """
    kind, _, name = reference.partition(":")
    match kind:
        case "env":
            return _from_environment(name, example)
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


def _from_environment(name: str, example: str) -> str:
    text = os.environ.get(name)
    if not text:
        raise ConfigError(
            f"the environment variable {name} of the secret env:{name} is not set",
            fix=f"export {name}='{example}'",
        )
    return text


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
