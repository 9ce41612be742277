"""The four steps of Secrets Manager's rotation, for any secret; what they do is its subject's.

A step may die anywhere and is then done again, by whoever is asked next. Nobody reads a new version before it has been tested.
https://docs.aws.amazon.com/secretsmanager/latest/userguide/rotate-secrets_lambda-functions.html
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, cast

from aws_lambda_powertools import Logger, Tracer
from aws_lambda_powertools.utilities.data_classes import event_source
from aws_lambda_powertools.utilities.data_classes.secrets_manager_event import SecretsManagerEvent
from aws_lambda_powertools.utilities.typing import LambdaContext

from calve.errors import Fatal
from calve.secrets import EXAMPLE, Redacted

Handler = Callable[[Any, LambdaContext], None]

SUFFIX = re.compile(r"-[A-Za-z0-9]{6}")
"""What AWS puts behind a secret's name in its ARN."""


class Subject(Protocol):
    """What a secret's versions are to somebody else. Each of its methods may be called again, also after it died halfway.

    `current` is the text of the version in use; None where there is none.
    """

    def create(self, version: str, current: str | None) -> str:
        """The text of a new version. `version` is its id: what is made for it elsewhere can be found by it."""
        ...

    def set(self, pending: str, current: str | None) -> None:
        """Make the new version known to whom it is shown; the one in use stays valid."""
        ...

    def test(self, pending: str, current: str | None) -> None:
        """Use the new version.

        Raises:
            Retryable, Fatal: it does not work, and so does not come into use.
        """
        ...

    def finished(self, current: str) -> None:
        """The new version is in use now: clear away what nobody needs any more, never what was in use until now."""
        ...


@dataclass(frozen=True, slots=True)
class Rotation:
    """One secret, by its name or ARN; `client` is Secrets Manager's."""

    secret: str
    subject: Subject
    client: Any

    def step(self, event: SecretsManagerEvent) -> None:
        """Do what Secrets Manager asks for.

        Raises:
            Fatal: it is another secret, the version is not staged, or the step is unknown; or as the subject's.
        """
        if not _names(event.secret_id, self.secret):
            raise Fatal(f"this function rotates {self.secret} alone")
        name, version = event.step, event.client_request_token
        stages = self.client.describe_secret(SecretId=self.secret)["VersionIdsToStages"]
        if "AWSCURRENT" in stages.get(version, ()):
            if name == "finishSecret":
                self.subject.finished(self._needed(version))
            return
        if "AWSPENDING" not in stages.get(version, ()):
            raise Fatal(f"version {version} of {self.secret} is not staged for rotation")
        match name:
            case "createSecret":
                self._create(version)
            case "setSecret":
                self.subject.set(self._needed(version), self.current())
            case (
                "testSecret"
            ):  # a schedule that is made is tested by this step alone, for a version that holds nothing
                current = self.current()
                self.subject.test(self._text(VersionId=version) or current or self._needed(version), current)
            case "finishSecret":
                new = self._needed(version)
                self._move(version, stages)
                self.subject.finished(new)
            case _:
                raise Fatal(f'"{name}" is no step of a rotation')

    def current(self) -> str | None:
        """The text in use; None where there is none."""
        return self._text(VersionStage="AWSCURRENT")

    def put(self, text: str) -> None:
        """Bring a text into use at once: the first one of all."""
        self.client.put_secret_value(SecretId=self.secret, SecretString=text)

    def _create(self, version: str) -> None:
        if self._text(VersionId=version):
            return
        self.client.put_secret_value(
            SecretId=self.secret,
            ClientRequestToken=version,
            SecretString=self.subject.create(version, self.current()),
            VersionStages=["AWSPENDING"],
        )

    def _move(self, version: str, stages: dict[str, list[str]]) -> None:
        old = next((each for each, names in stages.items() if "AWSCURRENT" in names), None)
        moved = {"RemoveFromVersionId": old} if old else {}
        self.client.update_secret_version_stage(
            SecretId=self.secret, VersionStage="AWSCURRENT", MoveToVersionId=version, **moved
        )

    def _needed(self, version: str) -> str:
        if text := self._text(VersionId=version):
            return text
        raise Fatal(f"version {version} of {self.secret} has not been created")

    def _text(self, **which: str) -> str | None:
        try:
            answer = self.client.get_secret_value(SecretId=self.secret, **which)
        except self.client.exceptions.ResourceNotFoundException:
            return None
        return str(answer.get("SecretString", ""))


def handler_of(rotation: Callable[[], Rotation], logger: Logger, tracer: Tracer) -> Handler:
    """A function that does the step which Secrets Manager asks for. rotation: is made with the first request."""

    @logger.inject_lambda_context(log_event=False)
    @tracer.capture_lambda_handler(capture_response=False)
    @event_source(data_class=SecretsManagerEvent)
    def rotate(event: SecretsManagerEvent, context: LambdaContext) -> None:
        rotation().step(event)
        logger.info("keys.rotation", extra={"step": event.step})

    return cast(Handler, rotate)


def _names(arn: str, secret: str) -> bool:
    """True where `secret` is this ARN, or the name in it."""
    _, _, name = arn.partition(":secret:")
    return arn == secret or (name.startswith(secret) and SUFFIX.fullmatch(name[len(secret) :]) is not None)


def credentials_of(text: str | None) -> Redacted:
    """What a version of the secret holds.

    Raises:
        Fatal: it holds no user.
    """
    try:
        raw = json.loads(text or "")
        known = bool(raw["username"] and raw["password"])
    except (ValueError, TypeError, KeyError):
        raw, known = {}, False
    if not known:  # outside of the handler: a JSON error carries the text that it could not read
        raise Fatal("the secret holds no user yet", fix=f"write the first one: {EXAMPLE}")
    return Redacted(raw)
