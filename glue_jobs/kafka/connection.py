"""How the job's clients get into a cluster, with the key that holds now."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass

from calve.job import Kafka
from calve.kafka_auth import java_properties
from calve.secrets import HeldSecret, Redacted

TIMEOUT_MS = 30_000

Dialect = Callable[[Kafka, Redacted | None], Redacted]


@dataclass(frozen=True, slots=True)
class Access:
    """What clients are made with. `key`: names the key in it, in this connection and in no other."""

    properties: Redacted
    key: str

    @property
    def options(self) -> dict[str, str]:
        """The same for Spark's sink."""
        return Redacted({f"kafka.{name}": value for name, value in self.properties.items()})


class Connection:
    """The way into a cluster, with the secret as it is now; safe to share between threads."""

    def __init__(self, kafka: Kafka) -> None:
        self._kafka = kafka
        self._secret = HeldSecret(kafka.secret) if kafka.secret else None
        self._name = uuid.uuid4().hex[:8]

    def access(self, dialect: Dialect = java_properties) -> Access:
        """What clients are made with now; another dialect of `calve.kafka_auth` is that of another client.

        Raises:
            ConfigError, Retryable: as `java_properties` and `read_secret`.
        """
        if self._secret is None:
            return Access(dialect(self._kafka, None), self._name)
        held = self._secret.current()
        return Access(dialect(self._kafka, held.texts), f"{self._name}-{held.number}")

    def doubted(self) -> None:
        """A round has failed: if that was for the key, the next one has the new key."""
        if self._secret:
            self._secret.doubted()

    def refused(self) -> bool:
        """Whether it may pass that Kafka refuses the key (`HeldSecret.refused`)."""
        return self._secret is not None and self._secret.refused()
