"""Which engine will make the rows of each table, by calve.yaml and the registered schemas."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from calve.avro_program import reasons
from calve.engines import choose, of_settings
from calve.errors import Suspended
from calve.parts import parts_of
from calve.registry import open_registry

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from calve.job import Job, Table
    from calve.parts import Parts
    from cli.plan.change import Change


def engines(jobs: Iterable[Job], by_rows: Mapping[str, tuple[str, ...]]) -> dict[str, str]:
    """The engine of each table, with the reasons for it; without tables whose schemas are not registered yet.

    by_rows: what keeps the steps of a table from being columnar.

    Raises:
        CalveError: the registry does not answer, or its secret cannot be read.
    """
    found: dict[str, str] = {}
    for job in jobs:
        registry = open_registry(job.registry) if any(each.registered for each in job.tables) else None
        for table in job.tables:
            parts = parts_of(table, registry)
            if all(each.schemas.listed() for each in (parts.value, parts.key) if each):
                found[table.name] = _of_table(table, parts, by_rows.get(table.name, ()))
    return found


def with_engines(found: Sequence[Change], told: Mapping[str, str]) -> list[Change]:
    """The changes, those of tables with their engines."""
    return [
        replace(each, engine=told.get(each.name)) if each.section == "tables" and each.kind != "-" else each
        for each in found
    ]


def _of_table(table: Table, parts: Parts, by_rows: tuple[str, ...]) -> str:
    try:
        why = of_settings(table)
        if not why:
            versions = parts.versions()
            columns = parts.first_columns(versions)
            why = by_rows or tuple(reasons(parts.decoding(columns, versions), columns))
        return str(choose(table.name, table.engine, why))
    except Suspended as error:
        return error.message
