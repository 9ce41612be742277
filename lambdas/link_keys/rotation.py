"""Makes and rotates the signing keys in Secrets Manager. Two are valid at a time, so a link outlives one rotation, never two."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from calve.errors import Fatal
from lambdas.tokens import BadKeys, Keys, new_link_id, sign, verify

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Settings:
    """The functions' environment."""

    secret: str

    @classmethod
    def read(cls, environment: Mapping[str, str]) -> Self:
        return cls(environment["LINK_KEYS_SECRET"])


@dataclass(frozen=True, slots=True)
class Rotation:
    """The keys' secret; `client` is Secrets Manager's."""

    secret: str
    client: Any

    def make_first(self) -> bool:
        """Write the first key, unless there are keys; a text that is none (a generated one) gives way."""
        if self._current() is not None:
            return False
        self.client.put_secret_value(SecretId=self.secret, SecretString=Keys.first().to_json())
        return True

    def step(self, name: str, version: str) -> None:
        """Do one of the four steps; each may be repeated.

        Raises:
            Fatal: Secrets Manager did not stage this version, or the step is unknown.
        """
        stages = self.client.describe_secret(SecretId=self.secret)["VersionIdsToStages"]
        if "AWSCURRENT" in stages.get(version, ()):
            return
        if "AWSPENDING" not in stages.get(version, ()):
            raise Fatal(f"version {version} of the link keys is not staged for rotation")
        match name:
            case "createSecret":
                self._create(version)
            case "setSecret":
                pass  # the functions read the secret themselves
            case "testSecret":
                self._test(version)
            case "finishSecret":
                self._finish(version, stages)
            case _:
                raise Fatal(f'"{name}" is no step of a rotation')

    def _create(self, version: str) -> None:
        if self._text(VersionId=version, VersionStage="AWSPENDING"):
            return
        current = self._current()
        self.client.put_secret_value(
            SecretId=self.secret,
            ClientRequestToken=version,
            SecretString=(current.rotated() if current else Keys.first()).to_json(),
            VersionStages=["AWSPENDING"],
        )

    def _test(self, version: str) -> None:
        pending = Keys.parse(self._text(VersionId=version, VersionStage="AWSPENDING") or "")
        current = self._current()
        for signing in (pending, current):
            if signing and not verify(pending, sign(signing, new_link_id(), 1), now=0):
                raise Fatal("the new link keys would refuse links that are valid now")

    def _finish(self, version: str, stages: Mapping[str, list[str]]) -> None:
        old = next((each for each, names in stages.items() if "AWSCURRENT" in names), None)
        moved = {"RemoveFromVersionId": old} if old else {}
        self.client.update_secret_version_stage(
            SecretId=self.secret, VersionStage="AWSCURRENT", MoveToVersionId=version, **moved
        )

    def _current(self) -> Keys | None:
        text = self._text(VersionStage="AWSCURRENT")
        try:
            return Keys.parse(text) if text else None
        except BadKeys:
            return None

    def _text(self, **which: str) -> str | None:
        try:
            answer = self.client.get_secret_value(SecretId=self.secret, **which)
        except self.client.exceptions.ResourceNotFoundException:
            return None
        return str(answer.get("SecretString", ""))
