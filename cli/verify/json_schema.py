"""JSON Schemas as verification sees them: what a JSON value becomes in an Arrow column, by its own rules, not the engine's."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import unquote, urljoin

import pyarrow as pa

from cli.verify import json_scalars as scalars
from cli.verify.conversion import Unreadable
from cli.verify.json_text import Members
from cli.verify.renames import Renames, sources

Convert = Callable[[Any], Any]
Fields = dict[str, tuple[str, Convert]]
Node = tuple[str, Any]
"""The URI of what is around a schema, and the schema."""
Nodes = list[tuple[str, dict[str, Any]]]
"""All the schemas that hold for one value, each with the URI that its references begin at."""
ALONE = re.compile(r"draft-0[3467]")
"""Drafts by which nothing that stands beside a `$ref` counts."""


class Schemas:
    """A registered schema with its references: makes converters for Arrow types. `changes`: as for `json_scalars.converter`."""

    def __init__(
        self, text: str, references: Mapping[str, str], renames: Renames, *, changes: bool = False
    ) -> None:
        self._renames = renames
        self._changes = changes
        documents = {name: json.loads(each) for name, each in references.items()} | {"": json.loads(text)}
        self._known: dict[str, Node] = {name: (name, each) for name, each in documents.items()}
        for name, each in documents.items():
            self._known = dict(_named(name, each)) | self._known
        top = documents[""]
        self._root = "", top
        self._alone = isinstance(top, dict) and ALONE.search(str(top.get("$schema"))) is not None

    def root(self, columns: pa.Schema) -> Fields:
        """For each column that the schema has, by name: the property that fills it, and how."""
        return self._fields(self._all(*self._root), columns)

    def _fields(self, nodes: Nodes, columns: Iterable[Any]) -> Fields:
        properties, by_name = self._properties(nodes), {each.name: each for each in columns}
        found = sources(by_name, properties, self._renames)
        return {n: (p, self.converter(properties[p], by_name[n].type)) for n, p in found.items()}

    def whole(self, kind: Any) -> Convert:
        """A converter for a column that holds all of a value."""
        return self.converter(self._all(*self._root), kind)

    def declared(self) -> set[str]:
        """The names of the fields at the top."""
        return set(self._properties(self._all(*self._root)))

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
        for base, node in nodes:
            for name, each in node.get("properties", {}).items():
                found.setdefault(name, []).extend(self._all(base, each))
        return found

    def _inner(self, nodes: Nodes, key: str) -> Nodes:
        found = [each for base, node in nodes if key in node for each in self._all(base, node[key])]
        if not any(key in node for _, node in nodes):
            raise Unreadable("incompatible_schema")
        return found

    def _all(self, base: str, node: Any) -> Nodes:
        """A node and what its `$ref`, its `allOf` and its alternatives beside null say of the same value."""
        if not isinstance(node, dict):
            return []
        base = _base(base, node)
        found = [(base, node)]
        if isinstance(node.get("$ref"), str):
            target = self._all(*self._target(base, node["$ref"]))
            if self._alone:
                return target
            found += target
        for each in node.get("allOf", []):
            found += self._all(base, each)
        for key in ("oneOf", "anyOf"):
            branches = [self._all(base, each) for each in node.get(key, [])]
            others = [each for each in branches if not _is_null(_facts(each))]
            if others and ("type" not in node or len(others) == 1):
                found += others[0] if _agree(others) else [(base, {"type": scalars.SEVERAL})]
        return found

    def _target(self, base: str, reference: str) -> Node:
        if reference.startswith("#"):
            uri = base + reference.rstrip("#")
        else:
            known = reference.partition("#")[0] in self._known
            uri = reference if known else urljoin(base, reference)
        if uri in self._known:
            return self._known[uri]
        document, _, pointer = uri.partition("#")
        around, node = self._known[document]
        if not pointer.startswith("/"):
            raise Unreadable("incompatible_schema")
        for part in pointer.split("/")[1:]:
            name = unquote(part).replace("~1", "/").replace("~0", "~")
            around = _base(around, node)
            node = node[int(name) if isinstance(node, list) else name]
        return around, node


def filled(fields: Fields, members: Members) -> dict[str, Any]:
    """The columns that an object fills."""
    return {name: convert(members.get(source)) for name, (source, convert) in fields.items()}


def _facts(nodes: Nodes) -> dict[str, Any]:
    """What the nodes say together; the type without null."""
    facts: dict[str, Any] = {}
    for _, node in nodes:
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
    if all(each.get("type") == "string" and "connect.type" not in each for each in (first, *others)):
        return True
    keys = (
        "type",
        "connect.type",
        "title",
        "format",
        "properties",
        "items",
        "additionalProperties",
        "enum",
        "const",
    )
    return all(all(each.get(key) == first.get(key) for key in keys) for each in others)


def _is_null(facts: dict[str, Any]) -> bool:
    return facts.get("type") == "null" or facts.get("enum") == [None] or facts.get("const", 0) is None


def _base(around: str, node: Any) -> str:
    """The URI that references inside of a node begin at."""
    own = node.get("$id") if isinstance(node, dict) else None
    return urljoin(around, own).partition("#")[0] if isinstance(own, str) and own[:1] != "#" else around


def _named(around: str, node: Any) -> Iterator[tuple[str, Node]]:
    """The schemas of a document that have a URI, by that."""
    base = _base(around, node)
    if isinstance(node, dict):
        anchor, own = node.get("$anchor"), node.get("$id")
        if base != around:
            yield base, (around, node)
        if isinstance(anchor, str):
            yield f"{base}#{anchor}", (around, node)
        if isinstance(own, str) and own.startswith("#"):
            yield base + own, (around, node)
    for each in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        yield from _named(base, each)


def _typed(value: Any, kind: type) -> Any:
    if not isinstance(value, kind):
        raise Unreadable("malformed")
    return value
