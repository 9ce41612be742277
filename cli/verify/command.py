"""The command `calve verify`."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from calve.errors import CalveError, ConfigError
from cli.config import Common, TableArgument, kafka_in, load_jobs, table_named
from cli.console import Console

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


FormerOption = Annotated[
    Path | None,
    typer.Option(
        "--from-cluster",
        metavar="FILE",
        help="After a move: prove older rows, too, by the cluster of `kafka:` in this file.",
    ),
]


WithoutKafka = Annotated[
    bool,
    typer.Option(
        "--without-kafka", help="Prove rows by the digests of the commits that added them, years later, too."
    ),
]


def verify(
    table: TableArgument,
    *,
    allow_unproved: AllowUnproved = False,
    former: FormerOption = None,
    without_kafka: WithoutKafka = False,
    given: Common,
) -> None:
    """Prove that a table is what its topic says.

    No gap, no duplicate, ledgers balanced, contents equal. Reads the topic and the table again, both without Spark. Exits
    with 1 if anything is wrong or could not be proved. Exits with 3 if this command itself has a fault: the table was not
    checked then. With `--without-kafka` it proves that the rows are those that each round added, also when the topic is gone.

    Example:
      calve verify stock_trades
      calve verify stock_trades --without-kafka
    """
    from cli.conditions import Conditions
    from cli.kafka import cluster_database
    from cli.lake import load, open_catalog
    from cli.verify.digests import verify_digests
    from cli.verify.topic import Sources
    from cli.verify.verification import verify

    console = given.console
    if without_kafka and former is not None:
        raise ConfigError(
            "--from-cluster and --without-kafka exclude each other", fix="leave out one of them"
        )
    job, wanted = table_named(load_jobs(given.config, given.env, tables=[table]), table)
    catalog, name = open_catalog(job.lake), job.table_name(wanted, cluster_database(job))
    held = load(catalog, name)
    if held is None:
        raise Conditions.of([job])[0].missing(name)
    if without_kafka:
        found = verify_digests(held, console.progress())
    else:
        sources = Sources.of(catalog, job, wanted)
        found = verify(name, sources, console.progress())
        if former is not None:
            left = replace(sources, kafka=kafka_in(former, given))
            found = found.with_former(verify(name, left, console.progress()))
    show(console, found, digests=not without_kafka)
    if found.fault:
        raise typer.Exit(FAULT)
    if not found.ok or not (found.complete or allow_unproved):
        raise typer.Exit(1)


def show(console: Console, found: Verification, *, digests: bool = True) -> None:
    """Print the checks with figures, the digests if wanted, and the findings."""
    document = asdict(found) | {"ok": found.ok, "complete": found.complete}
    if found.fault:
        text = f"verify could not check {found.table}: {found.fault}"
        fix = "report this line: the fault is in calve verify, not in the table"
        console.error(CalveError(text, fix=fix))
        console.document(document)
        return
    rows = []
    for check in found.checks:
        figures = {name: f"{n:,}" if isinstance(n, int) else n for name, n in check.figures.items()}
        words = "  ".join(f"{name}:{figure}" for name, figure in figures.items())
        rows.append({"check": check.name, "state": check.state, "figures": words})
    console.table(f"verify {found.table}", rows)
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
    console.document(document)
