"""What the commands of `calve dead-letters` have in common: their options, and how they find the table."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.config import load_jobs, table_named

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from calve.config.job import Table as Settings
    from calve.names import TableName

SinceOption = Annotated[
    str | None,
    typer.Option(
        "--since",
        "-s",
        help="Only those rejected since: 2h, 7d, 2026-01-01T00:00:00Z.",
        show_default=False,
    ),
]
ReasonOption = Annotated[
    str | None, typer.Option("--reason", "-r", help="Only those of this reason.", show_default=False)
]
SchemaOption = Annotated[
    int | None,
    typer.Option("--schema-id", "-i", help="Only those with this registry id.", show_default=False),
]
UntilOption = Annotated[
    str | None,
    typer.Option("--until", "-u", help="Only those rejected before: written as --since.", show_default=False),
]
RedrivenOption = Annotated[
    bool, typer.Option("--redriven", help="Those that came back, instead of those that are open.")
]


def open_table(table: str, config: Path, env: str | None) -> tuple[TableName, Table | None]:
    """The table's full name, and its dead-letter table where there is one.

    Raises:
        CalveError: there is no such table.
    """
    name, _, _, letters = open_both(table, config, env)
    return name, letters


def open_both(table: str, config: Path, env: str | None) -> tuple[TableName, Settings, Table, Table | None]:
    """As `open_table`, with the table itself and its settings."""
    from cli.dead_letters import open_letters
    from cli.kafka import cluster_database
    from cli.lake import open_catalog

    job, wanted = table_named(load_jobs(config, env, tables=[table]), table)
    name = job.table_name(wanted, cluster_database(job))
    main, letters = open_letters(open_catalog(job.lake), name)
    return name, wanted, main, letters
