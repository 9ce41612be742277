"""Types of JSON Schema that have no parts: the leaves of a shape (`calve.schema.json_schema`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from calve.schema.columns import Json
from calve.schema.evolution import SchemaProblem

FORMATS = {"date": "date", "date-time": "timestamptz"}
CONNECT = "org.apache.kafka.connect.data."
CONNECT_DECIMAL = ("bytes", f"{CONNECT}Decimal")
CONNECT_NUMBERS = {"int8": "int", "int16": "int", "int32": "int", "int64": "long"} | {
    "float32": "float",
    "float64": "double",
}
DECIMAL = "decimal"
"""In the place of a leaf: a decimal, whose digits the schema says."""
TypeName = tuple[str, str]
"""The `connect.type` of a schema, or its type where it has none, and its `title`, in which converters write a type's name."""


@dataclass(frozen=True, slots=True)
class Named:
    """What the names of types mean: their leaves, and units that no leaf says. numbers: the leaves of numbers without a name."""

    leaves: Mapping[TypeName, str]
    units: Mapping[TypeName, str]
    numbers: Mapping[str, str]

    def unit(self, node: Json) -> str | None:
        """The unit of a property's values, where it says it itself or beside null."""
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
    """The one type of a node's values beside null; None where they have several types, or none."""
    kind = node.get("type")
    if kind is None:
        return _kind_of_values(node)
    kinds = set(kind if isinstance(kind, list) else [kind]) - {"null"}
    if kinds == {"integer", "number"}:
        return "number"
    return str(kinds.pop()) if len(kinds) == 1 else None


def _kind_of_values(node: dict[str, Json]) -> str | None:
    """The type of a node that does not name it: that of its values, or of what it says of them."""
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
    """The leaf of a node of this type.

    Raises:
        SchemaProblem: no column holds its values.
    """
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
    raise SchemaProblem(
        path, f'"{connect}" is no connect.type of a {kind}' if connect else f'"{kind}" is no type'
    )


def _name(node: dict[str, Json], kind: str | None = None) -> TypeName:
    return str(node.get("connect.type", kind)), str(node.get("title"))


def _decimal(node: dict[str, Json], path: str) -> str:
    parameters = node.get("connect.parameters", {})
    try:
        precision = int(parameters.get("connect.decimal.precision", 38))
        scale = int(parameters.get("scale", 0))
    except (AttributeError, TypeError, ValueError):
        raise SchemaProblem(path, "precision and scale of a decimal must be whole numbers") from None
    if not (1 <= precision <= 38 and 0 <= scale <= precision):
        raise SchemaProblem(path, f"decimal({precision}, {scale}) is outside decimal(1..38, 0..precision)")
    return f"decimal({precision}, {scale})"
