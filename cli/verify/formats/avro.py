"""Avro values as Avro's Java library reads them: in some ways stricter, in others more lenient than other readers.

Own rules, not the job's code, turn a value into a value of an Arrow column.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal
from functools import partial
from typing import Any

import pyarrow as pa

from calve.config.spark_conf import ITEMS_LIMIT, STRING_LIMIT
from cli.verify.columns import is_bytes, is_list, is_text
from cli.verify.formats.fields import (
    EXACT,
    MILLIS,
    MISFIT,
    ZONED,
    Convert,
    Renames,
    Spec,
    Unreadable,
    Writer,
    bounded,
    columns_of,
    database_timestamp_us,
    filled,
    with_logical_types,
)

LEAST = -(2**63)
Schema = Any


class AvroWriter(Writer):
    """For records, whose fields are the columns."""

    def __init__(self, spec: Spec) -> None:
        super().__init__(spec)
        top: Schema = json.loads(spec.schema.text)
        if not isinstance(top, dict) or top.get("type") not in ("record", "error"):
            raise Unreadable("incompatible_schema")
        names: dict[str, Schema] = {}
        for each in spec.schema.references.values():
            resolved(json.loads(each), names, "")
        found = resolved(top, names, "")
        self._fields = _fields(
            with_logical_types(found) if spec.changes else found, spec.columns, spec.renames
        )
        self._changes = spec.changes
        self._read = reader(found)

    def decode(self, value: bytes) -> Any:
        found = Bytes(value, len(self.frame))
        try:
            row = self._read(found)
        except (ValueError, IndexError):
            raise Unreadable("malformed") from None
        if found.at != len(value):
            raise Unreadable("malformed" if self._misfits(row) else "trailing_bytes")
        return row

    def _misfits(self, row: Any) -> bool:
        """Whether Avro's reader already refuses a value. A database's own types are converted later."""
        if self._changes:
            return False
        try:
            self.project([row])
        except (*MISFIT, Unreadable):
            return True
        return False

    def project(self, rows: list[Any]) -> list[Any]:
        return [self._array(each, rows) for each in self.columns]

    def _array(self, column: pa.Field, rows: list[Any]) -> Any:
        if column.name not in self._fields:
            return pa.nulls(len(rows), column.type)
        source, convert = self._fields[column.name]
        values = [row[source] for row in rows]
        return pa.array(values if convert is _same else list(map(convert, values)), column.type)


class Bytes:
    """A value, read from a position on. Missing bytes raise IndexError or ValueError.

    Numbers have at most 5 or 10 bytes; bits beyond 32 or 64 are dropped.
    """

    def __init__(self, data: bytes, at: int) -> None:
        self.data, self.at, self.items = data, at, 0

    def number(self, bits: int = 64) -> int:
        if (byte := self.data[self.at]) < 0x80:
            self.at += 1
            return (byte >> 1) ^ -(byte & 1)
        number = shift = 0
        while shift < bits:
            byte = self.data[self.at]
            self.at += 1
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                number &= (1 << bits) - 1
                return (number >> 1) ^ -(number & 1)
            shift += 7
        raise ValueError

    def of(self, items: list[Any]) -> Any:
        """The item at the index that a number gives."""
        return items[_not_negative(self.number(32))]

    def sized(self) -> bytes:
        """As many bytes as a number gives."""
        size = _not_negative(self.number())
        if size > STRING_LIMIT:
            raise ValueError
        return self.taken(size)

    def taken(self, size: int) -> bytes:
        self.at += size
        if self.at > len(self.data):
            raise ValueError
        return self.data[self.at - size : self.at]

    def blocks(self) -> Iterator[None]:
        """Yields once per item of a list or map."""
        count = self._block()
        self.items = max(count, 0)
        while count > 0:
            if self.items > ITEMS_LIMIT:
                raise ValueError
            for _ in range(count):
                yield
            count = _not_negative(self._block())
            self.items += count

    def _block(self) -> int:
        count = self.number()
        if count < 0:
            self.number()  # how many bytes it has
        return -count if LEAST < count < 0 else count


Read = Callable[[Bytes], Any]
PLAIN: dict[str, Read] = {
    "null": lambda _: None,
    "boolean": lambda found: found.taken(1) == b"\x01",
    "int": lambda found: found.number(32),
    "long": lambda found: found.number(),
    "float": lambda found: struct.unpack("<f", found.taken(4))[0],
    "double": lambda found: struct.unpack("<d", found.taken(8))[0],
    "bytes": lambda found: found.sized(),
    "string": lambda found: found.sized().decode(errors="replace"),
}


def reader(node: Schema) -> Read:
    """A reader for values of a resolved schema, without logical types; a union of several types gives index and value."""
    if isinstance(node, list):
        return _union([reader(each) for each in node], several=len(_others(node)) > 1)
    match node["type"]:
        case "record" | "error":
            fields = [(each["name"], reader(each["type"])) for each in node["fields"]]
            return lambda found: {name: read(found) for name, read in fields}
        case "enum":
            return lambda found: found.of(node["symbols"])
        case "fixed":
            return lambda found: found.taken(node["size"])
        case "array":
            items = reader(node["items"])
            return lambda found: [items(found) for _ in found.blocks()]
        case "map":
            key, values = PLAIN["string"], reader(node["values"])
            return lambda found: {key(found): values(found) for _ in found.blocks()}
    return PLAIN[node["type"]]


def _union(types: list[Read], *, several: bool) -> Read:
    if not several:
        return lambda found: found.of(types)(found)
    places = list(range(len(types)))
    nulls = [each is PLAIN["null"] for each in types]

    def read(found: Bytes) -> Any:
        place = found.of(places)
        return None if nulls[place] else (place, types[place](found))

    return read


def _not_negative(number: int) -> int:
    if number < 0:
        raise ValueError
    return number


def resolved(node: Schema, names: dict[str, Schema], space: str) -> Schema:
    """The schema with named types replaced; a type that contains itself cannot be a table."""
    if isinstance(node, list):
        return [resolved(branch, names, space) for branch in node]
    if isinstance(node, str):
        if node in PLAIN:
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
    return node if kind in PLAIN else resolved(kind, names, space)


def _others(union: list[Schema]) -> list[Schema]:
    """The types of a union, without null."""
    return [branch for branch in union if branch["type"] != "null"]


def converter(node: Schema, kind: Any, renames: Renames) -> Convert:
    """Converts a decoded value into a value of this Arrow type.

    Raises:
        Unreadable: values of this Avro type do not fit the column.
    """
    if isinstance(node, list):
        return _of_union(node, kind, renames)
    avro, logical = node["type"], node.get("logicalType")
    if pa.types.is_struct(kind) and avro in ("record", "error"):
        return partial(filled, _fields(node, kind, renames))
    if pa.types.is_map(kind):
        return _entries(node, kind, renames)
    if is_list(kind) and avro == "array":
        convert = converter(node["items"], kind.value_type, renames)
        return convert if convert is _same else lambda value: [convert(item) for item in value]
    if pa.types.is_decimal(kind) and logical == "decimal" and avro in ("bytes", "fixed"):
        if node.get("scale", 0) != kind.scale or node.get("precision", 10) > kind.precision:
            raise Unreadable("incompatible_schema")
        return _decimal(node.get("precision", 10), kind.scale)
    if pa.types.is_temporal(kind):
        holds, convert = _TEMPORAL.get((avro, logical), (_nothing, _same))
        if holds(kind):
            return convert
    elif any(avro in types and holds(kind) for types, holds in _SAME):
        return _same
    raise Unreadable("incompatible_schema")


def _fields(record: Schema, columns: Iterable[pa.Field], renames: Renames) -> dict[str, tuple[str, Convert]]:
    written = {each["name"]: each["type"] for each in record["fields"]}
    return columns_of(columns, written, renames, partial(converter, renames=renames))


def _of_union(union: list[Schema], kind: Any, renames: Renames) -> Convert:
    """A union of several types is a struct with a field for each, named by its type, in full if two are alike."""
    others = _others(union)
    if len(others) == 1:
        only = converter(others[0], kind, renames)
        return only if only is _same else lambda value: None if value is None else only(value)
    if not pa.types.is_struct(kind) or not others:
        raise Unreadable("incompatible_schema")
    full = [str(each.get("name", each["type"])) for each in union]
    short = [name.rpartition(".")[2].lower() for name in full]
    by_place = {}
    for place, each in enumerate(union):
        if each["type"] == "null":
            continue
        alone = short.count(short[place]) == 1
        name = full[place].rpartition(".")[2] if alone else full[place].replace(".", "_")
        if kind.get_field_index(name) < 0:
            raise Unreadable("incompatible_schema")
        by_place[place] = (name, converter(each, kind.field(name).type, renames))

    def convert(value: tuple[int, Any] | None) -> dict[str, Any] | None:
        if value is None:
            return None
        name, inner = by_place[value[0]]
        return {name: inner(value[1])}

    return convert


def _entries(node: Schema, kind: Any, renames: Renames) -> Convert:
    """A map, or a list of its entries. Of equal keys the last entry counts.

    The job reads a list as a map if its first field is a text named key: the bytes are the same. It checks every entry of a list,
    but no value of a map that a later one replaces.
    """
    if node["type"] == "map":
        item = converter(node["values"], kind.item_type, renames)
        return lambda value: [(key, item(each)) for key, each in value.items()]
    fields: dict[str, Schema] = {}
    if node["type"] == "array":
        fields = {each["name"]: each["type"] for each in node["items"].get("fields", ())}
    if fields.keys() != {"key", "value"}:
        raise Unreadable("incompatible_schema")
    key = converter(fields["key"], kind.key_type, renames)
    item = converter(fields["value"], kind.item_type, renames)
    first, named = next(iter(fields.items()))
    if first == "key" and isinstance(named, dict) and named["type"] == "string" and is_text(kind.key_type):
        return lambda value: [
            (name, item(each)) for name, each in {key(each["key"]): each["value"] for each in value}.items()
        ]
    return lambda value: list({key(each["key"]): item(each["value"]) for each in value}.items())


def _decimal(precision: int, scale: int) -> Convert:
    def convert(value: bytes) -> Decimal:
        number = int.from_bytes(value, "big", signed=True)
        if not value or abs(number) >= 10**precision:
            raise OverflowError
        return Decimal(number).scaleb(-scale, EXACT)

    return convert


def _zoned(value: str) -> int:
    found = database_timestamp_us(value)
    if found is None:
        raise Unreadable("malformed")
    return found


def _millis(value: int) -> int:
    return value * 1000


def _same(value: Any) -> Any:
    return value


def _nothing(_: Any) -> bool:
    return False


def _is_moment(kind: Any) -> bool:
    return bool(pa.types.is_timestamp(kind) and kind.tz)


def _is_local(kind: Any) -> bool:
    return bool(pa.types.is_timestamp(kind) and not kind.tz)


_TEMPORAL: dict[tuple[str, Any], tuple[Callable[[Any], bool], Convert]] = {
    ("int", "date"): (pa.types.is_date, _same),
    ("long", "timestamp-millis"): (_is_moment, _millis),
    ("long", "timestamp-micros"): (_is_moment, _same),
    ("long", "local-timestamp-millis"): (_is_local, _millis),
    ("long", "local-timestamp-micros"): (_is_local, _same),
    ("long", MILLIS): (_is_local, lambda value: bounded(value * 1000)),
    ("string", ZONED): (_is_moment, _zoned),
    ("int", "time-millis"): (pa.types.is_time, _millis),
    ("long", "time-micros"): (pa.types.is_time, _same),
}
_SAME: list[tuple[tuple[str, ...], Callable[[Any], bool]]] = [
    (("boolean",), pa.types.is_boolean),
    (("int",), pa.types.is_int32),
    (("int", "long"), pa.types.is_int64),
    (("float",), pa.types.is_float32),
    (("float", "double"), pa.types.is_float64),
    (("string", "enum"), is_text),
    (("bytes",), is_bytes),
    (("fixed",), pa.types.is_fixed_size_binary),
]
"""Avro types -> Arrow columns that hold their values as they are."""
