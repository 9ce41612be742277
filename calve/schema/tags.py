"""Tags that schemas give their fields, such as PII: of a column (`tags`, beside its `doc`), and through all versions."""

from __future__ import annotations

from collections.abc import Iterator

from calve.schema.columns import Json
from calve.schema.evolution import join

TAGS = "confluent:tags"
"""Attribute of a field in Avro and of a property in JSON Schema. Protobuf has `confluent.field_meta`."""


def listed(raw: Json) -> list[str]:
    """The tags of an attribute; a text alone is one. Whatever else stands there says nothing, and spoils no schema."""
    return [each for each in (raw if isinstance(raw, list) else [raw]) if isinstance(each, str)]


def with_tags(column: dict[str, Json], tags: list[str]) -> dict[str, Json]:
    return column | {"tags": list(dict.fromkeys(tags))} if tags else column


def tags_of(*versions: Json) -> dict[str, tuple[str, ...]]:
    """The tags of each field that has any, by its path, which goes through lists and maps as those of `calve.config.steps` do.

    versions: columns under the same names. A tag that one of them gives stays, whatever others say.
    """
    found: dict[str, list[str]] = {}
    for columns in versions:
        for path, tags in _tagged(columns, ""):
            found.setdefault(path, []).extend(tags)
    return {path: tuple(dict.fromkeys(tags)) for path, tags in found.items()}


def _tagged(kind: Json, path: str) -> Iterator[tuple[str, list[str]]]:
    if isinstance(kind, str):
        return
    match kind["type"]:
        case "struct":
            for each in kind["fields"]:
                here = join(path, each["name"])
                if each.get("tags"):
                    yield here, each["tags"]
                yield from _tagged(each["type"], here)
        case "list":
            yield from _tagged(kind["element"], path)
        case _:
            yield from _tagged(kind["value"], path)


def joined(one: Json, other: Json) -> Json | None:
    """A type with the tags of both; None where more than tags tells them apart."""
    if isinstance(one, dict) and isinstance(other, dict):
        both = {key: joined(one.get(key), other.get(key)) for key in one | other if key != "tags"}
        tags = [*one.get("tags", ()), *other.get("tags", ())]
        return None if None in both.values() else with_tags(both, tags)
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        parts = [joined(*pair) for pair in zip(one, other, strict=True)]
        return None if None in parts else parts
    return one if one == other else None
