"""`calve`: the table of contents of the operator's commands.

A command's module is imported with this one, so it imports what is heavy (Spark, boto3, Kafka's client) inside its
function: `calve --help` stays fast, and a test holds it to that.
"""

from __future__ import annotations

import os
import sys

import typer

from calve.errors import CalveError, ConfigError
from cli.act.backfill import backfill
from cli.act.dead_letters.command import dead_letters
from cli.act.export import export
from cli.act.forget import forget
from cli.act.keys import keys
from cli.act.link import link
from cli.act.pause import pause, resume
from cli.act.rollback import rewind, rollback
from cli.console import Console
from cli.embedded.loopback import no_proxy
from cli.look.cost.command import cost
from cli.look.doctor.command import doctor
from cli.look.query.command import query
from cli.look.status.command import status
from cli.look.tables import tables
from cli.manual import explain
from cli.profile import offer
from cli.project.deploy import deploy
from cli.project.init.command import init
from cli.project.plan.command import plan
from cli.project.preview.command import preview
from cli.run.datagen.command import datagen
from cli.run.demo.command import demo
from cli.run.ingest import ingest, maintain
from cli.run.run_job import run_job
from cli.run.up import down, up
from cli.verify.command import verify

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
offer(app, but=(datagen, deploy))


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
