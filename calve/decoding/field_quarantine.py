"""Field quarantine: a field that a later schema version adds stays out of the table until somebody decides on it.

A person decides by naming the field in the step `mask`, with any rule. The table property `FIELDS` lists the accepted fields:
the paths, as in `calve.config.steps`, of fields without nested fields.
Together with the schemas' columns it defines what records are decoded to: `only` of both.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import partial

from calve.config.steps import Step, is_masked
from calve.schema.columns import Json, inner_struct, join, with_inner_struct
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
        for path, had in _leaves(columns, "", frozenset({""})):
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


def only(columns: Json, fields: Collection[str], path: str = "") -> Json:
    """The columns (of a struct at `path`) with only these fields, at any depth. A struct without remaining fields is removed."""
    kept = []
    for each in columns["fields"]:
        here = join(path, each["name"])
        kind = with_inner_struct(each["type"], partial(only, fields=fields, path=here))
        inner, _ = inner_struct(kind)
        if here in fields if inner is None else inner["fields"]:
            kept.append(each | {"type": kind})
    return columns | {"fields": kept}


def _leaves(struct: Json, path: str, had: frozenset[str]) -> Iterator[tuple[str, frozenset[str]]]:
    for each in struct["fields"]:
        here, names = join(path, each["name"]), (each["name"], *each.get("former", ()))
        ways = frozenset(join(way, name) for way in had for name in names)
        inner, _ = inner_struct(each["type"])
        if inner is None:
            yield here, ways
        else:
            yield from _leaves(inner, here, ways)
