"""The schema and content of a table: columns, partitioning, sort order, sizes, snapshots."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType

from calve.names import TableName
from calve.table.summary import FROM, TO, TOPIC, as_stored, round_of
from cli.console import ago
from cli.lake import Snapshot, ancestors, load, rows, state_of
from cli.look.health import Condition, Conditions

Row = dict[str, Any]


def facts(catalog: Catalog, name: TableName, conditions: Conditions) -> tuple[Condition, Row]:
    """The state of a table as in `calve status`, and its row of the list, by main's head; empty if it does not exist yet."""
    table, dead_letters = load(catalog, name), load(catalog, name.dead_letters)
    found = conditions.of_table(name.table, state_of(table) if table else None)
    head = next(iter(ancestors(table)), None) if table else None
    return found, {
        "table": str(name),
        "state": found.state,
        "code": found.code,
        "reason": found.reason,
        "fix": found.fix,
        "columns": len(table.schema().fields) if table else 0,
        "partitioned_by": partitioning(table) if table else "-",
        "sorted_by": sorting(table) if table else "-",
        "rows": rows(table) if table else 0,
        "files": head.total("data-files") if head else 0,
        "bytes": head.total("files-size") if head else 0,
        "dead_letters": rows(dead_letters) if table and dead_letters else 0,
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


def snapshot_line(snapshot: Snapshot) -> dict[str, object]:
    """One snapshot for people; without ledger figures if no round made it."""
    ledger = snapshot.ledger
    return {
        "snapshot": str(snapshot.id),
        "committed": ago(snapshot.at, datetime.now(UTC)),
        "operation": snapshot.operation,
        "offsets": ledger.span if ledger else None,
        "applied": ledger.applied if ledger else None,
        "dead_letters": ledger.dead_lettered if ledger else None,
        "skipped": (sum(ledger.skipped.values()) or None) if ledger else None,
        "filtered": (ledger.filtered or None) if ledger else None,
        "deduplicated": (ledger.deduplicated or None) if ledger else None,
        "gaps": ledger.gaps if ledger else None,
        "lost": ledger.lost if ledger else None,
        "deleted": (ledger.rows_deleted or None) if ledger else None,
        "rows": snapshot.total("records"),
    }


def snapshot_document(snapshot: Snapshot) -> dict[str, object]:
    ledger = snapshot.ledger
    return {
        "snapshot_id": snapshot.id,
        "parent_id": snapshot.parent,
        "committed_at": snapshot.at.isoformat(timespec="milliseconds"),
        "operation": snapshot.operation,
        "topic": snapshot.summary.get(TOPIC),
        "round": round_of(snapshot.summary),
        "from": as_stored(snapshot.summary, FROM),
        "to": as_stored(snapshot.summary, TO),
        "ledger": asdict(ledger) if ledger else None,
        "metrics": snapshot.metrics,
    }
