"""Avro schemas as verification sees them: what a decoded value becomes in an Arrow column, by its own rules, not the engine's."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa

from cli.verify.debezium import MILLIS, MOMENT
from cli.verify.moments import bounded, database_moment
from cli.verify.renames import Renames, sources

PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
EXACT = Context(prec=100)

MISFIT = (pa.ArrowException, ArithmeticError)
"""What Arrow and the converters raise for a decoded value that is too large for its column."""
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
        full = f"{space}.{name}" if space else name
        result = node | {"name": full}
        if "fields" in node:
            result["fields"] = [
                each | {"type": resolved(each["type"], names, space)} for each in node["fields"]
            ]
        names[full] = result
        return result
    if kind == "array":
        return node | {"items": resolved(node["items"], names, space)}
    if kind == "map":
        return node | {"values": resolved(node["values"], names, space)}
    return node if kind in PRIMITIVES else resolved(kind, names, space)


def _is_null(node: Schema) -> bool:
    return node == "null" or (isinstance(node, dict) and node.get("type") == "null")


def others(union: list[Schema]) -> list[Schema]:
    """The types of a union but for null."""
    return [branch for branch in union if not _is_null(branch)]


def converter(node: Schema, kind: Any, renames: Renames) -> Convert | None:
    """How a decoded value becomes a value for an Arrow column of this type; None: it is one already.

    Raises:
        Unreadable: values of this Avro type are no values of the column.
    """
    if isinstance(node, list):
        return _nullable(node, kind, renames)
    avro, logical = node["type"], node.get("logicalType")
    if pa.types.is_struct(kind) and avro in ("record", "error"):
        return _struct_converter(node, kind, renames)
    if pa.types.is_map(kind):
        return _map_converter(node, kind, renames)
    if (pa.types.is_list(kind) or pa.types.is_large_list(kind)) and avro == "array":
        convert = converter(node["items"], kind.value_type, renames)
        return (lambda value: [convert(item) for item in value]) if convert else None
    if pa.types.is_decimal(kind) and logical == "decimal" and avro in ("bytes", "fixed"):
        if node.get("scale", 0) != kind.scale or node.get("precision", 10) > kind.precision:
            raise Unreadable("incompatible_schema")
        return _decimal_converter(node.get("precision", 10), kind.scale)
    if pa.types.is_temporal(kind):
        return _temporal_converter(avro, logical, kind)
    if not any(avro in types and test(kind) for types, test in _SAME):
        raise Unreadable("incompatible_schema")
    return None


def field_converters(
    fields: Iterable[Schema], columns: Iterable[Any], renames: Renames
) -> list[tuple[Any, str | None, Convert | None]]:
    """Each column, the field that fills it (None: the writer has none), and how its values are converted."""
    columns, written = list(columns), {each["name"]: each["type"] for each in fields}
    source = sources([each.name for each in columns], written, renames)
    return [
        (
            each,
            source.get(each.name),
            converter(written[source[each.name]], each.type, renames) if each.name in source else None,
        )
        for each in columns
    ]


def _nullable(union: list[Schema], kind: Any, renames: Renames) -> Convert | None:
    found = others(union)
    if len(found) != 1:
        return _branch_converter(union, kind, renames)
    convert = converter(found[0], kind, renames)
    return (lambda value: None if value is None else convert(value)) if convert else None


def _branch_converter(union: list[Schema], kind: Any, renames: Renames) -> Convert:
    """A union of several types is a struct with a field for each: its type's name, in full where two are alike."""
    if not pa.types.is_struct(kind) or not others(union):
        raise Unreadable("incompatible_schema")
    full = [str(each.get("name", each["type"])) for each in union]
    short = [name.rpartition(".")[2].lower() for name in full]
    by_place = {}
    for place, each in enumerate(union):
        if _is_null(each):
            continue
        alone = short.count(short[place]) == 1
        name = full[place].rpartition(".")[2] if alone else full[place].replace(".", "_")
        if kind.get_field_index(name) < 0:
            raise Unreadable("incompatible_schema")
        by_place[place] = (name, converter(each, kind.field(name).type, renames))

    def convert(value: tuple[int, Any] | None) -> dict[str, Any] | None:
        if value is None:
            return None
        place, held = value
        name, inner = by_place[place]
        return {name: inner(held) if inner else held}

    return convert


def _struct_converter(node: Schema, kind: Any, renames: Renames) -> Convert:
    converters = [
        (column.name, source, convert)
        for column, source, convert in field_converters(node["fields"], kind, renames)
        if source is not None
    ]

    def convert(value: dict[str, Any]) -> dict[str, Any]:
        return {name: inner(value[source]) if inner else value[source] for name, source, inner in converters}

    return convert


def _map_converter(node: Schema, kind: Any, renames: Renames) -> Convert:
    """A map, or a list of its entries, of which the last counts where a key is there twice."""
    if node["type"] == "map":
        item = converter(node["values"], kind.item_type, renames)
        return lambda value: [(key, item(each) if item else each) for key, each in value.items()]
    if node["type"] != "array" or {each["name"] for each in node["items"].get("fields", ())} != {
        "key",
        "value",
    }:
        raise Unreadable("incompatible_schema")
    types = {each["name"]: each["type"] for each in node["items"]["fields"]}
    keys, items = (
        converter(types["key"], kind.key_type, renames),
        converter(types["value"], kind.item_type, renames),
    )

    def convert(value: list[dict[str, Any]]) -> list[tuple[Any, Any]]:
        found = {keys(each["key"]) if keys else each["key"]: each["value"] for each in value}
        return [(key, items(each) if items else each) for key, each in found.items()]

    return convert


def _decimal_converter(precision: int, scale: int) -> Convert:
    def convert(value: bytes) -> Decimal:
        number = int.from_bytes(value, "big", signed=True)
        if not value or abs(number) >= 10**precision:
            raise OverflowError
        return Decimal(number).scaleb(-scale, EXACT)

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
        case ("long", logical) if logical == MILLIS and pa.types.is_timestamp(kind) and not kind.tz:
            return lambda value: bounded(value * 1000)
        case ("string", logical) if logical == MOMENT and pa.types.is_timestamp(kind) and kind.tz:
            return _moment
        case ("int", "time-millis") if pa.types.is_time(kind):
            return _millis
        case ("long", "time-micros") if pa.types.is_time(kind):
            return None
    raise Unreadable("incompatible_schema")


def _moment(value: str) -> int:
    found = database_moment(value)
    if found is None:
        raise Unreadable("malformed")
    return found


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
