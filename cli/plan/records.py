"""What the records of each table are read with now, by the registry and by the schemas that calve.yaml names."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from calve.errors import CalveError, Retryable, Suspended
from calve.evolution import apply, data_columns
from calve.parts import parts_of
from calve.registry import open_registry

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from calve.columns import Json
    from calve.job import Job, Table
    from calve.parts import Parts, Versions
    from calve.registry import Registry
    from cli.plan.deployed import DeployedTable


@dataclass(frozen=True, slots=True)
class Read:
    """The schemas of a table's records. `columns`: what records are decoded to, in a table without steps its data columns.
    misfit: why no value of the newest version is a row.
    """

    table: Table
    parts: Parts
    versions: Versions
    columns: Json
    misfit: str | None = None


Records = dict[str, "Read | CalveError"]
"""By table; an error says why its records cannot be read."""


def asks_registry(table: Table) -> bool:
    """Whether the schemas of its records are those of the registry."""
    return table.value.registered or (table.key is not None and table.key.registered)


def read_records(jobs: Iterable[Job], deployed: Mapping[str, DeployedTable]) -> Records:
    """The records of all tables of these jobs.

    Raises:
        CalveError: the registry does not answer, or its secret cannot be read.
    """
    found: Records = {}
    for job in jobs:
        registry = open_registry(job.registry) if any(map(asks_registry, job.tables)) else None
        with ThreadPoolExecutor(max_workers=8) as pool:
            read = pool.map(partial(_read, registry, deployed), job.tables)
            found |= {table.name: each for table, each in zip(job.tables, read, strict=True)}
    return found


def _read(
    registry: Registry | None, deployed: Mapping[str, DeployedTable], table: Table
) -> Read | CalveError:
    parts, held = parts_of(table, registry), deployed.get(table.name)
    for each in filter(None, (parts.value, parts.key)):
        each.schemas.listed()  # a registry that does not answer is no fault of the table
    try:
        versions = parts.versions()
        if held is None or table.aggregate or table.steps:
            columns = parts.first_columns(versions)
        else:
            columns = _evolved(parts, data_columns(held.columns), versions)
        decoding = parts.decoding(columns, versions)
    except (Retryable, Suspended) as problem:
        return problem
    newest = versions.values[-1].id
    refused = newest in decoding.incompatible
    misfit = parts.misfit(columns, parts.value.wire.name(newest)) if refused else None
    return Read(table, parts, versions, columns, misfit)


def _evolved(parts: Parts, held: Json, versions: Versions) -> Json:
    """The columns of a table that exists, once its job has added those of newer versions."""
    while found := parts.evolution(held, versions):
        held = apply(held, found[0][1])
    return held
