"""How values of an Avro schema are read as the columns of a table: each part of a value as it is written, with its column."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from calve.schema.avro import branch_names, branches, column_type, is_map
from calve.schema.change_events import MILLIS
from calve.schema.columns import Json, decimal_digits, field, join, struct
from calve.schema.evolution import mismatch, show, widens

MILLIS_OF_AVRO = ("timestamp-millis", "local-timestamp-millis")


@dataclass(frozen=True, slots=True)
class Value:
    """A part of a value. kind: its Avro type; also `union`, and `entries` for a map that is written as an array.

    column: the type that it is read as (Iceberg, JSON form). Without one it is still read, because it must be valid; if it is
    `skipped`, less is checked, as in Avro's Java.
    parts: the fields of a record, the types of a union, what an array or a map holds. Fields and types have the names of their
    columns.
    conversion: `decimal`; `millis` (since 1970); of databases `moment` (a text) and `database_millis`.
    digits: precision and scale, of a decimal. size: of a fixed. symbols: of an enum.
    """

    kind: str
    column: Json = None
    parts: tuple[tuple[str | None, Value], ...] = ()
    conversion: str = ""
    digits: tuple[int, int] = (0, 0)
    size: int = 0
    symbols: tuple[str, ...] = ()
    skipped: bool = False

    @property
    def inner(self) -> Value:
        """What an array or a map holds."""
        return self.parts[0][1]


NULL = Value("null")


def reading(writer: Json, table: Json) -> Value:
    """How to read an (expanded) writer's values as the table's columns.

    A column may have `written`: the name by which this writer writes it, or None if it does not.
    Raises `SchemaProblem` if the values cannot be read as this table's columns.
    """
    return _record(writer, table, "")


def _record(writer: Json, table: Json, path: str) -> Value:
    columns = _by_written_name(table)
    parts = []
    for each in writer["fields"]:
        column = columns.get(each["name"])
        if column is None:
            parts.append((None, _without_column(each["type"], skipped=True)))
        else:
            parts.append((column["name"], _value(each["type"], column["type"], join(path, column["name"]))))
    return Value("record", table, tuple(parts))


def _value(writer: Json, column: Json, path: str) -> Value:
    if isinstance(writer, list):
        return _union(writer, column, path)
    node = {"type": writer} if isinstance(writer, str) else writer
    return _nested(node, column, path) if isinstance(column, dict) else _leaf(node, column, path)


def _union(writer: Sequence[Json], column: Json, path: str) -> Value:
    """A union of several types is a struct with a field for each."""
    if len(branches(writer)) == 1:
        parts = ((None, NULL if each == "null" else _value(each, column, path)) for each in writer)
        return Value("union", column, tuple(parts))
    if not isinstance(column, dict) or column["type"] != "struct":
        raise mismatch(show(column), "a union of several types", path)
    columns, names = _by_written_name(column), iter(branch_names(writer, path))

    def part(each: Json) -> tuple[str | None, Value]:
        if each == "null":
            return None, NULL
        name = next(names)
        if name not in columns:
            return None, _without_column(each, skipped=False)
        return columns[name]["name"], _value(each, columns[name]["type"], join(path, name))

    return Value("union", column, tuple(map(part, writer)))


def _nested(node: Json, column: Json, path: str) -> Value:
    match column["type"], node["type"]:
        case "struct", "record" | "error":
            return _record(node, column, path)
        case "list", "array":
            return _holding("array", column, _value(node["items"], column["element"], f"{path}[]"))
        case "map", "map" if column["key"] == "string":
            return _holding("map", column, _value(node["values"], column["value"], f"{path}{{}}"))
        case "map", "array" if is_map(node):
            return _entries(node, column, path)
    raise mismatch(f"a {column['type']}", f"a {node['type']}", path)


def _entries(node: Json, column: Json, path: str) -> Value:
    """A map written as a list of entries. With string keys, key first, its bytes are those of Avro's map."""
    written = {each["name"]: each["type"] for each in node["items"]["fields"]}
    value = _value(written["value"], column["value"], f"{path}{{}}")
    kind = written["key"]
    key = {"type": kind} if isinstance(kind, str) else kind
    if next(iter(written)) == "key" and key["type"] == column["key"] == "string":
        return _holding("map", column, value)
    sides = {"key": _leaf(key, column["key"], path), "value": value}
    both = struct(*(field(name, column[name]) for name in sides))
    entry = Value("record", both, tuple((name, sides[name]) for name in written))
    return _holding("entries", column, entry)


def _holding(kind: str, column: Json, inner: Value) -> Value:
    return Value(kind, column, ((None, inner),))


def _leaf(node: Json, column: Json, path: str) -> Value:
    own = column_type(node, path)
    if own != column and not widens(own, column):
        raise mismatch(show(column), show(own), path)
    kind, logical, digits = node["type"], node.get("logicalType"), decimal_digits(own)
    conversion = ""
    if digits:
        conversion = "decimal"
    elif kind == "string" and own == "timestamptz":
        conversion = "moment"
    elif logical == MILLIS:
        conversion = "database_millis"
    elif logical in MILLIS_OF_AVRO and kind == "long":
        conversion = "millis"
    return Value(kind, column, (), conversion, digits or (0, 0), node.get("size", 0), _symbols(node))


def _symbols(node: Json) -> tuple[str, ...]:
    return tuple(node["symbols"]) if node["type"] == "enum" else ()


def _without_column(node: Json, *, skipped: bool) -> Value:
    """A value that no column holds. `skipped`: as in `Value`."""

    def inner(each: Json) -> tuple[None, Value]:
        return None, _without_column(each, skipped=skipped)

    if isinstance(node, list):
        return Value("union", None, tuple(map(inner, node)), skipped=skipped)
    if isinstance(node, str):
        return Value(node, skipped=skipped)
    match node["type"]:
        case "record" | "error":
            parts = tuple(inner(each["type"]) for each in node["fields"])
            return Value("record", None, parts, skipped=skipped)
        case "array":
            return Value("array", None, (inner(node["items"]),), skipped=skipped)
        case "map":
            return Value("map", None, (inner(node["values"]),), skipped=skipped)
    return Value(node["type"], size=node.get("size", 0), symbols=_symbols(node), skipped=skipped)


def _by_written_name(struct: Json) -> dict[str, Json]:
    named = ((each.get("written", each["name"]), each) for each in struct["fields"])
    return {name: each for name, each in named if name is not None}
