"""The command `calve preview`."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Annotated, Any

import typer

from cli.config import DEFAULT_CONFIG, ConfigOption, EnvOption, TableArgument, load_jobs, table_named
from cli.console import Console, Output, OutputOption
from cli.look.query.command import shown
from cli.project.preview.preview import Preview, look
from cli.spark import local_session

RecordsOption = Annotated[
    int, typer.Option("--records", "-n", min=1, max=10_000, help="How many of the newest records to read.")
]


def preview(
    table: TableArgument,
    records: RecordsOption = 20,
    config: ConfigOption = DEFAULT_CONFIG,
    env: EnvOption = None,
    output: OutputOption = Output.text,
) -> None:
    """Show what a table's steps make of its newest records.

    Nothing is written, and the table need not exist. Rows are shown as the table would get them, so what is masked is masked
    here, too. Its mode (upsert, deduplicate, aggregate) is not applied.

    Example:
      calve preview stock_trades --records 100
    """
    console = Console(output)
    job, wanted = table_named(load_jobs(config, env, tables=[table]), table)
    with console.progress().task(f"reading {wanted.topic}"):
        found = look(local_session(job), job, wanted, records)
    show(console, table, found)


def show(console: Console, table: str, found: Preview) -> None:
    """Print the rows, then what became of the other records, and why."""
    rows = [list(map(shown, row.values())) for row in found.shown]
    if rows:
        console.heading(f"preview {table}")
        console.grid(list(found.shown[0]), rows)
    if found.refused:
        refused = [{**asdict(each), "why": each.why} for each in found.refused]
        console.table("dead letters", refused)
    console.say(summary(found))
    console.document(asdict(replace(found, shown=tuple(map(_plain, found.shown)))))


def summary(found: Preview) -> str:
    """One sentence: `20 records: 18 rows, 1 left out by a step, 1 dead letter`."""
    parts = {
        "rows": found.rows,
        "left out by a step": found.filtered,
        "rows left out behind an explosion": found.cut,
        "of other tables": found.others,
        "dead-lettered": sum(each.records for each in found.refused),
    }
    counts = [f"{count:,} {what}" for what, count in parts.items() if count or what == "rows"]
    return f"{found.records:,} records: {', '.join(counts)}"


def _plain(value: Any) -> Any:
    """The value for JSON, which has no bytes: they are hexadecimal digits."""
    match value:
        case dict():
            return {name: _plain(each) for name, each in value.items()}
        case list():
            return list(map(_plain, value))
    return value.hex() if isinstance(value, bytes | bytearray) else value
