"""The schema registry: does it answer, does it know the subjects of the tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from calve.job import GlueRegistry
from calve.parts import parts_of
from calve.registry import open_registry
from lambdas.doctor.finding import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from calve.job import AnyRegistry, Table

REGISTER = "register the schema, or let a producer do it: the table waits for it"


def registry(settings: AnyRegistry | None, tables: Sequence[Table]) -> Iterator[Finding]:
    """The registry with the credentials of the configuration, and the subjects.

    Raises:
        CalveError: it does not answer, or refuses them.
    """
    if settings is None:
        yield Finding("registry", "absent", "no table needs one")
        return
    opened = open_registry(settings)
    where = settings.name if isinstance(settings, GlueRegistry) else settings.url
    known = len(opened.subjects())
    yield Finding("registry", "ok", f"{where}; subjects: {known}")
    registered = 0
    for table in (each for each in tables if each.registered):
        parts = parts_of(table, opened)
        for part in filter(None, (parts.value, parts.key)):
            if part.schemas.listed():
                registered += 1
            else:
                yield Finding(
                    f"schema of {table.name}", "warn", f"{part.schemas.title} has no version", REGISTER
                )
    if registered:
        yield Finding("subjects", "ok", f"with versions: {registered}")
