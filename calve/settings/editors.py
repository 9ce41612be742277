"""A JSON Schema of calve.yaml, by which editors complete and check the file.

It knows the keys and single values, not their combinations: `calve plan` checks these.
"""

from __future__ import annotations

from typing import Any

from calve.settings.model import Configuration

DIALECT = "http://json-schema.org/draft-07/schema#"
"""The newest one that editors of YAML know whole."""


def json_schema() -> dict[str, Any]:
    return {"$schema": DIALECT, "title": "calve.yaml", **_as_written(Configuration.model_json_schema())}


def _as_written(node: Any) -> Any:
    """Without pydantic's titles, parsed defaults and their bounds. A section or optional key may be there without a value."""
    if isinstance(node, list):
        return [_as_written(each) for each in node]
    if not isinstance(node, dict):
        return node
    unwanted = {"title", "default"} | ({"minimum", "maximum"} if node.get("type") == "string" else set())
    found = {key: _as_written(value) for key, value in node.items() if key not in unwanted}
    if isinstance(sections := node.get("additionalProperties"), dict) and "$ref" in sections:
        found["additionalProperties"] = _or_nothing(sections)
    needed = node.get("required", ())
    for name, value in node.get("properties", {}).items():
        written = _as_written(value)
        found["properties"][name] = written if name in needed else _or_nothing(written)
    return found


def _or_nothing(node: dict[str, Any]) -> dict[str, Any]:
    nothing = {"type": "null"}
    return node if nothing in node.get("anyOf", ()) else {"anyOf": [node, nothing]}
