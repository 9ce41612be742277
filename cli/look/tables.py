"""`calve tables`: what the tables hold, and one table's columns and snapshots with their ledgers."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Annotated, Any

import typer
from pyiceberg.table import Table
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType

from calve.config.topics import Expansion
from calve.modes.switch import described
from calve.names import TableName
from cli.conditions import Condition, Conditions
from cli.config import Common, load_jobs, surveyed, with_tables
from cli.console import Console
from cli.kafka import cluster_database
from cli.lake import Tables, ancestors, latest_commit, open_catalog, rows, state_of
from cli.look.health import of_states
from cli.look.status.command import say
from cli.look.status.overview import snapshot_document, snapshot_line

NameArgument = Annotated[str | None, typer.Argument(metavar="TABLE", help="One table, to see inside it.")]
LimitOption = Annotated[
    int, typer.Option("--limit", "-n", min=1, help="How many snapshots to show, newest first.")
]


def tables(
    name: NameArgument = None,
    limit: LimitOption = 10,
    *,
    given: Common,
) -> None:
    """List the tables; of one, its columns, snapshots and ledgers.

    Example:
      calve tables stock_trades --limit 20
    """
    console = given.console
    jobs = load_jobs(given.config, given.env, tables=[name] if name else ())
    found: list[tuple[Condition, dict[str, Any]]] = []
    lake, database = Tables(open_catalog(jobs[0].lake)), cluster_database(jobs[0])
    of_patterns = Expansion()
    if name is None:
        of_patterns = surveyed(jobs, lake, database or jobs[0].lake.database, ())
    whole = [with_tables(each, of_patterns) for each in jobs]
    for job, conditions in zip(whole, Conditions.of(whole), strict=True):
        for table in job.tables:
            if name is None:
                found.append(facts(lake, job.table_name(table, database), conditions))
            elif table.name == name:
                _show(console, lake, job.table_name(table, database), conditions, limit)
    if name is None:
        why = ("code", "reason", "fix")
        console.table("tables", [{key: row[key] for key in row if key not in why} for _, row in found])
        states = ((row["table"].split(".")[1], each) for each, row in found)
        say(console, of_states(states, datetime.now(UTC)))
        console.document({"tables": [row for _, row in found]})


def _show(console: Console, tables: Tables, name: TableName, conditions: Conditions, limit: int) -> None:
    found = tables.read(name)
    if found is None:
        raise conditions.missing(name)
    table, newest, latest = found.whole(), ancestors(found)[:limit], latest_commit(found)
    schema = json.loads(table.schema().model_dump_json())
    mode = described(schema, latest[1].mode) if latest else ""  # empty if calve did not make the table
    console.table(
        str(name),
        [
            {"column": path, "type": kind, "required": required}
            for path, kind, required in columns(table.schema().fields)
        ],
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
    console.document(facts(tables, name, conditions)[1] | document)


def facts(tables: Tables, name: TableName, conditions: Conditions) -> tuple[Condition, dict[str, Any]]:
    """The state of a table as in `calve status`, and its row of the list, by main's head; empty if it does not exist yet."""
    main, dead_letters = tables.read(name), tables.read(name.dead_letters)
    found = conditions.of_table(name.table, state_of(main) if main else None)
    table, head = main.whole() if main else None, main.head if main else None
    return found, {
        "table": str(name),
        "state": found.state,
        "code": found.code,
        "reason": found.reason,
        "fix": found.fix,
        "columns": len(table.schema().fields) if table else 0,
        "partitioned_by": partitioning(table) if table else "-",
        "sorted_by": sorting(table) if table else "-",
        "rows": rows(main) if main else 0,
        "files": head.total("data-files") if head else 0,
        "bytes": head.total("files-size") if head else 0,
        "dead_letters": rows(dead_letters) if main and dead_letters else 0,
    }


def columns(fields: Iterable[NestedField], above: str = "") -> Iterator[tuple[str, str, bool]]:
    """Path, type and required, of every column; a struct's fields follow it."""
    for each in fields:
        path, kind = above + each.name, each.field_type
        if isinstance(kind, StructType):
            yield path, "struct", each.required
            yield from columns(kind.fields, f"{path}.")
        else:
            yield path, _type(kind), each.required


def _type(kind: IcebergType) -> str:
    """A type without field ids, as SQL writes it."""
    match kind:
        case StructType():
            return f"struct<{', '.join(f'{each.name} {_type(each.field_type)}' for each in kind.fields)}>"
        case ListType():
            return f"list<{_type(kind.element_type)}>"
        case MapType():
            return f"map<{_type(kind.key_type)}, {_type(kind.value_type)}>"
    return str(kind)


def partitioning(table: Table) -> str:
    """The partition fields as calve.yaml writes them: `day(created_at), bucket(16, userid)`."""
    terms = [_term(table, each.source_id, str(each.transform)) for each in table.spec().fields]
    return ", ".join(terms) or "-"


def sorting(table: Table) -> str:
    """The sort fields as calve.yaml writes them: `price desc, symbol`."""
    terms = [
        _term(table, each.source_id, str(each.transform))
        + (" desc" if each.direction.value == "desc" else "")
        for each in table.sort_order().fields
    ]
    return ", ".join(terms) or "-"


def _term(table: Table, source_id: int, transform: str) -> str:
    column = table.schema().find_column_name(source_id) or f"field {source_id}"
    if transform == "identity":
        return column
    name, _, argument = transform.rstrip("]").partition("[")
    return f"{name}({argument}, {column})" if argument else f"{name}({column})"
