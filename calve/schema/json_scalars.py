"""Scalar types of JSON Schema, and Kafka Connect's schemas as JSON Schemas.

Connect's JSON converter writes a schema into every message: an object of `schema` and `payload`. Sources: `JsonConverter` of
Apache Kafka for the schemas, Confluent's `JsonSchemaData` for their JSON Schemas.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from calve.schema.columns import Json, join
from calve.schema.evolution import SchemaProblem, decimal_type

FORMATS = {"date": "date", "date-time": "timestamptz"}
CONNECT = "org.apache.kafka.connect.data."
CONNECT_DECIMAL = ("bytes", f"{CONNECT}Decimal")
CONNECT_NUMBERS = {"int8": "int", "int16": "int", "int32": "int", "int64": "long"} | {
    "float32": "float",
    "float64": "double",
}
DECIMAL = "decimal"
"""Instead of a leaf: a decimal with the digits of the schema."""
TypeName = tuple[str, str]
"""The `connect.type` of a schema, or its type, and its `title`: converters write a type's name there."""


@dataclass(frozen=True, slots=True)
class Named:
    """The meaning of type names: their leaves, and units that no leaf has. numbers: the leaves of numbers without a name."""

    leaves: Mapping[TypeName, str]
    units: Mapping[TypeName, str]
    numbers: Mapping[str, str]

    def unit(self, node: Json) -> str | None:
        """The unit of a property's values, possibly declared beside null."""
        if not isinstance(node, dict):
            return None
        listed = [node.get(key) for key in ("oneOf", "anyOf")]
        branches = [each for branches in listed if isinstance(branches, list) for each in branches]
        found = [self.units.get(_name(each)) for each in (node, *branches) if isinstance(each, dict)]
        return next((each for each in found if each), None)


CONNECT_TYPES = Named(
    {("int32", f"{CONNECT}Date"): "days", ("int64", f"{CONNECT}Timestamp"): "millis"}, {}, CONNECT_NUMBERS
)


def kind_of(node: dict[str, Json]) -> str | None:
    """The only type of a node's values besides null; None if there are several, or none."""
    kind = node.get("type")
    if kind is not None:
        declared = set(kind if isinstance(kind, list) else [kind]) - {"null"}
        if declared == {"integer", "number"}:
            return "number"
        return str(declared.pop()) if len(declared) == 1 else None
    if "properties" in node or "additionalProperties" in node or "patternProperties" in node:
        return "object"
    if "items" in node or "prefixItems" in node:
        return "array"
    listed = node.get("enum", [node["const"]] if "const" in node else None)
    if not isinstance(listed, list):
        return None
    kinds = {type(each) for each in listed if each is not None}
    for kind, types in (("string", {str}), ("boolean", {bool}), ("integer", {int}), ("number", {int, float})):
        if kinds and kinds <= types:
            return kind
    return None


def scalar(kind: str, node: dict[str, Json], path: str, named: Named) -> str:
    """The leaf of a node of this type. Raises `SchemaProblem` if no column type holds its values."""
    name, said = _name(node, kind), node.get("connect.type")
    connect = None if said is None else str(said)
    leaf = named.leaves.get(name)
    match kind:
        case "boolean":
            return "boolean"
        case "string" if leaf == DECIMAL:
            return _decimal(node, path)
        case "string" if connect == "bytes":
            return "binary"
        case "string":
            plain = FORMATS.get(str(node.get("format")), "string")
            return plain if connect else leaf or plain
        case "number" if name == CONNECT_DECIMAL:
            return _decimal(node, path)
        case "integer" | "number" if connect is None:
            return "long" if kind == "integer" else named.numbers["float64"]
        case "integer" | "number" if connect in CONNECT_NUMBERS:
            return leaf or named.numbers[connect]
    why = f'"{connect}" is no connect.type of a {kind}' if connect else f'"{kind}" is no type'
    raise SchemaProblem(path, why)


def _name(node: dict[str, Json], kind: str | None = None) -> TypeName:
    return str(node.get("connect.type", kind)), str(node.get("title"))


def _decimal(node: dict[str, Json], path: str) -> str:
    parameters = node.get("connect.parameters", {})
    try:
        precision = int(parameters.get("connect.decimal.precision", 38))
        scale = int(parameters.get("scale", 0))
    except (AttributeError, TypeError, ValueError):
        raise SchemaProblem(path, "precision and scale of a decimal must be whole numbers") from None
    return decimal_type(precision, scale, path)


PAYLOAD = "payload"
NUMBERS = {kind: ("integer", kind) for kind in ("int8", "int16", "int32", "int64")} | {
    "float": ("number", "float32"),
    "double": ("number", "float64"),
}
CONNECT_ALONE = {*NUMBERS, "bytes", "struct", "map"}
"""Types that JSON Schema does not have."""
CONNECT_AND_JSON = {"boolean", "string", "array"}
OPTIONAL = "optional"
"""Every Connect schema has this key, no JSON Schema does."""


def is_connect_schema(text: str) -> bool:
    """Whether a text is a schema of Connect, not a JSON Schema. Raises `ValueError` if it is not JSON."""
    node = json.loads(text)
    if not isinstance(node, dict) or not isinstance(node.get("type"), str):
        return False
    return node["type"] in CONNECT_ALONE or (
        node["type"] in CONNECT_AND_JSON and isinstance(node.get(OPTIONAL), bool)
    )


def as_json_schema(text: str) -> str:
    """The JSON Schema of the payloads of a Connect schema.

    Raises `SchemaProblem` if it is not a Connect schema, or JSON Schema cannot express it.
    """
    try:
        return json.dumps(_schema(json.loads(text), ""))
    except RecursionError:
        raise SchemaProblem("", "types are nested too deep") from None


def _schema(node: Json, path: str) -> Json:
    if not isinstance(node, dict) or not isinstance(node.get("type"), str):
        raise SchemaProblem(path, "this is no schema of Kafka Connect")
    said = {"title": "name", "connect.version": "version", "connect.parameters": "parameters"}
    made = _type(node, path) | {key: node[word] for key, word in said.items() if word in node}
    if node.get(OPTIONAL) is True:
        made = {"oneOf": [{"type": "null"}, made]}
    return made | ({"description": node["doc"]} if "doc" in node else {})


def _type(node: Json, path: str) -> dict[str, Json]:
    match node["type"]:
        case "string" | "boolean" as kind:
            return {"type": kind}
        case str(kind) if kind in NUMBERS:
            plain, connect = NUMBERS[kind]
            return {"type": plain, "connect.type": connect}
        case "bytes":
            plain = "number" if node.get("name") == f"{CONNECT}Decimal" else "string"
            return {"type": plain, "connect.type": "bytes"}
        case "array":
            return {"type": "array", "items": _schema(node.get("items"), f"{path}[]")}
        case "map":
            keys = node.get("keys")
            if not isinstance(keys, dict) or keys.get("type") != "string":
                why = "a map whose keys are no strings is written as a list of pairs, which no column holds"
                raise SchemaProblem(path, why)
            values = _schema(node.get("values"), f"{path}{{}}")
            return {"type": "object", "connect.type": "map", "additionalProperties": values}
        case "struct":
            return {"type": "object", "properties": _properties(node.get("fields"), path)}
        case kind:
            raise SchemaProblem(path, f'"{kind}" is no type of Kafka Connect')


def _properties(fields: Json, path: str) -> dict[str, Json]:
    if not isinstance(fields, list):
        raise SchemaProblem(path, "a struct must have a list of fields")
    found: dict[str, Json] = {}
    for each in fields:
        name = each.get("field") if isinstance(each, dict) else None
        if not isinstance(name, str):
            raise SchemaProblem(path, "a field of a struct has no name: `field`")
        if name in found:
            raise SchemaProblem(join(path, name), "two fields of a struct have this name")
        found[name] = _schema(each, join(path, name))
    return found
