"""Debezium's types: what numbers and texts of a change mean, by the names that its connectors give them.

Source: the classes of `io.debezium.time` and `io.debezium.data`. Confluent's converters write a name as `connect.name` of an Avro
type and as `title` of a JSON Schema, beside a version, which means nothing here. Types that are not named here are what they are
without their names.
"""

from __future__ import annotations

from calve.columns import Json
from calve.json_scalars import CONNECT, CONNECT_DECIMAL, CONNECT_NUMBERS, CONNECT_TYPES, DECIMAL, Named

TIME = "io.debezium.time."
MOMENT = f"{TIME}ZonedTimestamp"
"""A text with an offset from UTC."""
MILLIS = f"{TIME}Timestamp"
"""Milliseconds since 1970, local time; an infinite one is more than 64 bits of microseconds hold."""
UNITS = {
    ("int32", f"{TIME}Time"): "milliseconds after midnight",
    ("int64", f"{TIME}MicroTime"): "microseconds after midnight",
    ("int64", f"{TIME}NanoTime"): "nanoseconds after midnight",
    ("int64", f"{TIME}NanoTimestamp"): "nanoseconds since 1970-01-01, local time",
    ("int64", f"{TIME}MicroDuration"): "microseconds",
    ("int64", f"{TIME}NanoDuration"): "nanoseconds",
    ("int32", f"{TIME}Year"): "calendar year",
}
"""Numbers that no column of Spark and Iceberg holds as what they are."""

AVRO = {"int32": "int", "int64": "long"}
AVRO_UNITS = {(AVRO[kind], name): unit for (kind, name), unit in UNITS.items()}
AVRO_LOGICAL = {
    ("int", f"{TIME}Date"): "date",
    ("long", MILLIS): MILLIS,
    ("long", f"{TIME}MicroTimestamp"): "local-timestamp-micros",
    ("string", MOMENT): MOMENT,
} | {(kind, name): name for kind, name in AVRO_UNITS}
JSON_TYPES = Named(
    {
        **CONNECT_TYPES.leaves,
        CONNECT_DECIMAL: DECIMAL,
        ("int32", f"{TIME}Date"): "days",
        ("int64", MILLIS): "local_millis",
        ("int64", f"{TIME}MicroTimestamp"): "local_micros",
        ("string", MOMENT): "instant",
    },
    UNITS | {("int32", f"{CONNECT}Time"): "milliseconds after midnight"},
    {**CONNECT_NUMBERS, "float32": "database_float", "float64": "database_double"},
)
"""Decimals are Base64 texts, too: so Confluent's converter registers them where it writes them so."""


def with_logical_types(schema: Json) -> Json:
    """An expanded Avro schema whose named types have the logical types that they are."""
    if isinstance(schema, list):
        return [with_logical_types(each) for each in schema]
    if isinstance(schema, str):
        return schema
    match schema["type"]:
        case "record" | "error":
            fields = [each | {"type": with_logical_types(each["type"])} for each in schema["fields"]]
            return schema | {"fields": fields}
        case "array":
            return schema | {"items": with_logical_types(schema["items"])}
        case "map":
            return schema | {"values": with_logical_types(schema["values"])}
    logical = AVRO_LOGICAL.get((schema["type"], str(schema.get("connect.name"))))
    return schema | {"logicalType": logical} if logical else schema
