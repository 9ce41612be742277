"""Messages of Kafka Connect's JSON converter as verification sees them: an object of `schema` and `payload`."""

from __future__ import annotations

import json
from typing import Any

from calve.declared import NO_ID
from calve.registry import Schema
from cli.verify.conversion import Unreadable
from cli.verify.json_scalars import DECIMAL
from cli.verify.json_text import Members

_TYPES = {
    "boolean": {"type": "boolean"},
    "string": {"type": "string"},
    "bytes": {"type": "string", "connect.type": "bytes"},
    "float": {"type": "number", "connect.type": "float32"},
    "double": {"type": "number", "connect.type": "float64"},
    **{f"int{bits}": {"type": "integer", "connect.type": f"int{bits}"} for bits in (8, 16, 32, 64)},
}


def described(schema: Schema) -> str | None:
    """The JSON Schema of the payloads, where a file holds a schema of Connect's; None where it is a JSON Schema itself."""
    if schema.id != NO_ID:
        return None
    node = json.loads(schema.text)
    kind, optional = node.get("type"), node.get("optional")
    plain = kind in ("boolean", "string", "array") and type(optional) is not bool
    known = type(kind) is str and (kind in _TYPES or kind in ("struct", "map", "array"))
    return json.dumps(_described(node)) if known and not plain else None


def payload(message: Any) -> Any:
    """What a message is about.

    Raises:
        Unreadable: it has no payload.
    """
    if not isinstance(message, Members) or "payload" not in message:
        raise Unreadable("malformed")
    return message["payload"]


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
            made = dict(_TYPES[kind])
    made |= {"title": node.get("name"), "connect.parameters": node.get("parameters", {})}
    return {"oneOf": [{"type": "null"}, made]} if node.get("optional") else made
