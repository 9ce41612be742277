"""Avro values as Avro's Java library reads them: in some ways stricter, in others more lenient than other readers.

fastavro would give false faults: it reads an int of more than 32 bits, an index below zero, and a list of the least length.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa

from calve.decoding.avro_operations import ITEMS_LIMIT, STRING_LIMIT
from calve.decoding.formats import Top
from calve.schema.avro import branch_names, expand
from calve.schema.change_events import AVRO_LOGICAL, MILLIS, MOMENT
from calve.schema.columns import Json, decimal_digits
from calve.schema.wire import Schema
from cli.verify.formats.fields import (
    EXACT,
    Convert,
    Unreadable,
    Writer,
    bounded,
    database_timestamp_us,
    written_in,
)

LEAST = -(2**63)


class AvroWriter(Writer):
    """For records whose fields are the columns. `read`: the parts of the record."""

    def __init__(self, frame: bytes, columns: pa.Schema, schema: Schema, read: Json, top: Top) -> None:
        super().__init__(frame, columns)
        node = expand(schema.text, schema.references, AVRO_LOGICAL if top.changes else {})
        if top.column:
            node = {"type": "record", "name": "whole", "fields": [{"name": top.column, "type": node}]}
        self._fields = _fields(node, read)
        self._changes = top.changes
        self._read = reader(node)

    def decode(self, value: bytes) -> Any:
        found = Bytes(value, len(self.frame))
        row = self._read(found)
        if found.at == len(value):
            return row
        if not self._changes:  # a database's own types are converted later than trailing bytes are noticed
            self.project([row])
        raise Unreadable("trailing_bytes")

    def project(self, rows: list[Any]) -> list[Any]:
        arrays = []
        for each in self.columns:
            source, convert = self._fields.get(each.name, (None, _same))
            values = [None if source is None else row[source] for row in rows]
            arrays.append(pa.array(values if convert is _same else list(map(convert, values)), each.type))
        return arrays


class Bytes:
    """A value, read from a position on. Numbers have at most 5 or 10 bytes; bits beyond 32 or 64 are dropped."""

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
        return items[_not_negative(self.number(32))]

    def sized(self) -> bytes:
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


def reader(node: Json) -> Read:
    """A reader for values of an expanded schema, without logical types; a union of several types gives index and value."""
    if isinstance(node, list):
        types = [reader(each) for each in node]
        return _union(types, several=sum(each is not PLAIN["null"] for each in types) > 1)
    match kind := _kind(node):
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
    return PLAIN[kind]


def _kind(node: Json) -> str:
    return str(node if isinstance(node, str) else node["type"])


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


def _fields(record: Json, columns: Json) -> dict[str, tuple[str, Convert]]:
    """By the name of a column: the field that fills it, and the conversion of its values."""
    kinds = {each["name"]: each["type"] for each in record["fields"]}
    return {name: (source, converter(kinds[source], kind)) for name, source, kind in written_in(columns)}


def converter(node: Json, column: Json) -> Convert:
    if isinstance(node, list):
        return _of_union(node, column)
    kind = _kind(node)
    if decimal_digits(column):
        return _decimal(node.get("precision", 10), node.get("scale", 0))
    if isinstance(column, str):
        return MOMENTS.get((kind, isinstance(node, dict) and node.get("logicalType")), _same)
    match column["type"]:
        case "struct":
            fields = _fields(node, column)
            return lambda value: {name: convert(value[source]) for name, (source, convert) in fields.items()}
        case "list":
            convert = converter(node["items"], column["element"])
            return convert if convert is _same else lambda value: [convert(item) for item in value]
    return _entries(node, column)


def _of_union(union: list[Json], column: Json) -> Convert:
    """A union of several types is a struct with a field for each."""
    others = [each for each in union if _kind(each) != "null"]
    if len(others) == 1:
        only = converter(others[0], column)
        return only if only is _same else lambda value: None if value is None else only(value)
    wanted = {source: (name, kind) for name, source, kind in written_in(column)}
    places = [place for place, each in enumerate(union) if _kind(each) != "null"]
    by_place = {
        place: (wanted[name][0], converter(union[place], wanted[name][1]))
        for place, name in zip(places, branch_names(union, ""), strict=True)
    }

    def convert(value: tuple[int, Any] | None) -> dict[str, Any] | None:
        if value is None:
            return None
        name, inner = by_place[value[0]]
        return {name: inner(value[1])}

    return convert


def _entries(node: Json, column: Json) -> Convert:
    """A map, or a list of its entries. Of equal keys the last entry counts.

    The job reads a list as a map if its first field is a text named key: the bytes are the same. It checks every entry of a list,
    but no value of a map that a later one replaces.
    """
    if node["type"] == "map":
        item = converter(node["values"], column["value"])
        return lambda value: [(key, item(each)) for key, each in value.items()]
    fields = {each["name"]: each["type"] for each in node["items"]["fields"]}
    key, item = converter(fields["key"], column["key"]), converter(fields["value"], column["value"])
    if next(iter(fields)) == "key" and _kind(fields["key"]) == "string" and column["key"] == "string":
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


def _same(value: Any) -> Any:
    return value


MOMENTS: dict[tuple[str, Any], Convert] = {
    ("long", "timestamp-millis"): lambda value: value * 1000,
    ("long", "local-timestamp-millis"): lambda value: value * 1000,
    ("long", MILLIS): lambda value: bounded(value * 1000),
    ("string", MOMENT): database_timestamp_us,
}
"""Avro type and logical type -> its conversion to a number of microseconds. All other values stay as they are."""
