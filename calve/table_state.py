"""How a table fares, as its loop last said, and what it said before: the property `calve.state` of the table."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

KEPT = 20
"""Earlier states that a table remembers."""


@dataclass(frozen=True, slots=True)
class Earlier:
    """A state that a table was in, from `since` on until the next began."""

    state: str
    since: str | None = None
    code: str | None = None


@dataclass(frozen=True, slots=True)
class TableState:
    """`state` is `pending`, `running`, `paused`, `suspended` or `failed`; `before`: what it was earlier, newest first.

    `code`: why it was suspended or failed, in a word; of a pause its id.
    """

    state: str = "pending"
    code: str | None = None
    reason: str | None = None
    since: str | None = None
    fix: str | None = None
    before: tuple[Earlier, ...] = ()

    def after(self, former: TableState | None) -> Self:
        """This state as the successor of another, which it remembers."""
        if former is None:
            return self
        seen = Earlier(former.state, former.since, former.code)
        return replace(self, before=(seen, *former.before)[:KEPT])

    def to_json(self) -> str:
        return json.dumps({name: value for name, value in asdict(self).items() if value not in (None, ())})

    @classmethod
    def from_json(cls, text: str) -> Self:
        """What `to_json` of this or another release wrote; what this one does not know is left out."""
        return cls.from_dict(json.loads(text))

    @classmethod
    def from_dict(cls, raw: dict[str, Any]) -> Self:
        """The same, of JSON that is read already."""
        known = {name: raw.get(name) for name in ("code", "reason", "since", "fix")}
        before = tuple(
            Earlier(each["state"], each.get("since"), each.get("code")) for each in raw.get("before", ())
        )
        return cls(raw["state"], before=before, **known)
