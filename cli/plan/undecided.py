"""Fields of records that somebody should decide on: that look like personal data and are not masked, or are in quarantine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from calve.errors import Suspended
from calve.evolution import data_columns
from calve.parts import parts_of
from calve.personal import findings
from calve.quarantine import admitted, leaves
from calve.registry import open_registry
from calve.steps import is_masked, names_behind, ways_to

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from calve.columns import Json
    from calve.job import Job, Table
    from calve.parts import Parts
    from cli.plan.deployed import DeployedTable

Tags = dict[str, tuple[str, ...]]
Undecided = dict[str, tuple[str, ...]]
"""By table, a sentence for each field."""


def undecided(jobs: Iterable[Job], deployed: Mapping[str, DeployedTable]) -> Undecided:
    """Of the fields that the registered schemas have and the tables have not.

    Raises:
        CalveError: the registry does not answer, or its secret cannot be read.
    """
    found: Undecided = {}
    for job in jobs:
        registry = open_registry(job.registry) if any(each.registered for each in job.tables) else None
        for table in job.tables:
            parts = parts_of(table, registry)
            if all(each.schemas.listed() for each in (parts.value, parts.key) if each):
                found[table.name] = tuple(_of_table(table, parts, deployed.get(table.name)))
    return found


def looking_personal(table: Table, columns: Json, tags: Tags, is_new: Callable[[str], bool]) -> Iterator[str]:
    """A sentence for each new field of records that looks like personal data and that nobody has decided on."""
    for each in findings(columns, tags):
        if is_new(each.path) and _may_get_in(table, each.path) and not _is_decided(table, each.path, tags):
            yield f"{each.path} looks like personal data ({each.why}) and is not masked: mask it, or say keep"


def _of_table(table: Table, parts: Parts, deployed: DeployedTable | None) -> Iterator[str]:
    try:
        versions = parts.versions()
        columns = parts.first_columns(versions)
    except Suspended:  # the job will say it of the table
        return
    tags, fields = parts.tags(columns, versions), parts.leaves(columns, versions)
    known = deployed.fields if deployed and table.quarantine_new_fields else None
    let_in = admitted(fields, known, table.steps, parts.own_columns)
    looks = {each.path: f", and looks like personal data ({each.why})" for each in findings(columns, tags)}
    for path in sorted(fields.keys() - let_in):
        yield f"{path} is in quarantine{looks.get(path, '')}: name it in the step mask, and be it with keep"
    held = leaves(data_columns(deployed.columns)).keys() if deployed else set()
    there = {path for path in fields if path not in let_in or names_behind(table.steps, path) & held}
    begun = {way for path in there for way in ways_to(path)}
    yield from looking_personal(table, columns, tags, lambda path: path not in begun)


def _is_decided(table: Table, path: str, tags: Tags) -> bool:
    """Whether a rule names the field, or a tag of it or of a field that it is in."""
    return is_masked(table.steps, path, (tag for way in ways_to(path) for tag in tags.get(way, ())))


def _may_get_in(table: Table, path: str) -> bool:
    """Of records that are added up, only what they are grouped by is kept as it is."""
    return table.aggregate is None or not set(table.aggregate.key).isdisjoint(ways_to(path))
