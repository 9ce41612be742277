"""A pause of a table: a property of it, which its job heeds before each round, whichever process that is.

A paused table is read from no topic and changed by no configuration. What people ask for is answered all the same.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Self

PAUSED = "calve.paused"


@dataclass(frozen=True, slots=True)
class Pause:
    """`at`, `until`: ISO 8601 with a time zone; without `until` it lasts until somebody ends it."""

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
