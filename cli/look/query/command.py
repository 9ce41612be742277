"""The command `calve query`."""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from calve.names import SYSTEM_COLUMN
from cli.config import DEFAULT_CONFIG, ConfigOption, EnvOption, load_jobs
from cli.console import COMMON, Console, Output, SystemOption
from cli.look.query.writing import csv_lines, moment, objects, shown, text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cli.look.query.answer import Answer

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
    system: SystemOption = False,  # noqa: FBT002 an option of the command line
) -> None:
    """Ask the tables in SQL.

    Nothing is written, and files of this machine are not read. Tables have the names of calve.yaml; TABLE__dead_letters and
    DATABASE.TABLE are found, too. A table as of some time: from TABLE at (version => SNAPSHOT_ID), or at (timestamp =>
    '2026-01-01 00:00:00+00').

    On a terminal, rows that are wider than it are shown as blocks of lines, times in this machine's time zone, and the column
    _kafka only where the query names it, or with --system. CSV and JSON have all columns as they are.

    Examples:
      calve query "select symbol, count(*) from stock_trades group by all order by all"
      calve query --at 2h --output csv "select * from users"
    """
    from cli.config import moment as at_moment
    from cli.kafka import cluster_database
    from cli.lake import open_catalog
    from cli.look.query.answer import answered
    from cli.look.query.statement import Lookup, Statement, opened

    console = Console(Output.json if output is Format.json else Output.text)
    statement = Statement(sql)
    otherwise = None if at is None else at_moment(at, datetime.now(UTC), "--at")
    jobs = load_jobs(config, env)
    lake, database = jobs[0].lake, cluster_database(jobs[0]) or jobs[0].lake.database
    configured = [table.name for job in jobs for table in job.tables]
    tables = opened(statement, Lookup(open_catalog(lake), database, configured), otherwise)
    for each in tables.values():
        console.event("query.reads", **each.told)
    with answered(statement, tables, lake, database) as answer:
        write(
            console,
            output,
            answer,
            limit,
            hidden=() if system or SYSTEM_COLUMN in sql.lower() else (SYSTEM_COLUMN,),
        )


def write(
    console: Console, output: Format, answer: Answer, limit: int | None, hidden: Sequence[str] = ()
) -> None:
    """Write the rows as they come; text ends after `limit` of them, and says so where there are more."""
    if output is Format.text:
        most = limit or SHOWN
        rows = list(islice(answer.rows(), most + 1))
        if console.is_terminal:
            _draw(console, answer, rows[:most], hidden)
        else:
            console.grid(answer.columns, [[text(value) for value in row] for row in rows[:most]])
        if len(rows) > most:
            console.event("query.cut", rows=most, more="--limit, or -o csv for all")
        return
    written = islice(answer.rows(), limit)
    if output is Format.csv:
        console.lines(csv_lines(answer.columns, written))
    else:
        console.document(objects(answer.columns, written))


def _draw(console: Console, answer: Answer, rows: Sequence[Sequence[Any]], hidden: Sequence[str]) -> None:
    """Show rows to a person."""
    wanted = [place for place, name in enumerate(answer.columns) if name not in hidden]
    kinds = answer.types
    cells = [
        [shown(moment(row[n], kinds[n]) if isinstance(row[n], str) else row[n]) for n in wanted]
        for row in rows
    ]
    console.grid([answer.columns[n] for n in wanted], cells)
    if len(wanted) < len(answer.columns):
        console.event("query.hides", columns=list(hidden), shown_by="--system")
