"""Every error that calve raises on purpose.

A *record* that cannot be read is never an error: it is a dead letter. Errors are about configuration (`ConfigError`), about
a system that is down for a while (`Retryable`), or about a state that must not be continued from (`Suspended`, `Fatal`).
"""

from __future__ import annotations


class CalveError(Exception):
    """What went wrong, where and why; `fix` is the line to change or the command to run."""

    def __init__(self, message: str, *, fix: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.fix = fix

    def __str__(self) -> str:
        return f"{self.message}\n  Fix: {self.fix}" if self.fix else self.message


class ConfigError(CalveError):
    """The configuration cannot be used; the message lists every problem found."""


class Fatal(CalveError):
    """The job as a whole must not go on."""


class Retryable(CalveError):
    """A system did not answer; the same round may be tried again from the start."""


class TopicMissing(Retryable):
    """The topic does not exist. Somebody may make it while the job runs."""


class Suspended(CalveError):
    """This table must not be written before something outside of it has changed, mostly by an operator; other tables go on.

    `code` is a stable word for alarms: `position_lost`, `topic_recreated`, `offsets_expired`, `offset_gap`, ...
    `at`: the key below the table's entry in calve.yaml that causes it, such as `("upsert", "key")`; empty: none does.
    """

    def __init__(self, code: str, message: str, *, fix: str | None = None, at: tuple[str, ...] = ()) -> None:
        super().__init__(message, fix=fix)
        self.code = code
        self.at = at


class LostRace(CalveError):
    """Another writer has published offsets of this table since this round read its position."""


def topic_missing(topic: str | None, servers: str) -> TopicMissing:
    return TopicMissing(
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
