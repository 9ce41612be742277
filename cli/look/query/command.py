"""The command `calve query`, and how it writes values: as text, as CSV and as JSON."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, date, datetime
from enum import StrEnum
from itertools import islice
from typing import Annotated, Any

import typer

from calve.errors import ConfigError
from calve.names import SYSTEM_COLUMN
from cli.config import Where, load_jobs, parse_time
from cli.console import COMMON, Console, Output, SystemOption
from cli.kafka import cluster_database
from cli.lake import open_catalog
from cli.look.query.answer import Answer, Lookup, Statement, answered

SHOWN = 50
SPECIAL = frozenset(',"\r\n')


class Format(StrEnum):
    """The format of the rows on stdout."""

    text = "text"
    csv = "csv"
    json = "json"


SqlArgument = Annotated[str, typer.Argument(metavar="SQL", help="One query in DuckDB's SQL.")]
AtOption = Annotated[
    str | None, typer.Option("--at", help="Read all tables as of: 2h, 7d, 2026-01-01T00:00:00Z.")
]
LimitOption = Annotated[
    int | None,
    typer.Option("--limit", "-n", min=1, help=f"Rows to write; as text {SHOWN}, else all of them."),
]
FormatOption = Annotated[
    Format, typer.Option("--output", "-o", help="The form of the output on stdout.", rich_help_panel=COMMON)
]


def query(
    sql: SqlArgument,
    at: AtOption = None,
    limit: LimitOption = None,
    *,
    where: Where,
    output: FormatOption = Format.text,
    system: SystemOption = False,
) -> None:
    """Ask the tables in SQL.

    Nothing is written, and files of this machine are not read. Tables have the names of calve.yaml; TABLE__dead_letters and
    DATABASE.TABLE are found, too. A table as of some time: from TABLE at (version => SNAPSHOT_ID), or at (timestamp =>
    '2026-01-01 00:00:00+00').

    On a terminal, wide rows are blocks of lines, and times are in this machine's time zone. The column _kafka is there only if
    the query names it, or with --system. CSV and JSON have all columns as they are.

    Examples:
      calve query "select symbol, count(*) from stock_trades group by all order by all"
      calve query --at 2h --output csv "select * from users"
    """
    console = Console(Output.json if output is Format.json else Output.text)
    statement = Statement(sql)
    otherwise = None if at is None else parse_time(at, datetime.now(UTC), "--at")
    jobs = load_jobs(where.config, where.env)
    lake, database = jobs[0].lake, cluster_database(jobs[0]) or jobs[0].lake.database
    configured = [table.name for job in jobs for table in job.tables]
    tables = Lookup(open_catalog(lake), database, configured).opened(statement, otherwise)
    for each in tables.values():
        committed = each.committed_at and each.committed_at.isoformat(sep=" ", timespec="milliseconds")
        console.event("query.reads", table=each.name, snapshot=each.snapshot, committed=committed)
    hidden = () if system or SYSTEM_COLUMN in sql.lower() else (SYSTEM_COLUMN,)
    with answered(statement, tables, lake, database) as answer:
        write(console, output, answer, limit, hidden)


def write(
    console: Console, output: Format, answer: Answer, limit: int | None, hidden: Sequence[str] = ()
) -> None:
    """Write the rows as they come; text ends after `limit` of them, and reports if there are more."""
    if output is Format.csv:
        console.lines(csv_lines(answer.columns, islice(answer.rows(), limit)))
    elif output is Format.json:
        console.document(objects(answer.columns, islice(answer.rows(), limit)))
    else:
        most = limit or SHOWN
        rows = list(islice(answer.rows(), most + 1))
        if console.is_terminal:
            wanted = [place for place, name in enumerate(answer.columns) if name not in hidden]
            cells = [[_cell(row[n], answer.types[n]) for n in wanted] for row in rows[:most]]
            console.grid([answer.columns[n] for n in wanted], cells)
            if len(wanted) < len(answer.columns):
                console.event("query.hides", columns=list(hidden), shown_by="--system")
        else:
            console.grid(answer.columns, [[text(value) for value in row] for row in rows[:most]])
        if len(rows) > most:
            console.event("query.cut", rows=most, more="--limit, or -o csv for all")


def text(value: Any) -> str | None:
    """A value as one text; lists and structs are JSON, null stays null."""
    if value is None or isinstance(value, str):
        return value
    found = _spoken(value)
    return json.dumps(found, ensure_ascii=False) if isinstance(found, bool | list | dict) else str(found)


def shown(value: Any) -> str | None:
    """As `text`, for people: timestamps are ISO in this machine's time zone, bytes are hexadecimal."""
    match value:
        case datetime() if value.tzinfo is not None:
            try:
                return value.astimezone().isoformat()
            except (OverflowError, ValueError):  # beyond the years that the zone is known for
                return value.isoformat()
        case datetime() | date():
            return value.isoformat()
        case bytes() | bytearray():
            return value.hex()
        case list() | tuple() | dict():
            return json.dumps(_spoken(value), ensure_ascii=False, default=shown)
        case _:
            return text(value)


def _cell(value: Any, kind: str) -> str | None:
    """As `shown`; also DuckDB's text of a timestamp, if Python can hold it."""
    if isinstance(value, str) and kind.startswith("TIMESTAMP"):
        with suppress(ValueError):
            return shown(datetime.fromisoformat(value))
    return shown(value)


def _spoken(value: Any) -> Any:
    """The value for JSON, which has no number for NaN and the infinities."""
    match value:
        case float() if not math.isfinite(value):
            return {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value, "NaN")
        case list() | tuple():
            return [_spoken(each) for each in value]
        case dict():
            return {str(name): _spoken(each) for name, each in value.items()}
        case _:
            return value


def csv_lines(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> Iterator[str]:
    """Lines of RFC 4180 without line ends: null is an empty field, an empty text is `""`.

    A null alone on its line is `""`, too: readers skip empty lines.
    """
    yield ",".join(map(_field, columns))
    for row in rows:
        yield ",".join(map(_field, row)) or '""'


def objects(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> list[dict[str, Any]]:
    if twice := sorted(name for name, times in Counter(columns).items() if times > 1):
        reason = f'several columns are named "{twice[0]}"'
        raise ConfigError(reason, fix="name them apart: ... as another_name")
    return [dict(zip(columns, map(_spoken, row), strict=True)) for row in rows]


def _field(value: Any) -> str:
    found = text(value)
    if found is None:
        return ""
    special = not found or SPECIAL & set(found)
    return '"' + found.replace('"', '""') + '"' if special else found
