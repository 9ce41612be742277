"""What a job says of its runs and of its tables, also of a table that it has not made: one JSON object in the lake.

A run replaces what it says of its own tables and leaves what others said. It is a report: no job reads a position from it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Self

KEPT = 20
"""Earlier states that a table remembers."""


@dataclass(frozen=True, slots=True)
class FormerState:
    """A state that a table was in, from `since` on until the next began."""

    state: str
    since: str | None = None
    code: str | None = None


@dataclass(frozen=True, slots=True)
class TableState:
    """How a table fares, as its loop last said: the property `calve.state` of the table.

    `state` is `pending`, `running`, `paused`, `suspended` or `failed`; `before`: what it was earlier, newest first.
    `code`: why it was suspended or failed, in a word; of a pause its id.
    """

    state: str = "pending"
    code: str | None = None
    reason: str | None = None
    since: str | None = None
    fix: str | None = None
    before: tuple[FormerState, ...] = ()

    def after(self, former: TableState | None) -> Self:
        """This state as the successor of another, which it remembers."""
        if former is None:
            return self
        seen = FormerState(former.state, former.since, former.code)
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
            FormerState(each["state"], each.get("since"), each.get("code")) for each in raw.get("before", ())
        )
        return cls(raw["state"], before=before, **known)


EVERY_S = 60.0
"""So often a run says that it is alive."""
FOLDER = "_calve/status/"
"""Where the objects are, below the warehouse."""


def place(warehouse: str, deployment: str, job: str) -> str:
    """The URI of a job's object."""
    return f"{warehouse.rstrip('/')}/{FOLDER}{deployment}/{job}.json"


@dataclass(frozen=True, slots=True)
class Run:
    """One process of the job. `at`: when it last said something. `reason`, `fix`: why the job as a whole ended."""

    began: str
    at: str
    ended: str | None = None
    reason: str | None = None
    fix: str | None = None


@dataclass(frozen=True, slots=True)
class ReportedTable:
    """What a run says of a table. `made`: it exists. `failures`: rounds that failed in a row; `why`, `fix`: of the last."""

    run: str
    state: TableState = field(default_factory=TableState)
    made: bool = False
    failures: int = 0
    why: str | None = None
    fix: str | None = None


@dataclass(frozen=True, slots=True)
class JobStatus:
    """Runs by their id, and tables by their name in calve.yaml."""

    runs: Mapping[str, Run] = field(default_factory=dict)
    tables: Mapping[str, ReportedTable] = field(default_factory=dict)

    def said_by(self, id: str, run: Run, tables: Mapping[str, ReportedTable]) -> Self:
        """Add what a run says now, and forget runs without tables."""
        tables = {**self.tables, **tables}
        runs = {**self.runs, id: run}
        named = {id, *(each.run for each in tables.values())}
        return replace(self, runs={name: each for name, each in runs.items() if name in named}, tables=tables)

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> Self:
        """The JSON of this or another release; what this one does not know is left out. What is none says nothing."""
        try:
            return cls._read(raw)
        except (AttributeError, KeyError, TypeError):
            return cls()

    @classmethod
    def _read(cls, raw: Mapping[str, Any]) -> Self:
        runs = {id: Run(**_known(Run, each)) for id, each in raw["runs"].items()}
        tables = {
            name: ReportedTable(
                **(_known(ReportedTable, each) | {"state": TableState.from_dict(each["state"])})
            )
            for name, each in raw["tables"].items()
        }
        return cls(runs, tables)


def _known(kind: type[Run | ReportedTable], raw: Mapping[str, Any]) -> dict[str, Any]:
    names = {each.name for each in fields(kind)}
    return {name: value for name, value in raw.items() if name in names}
