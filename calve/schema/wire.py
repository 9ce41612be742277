"""Registered schemas, and wire formats: how a value names the schema that wrote it."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import UUID

NO_ID = 0
"""The id of a schema that no registry has."""


@dataclass(frozen=True, slots=True)
class Schema:
    """A registered schema: its id, its text, and its type (`AVRO`, `PROTOBUF`, `JSON`).

    guid: the number of its GUID, which names it in headers of records; None: the registry states none.
    references: the texts of all schemas that it needs, by the name it uses; each comes after those that it needs itself.
    version: the number within its subject, if ids are not numbers.
    registered: the time that orders schemas of different subjects. None: ids are in order of time.
    """

    id: int
    text: str
    type: str = "AVRO"
    references: Mapping[str, str] = field(default_factory=dict, hash=False)
    version: int | None = None
    registered: float | None = None
    guid: int | None = None

    @property
    def ids(self) -> tuple[int, ...]:
        """All numbers by which records may name it."""
        return (self.id,) if self.guid is None else (self.id, self.guid)

    @property
    def order(self) -> float:
        return self.id if self.registered is None else self.registered

    @property
    def number(self) -> int:
        """The `_kafka.schema_id` of rows of this schema."""
        return self.id if self.version is None else self.version


HEADERS: Mapping[str, str] = {"value": "__value_schema_id", "key": "__key_schema_id"}
"""The record header that names the schema of a value or a key, in Confluent's newer wire format."""
GUID_SIZE = 16
FIRST_GUID = 2**32
"""Numbers from here on are GUIDs; those below are ids of a registry."""

INFLATED_LIMIT = 64 * 2**20
"""In bytes. A payload that is longer after decompression is refused."""


@dataclass(frozen=True, slots=True)
class Wire:
    """The header before a payload: `magic`, then the schema id, big-endian; `size` bytes in total, 0: no header.

    `deflated`: the magic, of the same length, of values whose payload is compressed with zlib.
    `by_guid`: the magic of a value whose record's header names its schema by a GUID; None: headers name no schema. Such a value
    is read as if it began with this magic, the GUID, and what follows the GUID in the header. So one comparison finds the
    schema of each value. A header with an id stands before its value as it is; one that names no schema stands alone.
    """

    magic: bytes
    size: int
    deflated: bytes | None = None
    by_guid: bytes | None = None

    @property
    def magics(self) -> tuple[bytes, ...]:
        return tuple(each for each in (self.magic, self.deflated, self.by_guid) if each is not None)

    @property
    def guid_frame_size(self) -> int:
        return len(self.by_guid or b"") + GUID_SIZE

    @property
    def names_are_numbers(self) -> bool:
        """Whether an id is a 32-bit number, as in Kafka's clients; else it is a UUID."""
        return self.size - len(self.magic) <= 4

    def frame(self, schema_id: int) -> bytes:
        if self.by_guid and schema_id >= FIRST_GUID:
            return self.by_guid + schema_id.to_bytes(GUID_SIZE, "big")
        return self.magic + schema_id.to_bytes(self.size - len(self.magic), "big") if self.size else b""

    def frames(self, schema_id: int) -> tuple[bytes, ...]:
        """All headers that a value of this schema may have."""
        frame = self.frame(schema_id)
        return (frame, self.deflated + frame[len(self.magic) :]) if self.deflated else (frame,)

    def schema_id(self, frame: bytes) -> int:
        if self.by_guid and frame.startswith(self.by_guid):
            return int.from_bytes(frame[len(self.by_guid) : self.guid_frame_size], "big")
        return int.from_bytes(frame[len(self.magic) : self.size], "big")

    def name(self, schema_id: int) -> str:
        """The id in messages and ledgers: a signed number, as in Kafka's clients, or a UUID."""
        if not self.names_are_numbers or schema_id >= FIRST_GUID:
            return str(UUID(int=schema_id))
        return str(schema_id - 2**32 if schema_id >= 2**31 else schema_id)

    def named(self, name: str) -> int:
        is_number = self.names_are_numbers and name.removeprefix("-").isdecimal()
        return int(name) % 2**32 if is_number else UUID(name).int

    def plain(self, value: bytes) -> bytes | None:
        """A value as if its payload were not compressed; None if it cannot be decompressed."""
        payload = inflate(value[self.size :])
        return None if payload is None else self.magic + value[len(self.magic) : self.size] + payload


GUID_MAGIC = b"\x01"
"""The first byte of a header with a GUID."""
CONFLUENT = Wire(b"\x00", 5, by_guid=b"\x01guid:")
"""https://docs.confluent.io/platform/current/schema-registry/fundamentals/serdes-develop/index.html#wire-format

`by_guid` has several bytes because it stands beside values that producers wrote: none begins so by accident. One that does is
read by the schema that it names, which does no harm.
"""
GLUE = Wire(b"\x03\x00", 18, deflated=b"\x03\x05")
"""https://github.com/awslabs/aws-glue-schema-registry (`SerializationDataEncoder`): version, compression, UUID."""
BARE = Wire(b"", 0)
"""No header: all values were written with one schema."""


def inflate(payload: bytes, limit: int = INFLATED_LIMIT) -> bytes | None:
    """The payload of one zlib stream; None if it is invalid, has trailing bytes, or exceeds the limit."""
    stream = zlib.decompressobj()
    try:
        found = stream.decompress(payload, limit + 1)
    except zlib.error:
        return None
    return None if len(found) > limit or not stream.eof or stream.unused_data else found


def zigzag(number: int) -> bytes:
    """A non-negative number as Avro's long and Confluent's message index: zigzag, then varint."""
    return varint_of(number << 1)


def varint_of(number: int) -> bytes:
    """A non-negative number as a varint: seven bits per byte, the lowest first."""
    rest, encoded = number, bytearray()
    while rest >= 0x80:
        encoded.append(rest & 0x7F | 0x80)
        rest >>= 7
    encoded.append(rest)
    return bytes(encoded)
