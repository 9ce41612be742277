"""`calve demo`: all of calve once, on this machine: a short story on the terminal, every detail in a log."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Annotated

import typer

from calve.errors import CalveError
from cli.console import Console
from cli.embedded import elsewhere
from cli.embedded.layout import Layout, project_root
from cli.embedded.processes import at_once
from cli.embedded.stack import Stack, current, running
from cli.run.demo.sales import EVENTS, Sales
from cli.run.demo.trading import PLANS, TRADES, Trading

SHOWN_LINES = 3

Keep = Annotated[bool, typer.Option("--keep", help="Leave the stack up, to look around.")]


def demo(*, keep: Keep = False) -> None:
    """Run all of calve on this machine, and check every count.

    The deploy, records, the jobs, their tables, two catalogs that follow, and the mailed export. Details go to a log.

    Uses the stack that runs, or one that it starts and stops again; Ctrl-C leaves nothing behind. Exits with 1 where a count
    is not exact.

    Example:
      calve demo --keep
    """
    if not elsewhere.STAND_INS.is_dir():
        fix = "clone the whole repository; or try your own topic: calve up, then calve init"
        raise CalveError(
            f"the demo is part of a checkout of calve: {elsewhere.STAND_INS} is missing", fix=fix
        )
    console, root, began = Console(), project_root(), time.monotonic()
    file = Layout(root).demo / "demo.log"
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w", encoding="utf-8", buffering=1) as log:
        console.say("calve keeps Kafka topics as Iceberg tables, exactly once. All of it, here:")
        console.heading("1  Start a Kafka broker, a schema registry and an AWS emulator")
        with running(root, console.progress(), keep=keep) as stack:
            try:
                wrong = run(stack, console, log)
            except (KeyboardInterrupt, SystemExit):
                console.event("interrupted: stopping what the demo started")
                raise
    details = file.relative_to(root)
    if wrong:
        raise CalveError("not every count is exact:\n  " + "\n  ".join(wrong), fix=f"read {details}")
    left_up = current(root) is not None
    console.heading(f"Every count is exact. {time.monotonic() - began:.0f} s in all. Details: {details}")
    console.panel("The stack is up. Try next" if left_up else "Try next", _what_next(left_up=left_up))


def _what_next(*, left_up: bool) -> dict[str, str]:
    """Purpose -> a command that works from here: this program by its name if the shell finds it, else by its path."""
    called, calve = Path(sys.argv[0]), "calve"
    if called.name == "calve" and shutil.which("calve") != str(called):
        calve = str(called.relative_to(Path.cwd()) if called.is_relative_to(Path.cwd()) else called)
    if not left_up:
        return {
            "your own topic": f"{calve} up, then {calve} init (docs/quickstart.md)",
            "this again, left up": f"{calve} demo --keep",
            "all commands": f"{calve} --help",
        }
    return {
        "the tables": f"{calve} console --open",
        "the mail": f"{calve} mail --open",
        "your own topic": f"{calve} init -b HOST:PORT -c mine.yaml",
        "stop the stack": f"{calve} down",
    }


def run(stack: Stack, console: Console, log: IO[str]) -> list[str]:
    """Run all steps and show them; return a sentence for each difference from the produced records."""
    details = Console(file=log)
    trading, sales = Trading(stack, details), Sales(stack, details)
    return _Story(console, details, trading, sales).told()


@dataclass(frozen=True, slots=True)
class _Story:
    """console: the terminal. details: the log, whose progress is on the terminal, too."""

    console: Console
    details: Console
    trading: Trading
    sales: Sales

    def told(self) -> list[str]:
        self._deploy()
        self._ingest()
        self._look()
        wrong = self._prove()
        self._mask()
        return wrong + self._mail()

    def _deploy(self) -> None:
        fates = TRADES.fates()
        self._section(
            "2  Deploy two configurations, and produce records",
            "The CDK CLI makes the stacks of both, as in an AWS account.",
        )
        self.trading.prepare()
        at_once(self.trading.deploy, self.sales.deploy, self._produce)
        dead = sum(fates.dead_lettered.values())
        self.console.say(
            f"{fates.duplicates:,} of {TRADES.count:,} trades come twice; {dead} are malformed in eight ways."
        )

    def _produce(self) -> None:
        total = sum(plan.count for plan in PLANS) + EVENTS
        with self.details.progress().task("producing records", total=total, unit="records") as task:
            self.trading.produce(task.update)
            self.sales.produce()
            task.update(total)

    def _ingest(self) -> None:
        self._section(
            "3  Run both jobs until their topics' ends",
            "Script, settings and rights are those that AWS Glue would use; Spark is local.",
        )
        at_once(self.trading.ingest, self.sales.ingest)
        self.sales.fire()

    def _look(self) -> None:
        self._section(
            "4  Look at a table",
            "A row knows its place in Kafka; a record that fails to decode is a dead letter.",
        )
        self.console.table("row", self.trading.rows(), title="")
        found = self.trading.dead_letters()
        reasons = ", ".join(f"{n} {reason}" for reason, n in found.items())
        self.console.say(f"{sum(found.values())} dead letters: {reasons}.")
        self.trading.show()

    def _prove(self) -> list[str]:
        self._section(
            "5  Prove it: read topics and tables again, without Spark",
            "Every offset has its place, and each reader finds the rows that were produced.",
        )
        with self.details.progress().task("comparing topics and tables"):
            lines, wrong = self.trading.prove()
            of_sales, more = self.sales.prove()
        self.console.table("proof", [*lines, *of_sales], title="")
        return wrong + more

    def _mask(self) -> None:
        self._section(
            "6  Personal data stays out of the table",
            "Steps in calve.yaml mask each event; the key is in Secrets Manager.",
        )
        self.console.table("masked", self.sales.masked(), title="")

    def _mail(self) -> list[str]:
        self._section(
            "7  Monday morning: the schedule fires, and an analyst gets a mail",
            "Its link opens a page with a button, and the button gives this file.",
        )
        subject, lines, wrong = self.sales.mailed()
        self.console.say(f"Subject: {subject}")
        self.console.lines([*(f"  {line}" for line in lines[:SHOWN_LINES]), *_more(lines)])
        return wrong

    def _section(self, title: str, why: str) -> None:
        self.details.heading(title)
        self.console.heading(title)
        self.console.say(why)


def _more(lines: Sequence[str]) -> list[str]:
    more = len(lines) - SHOWN_LINES
    return [f"  ... and {more} more"] if more > 0 else []
