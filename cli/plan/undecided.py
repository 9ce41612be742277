"""Fields of records that somebody should decide on: that look like personal data and are not masked, or are in quarantine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from calve.errors import Suspended
from calve.evolution import data_columns
from calve.personal import findings
from calve.quarantine import admitted, leaves
from calve.steps import is_masked, names_behind, ways_to
from cli.plan.records import Read

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from calve.columns import Json
    from calve.job import Table
    from cli.plan.deployed import DeployedTable
    from cli.plan.records import Records

PERSONAL = "looks like personal data"
DECIDE = (
    "A field that looks like personal data: mask it with `mask: {NAME: hash}`, or keep it as it is with"
    " `mask: {fields: {NAME: keep}, key: keep, headers: keep}`"
)
"""What to do about fields that look like personal data: one or the other in the steps of the table."""
Tags = dict[str, tuple[str, ...]]
Undecided = dict[str, tuple[str, ...]]
"""By table, a sentence for each field."""


def undecided(records: Records, deployed: Mapping[str, DeployedTable]) -> Undecided:
    """Of the fields that the schemas of records have and the tables have not."""
    return {
        name: tuple(_of_table(each, deployed.get(name)))
        for name, each in records.items()
        if isinstance(each, Read)
    }


def looking_personal(table: Table, columns: Json, tags: Tags, is_new: Callable[[str], bool]) -> Iterator[str]:
    """A sentence for each new field of records that looks like personal data and that nobody has decided on."""
    for each in findings(columns, tags):
        if is_new(each.path) and _may_get_in(table, each.path) and not _is_decided(table, each.path, tags):
            yield f"{each.path} {PERSONAL} ({each.why})"


def _of_table(read: Read, deployed: DeployedTable | None) -> Iterator[str]:
    table, parts, versions = read.table, read.parts, read.versions
    try:
        columns = parts.first_columns(versions)
    except Suspended:  # the job will say it of the table
        return
    tags, fields = parts.tags(columns, versions), parts.leaves(columns, versions)
    known = deployed.fields if deployed and table.quarantine_new_fields else None
    let_in = admitted(fields, known, table.steps, parts.own_columns)
    looks = {each.path: f", and {PERSONAL} ({each.why})" for each in findings(columns, tags)}
    for path in sorted(fields.keys() - let_in):
        yield f"{path} is in quarantine{looks.get(path, '')}: name it in the step mask, with a rule or keep"
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
