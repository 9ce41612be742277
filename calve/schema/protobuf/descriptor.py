"""Protobuf's bytes, and files in binary form (`google.protobuf.FileDescriptorProto`), as some clients register them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from calve.schema.evolution import Rule, SchemaProblem
from calve.schema.protobuf.model import MAX_DEPTH, Enum, Field, File, Message, Presence, presence_of

VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5


def fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a message: number and value; length-delimited values are bytes.

    Raises `ValueError` if the bytes are not a message.
    """
    place = 0
    while place < len(data):
        tag, place = varint(data, place)
        kind, size = tag & 7, 0
        if kind == VARINT:
            value, place = varint(data, place)
            yield tag >> 3, value
            continue
        if kind == LENGTH:
            size, place = varint(data, place)
        elif kind in (FIXED64, FIXED32):
            size = 8 if kind == FIXED64 else 4
        else:
            raise ValueError("no type of a field")
        if tag < 8 or place + size > len(data):
            raise ValueError("cut short")
        yield tag >> 3, data[place : place + size]
        place += size


def varint(data: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if place >= len(data) or shift > 63:
            raise ValueError("cut short")
        byte = data[place]
        value |= (byte & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if byte < 0x80:
            return value, place


def signed(value: int) -> int:
    """A varint as int32 or int64."""
    return value - (1 << 64) if value >> 63 else value


KINDS = {
    1: "double", 2: "float", 3: "int64", 4: "uint64", 5: "int32", 6: "fixed64", 7: "fixed32", 8: "bool", 9: "string",
    10: "group", 11: "message", 12: "bytes", 13: "uint32", 14: "enum", 15: "sfixed32", 16: "sfixed64", 17: "sint32",
    18: "sint64",
}  # fmt: skip
REQUIRED, REPEATED = 2, 3
FIELD_META = 1088
PRESENCE = {2: Presence.IMPLICIT, 3: Presence.REQUIRED}
DELIMITED = 2
Node = dict[int, list[int | bytes]]


def parse(data: bytes) -> File:
    """A file from its bytes. Raises `SchemaProblem` or `ValueError` if they are not one."""
    node = _node(data)
    package = _text(node, 2)
    rules = _Rules(_text(node, 12), _node(_bytes(_node(_bytes(node, 8)), 50)))
    return File(
        package,
        [each.decode() for each in _all(node, 3)],
        [_message(each, package, rules, 0) for each in _all(node, 4)],
        [_enum(each, package) for each in _all(node, 5)],
    )


class _Rules(NamedTuple):
    """What applies to all fields of a file."""

    syntax: str
    features: Node


def _message(data: bytes, scope: str, rules: _Rules, depth: int) -> Message:
    if depth > MAX_DEPTH:
        raise SchemaProblem("", f"messages are nested deeper than {MAX_DEPTH}", Rule.NESTED_TOO_DEEP)
    node = _node(data)
    name = f"{scope}.{_text(node, 1)}" if scope else _text(node, 1)
    oneofs = [_text(_node(each), 1) for each in _all(node, 8)]
    members = [_field(each, rules, oneofs) for each in _all(node, 2)]
    real = [name for name in oneofs if any(each.oneof == name for each in members)]
    return Message(
        name,
        members,
        real,
        [_message(each, name, rules, depth + 1) for each in _all(node, 3)],
        [_enum(each, name) for each in _all(node, 4)],
        bool(_number(_node(_bytes(node, 7)), 7)),
    )


def _field(data: bytes, rules: _Rules, oneofs: Sequence[str]) -> Field:
    node = _node(data)
    options = _node(_bytes(node, 8))
    features = rules.features | _node(_bytes(options, 21))
    kind, label = KINDS[_number(node, 5)], _number(node, 4)
    if kind == "message" and _number(features, 5) == DELIMITED:
        kind = "group"
    own = bool(_number(node, 17))
    made = Field(_text(node, 1), _number(node, 3), kind, _text(node, 6), label == REPEATED)
    made.oneof = oneofs[_number(node, 9)] if 9 in node and not own else None
    presence, alone = PRESENCE.get(_number(features, 1)), made.oneof is None and not own
    made.presence = presence_of(rules.syntax, presence, required=label == REQUIRED, alone=alone)
    meta = _node(_bytes(options, FIELD_META))
    made.params = {_text(each, 1): _text(each, 2) for each in map(_node, _all(meta, 2))}
    made.tags = [each.decode() for each in _all(meta, 3)]
    made.doc = _text(meta, 1) or None
    return made


def _enum(data: bytes, scope: str) -> Enum:
    node = _node(data)
    name = _text(node, 1)
    pairs = [(_text(each, 1), signed(_number(each, 2))) for each in map(_node, _all(node, 2))]
    return Enum(f"{scope}.{name}" if scope else name, pairs)


def _node(data: bytes) -> Node:
    found: Node = {}
    for number, value in fields(data):
        found.setdefault(number, []).append(value)
    return found


def _all(node: Node, number: int) -> list[bytes]:
    return [each for each in node.get(number, ()) if isinstance(each, bytes)]


def _bytes(node: Node, number: int) -> bytes:
    return b"".join(_all(node, number))


def _text(node: Node, number: int) -> str:
    found = _all(node, number)
    return found[-1].decode() if found else ""


def _number(node: Node, number: int) -> int:
    found = [each for each in node.get(number, ()) if isinstance(each, int)]
    return found[-1] if found else 0
