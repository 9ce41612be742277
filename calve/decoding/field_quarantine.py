"""Quarantine: a field that a later version of a schema adds stays out of the table until somebody has decided on it.

To decide is to name it in the step `mask`, by any rule. The table itself says which fields have been let in: its property
`FIELDS` has the paths, as those of `calve.config.steps`, of the fields that have no fields. Whoever has those and the columns of
the schemas knows what records are decoded to: `only` of both.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping

from calve.config.steps import Step, is_masked
from calve.schema.columns import Json, join
from calve.table.summary import FIELDS


def fields_in(properties: Mapping[str, str]) -> frozenset[str] | None:
    """The fields that have been let into a table; None: it keeps none out."""
    return frozenset(json.loads(properties[FIELDS])) if FIELDS in properties else None


def written(fields: Iterable[str]) -> dict[str, str]:
    """The property that `fields_in` reads."""
    return {FIELDS: json.dumps(sorted(fields))}


def leaves(*versions: Json) -> dict[str, frozenset[str]]:
    """The fields that have no fields, by path, each with all paths that it has had.

    versions: columns under the same names, with `former` where `calve.schema.lineage` has made them.
    """
    found: dict[str, frozenset[str]] = {}
    for columns in versions:
        for path, had in _leaves(columns, "", frozenset()):
            found[path] = found.get(path, frozenset()) | had
    return found


def admitted(
    fields: Mapping[str, frozenset[str]],
    known: Collection[str] | None,
    steps: Iterable[Step],
    own: Collection[str] = (),
) -> frozenset[str]:
    """Those of the fields (`leaves`) that are let in: that have been before, under whatever name, or are decided on.

    known: None: whatever there is comes in. own: columns that have their names from calve.yaml; to add one is to decide on what
    it has then.
    """
    if known is None:
        return frozenset(fields)
    tops = {path.partition(".")[0] for path in known}
    return frozenset(
        path
        for path, had in fields.items()
        if not had.isdisjoint(known)
        or is_masked(steps, path)
        or ((top := path.partition(".")[0]) in own and top not in tops)
    )


def only(columns: Json, fields: Collection[str]) -> Json:
    """The columns without all other fields, at any depth; of a struct of which nothing is left nothing is left."""
    return columns | {"fields": list(_kept(columns, fields, ""))}


def _leaves(kind: Json, path: str, had: frozenset[str]) -> Iterator[tuple[str, frozenset[str]]]:
    if isinstance(kind, str):
        yield path, had
        return
    match kind["type"]:
        case "struct":
            for each in kind["fields"]:
                names = (each["name"], *each.get("former", ()))
                ways = frozenset(join(way, name) for way in had or ("",) for name in names)
                yield from _leaves(each["type"], join(path, each["name"]), ways)
        case "list":
            yield from _leaves(kind["element"], path, had)
        case _:
            yield from _leaves(kind["value"], path, had)


def _kept(struct: Json, fields: Collection[str], path: str) -> Iterator[Json]:
    for each in struct["fields"]:
        kind = _only(each["type"], fields, join(path, each["name"]))
        if kind is not None:
            yield each | {"type": kind}


def _only(kind: Json, fields: Collection[str], path: str) -> Json | None:
    if isinstance(kind, str):
        return kind if path in fields else None
    if kind["type"] == "struct":
        kept = list(_kept(kind, fields, path))
        return kind | {"fields": kept} if kept else None
    inside = "element" if kind["type"] == "list" else "value"
    found = _only(kind[inside], fields, path)
    return None if found is None else kind | {inside: found}
