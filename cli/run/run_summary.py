"""The summary of a job's run: rows, dead letters, state and problems of each table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any

from rich.table import Table
from rich.text import Text

from calve.outputs.job_status import JobStatus
from cli.console import Console, duration
from cli.look.condition import Condition, Conditions, newest
from cli.look.status.command import say
from cli.look.status.health import TableStatus, Trouble, Urgency, troubles, urgency
from cli.look.status.screen import fitted, named, rejects, short, state
from cli.progress import End

MOST_TABLES = 20
"""Rows on a terminal, the most urgent first."""


@dataclass(slots=True)
class Taken:
    """The records that one table took in. until: time of its newest commit."""

    topic: str
    rows: int = 0
    rejects: Counter[str] = field(default_factory=Counter)
    lost: int = 0
    until: datetime | None = None


@dataclass(slots=True)
class RunSummary:
    """Collects the events of a run, by the full names of tables."""

    began: datetime = field(default_factory=lambda: datetime.now(UTC))
    tables: dict[str, Taken] = field(default_factory=dict)
    states: dict[str, str] = field(default_factory=dict)

    def hear(self, event: dict[str, Any]) -> None:
        if event["event"] == "job.ended":
            self.states = event["states"]
        if "table" not in event:
            return
        taken = self.tables.setdefault(event["table"], Taken(event.get("topic", "")))
        if event["event"] == "round.committed":
            taken.rows += event["rows"]
            taken.rejects.update(event["rejects"])
            taken.lost += event["lost"]
            taken.until = datetime.fromisoformat(event["time"])

    def ended(self, report: JobStatus | None) -> Ended:
        conditions = Conditions(reports=newest([report] if report else []))
        found = [self._status(name, conditions) for name in sorted({*self.tables, *self.states})]
        now = datetime.now(UTC)
        return Ended(
            found, {name: self._seconds(each) for name, each in self.tables.items()}, self.began, now
        )

    def _status(self, name: str, conditions: Conditions) -> TableStatus:
        table, taken = name.rpartition(".")[2], self.tables.get(name, Taken(""))
        found = Condition(self.states.get(name, "pending"))
        if table in conditions.reports:
            known, _ = conditions.reports[table]
            found = conditions.of_table(table, known.state if known.made else None)
        return TableStatus(
            job="",
            table=name,
            topic=taken.topic,
            rows=taken.rows,
            dead_letters=dict(taken.rejects),
            lost=taken.lost,
            **asdict(found),
        )

    def _seconds(self, taken: Taken) -> float | None:
        return (taken.until - self.began).total_seconds() if taken.until else None


@dataclass(frozen=True, slots=True)
class Ended:
    """A finished run. seconds: from its start to the newest commit of each table."""

    tables: Sequence[TableStatus]
    seconds: dict[str, float | None]
    began: datetime
    at: datetime

    @property
    def troubles(self) -> list[Trouble]:
        return troubles(self.tables, [], [], self.at)

    @property
    def how(self) -> tuple[End, str]:
        urgencies = [urgency(each, self.at) for each in self.tables]
        stopped, wrong = urgencies.count(0), sum(each < len(Urgency) for each in urgencies)
        if stopped:
            return "fail", f"{stopped} of {_tables(len(self.tables))} stopped"
        return ("warn", f"see {_tables(wrong)} below") if wrong else ("done", "")

    def show(self, console: Console) -> None:
        rows = sorted(self.tables, key=lambda each: urgency(each, self.at))
        if console.is_terminal:
            console.draw(self._drawn(rows[:MOST_TABLES], console.size[0]))
            if len(rows) > MOST_TABLES:
                console.say(f"and {_tables(len(rows) - MOST_TABLES)} more")
        else:
            console.table("ingested", [self._line(each) for each in rows])
        say(console, self.troubles)
        letters = sum(sum(each.dead_letters.values()) for each in rows)
        sums = [_tables(len(rows)), f"{sum(each.rows for each in rows):,} rows", f"{letters:,} dead letters"]
        console.say(f"{', '.join(sums)} in {duration((self.at - self.began).total_seconds())}")

    def _line(self, table: TableStatus) -> dict[str, object]:
        return {
            "table": table.table,
            "state": table.state,
            "rows": table.rows,
            "dead_letters": _letters(table),
            "time": self._time(table),
        }

    def _drawn(self, rows: Sequence[TableStatus], width: int) -> Table:
        columns = {
            "table": [named(each) for each in rows],
            "state": [state(each) for each in rows],
            "rows": [Text(short(each.rows)) for each in rows],
            "dead letters": [rejects(each) for each in rows],
            "time": [Text(self._time(each)) for each in rows],
        }
        return fitted(columns, width, left=("table", "state"), dispensable=("time",))

    def _time(self, table: TableStatus) -> str:
        seconds = self.seconds.get(table.table)
        return "-" if seconds is None else duration(seconds)


def _letters(table: TableStatus) -> str:
    found = sorted(table.dead_letters.items(), key=lambda each: -each[1])
    return ", ".join(f"{count:,} {reason}" for reason, count in found) or "-"


def _tables(count: int) -> str:
    return f"{count:,} table{'' if count == 1 else 's'}"
