"""Debezium's types as verification sees them: by the names that its connectors give them, where the table is one of changes."""

from __future__ import annotations

from typing import Any

TIME = "io.debezium.time."
MOMENT = f"{TIME}ZonedTimestamp"
MILLIS = f"{TIME}Timestamp"
MICROSECONDS = {MILLIS: 1000, f"{TIME}MicroTimestamp": 1}
"""Local times as numbers since 1970: how many microseconds their unit has."""
_AVRO = {
    ("int", f"{TIME}Date"): "date",
    ("long", MILLIS): MILLIS,
    ("long", f"{TIME}MicroTimestamp"): "local-timestamp-micros",
    ("string", MOMENT): MOMENT,
}

Schema = Any


def with_logical_types(node: Schema) -> Schema:
    """A resolved Avro schema in which the types that Debezium names are logical types."""
    match node:
        case list():
            return [with_logical_types(each) for each in node]
        case {"type": "record" | "error", "fields": fields}:
            return node | {"fields": [each | {"type": with_logical_types(each["type"])} for each in fields]}
        case {"type": "array", "items": inner}:
            return node | {"items": with_logical_types(inner)}
        case {"type": "map", "values": inner}:
            return node | {"values": with_logical_types(inner)}
    logical = _AVRO.get((node["type"], str(node.get("connect.name"))))
    return node | {"logicalType": logical} if logical else node
