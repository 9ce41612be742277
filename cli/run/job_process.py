"""A job's process: its events and summary are shown, Ctrl-C ends it in order, and it never outlives the command."""

from __future__ import annotations

import json
import signal
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.text import Text

from calve.errors import CalveError, ConfigError, Fatal
from calve.outputs.job_status import JobStatus
from cli.conditions import Condition, Conditions, newest
from cli.console import Console, duration
from cli.embedded.processes import child, handled, kill_group, tail
from cli.look.health import TableStatus, Urgency, troubles, urgency
from cli.look.status.command import say
from cli.look.status.screen import fitted, marked, named, rejects, short
from cli.progress import End, Task


@dataclass(frozen=True, slots=True)
class Program:
    """The command line, and where its standard error goes; `drains`: it ends by itself.

    said: reads the job's report of its tables; None: it has no tables, and there is no summary.
    """

    command: list[str]
    environment: Mapping[str, str]
    folder: Path
    log: Path
    drains: bool
    said: Callable[[], JobStatus] | None = None


def follow(program: Program, console: Console, *, title: str, expected: int | None = None) -> int:
    """Run a job until it ends, show it and its summary; return its exit code. `expected`: records known to be in the topic.

    Raises:
        KeyboardInterrupt: Ctrl-C ended a drain early, or any run before its rounds were finished.
        Fatal: the job failed, or ended without a reason.
        ConfigError: its settings are invalid.
    """
    ended, failed, summary = False, None, RunSummary()
    with _process(program) as running, console.progress().task(title, total=expected, unit="records") as task:
        running.task = task
        task.update(0, note="starting Spark")
        shown = _Shown(console, task, expected or 0)
        for line in running.process.stdout or ():
            if not line.startswith("{"):
                continue
            event = json.loads(line)
            ended |= event["event"] in ("job.ended", "job.failed")
            failed = event if event["event"] == "job.failed" else failed
            summary.hear(event)
            shown.see(event)
            running.remind()
        code = running.process.wait()
        over = None
        if program.said and ended and not failed:
            report = None
            with suppress(CalveError):  # without it, the events tell less
                report = program.said()
            over = summary.ended(report)
        if over:
            task.end(*over.how)
        elif code:
            task.end("fail", f"exit code {code}")
        if running.interrupts and (program.drains or not ended):
            raise KeyboardInterrupt
        if failed:
            raise (ConfigError if code == 2 else Fatal)(failed["reason"], fix=failed["fix"])
    if over:
        over.show(console)
    if not ended:
        raise Fatal(
            f"the job ended with code {code} without a reason; its log ends:\n{tail(program.log)}",
            fix=f"read {program.log}",
        )
    return code


@dataclass(slots=True)
class _Running:
    """The job's process. Ctrl-C and SIGTERM reach it as SIGTERM, and it finishes its rounds; the next one kills it."""

    process: subprocess.Popen[str]
    task: Task | None = None
    interrupts: int = 0

    def interrupt(self, *_: object) -> None:
        self.interrupts += 1
        if self.interrupts > 1:
            kill_group(self.process.pid)
            return
        self.process.send_signal(signal.SIGTERM)
        self.remind()

    def remind(self) -> None:
        """After Ctrl-C, report what the command waits for."""
        if self.task and self.interrupts:
            self.task.update(note="ending; again: at once")


@contextmanager
def _process(program: Program) -> Iterator[_Running]:
    program.log.parent.mkdir(parents=True, exist_ok=True)
    with (
        program.log.open("w") as errors,
        child(
            program.command,
            environment=program.environment,
            folder=program.folder,
            errors=errors,
            patient=True,
        ) as process,
    ):
        running = _Running(process)
        with handled((signal.SIGINT, signal.SIGTERM), running.interrupt):
            yield running


class _Shown:
    """Shows events: the progress of all tables, and a line for everything unusual."""

    def __init__(self, console: Console, task: Task, expected: int) -> None:
        self._console, self._task, self._expected = console, task, expected
        self._done: dict[str, int] = {}
        self._behind: dict[str, int] = {}

    def see(self, event: dict[str, Any]) -> None:
        match event:
            case {"event": "round.committed", "table": table, "records": records, "lag_records": behind}:
                self._done[table] = self._done.get(table, 0) + records
                self._behind[table] = behind
                done, lag = sum(self._done.values()), sum(self._behind.values())
                self._task.update(done, total=max(done + lag, self._expected), note=f"lag {lag:,}")
            case {"event": "job.started", "tables": tables}:
                self._task.update(note="reading" if len(tables) < 2 else f"reading {len(tables)} topics")
            case {"event": "topics.matched", "count": count}:
                self._task.update(note=f"reading {count} topics")
            case {"event": "table.state", "state": "running"} | {"event": "table.engine", "reasons": []}:
                return
            case {"event": "table.complete" | "job.ended" | "job.failed"}:
                return
            case _:
                hidden = ("event", "time", *(["topic"] if "table" in event else []))
                facts = {
                    name: value for name, value in event.items() if name not in hidden and value is not None
                }
                self._console.event(event["event"], **facts)


MOST_TABLES = 20
"""Rows on a terminal, the most urgent first."""


@dataclass(slots=True)
class RunSummary:
    """Collects the events of a run, by the full names of tables. `tables`: what the run took into each."""

    began: datetime = field(default_factory=lambda: datetime.now(UTC))
    tables: dict[str, TableStatus] = field(default_factory=dict)
    states: dict[str, str] = field(default_factory=dict)

    def hear(self, event: dict[str, Any]) -> None:
        if event["event"] == "job.ended":
            self.states = event["states"]
        if "table" not in event:
            return
        name = event["table"]
        taken = self.tables.get(name) or TableStatus("", name, event.get("topic", ""), "pending")
        if event["event"] == "round.committed":
            taken = replace(
                taken,
                rows=taken.rows + event["rows"],
                dead_letters=dict(Counter(taken.dead_letters) + Counter(event["dead_letters"])),
                lost=taken.lost + event["lost"],
                committed_at=event["time"],
            )
        self.tables[name] = taken

    def ended(self, report: JobStatus | None) -> Ended:
        conditions, found = Conditions(reports=newest([report] if report else [])), []
        for name in sorted({*self.tables, *self.states}):
            table, condition = name.rpartition(".")[2], Condition(self.states.get(name, "pending"))
            if table in conditions.reports:
                known, _ = conditions.reports[table]
                condition = conditions.of_table(table, known.state if known.made else None)
            taken = self.tables.get(name) or TableStatus("", name, "", "pending")
            found.append(replace(taken, **asdict(condition)))
        return Ended(found, self.began, datetime.now(UTC))


@dataclass(frozen=True, slots=True)
class Ended:
    """A finished run."""

    tables: Sequence[TableStatus]
    began: datetime
    at: datetime

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
            shown = rows[:MOST_TABLES]
            columns = {
                "table": [named(each) for each in shown],
                "state": [marked(each.state) for each in shown],
                "rows": [Text(short(each.rows)) for each in shown],
                "dead letters": [rejects(each) for each in shown],
                "time": [Text(self._time(each)) for each in shown],
            }
            width = console.size[0]
            console.draw(fitted(columns, width, left=("table", "state"), dispensable=("time",)))
            if len(rows) > MOST_TABLES:
                console.say(f"and {_tables(len(rows) - MOST_TABLES)} more")
        else:
            console.table("ingested", [self._line(each) for each in rows])
        say(console, troubles(self.tables, [], [], self.at))
        taken = sum(each.rows for each in rows)
        dead_letters = sum(sum(each.dead_letters.values()) for each in rows)
        lasted = duration((self.at - self.began).total_seconds())
        console.say(f"{_tables(len(rows))}, {taken:,} rows, {dead_letters:,} dead letters in {lasted}")

    def _line(self, table: TableStatus) -> dict[str, object]:
        dead_letters = Counter(table.dead_letters).most_common()
        return {
            "table": table.table,
            "state": table.state,
            "rows": table.rows,
            "dead_letters": ", ".join(f"{count:,} {reason}" for reason, count in dead_letters) or "-",
            "time": self._time(table),
        }

    def _time(self, table: TableStatus) -> str:
        """From the start of the run to the newest commit."""
        if table.committed_at is None:
            return "-"
        return duration((datetime.fromisoformat(table.committed_at) - self.began).total_seconds())


def _tables(count: int) -> str:
    return f"{count:,} table{'' if count == 1 else 's'}"
