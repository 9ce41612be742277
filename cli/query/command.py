"""The command `calve query`."""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum
from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

from cli.config import DEFAULT_CONFIG, ConfigOption, EnvOption, load_jobs
from cli.console import COMMON, Console, Output
from cli.query.writing import csv_lines, objects, text

if TYPE_CHECKING:
    from cli.query.answer import Answer

SHOWN = 50


class Format(StrEnum):
    """How the rows are written on stdout."""

    text = "text"
    csv = "csv"
    json = "json"


SqlArgument = Annotated[
    str, typer.Argument(metavar="SQL", help="One query in DuckDB's SQL.", show_default=False)
]
AtOption = Annotated[
    str | None,
    typer.Option("--at", help="Read all tables as of: 2h, 7d, 2026-01-01T00:00:00Z.", show_default=False),
]
LimitOption = Annotated[
    int | None,
    typer.Option(
        "--limit", "-n", min=1, help=f"Rows to write; as text {SHOWN}, else all of them.", show_default=False
    ),
]
FormatOption = Annotated[
    Format, typer.Option("--output", "-o", help="What to write on stdout.", rich_help_panel=COMMON)
]


def query(
    sql: SqlArgument,
    at: AtOption = None,
    limit: LimitOption = None,
    config: ConfigOption = DEFAULT_CONFIG,
    env: EnvOption = None,
    output: FormatOption = Format.text,
) -> None:
    """Ask the tables in SQL.

    Nothing is written, and files of this machine are not read. Tables have the names of calve.yaml; TABLE__dead_letters and
    DATABASE.TABLE are found, too. A table as of some time: from TABLE at (version => SNAPSHOT_ID), or at (timestamp =>
    '2026-01-01 00:00:00+00').

    Examples:
      calve query "select symbol, count(*) from stock_trades group by all order by all"
      calve query --at 2h --output csv "select * from users"
    """
    from cli.kafka import cluster_database
    from cli.lake import open_catalog
    from cli.moment import moment
    from cli.query.answer import answered
    from cli.query.statement import Statement
    from cli.query.tables import Lookup, opened

    console = Console(Output.json if output is Format.json else Output.text)
    statement = Statement(sql)
    otherwise = None if at is None else moment(at, datetime.now(UTC), "--at")
    jobs = load_jobs(config, env)
    lake, database = jobs[0].lake, cluster_database(jobs[0]) or jobs[0].lake.database
    configured = [table.name for job in jobs for table in job.tables]
    tables = opened(statement, Lookup(open_catalog(lake), database, configured), otherwise)
    for each in tables.values():
        console.event("query.reads", **each.told)
    with answered(statement, tables, lake, database) as answer:
        write(console, output, answer, limit)


def write(console: Console, output: Format, answer: Answer, limit: int | None) -> None:
    """Write the rows as they come; text ends after `limit` of them, and says so where there are more."""
    if output is Format.text:
        shown = limit or SHOWN
        rows = list(islice(answer.rows(), shown + 1))
        console.grid(answer.columns, [[text(value) for value in row] for row in rows[:shown]])
        if len(rows) > shown:
            console.event("query.cut", rows=shown, more="--limit, or -o csv for all")
        return
    written = islice(answer.rows(), limit)
    if output is Format.csv:
        console.lines(csv_lines(answer.columns, written))
    else:
        console.document(objects(answer.columns, written))
