"""Which columns earlier names of a field mean: from the aliases that the versions of a schema declare, oldest first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

Schema = Any
Renames = Mapping[str, frozenset[str]]
"""The name of a field -> the names that it had before."""


def renames_of(versions: Iterable[Schema]) -> Renames:
    """Every rename that these Avro schemas declare. Two names that one record has side by side are two columns from then on."""
    before: dict[str, set[str]] = {}
    together: set[tuple[str, str]] = set()
    for version in versions:
        records = list(_records(version))
        for fields in records:
            names = {each["name"] for each in fields}
            for each in fields:
                aliases = {a for a in each.get("aliases", ()) if a not in names}
                before.setdefault(each["name"], set()).update(
                    a for a in aliases if (each["name"], a) not in together
                )
        together |= {
            (each["name"], other["name"]) for fields in records for each in fields for other in fields
        }
    return {name: frozenset(_reached(name, before) - {name}) for name in before if before[name]}


def sources(columns: Iterable[str], written: Iterable[str], renames: Renames) -> dict[str, str]:
    """The columns that a writer fills, and the name by which it writes each."""
    columns, left = list(columns), set(written)
    found = {}
    for name in columns:
        if name not in left and (earlier := sorted(renames.get(name, frozenset()) & set(written))):
            found[name] = earlier[0]
    left -= set(found.values())
    return found | {name: name for name in columns if name in left}


def _reached(name: str, before: Mapping[str, set[str]]) -> set[str]:
    found, waiting = set(), [name]
    while waiting:
        for each in before.get(waiting.pop(), ()):
            if each not in found:
                found.add(each)
                waiting.append(each)
    return found


def _records(node: Schema) -> Iterator[list[Schema]]:
    """The fields of every record that a schema defines."""
    if isinstance(node, list):
        for each in node:
            yield from _records(each)
    elif isinstance(node, dict):
        if "fields" in node:
            yield node["fields"]
        inside = [each["type"] for each in node.get("fields", ())]
        for each in [*inside, *(node[key] for key in ("type", "items", "values") if key in node)]:
            yield from _records(each)
