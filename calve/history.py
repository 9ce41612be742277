"""What was done to a table besides its rounds, by whom: entries among its properties, each a property of its own, so that two who
write at the same moment lose nothing. The oldest go.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Literal, Self

PREFIX = "calve.history."
KEPT = 50

What = Literal["pause", "resume", "rollback", "rewind", "backfill", "layout"]


@dataclass(frozen=True, slots=True)
class Entry:
    """`id`: of the request, where it answers one. `at`: ISO 8601 with a time zone. `by`: whom the system took the person for;
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
        found = (cls(**json.loads(text)) for name, text in properties.items() if name.startswith(PREFIX))
        return tuple(sorted(found, key=lambda each: (each.at, each.id)))

    @classmethod
    def of(cls, properties: Mapping[str, str], request_id: str) -> Self | None:
        """The answer to a request; None as long as there is none."""
        text = properties.get(PREFIX + request_id)
        return cls(**json.loads(text)) if text else None

    def property(self) -> dict[str, str]:
        return {PREFIX + self.id: json.dumps(asdict(self))}


def outdated(properties: Mapping[str, str]) -> list[str]:
    """The properties that go when one more entry comes."""
    return [PREFIX + each.id for each in Entry.all(properties)[: -(KEPT - 1)]]
