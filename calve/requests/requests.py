"""What a person asks of a table's job by properties of the table: requests, a pause, and the history of what was done."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, ClassVar, Literal, Self

from calve.table.summary import HISTORY, PAUSED

NOT_UNDERSTOOD = "the request is not one that this release understands"


@dataclass(frozen=True, slots=True)
class WaitingRequest:
    """A request, which waits in the property `NAME` of the table until the job answers."""

    NAME: ClassVar[str]
    id: str
    at: str

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def read(cls, raw: dict[str, Any]) -> Self:
        """What `to_json` wrote."""
        return cls(**raw)

    @classmethod
    def pending(cls, properties: Mapping[str, str]) -> Self | None:
        """The request that waits in a table's properties.

        Raises:
            ValueError: what is there is no request; the message says nothing of it.
        """
        text = properties.get(cls.NAME)
        if text is None:
            return None
        try:
            return cls.read(json.loads(text))
        except (ValueError, TypeError, KeyError, AttributeError):
            pass
        raise ValueError(
            NOT_UNDERSTOOD
        )  # outside the handler: an error of JSON carries what it could not read


@dataclass(frozen=True, slots=True)
class Pause:
    """A paused table is read from no topic and changed by no configuration. What people ask for is answered all the same.

    `at`, `until`: ISO 8601 with a time zone; without `until` it lasts until somebody ends it.
    """

    id: str
    at: str
    by: str
    reason: str | None = None
    until: str | None = None

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def of(cls, properties: Mapping[str, str], now: datetime) -> Self | None:
        """The pause that holds at this moment.

        What cannot be read is a pause, too: somebody wanted one, perhaps by a newer release.
        """
        text = properties.get(PAUSED)
        if text is None:
            return None
        try:
            found = cls(**json.loads(text))
            over = found.until is not None and datetime.fromisoformat(found.until) <= now
        except (TypeError, ValueError):
            return cls("", now.isoformat(timespec="seconds"), "somebody")
        return None if over else found

    @property
    def words(self) -> str:
        until = f" until {self.until}" if self.until else ""
        return f"by {self.by}{until}" + (f": {self.reason}" if self.reason else "")


HISTORY_KEPT = 50

What = Literal["pause", "resume", "rollback", "rewind", "backfill", "layout"]


@dataclass(frozen=True, slots=True)
class Entry:
    """What was done to a table besides its rounds: a property of its own, so that two who write at the same moment lose nothing.

    `id`: of the request, where it answers one. `at`: ISO 8601 with a time zone. `by`: whom the system took the person for;
    None: the job, because calve.yaml says so. `told`: what was done; where there is a `problem`, what was asked for.
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
        found = (cls(**json.loads(text)) for name, text in properties.items() if name.startswith(HISTORY))
        return tuple(sorted(found, key=lambda each: (each.at, each.id)))

    @classmethod
    def of(cls, properties: Mapping[str, str], request_id: str) -> Self | None:
        """The answer to a request; None as long as there is none."""
        text = properties.get(HISTORY + request_id)
        return cls(**json.loads(text)) if text else None

    def property(self) -> dict[str, str]:
        return {HISTORY + self.id: json.dumps(asdict(self))}


def outdated(properties: Mapping[str, str]) -> list[str]:
    """The properties that go when one more entry comes."""
    return [HISTORY + each.id for each in Entry.all(properties)[: -(HISTORY_KEPT - 1)]]
