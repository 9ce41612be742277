"""Table properties that people set for the job: requests, a pause, and the history of what was done.

The job, the table's only writer, answers a request with another property. The model in `tests/unit/calve/protocol_model` runs
the decisions of redrives and rollbacks, as it does `calve.table.protocol`.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import ClassVar, Literal, Self

from calve.stored import Stored
from calve.table.position import Offsets
from calve.table.protocol import Commit
from calve.table.summary import ADOPT, HISTORY, INITIALISED, MOVE, PAUSED, RELEASE

NOT_UNDERSTOOD = "the request is not one that this release understands"


@dataclass(frozen=True, slots=True)
class WaitingRequest(Stored):
    """A request that waits in the table property `NAME` until the job answers."""

    NAME: ClassVar[str]
    id: str
    at: str

    @classmethod
    def pending(cls, properties: Mapping[str, str]) -> Self | None:
        """The waiting request. Raises ValueError: the property is not a request; the message quotes nothing of it."""
        text = properties.get(cls.NAME)
        if text is None:
            return None
        try:
            return cls.from_json(text)
        except (ValueError, TypeError, KeyError, AttributeError):
            pass
        raise ValueError(NOT_UNDERSTOOD)  # outside the handler: a JSON error quotes its input

    def done_by(self, ancestors: Iterable[Commit]) -> Commit | None:
        """The commit that already did what the request asks for: a job may crash before it answers."""
        return next((each for each in ancestors if each.summary.get(self.NAME) == self.id), None)


@dataclass(frozen=True, slots=True)
class Release(WaitingRequest):
    """To give the table up, so that another writer may go on with it."""

    NAME: ClassVar[str] = RELEASE
    by: str

    @staticmethod
    def answer(properties: Mapping[str, str], request_id: str) -> Entry | None:
        """A released table has no property that could hold an answer."""
        refused = Entry.of(properties, request_id)
        return refused or (
            None if INITIALISED in properties else Entry(request_id, "", "release", "released")
        )


@dataclass(frozen=True, slots=True)
class Move(WaitingRequest):
    """To go on with a copy of the topic on another cluster, at these offsets.

    round: of the position that the offsets were found for. former, copy: incarnations of the topic, as texts of `TopicKey`.
    """

    NAME: ClassVar[str] = MOVE
    by: str
    round: str
    former: str
    copy: str
    offsets: Offsets


@dataclass(frozen=True, slots=True)
class Adopt(WaitingRequest):
    """To take over a table of another writer, and to read its topic from these offsets on.

    snapshot: main's head, for which the offsets were found. topic: the incarnation that they are of, as text of `TopicKey`.
    """

    NAME: ClassVar[str] = ADOPT
    by: str
    snapshot: int
    topic: str
    offsets: Offsets


@dataclass(frozen=True, slots=True)
class Pause(Stored):
    """A paused table reads no topic and ignores configuration changes. Requests are still answered.

    `at`, `until`: ISO 8601 with a time zone; without `until` it lasts until somebody ends it.
    """

    id: str
    at: str
    by: str
    reason: str | None = None
    until: str | None = None

    @classmethod
    def of(cls, properties: Mapping[str, str], now: datetime) -> Self | None:
        """The pause in effect now.

        An unreadable property counts as a pause: somebody wanted one, perhaps with a newer release.
        """
        text = properties.get(PAUSED)
        if text is None:
            return None
        try:
            found = cls.from_json(text)
            over = found.until is not None and datetime.fromisoformat(found.until) <= now
        except (AttributeError, TypeError, ValueError):
            return cls("", now.isoformat(timespec="seconds"), "somebody")
        return None if over else found

    @property
    def words(self) -> str:
        until = f" until {self.until}" if self.until else ""
        return f"by {self.by}{until}" + (f": {self.reason}" if self.reason else "")


HISTORY_KEPT = 50

What = Literal["pause", "resume", "rollback", "rewind", "backfill", "layout", "release", "move", "adopt"]


@dataclass(frozen=True, slots=True)
class Entry(Stored):
    """What was done to a table besides its rounds. Each entry is its own property, so that concurrent writers lose nothing.

    `id`: of the answered request, if any. `at`: ISO 8601 with a time zone.
    `by`: the person's identity in the system; None: the job, because calve.yaml says so.
    `told`: what was done; with a `problem`, what was requested.
    """

    id: str
    at: str
    what: What
    told: str
    by: str | None = None
    problem: str | None = None

    @classmethod
    def all(cls, properties: Mapping[str, str]) -> tuple[Self, ...]:
        """The entries of a table, oldest first."""
        found = (cls.from_json(text) for name, text in properties.items() if name.startswith(HISTORY))
        return tuple(sorted(found, key=lambda each: (each.at, each.id)))

    @classmethod
    def of(cls, properties: Mapping[str, str], request_id: str) -> Self | None:
        text = properties.get(HISTORY + request_id)
        return cls.from_json(text) if text else None

    def property(self) -> dict[str, str]:
        return {HISTORY + self.id: self.to_json()}


def now() -> str:
    """The time of an answer."""
    return datetime.fromtimestamp(time.time(), UTC).isoformat(timespec="milliseconds")


def outdated(properties: Mapping[str, str]) -> list[str]:
    """The properties to remove when one more entry is added."""
    return [HISTORY + each.id for each in Entry.all(properties)[: -(HISTORY_KEPT - 1)]]
