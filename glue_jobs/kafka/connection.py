"""The job's access to a cluster with the current credentials, and the translation of kafka-python's errors."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable
from dataclasses import dataclass

from kafka.errors import (
    AuthorizationError,
    IllegalSaslStateError,
    KafkaError,
    SaslAuthenticationFailedError,
    UnknownTopicOrPartitionError,
    UnsupportedSaslMechanismError,
)

from calve.config.job import Kafka
from calve.config.kafka_auth import java_properties
from calve.errors import Fatal, Retryable, topic_forbidden, topic_missing
from calve.secrets import HeldSecret, Redacted

TIMEOUT_MS = 30_000

Dialect = Callable[[Kafka, Redacted | None], Redacted]


@dataclass(frozen=True, slots=True)
class Access:
    """The settings of a client. `key`: identifies the credentials, within this connection only."""

    properties: Redacted
    key: str

    @property
    def options(self) -> dict[str, str]:
        """The same settings for Spark's Kafka sink."""
        return Redacted({f"kafka.{name}": value for name, value in self.properties.items()})


class Connection:
    """Access to a cluster with the current secret. Thread-safe."""

    def __init__(self, kafka: Kafka) -> None:
        self._kafka = kafka
        self._secret = HeldSecret(kafka.secret) if kafka.secret else None
        self._name = uuid.uuid4().hex[:8]

    def access(self, dialect: Dialect = java_properties) -> Access:
        """The current client settings, in a dialect of `calve.config.kafka_auth`; each kind of client has one.

        Raises ConfigError, Retryable: as `java_properties` and `read_secret`.
        """
        if self._secret is None:
            return Access(dialect(self._kafka, None), self._name)
        held = self._secret.current()
        return Access(dialect(self._kafka, held.texts), f"{self._name}-{held.number}")

    def doubted(self) -> None:
        """Call after a failed round: if the credentials were the cause, the next round has the new ones."""
        if self._secret:
            self._secret.doubted()

    def refused(self) -> bool:
        """Whether a refusal of the credentials may be transient (`HeldSecret.refused`)."""
        return self._secret is not None and self._secret.refused()


HOPELESS = (UnsupportedSaslMechanismError, IllegalSaslStateError)
NO_TLS = re.compile("CERTIFICATE_VERIFY_FAILED|WRONG_VERSION_NUMBER|ALERT_PROTOCOL_VERSION")
"""OpenSSL errors: the broker's certificate is wrong, or it does not speak this TLS."""
BAD_CERTIFICATE = re.compile("ALERT_[A-Z_]*(CERTIFICATE|UNKNOWN_CA)")
"""OpenSSL errors: the broker refuses the client's certificate."""


def told(
    error: KafkaError, topic: str | None, servers: str, may_pass: Callable[[], bool] = lambda: True
) -> str:
    """The text of a transient error.

    may_pass: whether a refusal of the credentials may be transient. A worker cannot know whether the secret has changed; the
    driver can. Raises Retryable, Suspended, Fatal: a retry of the request is useless.
    """
    name, words = type(error).__name__, ": ".join(map(str, error.args))
    text = words if words.startswith(name) else f"{name}: {words}" if words else name
    refused = isinstance(error, SaslAuthenticationFailedError) or BAD_CERTIFICATE.search(text)
    if refused and may_pass():
        raise Retryable(f"Kafka at {servers} refused the key: {text}") from None
    if isinstance(error, AuthorizationError) and topic:
        raise topic_forbidden(topic, servers) from None
    if refused or isinstance(error, (*HOPELESS, AuthorizationError)) or NO_TLS.search(text):
        raise Fatal(f"Kafka at {servers} refused: {text}", fix="check kafka.auth in calve.yaml") from None
    if isinstance(error, UnknownTopicOrPartitionError):
        raise topic_missing(topic, servers) from None
    return text
