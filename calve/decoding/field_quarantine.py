"""Field quarantine: a field that a later schema version adds stays out of the table until somebody decides on it.

A person decides by naming the field in the step `mask`, with any rule. The table property `FIELDS` lists the accepted fields:
the paths, as in `calve.config.steps`, of fields without nested fields.
Together with the schemas' columns it defines what records are decoded to: `only` of both.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping

from calve.config.steps import Step, is_masked
from calve.schema.columns import Json, join
from calve.table.summary import FIELDS


def fields_in(properties: Mapping[str, str]) -> frozenset[str] | None:
    """The accepted fields of a table; None if it has no quarantine."""
    return frozenset(json.loads(properties[FIELDS])) if FIELDS in properties else None


def written(fields: Iterable[str]) -> dict[str, str]:
    """The property that `fields_in` reads."""
    return {FIELDS: json.dumps(sorted(fields))}


def leaves(*versions: Json) -> dict[str, frozenset[str]]:
    """The fields without nested fields, by path, each with all paths it has had.

    versions: columns under the same names, with `former` if `calve.schema.lineage` made them.
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
    """The accepted fields (`leaves`): those accepted before, under any name, and those decided on.

    known: None accepts all. own: columns named by calve.yaml. Adding such a column accepts the fields it has at that time.
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
    """The columns with only these fields, at any depth. A struct without remaining fields is removed."""
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
