"""The schema versions of a table: since when each is there, and its differences from the one before."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pyiceberg.schema import Schema, index_by_id, index_name_by_id
from pyiceberg.table import Table
from pyiceberg.types import PrimitiveType

from calve.names import SYSTEM_COLUMN


@dataclass(frozen=True, slots=True)
class SchemaVersion:
    """One schema of a table. columns: at the top. at: its first commit that is kept, in epoch seconds; None: there is none.

    changes: `+ note string`, `- note`, `note -> remark`, `amount: int -> long`, against the version before.
    """

    id: int
    columns: int
    at: float | None = None
    changes: tuple[str, ...] = ()


def versions(table: Table) -> tuple[SchemaVersion, ...]:
    """The schemas that the table's metadata has, the newest first."""
    began: dict[int, float] = {}
    for each in table.snapshots():
        if each.schema_id is not None:
            at = each.timestamp_ms / 1000
            began[each.schema_id] = min(at, began.get(each.schema_id, at))
    found, before = [], None
    for schema in sorted(table.schemas().values(), key=lambda each: each.schema_id):
        changes = tuple(_changes(before, schema)) if before else ()
        columns = sum(each.name != SYSTEM_COLUMN for each in schema.fields)
        found.append(SchemaVersion(schema.schema_id, columns, began.get(schema.schema_id), changes))
        before = schema
    return tuple(reversed(found))


def _changes(before: Schema, after: Schema) -> Iterator[str]:
    """A column's parts are not named if it came or went with them."""
    old, new = index_name_by_id(before), index_name_by_id(after)
    types = index_by_id(before), index_by_id(after)
    for id, name in _outermost({id: name for id, name in new.items() if id not in old}):
        kind = types[1][id].field_type
        yield f"+ {name} {kind if isinstance(kind, PrimitiveType) else type(kind).__name__[:-4].lower()}"
    for _, name in _outermost({id: name for id, name in old.items() if id not in new}):
        yield f"- {name}"
    for id in old.keys() & new.keys():
        was, now = (each[id] for each in types)
        if was.name != now.name:
            yield f"{old[id]} -> {new[id]}"
        if isinstance(now.field_type, PrimitiveType) and was.field_type != now.field_type:
            yield f"{new[id]}: {was.field_type} -> {now.field_type}"


def _outermost(names: Mapping[int, str]) -> Iterator[tuple[int, str]]:
    paths = set(names.values())
    for id, name in names.items():
        if name.rpartition(".")[0] not in paths:
            yield id, name
