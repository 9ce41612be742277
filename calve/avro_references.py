"""Avro schemas whose named types are defined in other registered schemas."""

from __future__ import annotations

import json
from collections.abc import Mapping

from calve.avro import PRIMITIVES
from calve.columns import Json


def with_definitions(text: str, references: Mapping[str, str]) -> str:
    """A schema with each type that it refers to defined where it is named first, since Avro knows no other way.

    `references`: each after those that it needs itself.

    Raises:
        ValueError: a text is no JSON.
    """
    written = _Written()
    for each in references.values():
        written.know(json.loads(each))
    return json.dumps(written.walk(json.loads(text), ""))


class _Written:
    def __init__(self) -> None:
        self.known: dict[str, Json] = {}
        self.defined: set[str] = set()

    def know(self, schema: Json) -> None:
        """Note every named type of a referenced schema."""
        if isinstance(schema, list):
            for each in schema:
                self.know(each)
        elif isinstance(schema, dict) and isinstance(schema.get("name"), str):
            full, space = _full_name(schema, "")
            self.known[full] = schema | {"namespace": space}

    def walk(self, node: Json, space: str) -> Json:
        if isinstance(node, str):
            return self._name(node, space)
        if isinstance(node, list):
            return [self.walk(each, space) for each in node]
        if not isinstance(node, dict):
            return node
        result = dict(node)
        if isinstance(node.get("name"), str) and node.get("type") in ("record", "error", "enum", "fixed"):
            full, space = _full_name(node, space)
            self.defined.add(full)
        for key in ("items", "values"):
            if key in node:
                result[key] = self.walk(node[key], space)
        if isinstance(node.get("fields"), list):
            result["fields"] = [
                each | {"type": self.walk(each.get("type"), space)} if isinstance(each, dict) else each
                for each in node["fields"]
            ]
        elif "type" in node:
            result["type"] = self.walk(node["type"], space)
        return result

    def _name(self, name: str, space: str) -> Json:
        if name in PRIMITIVES or name == "null":
            return name
        for full in (name,) if "." in name or not space else (f"{space}.{name}", name):
            if full in self.known and full not in self.defined:
                return self.walk(self.known[full], "")
        return name


def _full_name(node: Json, space: str) -> tuple[str, str]:
    """The full name of a named type and the namespace that holds inside it."""
    name = node["name"]
    if "." in name:
        return name, name.rpartition(".")[0]
    own = node.get("namespace", space)
    return (f"{own}.{name}" if own else name), own
