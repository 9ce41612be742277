"""What several JSON Schemas say of one value, as one schema."""

from __future__ import annotations

from collections.abc import Sequence

from calve.columns import Json
from calve.evolution import SchemaProblem

MEANT_FOR_PEOPLE = (
    "title",
    "description",
    "default",
    "examples",
    "$comment",
    "$id",
    "$schema",
    "$defs",
    "definitions",
)


def merged(nodes: Sequence[dict[str, Json]], path: str) -> dict[str, Json]:
    """One schema with what all of them say; what they say twice and differently is looked at when it matters.

    Raises:
        SchemaProblem: they name types that no value has at once.
    """
    first, *others = [each for each in nodes if each] or [{}]
    found = dict(first)
    for each in others:
        for key, value in each.items():
            found[key] = _both(key, found[key], value, path) if key in found else value
    return found


def _both(key: str, one: Json, other: Json, path: str) -> Json:
    if one == other or key in MEANT_FOR_PEOPLE:
        return one
    match key:
        case "type":
            return _type(one, other, path)
        case "properties" if isinstance(one, dict) and isinstance(other, dict):
            shared = {name: {"allOf": [one[name], other[name]]} for name in one.keys() & other.keys()}
            return {
                name: shared.get(name, (one | other)[name]) for name in [*one, *(other.keys() - one.keys())]
            }
        case "items" | "additionalProperties" if isinstance(one, dict) and isinstance(other, dict):
            return {"allOf": [one, other]}
        case "additionalProperties":
            return one if isinstance(one, dict) and one else other
        case "enum" if isinstance(one, list) and isinstance(other, list):
            return [each for each in one if each in other]
        case "oneOf" | "anyOf" | "connect.type" | "connect.parameters":
            raise SchemaProblem(path, f"its parts name {key} twice, and differently")
    return one


def _type(one: Json, other: Json, path: str) -> Json:
    """The types that both allow."""
    left, right = (set(each if isinstance(each, list) else [each]) for each in (one, other))
    wide = {"integer"} & (left | right) if "number" in left | right else set()
    both = sorted((left & right) | wide)
    if not both:
        raise SchemaProblem(path, f"no value has the types {one} and {other} at once")
    return both[0] if len(both) == 1 else both
