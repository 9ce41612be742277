"""Debezium's types as Confluent's converters register them, and the column of each in a table of changes."""

from __future__ import annotations

from typing import Any, NamedTuple

from calve.schema.columns import Json, field, list_of, map_of, struct

TIME, DATA = "io.debezium.time.", "io.debezium.data."
CONNECT = "org.apache.kafka.connect.data."
AVRO = {
    "int8": "int",
    "int16": "int",
    "int32": "int",
    "int64": "long",
    "float32": "float",
    "float64": "double",
}


class Type(NamedTuple):
    """A type's schema in both formats, its column in a table of changes and in any other, and the unit in its comment."""

    avro: Any
    json: Any
    column: Json
    otherwise: Json
    unit: str | None = None


def avro(kind: str, name: str | None = None, **more: Any) -> Any:
    named = {"connect.version": 1, "connect.name": name} if name else {}
    return {"type": AVRO.get(kind, kind)} | named | more


def json(kind: str, name: str | None = None, **more: Any) -> Any:
    plain = kind in ("string", "boolean")
    connect = {} if plain else {"connect.type": kind}
    of_kind = kind if plain else "string" if kind == "bytes" else "integer" if kind[0] == "i" else "number"
    named = {"title": name, "connect.version": 1} if name else {}
    return {"type": of_kind} | connect | named | more


def named(kind: str, name: str, column: Json, otherwise: Json, unit: str | None = None) -> Type:
    return Type(avro(kind, name), json(kind, name), column, otherwise, unit)


def same(kind: str, name: str, column: Json, unit: str | None = None) -> Type:
    return named(kind, name, column, column, unit)


def structure(name: str, columns: dict[str, Json], **fields: tuple[Any, Any]) -> Type:
    """A struct: it is one with or without its name."""
    nullable = {
        field: (["null", one], {"oneOf": [{"type": "null"}, two]}) for field, (one, two) in fields.items()
    }
    kind = struct(*(field(each, column) for each, column in columns.items()))
    written = {"type": "record", "name": name, "connect.name": name, "connect.version": 1}
    listed = [{"name": each, "type": one} for each, (one, _) in nullable.items()]
    properties = {each: two | {"connect.index": n} for n, (each, (_, two)) in enumerate(nullable.items())}
    other = {"type": "object", "title": name, "connect.version": 1, "properties": properties}
    return Type(written | {"fields": listed}, other, kind, kind)


def plain(kind: str) -> tuple[Any, Any]:
    return avro(kind), json(kind)


WKB = {"wkb": plain("bytes"), "srid": plain("int32")}
DECIMAL = {"scale": "2", "connect.decimal.precision": "9"}
TYPES: dict[str, Type] = {
    "date": named("int32", f"{TIME}Date", "date", "int"),
    "millis": named("int64", f"{TIME}Timestamp", "timestamp", "long"),
    "micros": named("int64", f"{TIME}MicroTimestamp", "timestamp", "long"),
    "nanos": same("int64", f"{TIME}NanoTimestamp", "long", "nanoseconds since 1970-01-01, local time"),
    "time_millis": same("int32", f"{TIME}Time", "int", "milliseconds after midnight"),
    "time_micros": same("int64", f"{TIME}MicroTime", "long", "microseconds after midnight"),
    "time_nanos": same("int64", f"{TIME}NanoTime", "long", "nanoseconds after midnight"),
    "duration_micros": same("int64", f"{TIME}MicroDuration", "long", "microseconds"),
    "duration_nanos": same("int64", f"{TIME}NanoDuration", "long", "nanoseconds"),
    "year": same("int32", f"{TIME}Year", "int", "calendar year"),
    "moment": named("string", f"{TIME}ZonedTimestamp", "timestamptz", "string"),
    **{
        name: same("string", f"{TIME}{name}", "string")
        for name in ("ZonedTime", "IsoDate", "IsoTime", "IsoTimestamp", "Interval")
    },
    **{
        name: same("string", f"{DATA}{name}", "string")
        for name in ("Json", "Uuid", "Xml", "Ltree", "Tsvector")
    },
    "enum": Type(
        avro("string", f"{DATA}Enum", **{"connect.parameters": {"allowed": "a,b"}}),
        json("string", f"{DATA}Enum", **{"connect.parameters": {"allowed": "a,b"}}),
        "string",
        "string",
    ),
    "enum_set": same("string", f"{DATA}EnumSet", "string"),
    "bits": same("bytes", f"{DATA}Bits", "binary"),
    "decimal": Type(
        avro("bytes", f"{CONNECT}Decimal", logicalType="decimal", scale=2, precision=9),
        json("bytes", f"{CONNECT}Decimal", **{"connect.parameters": DECIMAL}),
        "decimal(9, 2)",
        "decimal(9, 2)",
    ),
    "connect_date": Type(
        avro("int32", f"{CONNECT}Date", logicalType="date"), json("int32", f"{CONNECT}Date"), "date", "date"
    ),
    "connect_time": Type(
        avro("int32", f"{CONNECT}Time", logicalType="time-millis"),
        json("int32", f"{CONNECT}Time"),
        "int",
        "int",
        "milliseconds after midnight",
    ),
    "connect_moment": Type(
        avro("int64", f"{CONNECT}Timestamp", logicalType="timestamp-millis"),
        json("int64", f"{CONNECT}Timestamp"),
        "timestamptz",
        "timestamptz",
    ),
    "any_scale": structure(
        f"{DATA}VariableScaleDecimal",
        {"scale": "int", "value": "binary"},
        scale=plain("int32"),
        value=plain("bytes"),
    ),
    "point": structure(
        f"{DATA}geometry.Point",
        {"x": "double", "y": "double", "wkb": "binary", "srid": "int"},
        x=plain("float64"),
        y=plain("float64"),
        **WKB,
    ),
    "shape": structure(f"{DATA}geometry.Geometry", {"wkb": "binary", "srid": "int"}, **WKB),
    "vector": Type(
        {"type": "array", "items": "float", "connect.name": f"{DATA}FloatVector"},
        {"type": "array", "items": json("float32"), "title": f"{DATA}FloatVector"},
        list_of("float"),
        list_of("float"),
    ),
    "moments": Type(
        {"type": "array", "items": ["null", avro("string", f"{TIME}ZonedTimestamp")]},
        {"type": "array", "items": {"oneOf": [{"type": "null"}, json("string", f"{TIME}ZonedTimestamp")]}},
        list_of("timestamptz"),
        list_of("string"),
    ),
    "by_name": Type(
        {"type": "map", "values": avro("int64", f"{TIME}MicroTimestamp")},
        {
            "type": "object",
            "connect.type": "map",
            "additionalProperties": json("int64", f"{TIME}MicroTimestamp"),
        },
        map_of("timestamp"),
        map_of("long"),
    ),
}


def avro_schema(nullable: bool = True) -> Any:
    fields = [
        {"name": name, "type": ["null", each.avro] if nullable else each.avro, "doc": name}
        for name, each in TYPES.items()
    ]
    return {"type": "record", "name": "db.public.orders.Value", "fields": fields}


def json_schema(nullable: bool = True) -> Any:
    properties = {
        name: ({"oneOf": [{"type": "null"}, each.json]} if nullable else each.json)
        | {"connect.index": n, "description": name}
        for n, (name, each) in enumerate(TYPES.items())
    }
    return {"type": "object", "title": "db.public.orders.Value", "properties": properties}
