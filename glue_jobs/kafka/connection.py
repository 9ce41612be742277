"""How the job's clients get into a cluster, with the key that holds now."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JError

from calve.held_secret import HeldSecret
from calve.job import Kafka
from calve.kafka_auth import java_properties
from calve.secrets import Redacted

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
    """One AdminClient, made anew when the secret has changed; safe to share between threads.

    Raises:
        ConfigError, Retryable: as `java_properties` and `read_secret`.
    """

    def __init__(self, jvm: Any, kafka: Kafka) -> None:
        self._jvm = jvm
        self._kafka = kafka
        self._secret = HeldSecret(kafka.secret) if kafka.secret else None
        self._name = uuid.uuid4().hex[:8]
        self._lock = threading.Lock()
        self._admin: Any = None
        self._made_with: str | None = None

    def access(self, dialect: Dialect = java_properties) -> Access:
        """What clients are made with now; another dialect of `calve.kafka_auth` is that of another client."""
        if self._secret is None:
            return Access(dialect(self._kafka, None), self._name)
        held = self._secret.current()
        return Access(dialect(self._kafka, held.texts), f"{self._name}-{held.number}")

    def admin(self) -> Any:
        """Java's AdminClient. Threads that still ask the one before get their answers."""
        access = self.access()
        with self._lock:
            if access.key == self._made_with:
                return self._admin
            before, self._admin = self._admin, self._client(access)
            self._made_with = access.key
            now = self._admin
        if before is not None:
            before.close(self._jvm.java.time.Duration.ofMillis(TIMEOUT_MS))
        return now

    def doubted(self) -> None:
        """A round has failed: if that was for the key, the next one has the new key."""
        if self._secret:
            self._secret.doubted()

    def refused(self) -> bool:
        """Whether it may pass that Kafka refuses the key (`HeldSecret.refused`)."""
        return self._secret is not None and self._secret.refused()

    def close(self) -> None:
        with suppress(Py4JError, ConnectionError):  # the JVM may have ended first
            if self._admin is not None:
                self._admin.close(self._jvm.java.time.Duration.ofSeconds(5))

    def _client(self, access: Access) -> Any:
        settings = self._jvm.java.util.Properties()
        timeouts = {"request.timeout.ms": str(TIMEOUT_MS // 2), "default.api.timeout.ms": str(TIMEOUT_MS)}
        for name, value in (timeouts | dict(access.properties)).items():
            settings.setProperty(name, value)
        return self._jvm.org.apache.kafka.clients.admin.AdminClient.create(settings)
