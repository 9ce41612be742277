"""Which field is masked how: what calve.yaml says of paths and of tags, held against the fields that there are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from calve.names import nearest
from calve.steps import Mask, Rule
from glue_jobs.steps.frame import unusable

Path = tuple[str, ...]


def rules(step: Mask, tags: Mapping[str, tuple[str, ...]], columns: StructType) -> dict[Path, Rule]:
    """The rule of each field that is masked; of a field in a masked one, too, but that has no say.

    tags: the tags of fields by path, as the schema has them. Of a field with several, the first of `step.tags` counts.

    Raises:
        Suspended: there is no such field. Also for a field with a tag, as it may be here under another name.
    """
    known = list(paths(columns))
    tagged = {path: rule for path, own in tags.items() if (rule := _first(step, own)) is not None}
    missing = [_missing(path, known) for path in step.fields if path not in known]
    missing += [
        f"{path}, which the schema tags, is no column any more; mask it before other steps change it"
        for path, rule in tagged.items()
        if path not in known and rule.how != "keep" and path not in step.fields
    ]
    if missing:
        raise unusable("; ".join(missing))
    found = tagged | step.fields
    return {tuple(path.split(".")): rule for path, rule in found.items() if rule.how != "keep"}


def inside(found: Mapping[Path, Rule], name: str) -> dict[Path, Rule]:
    """The rules of a field and of what is in it, with paths that begin there."""
    return {path[1:]: rule for path, rule in found.items() if path[:1] == (name,)}


def is_dropped(kind: DataType, found: Mapping[Path, Rule]) -> bool:
    """Whether nothing is left of a field; `found`: the rules, with paths that begin there."""
    if rule := found.get(()):
        return rule.how == "drop"
    match kind:
        case StructType():
            return all(is_dropped(each.dataType, inside(found, each.name)) for each in kind.fields)
        case ArrayType():
            return is_dropped(kind.elementType, found)
        case MapType():
            return is_dropped(kind.valueType, found)
    return False


def paths(kind: DataType, prefix: str = "") -> Iterator[str]:
    """The path of every field of a type, at any depth."""
    match kind:
        case StructType():
            for each in kind.fields:
                yield prefix + each.name
                yield from paths(each.dataType, f"{prefix}{each.name}.")
        case ArrayType():
            yield from paths(kind.elementType, prefix)
        case MapType():
            yield from paths(kind.valueType, prefix)


def _first(step: Mask, own: tuple[str, ...]) -> Rule | None:
    return next((rule for tag, rule in step.tags.items() if tag in own), None)


def _missing(path: str, known: list[str]) -> str:
    near = nearest(path, known)
    return f"no column {path}" + (f"; did you mean {near}?" if near else "")
