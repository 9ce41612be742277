"""`calve`: the table of contents of the operator's commands, and the help screens that their docstrings make.

This module imports the module of each command. A command therefore imports what is heavy (Spark, boto3, Kafka's client)
inside its function: `calve --help` stays fast, and a test holds it to that.

A docstring is one line, more sentences, and examples: the lines under `Example:` or `Examples:`, its last paragraph.
"""

from __future__ import annotations

import inspect
import os
import re
import sys
from dataclasses import dataclass

import typer
from rich.markup import escape

from calve.errors import CalveError, ConfigError
from cli.act.dead_letters import dead_letters
from cli.act.export import export
from cli.act.forget import forget
from cli.act.keys import keys
from cli.act.link import link
from cli.act.pause import pause, resume
from cli.act.rollback import backfill, rewind, rollback
from cli.config import offer_profile
from cli.console import Console
from cli.embedded.processes import no_proxy
from cli.look.cost.command import cost
from cli.look.doctor.command import doctor
from cli.look.query.command import query
from cli.look.status.command import status
from cli.look.tables import tables
from cli.project.init.command import init
from cli.project.plan.command import plan
from cli.project.preview.command import preview
from cli.run.datagen.command import datagen
from cli.run.demo.command import demo
from cli.run.ingest import ingest, maintain
from cli.run.run_job import run_job
from cli.run.stack import deploy, down, up
from cli.verify.command import verify

EXAMPLES = re.compile(r"(?:\A|\n\n)Examples?:\n(?P<lines>(?:[ ]+\S.*\n?)+)\Z")


@dataclass(frozen=True)
class Manual:
    """A command, explained."""

    purpose: str
    paragraphs: tuple[str, ...]
    examples: tuple[str, ...]

    @classmethod
    def of(cls, docstring: str | None) -> Manual:
        text = inspect.cleandoc(docstring or "")
        found = EXAMPLES.search(text)
        prose = text[: found.start()] if found else text
        purpose, *paragraphs = (" ".join(each.split()) for each in prose.split("\n\n"))
        examples = found["lines"].splitlines() if found else []
        return cls(purpose, tuple(paragraphs), tuple(each.strip() for each in examples))

    @property
    def screen(self) -> str:
        """The prose of the help screen, which breaks lines by the terminal's width."""
        return "\n\n".join(escape(each) for each in (self.purpose, *self.paragraphs))

    @property
    def footer(self) -> str | None:
        """The examples of the help screen."""
        if not self.examples:
            return None
        return "\n".join(f"[dim]$[/dim] {escape(each)}" for each in self.examples)


def explain(app: typer.Typer) -> None:
    """Give every command of an app its help screen."""
    for command in app.registered_commands:
        manual = Manual.of(command.callback.__doc__ if command.callback else None)
        command.help, command.epilog = manual.screen, manual.footer
    for group in app.registered_groups:
        if group.typer_instance:
            explain(group.typer_instance)


app = typer.Typer(
    name="calve",
    help="Keeps Kafka topics as Apache Iceberg tables, exactly once.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

on_this_machine = app.command(rich_help_panel="This machine")
build = app.command(rich_help_panel="Build")
look = app.command(rich_help_panel="Look")
act = app.command(rich_help_panel="Act")

on_this_machine(demo)
on_this_machine(up)
on_this_machine(down)
on_this_machine(datagen)
on_this_machine(deploy)
on_this_machine(run_job)
on_this_machine(ingest)
build(init)
build(plan)
build(preview)
build(cost)
look(status)
look(doctor)
look(tables)
look(query)
look(verify)
look(keys)
app.add_typer(dead_letters, name="dead-letters", rich_help_panel="Look")
act(pause)
act(resume)
act(rollback)
act(rewind)
act(backfill)
act(forget)
act(maintain)
app.add_typer(export, name="export", rich_help_panel="Publish")
app.add_typer(link, name="link", rich_help_panel="Publish")
explain(app)
offer_profile(app, but=(datagen, deploy))


def main() -> None:
    """Run one command; exit with 0 when it did its work, 1 when it failed, 2 when it was misused."""
    os.environ.update(no_proxy())
    try:
        app()
    except CalveError as error:
        Console().error(error)
        sys.exit(2 if isinstance(error, ConfigError) else 1)
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
