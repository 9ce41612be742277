"""Which engine will make the rows of each table, by calve.yaml and the schemas of its records."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from calve.avro_program import reasons
from calve.engines import Chosen, choose, of_settings
from calve.errors import Suspended
from cli.plan.records import Read

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cli.plan.change import Change
    from cli.plan.records import Records

Engines = dict[str, "Chosen | Suspended"]
"""By table; an error says why it cannot have the engine that calve.yaml wants."""


def engines(records: Records, by_rows: Mapping[str, tuple[str, ...]]) -> Engines:
    """The engine of each table whose records can be read.

    by_rows: what keeps the steps of a table from being columnar.
    """
    return {
        name: _of_table(each, by_rows.get(name, ()))
        for name, each in records.items()
        if isinstance(each, Read)
    }


def with_engines(found: Sequence[Change], told: Engines) -> list[Change]:
    """The changes, those of tables with their engines."""
    shown = {name: str(each) for name, each in told.items() if isinstance(each, Chosen)}
    return [
        replace(each, engine=shown.get(each.name)) if each.section == "tables" and each.kind != "-" else each
        for each in found
    ]


def _of_table(read: Read, by_rows: tuple[str, ...]) -> Chosen | Suspended:
    table, parts = read.table, read.parts
    try:
        why = of_settings(table)
        if not why:
            columns = parts.first_columns(read.versions)
            why = by_rows or tuple(reasons(parts.decoding(columns, read.versions), columns))
        return choose(table.name, table.engine, why)
    except Suspended as refused:
        return refused
