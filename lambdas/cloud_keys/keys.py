"""API keys as what a rotation makes: a new one for the owner and the resource of the one in use; the newest stay valid."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass

from calve.errors import CalveError
from calve.secrets import Redacted
from lambdas.cloud_keys.cloud import Cloud, Key
from lambdas.credentials import credentials_of

ATTEMPTS = 40
PAUSE_S = 5.0
"""A new key takes a minute or two until all servers of Confluent Cloud know it."""


@dataclass(frozen=True, slots=True)
class CloudKeys:
    """`lambdas.rotation.Subject`. Keys that it has made have names that begin with `calve` and the secret's name; no other is
    ever deleted.

    use: raises `CalveError` where a key does not open what it is for.
    """

    secret: str
    cloud: Callable[[], Cloud]
    use: Callable[[Redacted], object]
    retain: int
    sleep: Callable[[float], None] = time.sleep

    def create(self, version: str, current: str | None) -> str:
        """Keys that are newer than the one in use have never been in use: their rotation was given up, or this step died before
        it could write down the secret, which is told only once.
        """
        texts, cloud = credentials_of(current), self.cloud()
        in_use = cloud.key(texts["username"])
        for each in self._own(cloud, in_use):
            if each.id != in_use.id and each.created >= in_use.created:
                cloud.delete(each)
        made = cloud.make(f"{self._prefix}{version}", in_use.owner, in_use.resource)
        return json.dumps({**texts, "username": made.id, "password": made.secret})

    def set(self, pending: str, current: str | None) -> None:
        pass

    def test(self, pending: str, current: str | None) -> None:
        key = credentials_of(pending)
        for left in reversed(range(ATTEMPTS)):
            try:
                self.use(key)
            except CalveError:
                if not left:
                    raise
            else:
                return
            self.sleep(PAUSE_S)

    def finished(self, current: str) -> None:
        """Delete the oldest keys; the one that was in use until now is the newest but one."""
        cloud = self.cloud()
        in_use = cloud.key(credentials_of(current)["username"])
        newest = sorted(self._own(cloud, in_use), key=lambda key: key.created, reverse=True)
        for each in newest[self.retain :]:
            if each.id != in_use.id:
                cloud.delete(each)

    def _own(self, cloud: Cloud, in_use: Key) -> list[Key]:
        found = cloud.keys(in_use.owner, in_use.resource)
        return [each for each in found if each.name.startswith(self._prefix)]

    @property
    def _prefix(self) -> str:
        return f"calve {self.secret} "
