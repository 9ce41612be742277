"""The tags of a property of a JSON Schema, which may stand anywhere in what describes its value."""

from __future__ import annotations

from contextlib import suppress

from calve.columns import Json
from calve.evolution import SchemaProblem
from calve.json_pointers import Documents
from calve.tags import TAGS, listed

SAME_COLUMN = ("allOf", "anyOf", "oneOf", "items", "additionalProperties")


def tags_in(node: Json, documents: Documents, kind: Json) -> list[str]:
    """The tags of a property; `kind`: the shape that it has.

    What is kept as JSON text has the tags of all that is in it: there are no columns inside that could have them.
    """
    is_text = _leaf(kind) == "json"
    found: list[str] = []
    seen: set[str] = set()
    rest = [node]
    while rest:
        each = rest.pop()
        if isinstance(each, list):
            rest += each
        if not isinstance(each, dict):
            continue
        found += listed(each.get(TAGS))
        rest += [value for key, value in each.items() if is_text or key in SAME_COLUMN]
        reference = each.get("$ref")
        if isinstance(reference, str) and reference not in seen:
            seen.add(reference)
            with suppress(SchemaProblem):  # inside of JSON text it may lead nowhere
                rest.append(documents.resolve(reference, ""))
    return found


def _leaf(kind: Json) -> Json:
    while isinstance(kind, dict) and kind["type"] != "struct":
        kind = kind["element" if kind["type"] == "list" else "value"]
    return kind
