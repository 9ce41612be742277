"""What errors of kafka-python are in calve's words."""

from __future__ import annotations

import re
from collections.abc import Callable

from kafka.errors import (
    AuthorizationError,
    IllegalSaslStateError,
    KafkaError,
    SaslAuthenticationFailedError,
    UnknownTopicOrPartitionError,
    UnsupportedSaslMechanismError,
)

from calve.errors import Fatal, Retryable, Suspended, topic_forbidden, topic_missing

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
