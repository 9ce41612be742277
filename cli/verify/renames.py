"""Which columns earlier names of a field mean: from what the versions of a schema declare, oldest first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

Fields = Mapping[str, Iterable[str]]
"""The fields of one record: name -> the names that it says it had before."""
Renames = Mapping[str, frozenset[str]]
"""The name of a field -> all names that it had before."""


def renames_of(versions: Iterable[Iterable[Fields]]) -> Renames:
    """Every rename that versions declare, each given by its records (`avro_records`, `json_objects`).

    Two names that one record has side by side are two columns from then on.
    """
    before: dict[str, set[str]] = {}
    together: set[tuple[str, str]] = set()
    for version in versions:
        known = list(version)
        for fields in known:
            for name, aliases in fields.items():
                earlier = {a for a in aliases if a not in fields and (name, a) not in together}
                before.setdefault(name, set()).update(earlier)
        together |= {(one, other) for fields in known for one in fields for other in fields}
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


def avro_records(node: Any) -> Iterator[Fields]:
    """The fields of every record that an Avro schema defines."""
    if isinstance(node, list):
        for each in node:
            yield from avro_records(each)
    elif isinstance(node, dict):
        if "fields" in node:
            yield {each["name"]: each.get("aliases", ()) for each in node["fields"]}
        inside = [each["type"] for each in node.get("fields", ())]
        for each in [*inside, *(node[key] for key in ("type", "items", "values") if key in node)]:
            yield from avro_records(each)


def json_objects(node: Any) -> Iterator[Fields]:
    """The properties of every object that a JSON Schema describes anywhere."""
    if isinstance(node, dict) and isinstance(named := node.get("properties"), dict):
        yield {name: each.get("x-aliases", ()) for name, each in named.items() if isinstance(each, dict)}
    for each in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        yield from json_objects(each)
