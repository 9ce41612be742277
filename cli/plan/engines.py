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


def engines(jobs: Iterable[Job]) -> dict[str, str]:
    """The engine of each table, with the reasons for it; without tables whose schemas are not registered yet.

    Raises:
        CalveError: the registry does not answer, or its secret cannot be read.
    """
    found: dict[str, str] = {}
    for job in jobs:
        registry = open_registry(job.registry) if any(each.registered for each in job.tables) else None
        for table in job.tables:
            parts = parts_of(table, registry)
            if all(each.schemas.listed() for each in (parts.value, parts.key) if each):
                found[table.name] = _of_table(table, parts)
    return found


def with_engines(found: Sequence[Change], told: Mapping[str, str]) -> list[Change]:
    """The changes, those of tables with their engines."""
    return [
        replace(each, engine=told.get(each.name)) if each.section == "tables" and each.kind != "-" else each
        for each in found
    ]


def _of_table(table: Table, parts: Parts) -> str:
    """Whether expressions of steps have columnar form only the job can tell, which has Spark read them."""
    try:
        why = of_settings(table)
        if not why:
            versions = parts.versions()
            columns = parts.first_columns(versions)
            why = tuple(reasons(parts.decoding(columns, versions), columns))
        chosen = choose(table.name, table.engine, why)
        open_ = chosen.engine == "columnar" and table.steps
        return f"{chosen}, where its steps allow it" if open_ else str(chosen)
    except Suspended as error:
        return error.message
