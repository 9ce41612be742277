"""JSON Schemas as verification sees them: what a JSON value becomes in an Arrow column, by its own rules, not the engine's."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pyarrow as pa

from calve.json_pointers import Documents
from cli.verify import json_scalars as scalars
from cli.verify.conversion import Unreadable
from cli.verify.json_text import Members
from cli.verify.renames import Renames, sources

Convert = Callable[[Any], Any]
Fields = dict[str, tuple[str, Convert]]
Nodes = list[dict[str, Any]]
"""All the schemas that hold for one value."""


class Schemas:
    """A registered schema with its references: makes converters for Arrow types. `changes`: as for `json_scalars.converter`."""

    def __init__(
        self, text: str, references: Mapping[str, str], renames: Renames, *, changes: bool = False
    ) -> None:
        self._renames = renames
        self._changes = changes
        self._documents = Documents(text, references)
        self._top = self._all(self._documents.root)

    def root(self, columns: pa.Schema) -> Fields:
        """For each column that the schema has, by name: the property that fills it, and how."""
        return self._fields(self._top, columns)

    def _fields(self, nodes: Nodes, columns: Iterable[Any]) -> Fields:
        properties, by_name = self._properties(nodes), {each.name: each for each in columns}
        found = sources(by_name, properties, self._renames)
        return {n: (p, self.converter(properties[p], by_name[n].type)) for n, p in found.items()}

    def whole(self, kind: Any) -> Convert:
        """A converter for a column that holds all of a value."""
        return self.converter(self._top, kind)

    def declared(self) -> set[str]:
        """The names of the fields at the top."""
        return set(self._properties(self._top))

    def converter(self, nodes: Nodes, kind: Any) -> Convert:
        """How a JSON value becomes a value of an Arrow type.

        Raises:
            Unreadable: values of this schema are no values of the type.
        """
        if pa.types.is_struct(kind):
            return self._struct(nodes, kind)
        if pa.types.is_map(kind):
            return self._map(nodes, kind)
        if pa.types.is_list(kind) or pa.types.is_large_list(kind):
            items = self.converter(self._inner(nodes, "items"), kind.value_type)
            return lambda value: [items(each) for each in _typed(value, list)] if value is not None else None
        found = scalars.converter(_facts(nodes), kind, changes=self._changes)
        return lambda value: found(value) if value is not None else None

    def _struct(self, nodes: Nodes, kind: Any) -> Convert:
        fields = self._fields(nodes, kind)
        if not fields:
            raise Unreadable("incompatible_schema")

        def convert(value: Any) -> dict[str, Any] | None:
            if value is None:
                return None
            members = _typed(value, Members)
            return filled(fields, members)

        return convert

    def _map(self, nodes: Nodes, kind: Any) -> Convert:
        items = self.converter(self._inner(nodes, "additionalProperties"), kind.item_type)

        def convert(value: Any) -> list[tuple[str, Any]] | None:
            if value is None:
                return None
            members = _typed(value, Members)
            if members.repeated:
                raise Unreadable("malformed")
            return [(name, items(each)) for name, each in members.items()]

        return convert

    def _properties(self, nodes: Nodes) -> dict[str, Nodes]:
        found: dict[str, Nodes] = {}
        for node in nodes:
            for name, each in node.get("properties", {}).items():
                found.setdefault(name, []).extend(self._all(each))
        return found

    def _inner(self, nodes: Nodes, key: str) -> Nodes:
        found = [each for node in nodes if key in node for each in self._all(node[key])]
        if not any(key in node for node in nodes):
            raise Unreadable("incompatible_schema")
        return found

    def _all(self, node: Any) -> Nodes:
        """A node and what its `$ref`, its `allOf` and its alternatives beside null say of the same value."""
        if not isinstance(node, dict):
            return []
        found = [node]
        if isinstance(node.get("$ref"), str):
            target = self._all(self._documents.resolve(node["$ref"], ""))
            if self._documents.siblings_ignored:
                return target
            found += target
        for each in node.get("allOf", []):
            found += self._all(each)
        for key in ("oneOf", "anyOf"):
            branches = [self._all(each) for each in node.get(key, [])]
            others = [each for each in branches if not _is_null(_facts(each))]
            if others and ("type" not in node or len(others) == 1):
                found += others[0] if _agree(others) else [{"type": scalars.SEVERAL}]
        return found


def filled(fields: Fields, members: Members) -> dict[str, Any]:
    """The columns that an object fills."""
    return {name: convert(members.get(source)) for name, (source, convert) in fields.items()}


def _facts(nodes: Nodes) -> dict[str, Any]:
    """What the nodes say together; the type without null."""
    facts: dict[str, Any] = {}
    for node in nodes:
        for key, value in node.items():
            facts.setdefault(key, value)
    kinds = facts.get("type")
    if isinstance(kinds, list):
        others = [each for each in kinds if each != "null"]
        several = len(others) > 1 and set(others) != {"integer", "number"}
        facts["type"] = (
            scalars.SEVERAL if several else "number" if "number" in others else next(iter(others), "null")
        )
    return facts


def _agree(alternatives: list[Nodes]) -> bool:
    """True where a value is read the same way whichever of them wrote it."""
    first, *others = [_facts(each) for each in alternatives]
    if all(scalars.type_of(each) == "string" and "connect.type" not in each for each in (first, *others)):
        return True
    keys = ("connect.type", "title", "format", "properties", "items", "additionalProperties")
    kind = scalars.type_of(first)
    return all(
        scalars.type_of(each) == kind and all(each.get(key) == first.get(key) for key in keys)
        for each in others
    )


def _is_null(facts: dict[str, Any]) -> bool:
    return facts.get("type") == "null" or facts.get("enum") == [None] or facts.get("const", 0) is None


def _typed(value: Any, kind: type) -> Any:
    if not isinstance(value, kind):
        raise Unreadable("malformed")
    return value
