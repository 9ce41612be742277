"""Errors of kafka-python in calve's words."""

from __future__ import annotations

import pytest
from kafka.errors import (
    ClusterAuthorizationFailedError,
    KafkaConnectionError,
    KafkaError,
    NotLeaderForPartitionError,
    SaslAuthenticationFailedError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
    UnsupportedSaslMechanismError,
)

from calve.errors import CalveError, Fatal, Retryable, Suspended, TopicMissing
from glue_jobs.kafka.connection import told

ALERT = "[SSL: TLSV13_ALERT_CERTIFICATE_REQUIRED] tlsv13 alert certificate required (_ssl.c:2580)"


@pytest.mark.parametrize(
    ("error", "changed", "lasting"),
    [
        (SaslAuthenticationFailedError("SaslAuthenticationFailedError: wrong"), Retryable, Fatal),
        (KafkaConnectionError(ALERT), Retryable, Fatal),
        (KafkaConnectionError("Handshake failed: [SSL: CERTIFICATE_VERIFY_FAILED]"), Fatal, Fatal),
        (KafkaConnectionError("Handshake failed: [SSL: WRONG_VERSION_NUMBER]"), Fatal, Fatal),
        (UnsupportedSaslMechanismError("PLAIN"), Fatal, Fatal),
        (TopicAuthorizationFailedError("t"), Suspended, Suspended),
        (ClusterAuthorizationFailedError("t"), Suspended, Suspended),
        (UnknownTopicOrPartitionError("t"), TopicMissing, TopicMissing),
    ],
)
def test_what_does_not_pass_is_raised(
    error: KafkaError, changed: type[CalveError], lasting: type[CalveError]
) -> None:
    """A refused key passes where the secret has changed a moment ago."""
    for may_pass, kind in ((True, changed), (False, lasting)):
        with pytest.raises(kind) as raised:
            told(error, "t", "b:9092", lambda may_pass=may_pass: may_pass)  # type: ignore[misc]  # bound in the loop
        assert type(raised.value) is kind
        assert "b:9092" in raised.value.message


def test_of_no_topic_a_refusal_is_the_cluster_s() -> None:
    with pytest.raises(Fatal):
        told(ClusterAuthorizationFailedError(), None, "b:9092")


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (NotLeaderForPartitionError("t"), "NotLeaderForPartitionError: t"),
        (KafkaConnectionError("[SSL: UNEXPECTED_EOF_WHILE_READING]"), "UNEXPECTED_EOF"),
        (KafkaConnectionError(), "KafkaConnectionError"),
    ],
)
def test_what_may_pass_is_only_said(error: KafkaError, text: str) -> None:
    assert text in told(error, "t", "b:9092", lambda: False)
