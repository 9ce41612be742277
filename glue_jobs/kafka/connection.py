"""How the job's clients get into a cluster, with the key that holds now; and what errors of kafka-python are in calve's words."""

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
from calve.errors import Fatal, Retryable, Suspended, topic_forbidden, topic_missing
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
        """What clients are made with now; another dialect of `calve.config.kafka_auth` is that of another client.

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


HOPELESS = (UnsupportedSaslMechanismError, IllegalSaslStateError)
NO_TLS = re.compile("CERTIFICATE_VERIFY_FAILED|WRONG_VERSION_NUMBER|ALERT_PROTOCOL_VERSION")
"""In OpenSSL's words: the broker is not who it should be, or speaks otherwise."""
BAD_CERTIFICATE = re.compile("ALERT_[A-Z_]*(CERTIFICATE|UNKNOWN_CA)")
"""In OpenSSL's words: the broker does not take the client's certificate."""


def told(
    error: KafkaError, topic: str | None, servers: str, may_pass: Callable[[], bool] = lambda: True
) -> str:
    """What an error says that may pass.

    may_pass: whether a refused key may. A worker cannot know whether the secret has changed; the driver can.

    Raises:
        Retryable, Suspended, Fatal: there is no use in asking again.
    """
    text = _text(error)
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


def _text(error: KafkaError) -> str:
    """The name of the error, once, and what it says."""
    name, words = type(error).__name__, ": ".join(map(str, error.args))
    return words if words.startswith(name) else f"{name}: {words}" if words else name


def topic_recreated(topic: str, topic_id: str) -> Suspended:
    return Suspended(
        "topic_recreated", f"topic {topic} is no longer the one with the id {topic_id}, which was read"
    )


def offset_lost(topic: str, partition: int, offset: int) -> Suspended:
    return Suspended(
        "offsets_expired", f"topic {topic} no longer holds offset {offset} of partition {partition}"
    )
