"""Avro schemas as verification sees them: what a decoded value becomes in an Arrow column, by its own rules, not the engine's."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa

PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
EXACT = Context(prec=100)

Convert = Callable[[Any], Any]
Schema = Any


class Unreadable(Exception):
    """Why a record is no row of the table: a word of `calve.columns.REASONS`."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def resolved(node: Schema, names: dict[str, Schema], space: str) -> Schema:
    """The schema with references to named types replaced; a type that contains itself has no table form."""
    if isinstance(node, list):
        return [resolved(branch, names, space) for branch in node]
    if isinstance(node, str):
        if node in PRIMITIVES:
            return {"type": node}
        found = names.get(node if "." in node or not space else f"{space}.{node}", names.get(node))
        if found is None:
            raise Unreadable("incompatible_schema")
        return found
    kind = node["type"]
    if isinstance(kind, dict | list):
        return resolved(kind, names, space)
    if kind in ("record", "error", "enum", "fixed"):
        space = node["name"].rpartition(".")[0] if "." in node["name"] else node.get("namespace", space)
        name = node["name"].rpartition(".")[2]
        result = dict(node)
        if "fields" in node:
            result["fields"] = [
                each | {"type": resolved(each["type"], names, space)} for each in node["fields"]
            ]
        names[f"{space}.{name}" if space else name] = result
        return result
    if kind == "array":
        return node | {"items": resolved(node["items"], names, space)}
    if kind == "map":
        return node | {"values": resolved(node["values"], names, space)}
    return node if kind in PRIMITIVES else resolved(kind, names, space)


def without_logical_types(node: Schema) -> Schema:
    """The same bytes read as plain numbers and bytes: fastavro's own conversions to dates lose range and precision."""
    if isinstance(node, list):
        return [without_logical_types(branch) for branch in node]
    if isinstance(node, dict):
        return {
            key: without_logical_types(value) if key in ("type", "fields", "items", "values") else value
            for key, value in node.items()
            if key not in ("logicalType", "default")
        }
    return node


def converter(node: Schema, kind: Any) -> Convert | None:
    """How a decoded value becomes a value for an Arrow column of this type; None: it is one already.

    Raises:
        Unreadable: values of this Avro type are no values of the column.
    """
    if isinstance(node, list):
        return _nullable(node, kind)
    avro, logical = node["type"], node.get("logicalType")
    if pa.types.is_struct(kind) and avro in ("record", "error"):
        return _struct_converter(node, kind)
    if pa.types.is_map(kind) and avro == "map":
        convert = converter(node["values"], kind.item_type)
        return lambda value: [(key, convert(item) if convert else item) for key, item in value.items()]
    if (pa.types.is_list(kind) or pa.types.is_large_list(kind)) and avro == "array":
        convert = converter(node["items"], kind.value_type)
        return (lambda value: [convert(item) for item in value]) if convert else None
    if pa.types.is_decimal(kind) and logical == "decimal" and avro in ("bytes", "fixed"):
        scale = kind.scale
        return lambda value: Decimal(int.from_bytes(value, "big", signed=True)).scaleb(-scale, EXACT)
    if pa.types.is_temporal(kind):
        return _temporal_converter(avro, logical, kind)
    if not any(avro in sources and test(kind) for sources, test in _SAME):
        raise Unreadable("incompatible_schema")
    return None


def _nullable(branches: list[Schema], kind: Any) -> Convert | None:
    others = [branch for branch in branches if branch["type"] != "null"]
    if len(others) != 1:
        raise Unreadable("incompatible_schema")
    convert = converter(others[0], kind)
    return (lambda value: None if value is None else convert(value)) if convert else None


def _struct_converter(node: Schema, kind: Any) -> Convert:
    written = {field["name"]: field["type"] for field in node["fields"]}
    converters = [
        (child.name, converter(written[child.name], child.type)) for child in kind if child.name in written
    ]

    def convert(value: dict[str, Any]) -> dict[str, Any]:
        return {name: inner(value[name]) if inner else value[name] for name, inner in converters}

    return convert


def _temporal_converter(avro: str, logical: str | None, kind: Any) -> Convert | None:
    match avro, logical:
        case ("int", "date") if pa.types.is_date(kind):
            return None
        case ("long", "timestamp-millis") if pa.types.is_timestamp(kind) and kind.tz:
            return _millis
        case ("long", "timestamp-micros") if pa.types.is_timestamp(kind) and kind.tz:
            return None
        case ("long", "local-timestamp-millis") if pa.types.is_timestamp(kind) and not kind.tz:
            return _millis
        case ("long", "local-timestamp-micros") if pa.types.is_timestamp(kind) and not kind.tz:
            return None
        case ("int", "time-millis") if pa.types.is_time(kind):
            return _millis
        case ("long", "time-micros") if pa.types.is_time(kind):
            return None
    raise Unreadable("incompatible_schema")


def _millis(value: int) -> int:
    return value * 1000


_SAME: list[tuple[tuple[str, ...], Callable[[Any], bool]]] = [
    (("boolean",), pa.types.is_boolean),
    (("int",), pa.types.is_int32),
    (("int", "long"), pa.types.is_int64),
    (("float",), pa.types.is_float32),
    (("float", "double"), pa.types.is_float64),
    (("string", "enum"), lambda kind: pa.types.is_string(kind) or pa.types.is_large_string(kind)),
    (("bytes",), lambda kind: pa.types.is_binary(kind) or pa.types.is_large_binary(kind)),
    (("fixed",), pa.types.is_fixed_size_binary),
]
"""Avro types -> Arrow columns that hold their values as they are."""
