"""What schemas say of their fields, as comments of a table's columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from calve.columns import Json
from calve.evolution import Change, join


def comments(table: Json, versions: Sequence[Json]) -> list[Change]:
    """What must change so that each column has the newest comment that a version gives it.

    versions: columns under the table's names, oldest first. One without a comment says nothing; a comment that no version has
    given is somebody's own and stays.
    """
    given: dict[tuple[str, ...], list[str]] = {}
    for version in versions:
        for each in _columns(version, (), ""):
            if each.doc:
                given.setdefault(each.path, []).append(each.doc)
    return [
        Change("comment", each.path[:-1], each.path[-1], each.type, docs[-1], where=each.where)
        for each in _columns(table, (), "")
        if (docs := given.get(each.path)) and each.doc != docs[-1] and (not each.doc or each.doc in docs)
    ]


@dataclass(frozen=True, slots=True)
class _Column:
    path: tuple[str, ...]
    where: str
    type: Json
    doc: str | None


def _columns(kind: Json, path: tuple[str, ...], where: str) -> Iterator[_Column]:
    """Every column, at any depth; `path` as Iceberg names it, `where` as a `SchemaProblem` does."""
    if isinstance(kind, str):
        return
    match kind["type"]:
        case "struct":
            for each in kind["fields"]:
                here, inside = (*path, each["name"]), join(where, each["name"])
                yield _Column(here, inside, each["type"], each.get("doc"))
                yield from _columns(each["type"], here, inside)
        case "list":
            yield from _columns(kind["element"], (*path, "element"), f"{where}[]")
        case _:
            yield from _columns(kind["value"], (*path, "value"), f"{where}{{}}")
