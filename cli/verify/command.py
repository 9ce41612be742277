"""The command `calve verify`."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from calve.errors import CalveError
from cli.config import DEFAULT_CONFIG, ConfigOption, EnvOption, TableArgument, load_jobs, table_named
from cli.console import Console, Output, OutputOption

if TYPE_CHECKING:
    from cli.verify.findings import Verification

FAULT = 3
"""The exit code where the command could not check the table."""
AllowUnproved = Annotated[
    bool,
    typer.Option(
        "--allow-unproved", help="Succeed although Kafka no longer holds all that the table claims."
    ),
]


def verify(
    table: TableArgument,
    *,
    allow_unproved: AllowUnproved = False,
    config: ConfigOption = DEFAULT_CONFIG,
    env: EnvOption = None,
    output: OutputOption = Output.text,
) -> None:
    """Prove that a table is what its topic says.

    No gap, no duplicate, ledgers balanced, contents equal. Reads the topic and the table again, both without Spark. Exits
    with 1 where anything is wrong or could not be proved, with 3 where this command itself has a fault: the table was not
    checked then.

    Example:
      calve verify stock_trades
    """
    from cli.kafka import cluster_database
    from cli.lake import load, open_catalog
    from cli.look.health import Conditions
    from cli.verify.topic import Sources
    from cli.verify.verification import verify

    console = Console(output)
    job, wanted = table_named(load_jobs(config, env, tables=[table]), table)
    sources = Sources.of(open_catalog(job.lake), job, wanted)
    name = job.table_name(wanted, cluster_database(job))
    if load(sources.catalog, name) is None:
        raise Conditions.of(job).missing(name)
    found = verify(name, sources, console.progress())
    show(console, found)
    if found.fault:
        raise typer.Exit(FAULT)
    if not found.ok or not (found.complete or allow_unproved):
        raise typer.Exit(1)


def show(console: Console, found: Verification, *, digests: bool = True) -> None:
    """Print the checks with figures, the digests if wanted, and the findings."""
    if found.fault:
        text = f"verify could not check {found.table}: {found.fault}"
        console.error(
            CalveError(text, fix="report this line: the fault is in calve verify, not in the table")
        )
        console.document(asdict(found) | {"ok": found.ok, "complete": found.complete})
        return
    console.table(
        f"verify {found.table}",
        [
            {
                "check": check.name,
                "state": check.state,
                "figures": "  ".join(f"{name}:{_figure(value)}" for name, value in check.figures.items()),
            }
            for check in found.checks
        ],
    )
    if digests:
        console.table("digests", [asdict(each) for each in found.digests])
    if found.findings:
        console.table(
            "findings",
            [
                {
                    "check": each.check,
                    "what": each.message,
                    "where": each.where or None,
                    "columns": ", ".join(each.columns) or None,
                    "files": ", ".join(each.files) or None,
                }
                for each in found.findings
            ],
        )
    console.document(asdict(found) | {"ok": found.ok, "complete": found.complete})


def _figure(value: int | str) -> str:
    return f"{value:,}" if isinstance(value, int) else value
