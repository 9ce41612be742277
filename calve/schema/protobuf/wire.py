"""Protobuf's bytes, as far as a schema's own descriptor and the frame of a value need them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from calve.schema.wire import varint_of, zigzag

VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5


def fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a message: number and value, bytes where it has a length.

    Raises:
        ValueError: these bytes are no message.
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
    """A varint as the int32 or int64 that was written."""
    return value - (1 << 64) if value >> 63 else value


def message_indexes(path: Sequence[int]) -> bytes:
    """What Confluent's serializers write before a message: where it is in its file, zigzag varints after their number.

    The first message of a file is a single zero.
    """
    if tuple(path) == (0,):
        return b"\x00"
    return b"".join(zigzag(each) for each in (len(path), *path))


def message_places(names: Iterable[str]) -> dict[str, bytes]:
    """What AWS's serializers write before each message: its place among all of the file, sorted by their full names.

    https://github.com/awslabs/aws-glue-schema-registry (`MessageIndexFinder`, `ProtobufWireFormatEncoder`)
    """
    return {name: varint_of(place) for place, name in enumerate(sorted(names))}
