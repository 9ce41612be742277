"""The command `calve demo`."""

from __future__ import annotations

import shutil
import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from calve.errors import CalveError
from cli.console import Console
from cli.embedded.layout import project_root
from cli.embedded.stack import current, running
from cli.run.demo.steps import run

SALES = "examples/sales_channel/calve.yaml"
QUERY = "select symbol, count(*) from stock_trades group by all"
PUBLISHED = ".calve/demo/calve.yaml"

Keep = Annotated[bool, typer.Option("--keep", help="Leave the stack up, to look around.")]


def demo(*, keep: Keep = False) -> None:
    """Run all of calve on this machine, and check every count.

    The deploy, records, the job, its tables, two catalogs that follow, and the mailed export.

    Uses the stack that runs, or one that it starts and stops again; Ctrl-C leaves nothing behind. Exits with 1 where a count
    is not exact.

    Example:
      calve demo --keep
    """
    console, root, began = Console(), project_root(), time.monotonic()
    console.say("calve keeps Kafka topics as Iceberg tables, exactly once. All of it, here:")
    console.heading("1  The stack: a Kafka broker, a schema registry, an AWS emulator")
    with running(root, console.progress(), keep=keep) as stack:
        try:
            wrong = run(stack, console)
        except (KeyboardInterrupt, SystemExit):
            console.event("interrupted: stopping what the demo started")
            raise
    if wrong:
        raise CalveError("not every count is exact:\n  " + "\n  ".join(wrong))
    left_up = current(root) is not None
    console.heading(f"Every count is exact. {time.monotonic() - began:.0f} s in all.")
    console.say(
        "The stack is still up." if left_up else "The stack is down again; of this run only the mail is left."
    )
    console.panel("Try next", _what_next(left_up=left_up))


def _what_next(*, left_up: bool) -> dict[str, str]:
    """Purpose -> a command that works from here."""
    calve = _program()
    if not left_up:
        return {"again, and leave it up": f"{calve} demo --keep", "what else there is": f"{calve} --help"}
    return {
        "how the tables fare": f"{calve} status",
        "and where they are published": f"{calve} status -c {PUBLISHED}",
        "ask them": f'{calve} query "{QUERY}"',
        "one table from inside": f"{calve} tables stock_trades",
        "records with a new field": f"{calve} datagen stock_trades --evolve",
        "take them in": f"{calve} run-job trading-main --drain",
        "prove it again": f"{calve} verify stock_trades",
        "what was mailed": f"{calve} export list -c {SALES} --env aws",
        "what steps make of records": f"{calve} preview sales -c {SALES}",
        "stop the stack": f"{calve} down",
    }


def _program() -> str:
    """The name of this program if the shell finds it, else its path."""
    called = Path(sys.argv[0])
    if called.name != "calve" or shutil.which("calve") == str(called):
        return "calve"
    return str(called.relative_to(Path.cwd()) if called.is_relative_to(Path.cwd()) else called)
