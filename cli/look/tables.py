"""`calve tables`: what the tables hold, and one table's columns and snapshots with their ledgers."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Annotated

import typer
from pyiceberg.catalog import Catalog

from calve.modes.switch import described
from calve.names import TableName
from cli.config import DEFAULT_CONFIG, ConfigOption, EnvOption, load_jobs, surveyed, with_tables
from cli.console import Console, Output, OutputOption
from cli.kafka import cluster_database
from cli.lake import ancestors, latest_commit, load, open_catalog
from cli.look.description import (
    Row,
    columns,
    facts,
    partitioning,
    snapshot_document,
    snapshot_line,
    sorting,
)
from cli.look.health import Condition, Conditions, of_states
from cli.look.status.command import say

NameArgument = Annotated[str | None, typer.Argument(metavar="TABLE", help="One table, to see inside it.")]
LimitOption = Annotated[
    int, typer.Option("--limit", "-n", min=1, help="How many snapshots to show, newest first.")
]


def tables(
    name: NameArgument = None,
    limit: LimitOption = 10,
    config: ConfigOption = DEFAULT_CONFIG,
    env: EnvOption = None,
    output: OutputOption = Output.text,
) -> None:
    """List the tables; of one, its columns, snapshots and ledgers.

    Example:
      calve tables stock_trades --limit 20
    """
    console = Console(output)
    jobs = load_jobs(config, env, tables=[name] if name else ())
    found: list[tuple[Condition, Row]] = []
    for job in jobs:
        catalog, database = open_catalog(job.lake), cluster_database(job)
        if name is None:
            job = with_tables(job, surveyed(job, catalog, database or job.lake.database, ()))
        conditions = Conditions.of(job)
        for table in job.tables:
            if name is None:
                found.append(facts(catalog, job.table_name(table, database), conditions))
            elif table.name == name:
                _show(console, catalog, job.table_name(table, database), conditions, limit)
    if name is None:
        why = ("code", "reason", "fix")
        console.table("tables", [{key: row[key] for key in row if key not in why} for _, row in found])
        states = ((row["table"].split(".")[1], each) for each, row in found)
        say(console, of_states(states, datetime.now(UTC)))
        console.document({"tables": [row for _, row in found]})


def _show(console: Console, catalog: Catalog, name: TableName, conditions: Conditions, limit: int) -> None:
    table = load(catalog, name)
    if table is None:
        raise conditions.missing(name)
    newest, latest = ancestors(table)[:limit], latest_commit(table)
    schema = json.loads(table.schema().model_dump_json())
    mode = described(schema, latest[1].mode) if latest else ""  # empty if calve did not make the table
    found = columns(table.schema().fields)
    console.table(
        str(name), [{"column": path, "type": kind, "required": required} for path, kind, required in found]
    )
    layout = {"mode": mode, "partitioned_by": partitioning(table), "sorted_by": sorting(table)}
    console.table("layout", [layout])
    console.table("snapshots", [snapshot_line(each) for each in newest])
    document = {
        "location": table.location(),
        "mode": mode,
        "schema": schema,
        "snapshots": [snapshot_document(each) for each in newest],
    }
    console.document(facts(catalog, name, conditions)[1] | document)
