"""Random schemas (`tests.random_schemas`) in the words of each format, and their values as its official serializer takes them."""

from __future__ import annotations

import base64
import json
import re
from datetime import date, datetime
from decimal import Context, Decimal
from itertools import count
from typing import Any

from calve.schema.columns import decimal_digits
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
PROTOBUF_LEAVES = {
    "boolean": "bool",
    "int": "int32",
    "long": "int64",
    "float": "float",
    "double": "double",
    "string": "string",
    "binary": "bytes",
    "date": "google.type.Date",
    "timestamptz": "google.protobuf.Timestamp",
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


def protobuf_schema(fields: tuple[Field, ...]) -> str:
    """A field's number is what it is through all versions, so that it may have any name in each of them."""
    known = ("google/protobuf/timestamp", "google/type/date", "confluent/type/decimal", "confluent/meta")
    imports = "".join(f'import "{name}.proto"; ' for name in known)
    return f'syntax = "proto3"; {imports}{_protobuf_message("Top", fields)}'


def _protobuf_message(name: str, fields: tuple[Field, ...]) -> str:
    return f"message {name} {{ {' '.join(_protobuf_field(each) for each in fields)} }}"


def _protobuf_field(each: Field) -> str:
    holds = each.parts[0] if each.kind in ("list", "map") else each
    kind = PROTOBUF_LEAVES.get(holds.kind, f"M{holds.id}")
    inside = _protobuf_message(kind, holds.parts) if holds.kind == "struct" else ""
    options = ""
    if digits := decimal_digits(holds.kind):
        kind, pairs = "confluent.type.Decimal", zip(("precision", "scale"), digits, strict=True)
        entries = ", ".join(f'{{key: "{key}", value: "{value}"}}' for key, value in pairs)
        options = f" [(confluent.field_meta) = {{params: [{entries}]}}]"
    labels = {"list": f"repeated {kind}", "map": f"map<string, {kind}>"}
    label = labels.get(each.kind) or (kind if each.kind == "struct" else f"optional {kind}")
    return f"{inside} {label} {each.name} = {each.id + 1}{options};"


def fill_message(message: Any, fields: tuple[Field, ...], row: Json) -> None:
    """Put the values of a row into a message; what is None is not written."""
    for each in fields:
        if (value := row[each.name]) is None:
            continue
        held = getattr(message, each.name)
        match each.kind:
            case "list":
                for item in value:
                    _add(held, each.parts[0], item)
            case "map":
                for key, item in value.items():
                    _put(held, key, each.parts[0], item)
            case _:
                _set(message, each, value)


def _set(message: Any, each: Field, value: Any) -> None:
    if _is_message(each):
        getattr(message, each.name).SetInParent()
        _fill(getattr(message, each.name), each, value)
    else:
        setattr(message, each.name, value)


def _add(held: Any, each: Field, value: Any) -> None:
    if _is_message(each):
        _fill(held.add(), each, value)
    else:
        held.append(value)


def _put(held: Any, key: str, each: Field, value: Any) -> None:
    if _is_message(each):
        held[key].SetInParent()
        _fill(held[key], each, value)
    else:
        held[key] = value


def _is_message(each: Field) -> bool:
    return each.kind in ("struct", "date", "timestamptz") or decimal_digits(each.kind) is not None


def _fill(message: Any, each: Field, value: Any) -> None:
    match value:
        case datetime():
            message.FromDatetime(value)
        case date():
            message.year, message.month, message.day = value.year, value.month, value.day
        case Decimal():
            unscaled = int(value.scaleb(2, Context(prec=60)))
            message.value, message.scale = unscaled.to_bytes(16, "big", signed=True), 2
        case _:
            fill_message(message, each.parts, value)


def without_absent_lists(fields: tuple[Field, ...], row: Json) -> Json:
    """The row as Protobuf says it: lists and maps are empty where they are not there."""
    return {each.name: _present(each, row[each.name]) for each in fields}


def _present(each: Field, value: Any) -> Any:
    match each.kind:
        case "struct":
            return None if value is None else without_absent_lists(each.parts, value)
        case "list":
            return [_present(each.parts[0], item) for item in value or ()]
        case "map":
            return {key: _present(each.parts[0], item) for key, item in (value or {}).items()}
    return value
