"""Masking of Avro's and Protobuf's bytes, value by value: what is not a value stays as its producer wrote it.

Bytes behind a place that cannot be read are masked as bytes of unknown meaning.
"""

from __future__ import annotations

import struct
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from calve.schema.columns import Json
from calve.schema.protobuf.descriptor import FIXED32, FIXED64, LENGTH, VARINT, signed, varint
from calve.schema.protobuf.model import Field, Message
from calve.schema.wire import varint_of
from cli.project.capture.pseudonyms import DEEPEST, INT, LONG, Path, Pseudonyms

MILLIS_OF_DAY, MICROS_OF_DAY = 86_399_999, 86_399_999_999
_MOST = {"time-millis": MILLIS_OF_DAY, "time-micros": MICROS_OF_DAY}
_FLOATS = {"float": "f", "double": "d"}


class _Unreadable(Exception):
    """The rest of the bytes has no meaning."""


def avro(data: bytes, schema: Json, hide: Pseudonyms) -> bytes:
    """schema: `calve.schema.avro.expand`."""
    if hide.keeps(()):
        return data
    walk = _Avro(data, hide)
    with suppress(_Unreadable):
        walk.value(schema, ())
    return bytes(walk.made) + hide.raw(data[walk.place :])


@dataclass(slots=True)
class _Avro:
    """place: the first byte that is not in `made` yet."""

    data: bytes
    hide: Pseudonyms
    place: int = 0
    made: bytearray = field(default_factory=bytearray)

    def value(self, node: Json, path: Path) -> None:
        if isinstance(node, list):
            place = self._copied()
            if not 0 <= place < len(node):
                raise _Unreadable
            return self.value(node[place], path)
        kind = node if isinstance(node, str) else node["type"]
        match kind:
            case "null":
                pass
            case "record" | "error":
                for each in node["fields"]:
                    self.value(each["type"], (*path, each["name"]))
            case "array" | "map":
                self._blocks(node, path)
            case "boolean":
                self.made += self._taken(1)
            case "enum":
                self._copied()
            case _:
                self._leaf(kind, node, path)
        return None

    def _leaf(self, kind: str, node: Json, path: Path) -> None:
        logical = node.get("logicalType") if isinstance(node, dict) else None
        keeps = self.hide.keeps(path)
        match kind:
            case "int" | "long":
                number = self._long()
                most = _MOST.get(str(logical), INT if kind == "int" else LONG)
                self.made += _zigzag(number if keeps else self.hide.integer(number, most))
            case "float" | "double":
                data = self._taken(4 if kind == "float" else 8)
                self.made += data if keeps else _real(data, _FLOATS[kind], self.hide)
            case "fixed":
                data = self._taken(node["size"])
                self.made += data if keeps else self._bytes(data, logical)
            case _:
                size = self._long()
                if size < 0:
                    self.made += _zigzag(size)
                    raise _Unreadable
                data = self.data[self.place : self.place + size]
                self.place += len(data)
                masked = (
                    data
                    if keeps
                    else self.hide.string(data)
                    if kind == "string"
                    else self._bytes(data, logical)
                )
                self.made += _zigzag(size if len(data) < size else len(masked)) + masked
                if len(data) < size:
                    raise _Unreadable

    def _blocks(self, node: Json, path: Path) -> None:
        while count := self._copied():
            size = self._long() if count < 0 else None
            begun = len(self.made)
            try:
                for _ in range(abs(count)):
                    before = self.place
                    if node["type"] == "map":
                        self._leaf("string", "string", path)
                    self.value(node["items" if node["type"] == "array" else "values"], path)
                    if self.place == before:  # items without bytes, however many
                        break
            finally:
                if size is not None:
                    self.made[begun:] = _zigzag(len(self.made) - begun) + self.made[begun:]

    def _bytes(self, data: bytes, logical: str | None) -> bytes:
        if logical != "decimal" or not data:
            return self.hide.raw(data)
        number = int.from_bytes(data, "big", signed=True)
        most = 2 ** (8 * len(data) - 1) - 1
        return self.hide.integer(number, most).to_bytes(len(data), "big", signed=True)

    def _long(self) -> int:
        try:
            value, self.place = varint(self.data, self.place)
        except ValueError:
            # A number that does not end stays one that does not end.
            self.made += bytes(each | 0x7F for each in self.data[self.place :])
            self.place = len(self.data)
            raise _Unreadable from None
        return (value >> 1) ^ -(value & 1)

    def _copied(self) -> int:
        begun = self.place
        found = self._long()
        self.made += self.data[begun : self.place]
        return found

    def _taken(self, size: int) -> bytes:
        if self.place + size > len(self.data):
            raise _Unreadable
        self.place += size
        return self.data[self.place - size : self.place]


def _zigzag(number: int) -> bytes:
    return varint_of(2 * number if number >= 0 else -2 * number - 1)


def _real(data: bytes, code: str, hide: Pseudonyms) -> bytes:
    [value] = struct.unpack(f"<{code}", data)
    try:
        return struct.pack(f"<{code}", hide.real(value))
    except OverflowError:
        return struct.pack(f"<{code}", 1.0)


START_GROUP, END_GROUP = 3, 4
_SIZES = {FIXED64: 8, FIXED32: 4}
_FIXED = {"fixed32": "I", "sfixed32": "i", "fixed64": "Q", "sfixed64": "q"} | _FLOATS
_MOST_OF_VARINTS = {"int32": INT, "sint32": INT, "uint32": 2**32 - 1, "uint64": 2**64 - 1}


class _Inside(NamedTuple):
    """A message or group that is being read; None: of unknown type."""

    message: Message | None
    path: Path

    def field(self, number: int) -> tuple[Field | None, Path]:
        """A field, if it is known, and the path of its values. An entry of a map has the path of the map."""
        known = self.message.fields if self.message else ()
        found = next((each for each in known if each.number == number), None)
        is_entry = self.message is not None and self.message.is_map_entry
        return found, (*self.path, found.name) if found and not is_entry else self.path


def protobuf(data: bytes, message: Message | None, hide: Pseudonyms, path: Path = ()) -> bytes:
    """message: of `calve.schema.protobuf`; None: its fields are unknown."""
    if hide.keeps(path):
        return data
    if len(path) > DEEPEST:
        return hide.raw(data)
    made, place = bytearray(), 0
    inside = [_Inside(message, path)]
    try:
        while place < len(data):
            part, place = _part(data, place, inside, hide)
            made += part
    except ValueError:
        pass
    return bytes(made) + hide.raw(data[place:])


def _part(data: bytes, place: int, inside: list[_Inside], hide: Pseudonyms) -> tuple[bytes, int]:
    """One field, masked, and the place behind it. Raises ValueError: there is none."""
    tag, after = varint(data, place)
    kind, head = tag & 7, data[place:after]
    known, path = inside[-1].field(tag >> 3)
    size = _SIZES.get(kind, 0)
    if kind == START_GROUP:
        inside.append(_Inside(known.message if known else None, path))
        return head, after
    if kind == END_GROUP and len(inside) > 1:
        inside.pop()
        return head, after
    if kind == VARINT:
        number, end = varint(data, after)
        masked = _varint(number, known, hide)
    elif kind in _SIZES and after + size <= len(data):
        end = after + size
        masked = _fixed(data[after:end], known, hide)
    elif kind == LENGTH:
        size, after = varint(data, after)
        end = min(after + size, len(data))
        masked = _delimited(data[after:end], known, hide, path)
        masked = varint_of(size if end < after + size else len(masked)) + masked
    else:
        raise ValueError
    return data[place:end] if hide.keeps(path) else head + masked, end


def _delimited(data: bytes, known: Field | None, hide: Pseudonyms, path: Path) -> bytes:
    if known is None or known.kind == "bytes":
        return hide.raw(data)
    if known.kind == "string":
        return hide.string(data)
    if known.message is not None:
        return protobuf(data, known.message, hide, path)
    return _packed(data, known, hide)


def _packed(data: bytes, known: Field, hide: Pseudonyms) -> bytes:
    code = _FIXED.get(known.kind)
    if code is not None:
        size = struct.calcsize(code)
        whole = len(data) - len(data) % size
        made = b"".join(_fixed(data[n : n + size], known, hide) for n in range(0, whole, size))
        return made + hide.raw(data[whole:])
    made, place = b"", 0
    try:
        while place < len(data):
            number, place = varint(data, place)
            made += _varint(number, known, hide)
    except ValueError:
        pass
    return made + hide.raw(data[place:])


def _varint(number: int, known: Field | None, hide: Pseudonyms) -> bytes:
    kind = known.kind if known else "int64"
    if kind in ("bool", "enum"):
        return varint_of(number)
    most = _MOST_OF_VARINTS.get(kind, LONG)
    if kind.startswith("sint"):
        return _zigzag(hide.integer((number >> 1) ^ -(number & 1), most))
    value = number if kind.startswith("uint") else signed(number)
    return varint_of(hide.integer(value, most) % 2**64)


def _fixed(data: bytes, known: Field | None, hide: Pseudonyms) -> bytes:
    code = _FIXED.get(known.kind) if known else None
    if code is None or struct.calcsize(code) != len(data):
        return hide.raw(data)
    if code in _FLOATS.values():
        return _real(data, code, hide)
    [value] = struct.unpack(f"<{code}", data)
    most = 2 ** (8 * len(data) - code.islower()) - 1
    return struct.pack(f"<{code}", hide.integer(value, most))
