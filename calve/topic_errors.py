"""What is said of a topic that a client cannot use, whichever client it is."""

from __future__ import annotations

from calve.errors import Retryable, Suspended


def topic_missing(topic: str | None, servers: str) -> Retryable:
    return Retryable(
        f"topic {topic} does not exist on {servers}",
        fix=f"create it, or correct the topic of its table: {topic}",
    )


def topic_forbidden(topic: str, servers: str) -> Suspended:
    return Suspended(
        "topic_forbidden",
        f"Kafka at {servers} does not let this job use topic {topic}",
        fix=f"grant it Describe, DescribeConfigs and Read on topic {topic}; on one that it emits to Create,"
        " Describe and Write",
    )
