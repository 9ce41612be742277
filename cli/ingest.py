"""`calve ingest`: the Glue job's own script, run here as a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from calve.errors import ConfigError, Fatal
from cli.config import DEFAULT_CONFIG, ConfigOption, EnvOption, TablesArgument, load_jobs
from cli.console import Console
from cli.progress import Task

if TYPE_CHECKING:
    from calve.job import Job


def ingest(
    tables: TablesArgument = None,
    *,
    config: ConfigOption = DEFAULT_CONFIG,
    env: EnvOption = None,
    drain: Annotated[bool, typer.Option("--drain", help="Stop at the topics' ends as they are now.")] = False,
    memory: Annotated[str, typer.Option(help="Heap of the Spark driver.")] = "2g",
) -> None:
    """Keep topics as tables: read, decode, and commit each round exactly once.

    Without --drain it runs until Ctrl-C, which lets the rounds under way finish; a second Ctrl-C does not. No record is lost
    or doubled by either.
    """
    console = Console()
    for job in load_jobs(config, env, tables=tables or ()):
        chosen = only(job, tables)
        if chosen.tables and run(chosen, console, drain=drain, memory=memory) != 0:
            raise typer.Exit(1)


def only(job: Job, tables: list[str] | None) -> Job:
    """The job with these of its tables; None stands for all."""
    from dataclasses import replace

    return (
        job if not tables else replace(job, tables=tuple(each for each in job.tables if each.name in tables))
    )


def run(
    job: Job,
    console: Console,
    *,
    drain: bool,
    memory: str = "2g",
    quick: bool = False,
    expected: int | None = None,
) -> int:
    """Run the job until it ends and show what it does; returns its exit code. `expected` records are known to be there.

    Raises:
        KeyboardInterrupt: Ctrl-C ended a drain early, or any run before its rounds were finished.
        Fatal: the job could not go on, or ended without saying why.
        ConfigError: its settings are of no use.
    """
    ended, failed = False, None
    title = f"ingesting {job.tables[0].name if len(job.tables) == 1 else f'{len(job.tables)} tables'}"
    with (
        _process(job, drain=drain, memory=memory, quick=quick) as running,
        console.progress().task(title, total=expected, unit="records") as task,
    ):
        running.task = task
        task.update(0, note="starting Spark")
        shown = _Shown(console, task, expected or 0)
        for event in _events(running.process):
            ended |= event["event"] in ("job.ended", "job.failed")
            failed = event if event["event"] == "job.failed" else failed
            shown.see(event)
            running.remind()
        code = running.process.wait()
        if running.interrupts and (drain or not ended):
            raise KeyboardInterrupt
        if failed:
            raise (ConfigError if code == 2 else Fatal)(failed["reason"], fix=failed["fix"])
    if not ended:
        from cli.embedded.processes import tail

        log = running.log
        raise Fatal(
            f"the job ended with code {code} without a reason; its log ends:\n{tail(log)}", fix=f"read {log}"
        )
    return code


@dataclass(slots=True)
class _Running:
    """The job's process. Ctrl-C reaches it as SIGTERM, upon which it finishes its rounds; the next one kills it."""

    process: subprocess.Popen[str]
    log: Path
    task: Task | None = None
    interrupts: int = 0

    def interrupt(self, *_: object) -> None:
        self.interrupts += 1
        if self.interrupts > 1:
            self.kill()
            return
        self.process.send_signal(signal.SIGTERM)
        self.remind()

    def remind(self) -> None:
        """Say, once Ctrl-C was pressed, what is waited for."""
        if self.task and self.interrupts:
            self.task.update(note="ending; again: at once")

    def kill(self) -> None:
        """Kill what is left of it, Spark's JVM too."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)


@contextmanager
def _process(job: Job, *, drain: bool, memory: str, quick: bool) -> Iterator[_Running]:
    """Start the job; its process never outlives the block."""
    from cli.embedded.layout import Layout, project_root
    from cli.embedded.stack import current
    from cli.spark import spark_environment

    root = project_root()
    log = Layout(root).logs / "ingest.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", suffix=".json") as settings, log.open("w") as errors:
        settings.write(job.to_json())
        settings.flush()
        command = [sys.executable, "-m", "glue_jobs.ingest", "--settings-file", settings.name]
        process = subprocess.Popen(
            [*command, "--drain"] if drain else command,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env=spark_environment(root, current(root), memory=memory, quick=quick),
            start_new_session=True,
        )
        running = _Running(process, log)
        before = signal.signal(signal.SIGINT, running.interrupt)
        try:
            yield running
        finally:
            if process.poll() is None:
                process.terminate()
            process.communicate()
            running.kill()
            signal.signal(signal.SIGINT, before)


def _events(process: subprocess.Popen[str]) -> Iterator[dict[str, Any]]:
    for line in process.stdout or ():
        if line.startswith("{"):
            yield json.loads(line)


class _Shown:
    """Shows events: how far the tables are together, and a line for everything that is not routine."""

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
            case {"event": "job.started"}:
                self._task.update(note="reading")
            case {"event": "table.state", "state": "running"} | {"event": "job.ended" | "job.failed"}:
                return
            case _:
                hidden = ("event", "time", "topic")
                facts = {
                    name: value for name, value in event.items() if name not in hidden and value is not None
                }
                self._console.event(event["event"], **facts)
