"""The four steps of Secrets Manager's rotation, for any secret; a `Subject` does the work.

A step may crash anywhere and is then repeated. Nobody reads a new version before it was tested.
https://docs.aws.amazon.com/secretsmanager/latest/userguide/rotate-secrets_lambda-functions.html
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

from aws_lambda_powertools import Logger, Tracer
from aws_lambda_powertools.utilities.data_classes import event_source
from aws_lambda_powertools.utilities.data_classes.secrets_manager_event import SecretsManagerEvent
from aws_lambda_powertools.utilities.typing import LambdaContext

from calve.errors import CalveError, Fatal
from calve.secrets import EXAMPLE, Redacted

Handler = Callable[[Any, LambdaContext], None]

SUFFIX = re.compile(r"-[A-Za-z0-9]{6}")
"""The characters that AWS adds to a secret's name in its ARN."""


class Subject:
    """The system that a secret's versions open. Every method can be repeated, also after a crash halfway.

    `current`: the text of the version in use; None if there is none.
    """

    def create(self, version: str, current: str | None) -> str:
        """The text of a new version. `version`: its id, by which things created for it can be found."""
        raise NotImplementedError

    def set(self, pending: str, current: str | None) -> None:
        """Register the new version; the one in use stays valid."""

    def test(self, pending: str, current: str | None) -> None:
        """Use the new version. Raises Retryable, Fatal: it does not work, so it is not put into use."""
        raise NotImplementedError

    def finished(self, current: str) -> None:
        """The new version is in use: delete older ones, but never the previous one."""


def attempt(
    use: Callable[[], object],
    attempts: int,
    pause_s: float,
    sleep: Callable[[float], None],
    passing: tuple[type[CalveError], ...] = (CalveError,),
) -> None:
    """Call until it raises none of the `passing` errors; the last one is raised. A new key is not known everywhere at once."""
    for left in reversed(range(attempts)):
        try:
            use()
        except passing:
            if not left:
                raise
        else:
            return
        sleep(pause_s)


@dataclass(frozen=True, slots=True)
class Rotation:
    """One secret, by its name or ARN; `client`: of Secrets Manager."""

    secret: str
    subject: Subject
    client: Any

    def step(self, event: SecretsManagerEvent) -> None:
        """Do one step for Secrets Manager.

        Raises:
            Fatal: another secret, a version that is not staged, or an unknown step; or as the subject's.
        """
        _, _, name = event.secret_id.partition(":secret:")
        suffix = name.removeprefix(self.secret)
        named = name.startswith(self.secret) and SUFFIX.fullmatch(suffix)
        if event.secret_id != self.secret and not named:
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
                if not self._text(VersionId=version):
                    self.client.put_secret_value(
                        SecretId=self.secret,
                        ClientRequestToken=version,
                        SecretString=self.subject.create(version, self.current()),
                        VersionStages=["AWSPENDING"],
                    )
            case "setSecret":
                self.subject.set(self._needed(version), self.current())
            case "testSecret":  # a new schedule is tested by this step, with an empty version
                current = self.current()
                self.subject.test(self._text(VersionId=version) or current or self._needed(version), current)
            case "finishSecret":
                new = self._needed(version)
                old = next((each for each, names in stages.items() if "AWSCURRENT" in names), None)
                moved = {"RemoveFromVersionId": old} if old else {}
                self.client.update_secret_version_stage(
                    SecretId=self.secret, VersionStage="AWSCURRENT", MoveToVersionId=version, **moved
                )
                self.subject.finished(new)
            case _:
                raise Fatal(f'"{name}" is no step of a rotation')

    def current(self) -> str | None:
        """The text in use; None if there is none."""
        return self._text(VersionStage="AWSCURRENT")

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
    """A handler that does one step. rotation: called at the first request."""

    @logger.inject_lambda_context(log_event=False)
    @tracer.capture_lambda_handler(capture_response=False)
    @event_source(data_class=SecretsManagerEvent)
    def rotate(event: SecretsManagerEvent, context: LambdaContext) -> None:
        rotation().step(event)
        logger.info("keys.rotation", extra={"step": event.step})

    return cast(Handler, rotate)


def credentials_of(text: str | None) -> Redacted:
    """The credentials in a version of the secret. Raises Fatal: it holds no user."""
    try:
        raw = json.loads(text or "")
        known = bool(raw["username"] and raw["password"])
    except (ValueError, TypeError, KeyError):
        raw, known = {}, False
    if not known:  # outside the handler: a JSON error contains its input
        raise Fatal("the secret holds no user yet", fix=f"write the first one: {EXAMPLE}")
    return Redacted(raw)
