"""Random schemas (`tests.random_schemas`) in the words of each format, and their values as its official serializer takes them."""

from __future__ import annotations

import base64
import json
import re
from datetime import date, datetime
from decimal import Decimal
from itertools import count
from typing import Any

from calve.columns import decimal_digits
from tests.random_schemas import Field

Json = Any
LOGICAL = {"date": ("int", "date"), "timestamptz": ("long", "timestamp-micros")}
CONNECT = "org.apache.kafka.connect.data.Decimal"
JSON_LEAVES: dict[str, Json] = {
    "boolean": {"type": "boolean"},
    "int": {"type": "integer", "connect.type": "int32"},
    "long": {"type": "integer"},
    "float": {"type": "number", "connect.type": "float32"},
    "double": {"type": "number"},
    "string": {"type": "string"},
    "binary": {"type": "string", "connect.type": "bytes"},
    "date": {"type": "string", "format": "date"},
    "timestamptz": {"type": "string", "format": "date-time"},
}


def avro_schema(fields: tuple[Field, ...]) -> Json:
    return _avro_record(fields, count())


def _avro_record(fields: tuple[Field, ...], numbers: count[int]) -> Json:
    made = [
        {
            "name": each.name,
            "aliases": list(each.aliases),
            "type": ["null", _avro(each, numbers)],
            "default": None,
        }
        for each in fields
    ]
    return {"type": "record", "name": f"R{next(numbers)}", "fields": made}


def _avro(each: Field, numbers: count[int]) -> Json:
    match each.kind:
        case "struct":
            return _avro_record(each.parts, numbers)
        case "list":
            return {"type": "array", "items": _avro(each.parts[0], numbers)}
        case "map":
            return {"type": "map", "values": _avro(each.parts[0], numbers)}
        case "binary":
            return "bytes"
    if digits := decimal_digits(each.kind):
        precision, scale = digits
        return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}
    if each.kind in LOGICAL:
        kind, name = LOGICAL[each.kind]
        return {"type": kind, "logicalType": name}
    return each.kind


def json_schema(fields: tuple[Field, ...]) -> Json:
    nullable = {
        each.name: {"oneOf": [{"type": "null"}, _json(each)], "x-aliases": list(each.aliases)}
        for each in fields
    }
    return {"type": "object", "properties": nullable, "additionalProperties": False}


def _json(each: Field) -> Json:
    match each.kind:
        case "struct":
            return json_schema(each.parts)
        case "list":
            return {"type": "array", "items": _json(each.parts[0])}
        case "map":
            return {"type": "object", "additionalProperties": _json(each.parts[0])}
    if digits := decimal_digits(each.kind):
        parameters = {"connect.decimal.precision": str(digits[0]), "scale": str(digits[1])}
        return {
            "type": "number",
            "connect.type": "bytes",
            "title": CONNECT,
            "connect.parameters": parameters,
        }
    return JSON_LEAVES[each.kind]


def json_text(values: Json) -> bytes:
    """Numbers of decimals with all their digits, which Python's encoder does not write."""
    text = json.dumps(values, default=_json_leaf)
    return re.sub(r'"decimal:(-?[0-9.]+)"', r"\1", text).encode()


def _json_leaf(value: Any) -> str:
    match value:
        case Decimal():
            return f"decimal:{value:f}"
        case bytes():
            return base64.b64encode(value).decode()
        case datetime():
            return value.isoformat().replace("+00:00", "Z")
        case date():
            return value.isoformat()
    raise TypeError(type(value))
