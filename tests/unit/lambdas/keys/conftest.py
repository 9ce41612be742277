"""A secret in moto, and deaths of the function that rotates it at any of its calls."""

import itertools
import json
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import boto3
import pytest
from aws_lambda_powertools.utilities.data_classes.secrets_manager_event import SecretsManagerEvent
from moto import mock_aws
from moto.secretsmanager.models import secretsmanager_backends

REGION = "eu-north-1"
STEPS = ("createSecret", "setSecret", "testSecret", "finishSecret")


class Killed(BaseException):
    """The function dies here; nothing catches it."""


@dataclass
class Dying:
    """Passes calls on, and dies before or after one of them, counted over all that share `calls`."""

    behind: Any
    calls: Iterator[int]
    at: int
    after: bool

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.behind, name)
        if not callable(found) or name == "exceptions":
            return found

        def call(*given: Any, **named: Any) -> Any:
            number = next(self.calls)
            if number == self.at and not self.after:
                raise Killed
            try:
                return found(*given, **named)
            finally:
                if number == self.at:
                    raise Killed

        return call


def deaths(most: int = 60) -> Iterator[tuple[Iterator[int], int, bool]]:
    """Every place to die, as `Dying` takes it."""
    for at in range(most):
        for after in (False, True):
            yield itertools.count(), at, after


@dataclass
class Vault:
    """One secret."""

    client: Any
    name: str = "trading/kafka"

    def write(self, **texts: str) -> None:
        self.client.create_secret(Name=self.name, SecretString=json.dumps(texts))

    def staged(self) -> str:
        """What Secrets Manager does before the first step."""
        version = str(uuid.uuid4())
        held = secretsmanager_backends["123456789012"][REGION].secrets[self.name]
        held.versions[version] = {"version_id": version, "version_stages": ["AWSPENDING"], "createdate": 0}
        return version

    def event(self, step: str, version: str) -> SecretsManagerEvent:
        arn = self.client.describe_secret(SecretId=self.name)["ARN"]
        return SecretsManagerEvent({"Step": step, "SecretId": arn, "ClientRequestToken": version})

    def rotate(self, step: Callable[[SecretsManagerEvent], None], version: str | None = None) -> None:
        """All steps, in the order of Secrets Manager."""
        token = version or self.staged()
        for name in STEPS:
            step(self.event(name, token))

    def current(self) -> dict[str, str]:
        answer = self.client.get_secret_value(SecretId=self.name, VersionStage="AWSCURRENT")
        return dict(json.loads(answer["SecretString"]))


@pytest.fixture
def vault(monkeypatch: pytest.MonkeyPatch) -> Iterator[Vault]:
    for name in ("AWS_ENDPOINT_URL", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {
        "AWS_DEFAULT_REGION": REGION,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "POWERTOOLS_TRACE_DISABLED": "true",
    }.items():
        monkeypatch.setenv(name, value)
    with mock_aws():
        yield Vault(boto3.client("secretsmanager"))
