"""The status of a job's runs and tables: one JSON object in the warehouse, only a report. No job reads a position from it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Self

from calve.stored import from_plain

KEPT = 20
"""The number of earlier states kept per table."""


@dataclass(frozen=True, slots=True)
class FormerState:
    """An earlier state of a table, from `since` until the next one."""

    state: str
    since: str | None = None
    code: str | None = None


@dataclass(frozen=True, slots=True)
class TableState:
    """The state of a table, as its loop last reported it: the table property `calve.state`.

    `state` is `pending`, `running`, `paused`, `suspended` or `failed`; `before`: earlier states, newest first.
    `code`: why it was suspended or failed, as a code; for a pause its id.
    """

    state: str = "pending"
    code: str | None = None
    reason: str | None = None
    since: str | None = None
    fix: str | None = None
    before: tuple[FormerState, ...] = ()

    def after(self, former: TableState | None) -> Self:
        if former is None:
            return self
        earlier = FormerState(former.state, former.since, former.code)
        return replace(self, before=(earlier, *former.before)[:KEPT])

    def to_json(self) -> str:
        return json.dumps({name: value for name, value in asdict(self).items() if value not in (None, ())})

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Parse the JSON of `to_json` of any release; unknown keys are ignored."""
        return from_plain(cls, json.loads(text), lenient=True)


EVERY_S = 60.0
"""The interval of a run's reports."""
FOLDER = "_calve/status/"
"""The folder of the objects in the warehouse."""


def place(warehouse: str, deployment: str, job: str) -> str:
    return f"{warehouse.rstrip('/')}/{FOLDER}{deployment}/{job}.json"


@dataclass(frozen=True, slots=True)
class Run:
    """One process of the job. `at`: its last report. `reason`, `fix`: why the job as a whole ended.

    generation: as deployed. opened: when each table was open, or had a reason not to be beside open ones; a deploy waits for it.
    """

    began: str
    at: str
    ended: str | None = None
    reason: str | None = None
    fix: str | None = None
    generation: str | None = None
    opened: str | None = None


@dataclass(frozen=True, slots=True)
class ReportedTable:
    """A run's report of a table. `made`: it exists. `failures`: consecutive failed rounds; `why`, `fix`: of the last one."""

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
        """Add the report of a run, and remove runs without tables."""
        tables = {**self.tables, **tables}
        runs = {**self.runs, id: run}
        named = {id, *(each.run for each in tables.values())}
        return replace(self, runs={name: each for name, each in runs.items() if name in named}, tables=tables)

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> Self:
        """Parse the JSON of any release. Unknown keys are ignored; invalid JSON gives an empty status."""
        try:
            return from_plain(cls, raw, lenient=True)
        except (AttributeError, KeyError, TypeError):
            return cls()
