"""What errors of kafka-python are in calve's words; the same words as of Kafka's Java client (`glue_jobs.kafka.cluster`)."""

from __future__ import annotations

from kafka.errors import (
    AuthorizationError,
    IllegalSaslStateError,
    KafkaError,
    SaslAuthenticationFailedError,
    UnknownTopicOrPartitionError,
    UnsupportedSaslMechanismError,
    UnsupportedVersionError,
)

from calve.errors import Fatal, Retryable, Suspended
from calve.topic_errors import topic_forbidden, topic_missing

HOPELESS = (UnsupportedSaslMechanismError, IllegalSaslStateError, UnsupportedVersionError)


def told(error: KafkaError, topic: str, servers: str) -> str:
    """What an error says that may pass.

    A refused key may: only the driver knows whether its secret has changed, and it takes the new one for the next round.

    Raises:
        Retryable, Suspended, Fatal: there is no use in asking again.
    """
    text = str(error)
    if isinstance(error, HOPELESS) or "CERTIFICATE_VERIFY_FAILED" in text:
        raise Fatal(f"Kafka at {servers} refused: {text}", fix="check kafka.auth in calve.yaml") from None
    if isinstance(error, SaslAuthenticationFailedError):
        raise Retryable(f"Kafka at {servers} refused the key: {text}") from None
    if isinstance(error, AuthorizationError):
        raise topic_forbidden(topic, servers) from None
    if isinstance(error, UnknownTopicOrPartitionError):
        raise topic_missing(topic, servers) from None
    return text


def topic_recreated(topic: str, topic_id: str) -> Suspended:
    return Suspended(
        "topic_recreated", f"topic {topic} is no longer the one with the id {topic_id}, which was read"
    )


def offset_lost(topic: str, partition: int, offset: int) -> Suspended:
    return Suspended(
        "offsets_expired", f"topic {topic} no longer holds offset {offset} of partition {partition}"
    )
