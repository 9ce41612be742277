"""JSON Schemas, and those of Kafka Connect's JSON converter. Own rules, not the job's code, convert JSON values."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from calve.registry.registry import NO_ID
from calve.schema.json_pointers import Documents
from calve.schema.wire import Schema
from cli.verify.columns import is_list
from cli.verify.formats import json_values
from cli.verify.formats.fields import Columns, Convert, Renames, Spec, Unreadable, Writer, columns_of, filled
from cli.verify.formats.json_values import DECIMAL, SEVERAL, Members, type_of

Nodes = list[dict[str, Any]]
"""All the schemas that hold for one value."""
_CONNECT = {
    "boolean": {"type": "boolean"},
    "string": {"type": "string"},
    "bytes": {"type": "string", "connect.type": "bytes"},
    "float": {"type": "number", "connect.type": "float32"},
    "double": {"type": "number", "connect.type": "float64"},
    **{f"int{bits}": {"type": "integer", "connect.type": f"int{bits}"} for bits in (8, 16, 32, 64)},
}


class _AnyJsonWriter(Writer):
    def __init__(self, spec: Spec) -> None:
        super().__init__(spec)
        payloads = _of_connect(spec.schema)
        self._embedded = payloads is not None
        text, references = payloads or spec.schema.text, spec.schema.references
        self.schemas = Schemas(text, references, spec.renames, changes=spec.changes)

    def read(self, value: bytes) -> Any:
        """What a value says; of a message of Connect's, its payload."""
        found = json_values.read(value[len(self.frame) :])
        if not self._embedded:
            return found
        if not isinstance(found, Members) or "payload" not in found:
            raise Unreadable("malformed")
        return found["payload"]

    def is_ambiguous(self, value: Any) -> bool:
        return json_values.repeats(json_values.read(value[len(self.frame) :]))


class JsonWriter(_AnyJsonWriter):
    """For objects, whose members are the columns."""

    def __init__(self, spec: Spec) -> None:
        super().__init__(spec)
        self._fields = self.schemas.root(self.columns)
        self._declared = self.schemas.declared()
        self._rest = spec.own

    def decode(self, value: bytes) -> Any:
        found = self.read(value)
        if not isinstance(found, Members):
            raise Unreadable("malformed")
        row = filled(self._fields, found)
        return row | {self._rest: self._undeclared(found)} if self._rest else row

    def _undeclared(self, found: Members) -> str | None:
        """The JSON text of undeclared members. No object may have a duplicate member, at any depth."""
        for each in found.values():
            json_values.written(each)
        rest = Members({name: each for name, each in found.items() if name not in self._declared})
        rest.repeated = bool(found.twice - self._declared)
        return json_values.written(rest) if rest else None


class WholeJsonWriter(_AnyJsonWriter):
    """For values that are one column."""

    def __init__(self, spec: Spec) -> None:
        super().__init__(spec)
        [self._column] = self.columns
        self._convert = self.schemas.whole(self._column.type)

    def decode(self, value: bytes) -> Any:
        found = self.read(value)
        if pa.types.is_struct(self._column.type) != isinstance(found, Members):
            raise Unreadable("malformed")
        return {self._column.name: self._convert(found)}


class Schemas:
    """A registered schema with its references: makes converters for Arrow types. `changes`: as for `json_values.converter`."""

    def __init__(
        self, text: str, references: Mapping[str, str], renames: Renames, *, changes: bool = False
    ) -> None:
        self._renames = renames
        self._changes = changes
        self._documents = Documents(text, references)
        self._top = self._all(self._documents.root)

    def root(self, columns: Iterable[pa.Field]) -> Columns:
        """For each column of the schema, by name: its property and converter."""
        return self._fields(self._top, columns)

    def _fields(self, nodes: Nodes, columns: Iterable[pa.Field]) -> Columns:
        return columns_of(columns, self._properties(nodes), self._renames, self.converter)

    def whole(self, kind: Any) -> Convert:
        """A converter for a column of whole values."""
        return self.converter(self._top, kind)

    def declared(self) -> set[str]:
        """The field names at the top."""
        return set(self._properties(self._top))

    def converter(self, nodes: Nodes, kind: Any) -> Convert:
        """Converts a JSON value into a value of an Arrow type.

        Raises:
            Unreadable: values of this schema do not fit the type.
        """
        convert = self._converter(nodes, kind)
        return lambda value: None if value is None else convert(value)

    def _converter(self, nodes: Nodes, kind: Any) -> Convert:
        if pa.types.is_struct(kind):
            return self._struct(nodes, kind)
        if pa.types.is_map(kind):
            return self._map(nodes, kind)
        if is_list(kind):
            items = self.converter(self._inner(nodes, "items"), kind.value_type)
            return lambda value: [items(each) for each in _typed(value, list)]
        return json_values.converter(_facts(nodes), kind, changes=self._changes)

    def _struct(self, nodes: Nodes, kind: Any) -> Convert:
        fields = self._fields(nodes, kind)
        if not fields:
            raise Unreadable("incompatible_schema")
        return lambda value: filled(fields, _typed(value, Members))

    def _map(self, nodes: Nodes, kind: Any) -> Convert:
        items = self.converter(self._inner(nodes, "additionalProperties"), kind.item_type)

        def convert(value: Any) -> list[tuple[str, Any]]:
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
        """The nodes for the same value: this one, its `$ref`, its `allOf`, and its alternatives beside null."""
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
                found += others[0] if _agree(others) else [{"type": SEVERAL}]
        return found


def _facts(nodes: Nodes) -> dict[str, Any]:
    """The combined facts of the nodes; the type without null."""
    facts: dict[str, Any] = {}
    for node in nodes:
        for key, value in node.items():
            facts.setdefault(key, value)
    kinds = facts.get("type")
    if isinstance(kinds, list):
        others = [each for each in kinds if each != "null"]
        several = len(others) > 1 and set(others) != {"integer", "number"}
        facts["type"] = SEVERAL if several else "number" if "number" in others else next(iter(others), "null")
    return facts


def _agree(alternatives: list[Nodes]) -> bool:
    """Whether all nodes read a value in the same way."""
    first, *others = [_facts(each) for each in alternatives]
    if all(type_of(each) == "string" and "connect.type" not in each for each in (first, *others)):
        return True
    keys = ("connect.type", "title", "format", "properties", "items", "additionalProperties")
    return all(
        type_of(each) == type_of(first) and all(each.get(key) == first.get(key) for key in keys)
        for each in others
    )


def _is_null(facts: dict[str, Any]) -> bool:
    return facts.get("type") == "null" or facts.get("enum") == [None] or facts.get("const", 0) is None


def _typed(value: Any, kind: type) -> Any:
    if not isinstance(value, kind):
        raise Unreadable("malformed")
    return value


def _of_connect(schema: Schema) -> str | None:
    """The payloads' JSON Schema, if a file holds a schema of Connect's; None if it is a JSON Schema itself."""
    if schema.id != NO_ID:
        return None
    node = json.loads(schema.text)
    kind, optional = node.get("type"), node.get("optional")
    plain = kind in ("boolean", "string", "array") and type(optional) is not bool
    known = type(kind) is str and (kind in _CONNECT or kind in ("struct", "map", "array"))
    return json.dumps(_described(node)) if known and not plain else None


def _described(node: Any) -> Any:
    match node["type"]:
        case "struct":
            made = {
                "type": "object",
                "properties": {each["field"]: _described(each) for each in node["fields"]},
            }
        case "array":
            made = {"type": "array", "items": _described(node["items"])}
        case "map" if node["keys"]["type"] == "string":
            made = {"type": "object", "additionalProperties": _described(node["values"])}
        case "bytes" if node.get("name") == DECIMAL:
            made = {"type": "number", "connect.type": "bytes"}
        case kind:
            made = dict(_CONNECT[kind])
    made |= {"title": node.get("name"), "connect.parameters": node.get("parameters", {})}
    return {"oneOf": [{"type": "null"}, made]} if node.get("optional") else made
