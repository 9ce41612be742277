"""Kafka Connect's schemas, as its JSON converter writes one into every message, as JSON Schemas.

Such a message is an object of `schema` and `payload`. Sources: `JsonConverter` of Apache Kafka for the schemas, Confluent's
`JsonSchemaData` for what they are as JSON Schemas.
"""

from __future__ import annotations

import json

from calve.schema.columns import Json
from calve.schema.evolution import SchemaProblem, join
from calve.schema.json_scalars import CONNECT

PAYLOAD = "payload"
NUMBERS = {kind: ("integer", kind) for kind in ("int8", "int16", "int32", "int64")} | {
    "float": ("number", "float32"),
    "double": ("number", "float64"),
}
CONNECT_ALONE = {*NUMBERS, "bytes", "struct", "map"}
"""Types that JSON Schema does not have."""
CONNECT_AND_JSON = {"boolean", "string", "array"}
OPTIONAL = "optional"
"""What every schema of Connect's says of itself, and no JSON Schema does."""


def is_connect_schema(text: str) -> bool:
    """Whether a text is a schema of Connect's, and no JSON Schema.

    Raises:
        ValueError: it is no JSON.
    """
    node = json.loads(text)
    if not isinstance(node, dict) or not isinstance(node.get("type"), str):
        return False
    return node["type"] in CONNECT_ALONE or (
        node["type"] in CONNECT_AND_JSON and isinstance(node.get(OPTIONAL), bool)
    )


def as_json_schema(text: str) -> str:
    """The JSON Schema of the payloads that a schema of Connect's describes.

    Raises:
        SchemaProblem: it is no schema of Connect's, or JSON Schema cannot say it.
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
            return _map(node, path)
        case "struct":
            return {"type": "object", "properties": _properties(node.get("fields"), path)}
        case kind:
            raise SchemaProblem(path, f'"{kind}" is no type of Kafka Connect')


def _map(node: Json, path: str) -> dict[str, Json]:
    keys = node.get("keys")
    if not isinstance(keys, dict) or keys.get("type") != "string":
        raise SchemaProblem(
            path, "a map whose keys are no strings is written as a list of pairs, which no column holds"
        )
    values = _schema(node.get("values"), f"{path}{{}}")
    return {"type": "object", "connect.type": "map", "additionalProperties": values}


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
