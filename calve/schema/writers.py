"""How the values of one schema are decoded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from calve.schema.avro_reader import Value
from calve.schema.columns import Json
from calve.schema.protobuf.columns import Struct


@dataclass(frozen=True, slots=True)
class AvroWriter:
    """A schema id, the prefix of its values, and how they are read."""

    id: int
    prefix: bytes
    value: Value


@dataclass(frozen=True, slots=True)
class JsonWriter:
    """A schema id, the prefix and shape of its values (`calve.schema.json_schema`), and the columns to read them as.

    rest: the column of undeclared properties. scalar: the value is this one field, not an object.
    member: the value is this member of an object. whole: the value, an object, is this one column.
    lenient: a property that does not fit its column, or has undeclared ones in it, is undeclared; so is none that is null.
    """

    id: int
    prefix: bytes
    shape: Json
    table: Json
    rest: str | None = None
    scalar: str | None = None
    member: str | None = None
    whole: str | None = None
    lenient: bool = False


@dataclass(frozen=True, slots=True)
class ProtobufWriter:
    """A schema id, the prefix of the values of one of its messages, and how they are read.

    `prefix`: the frame and the indexes of `message`, its name. `others`: the prefixes and names of the schema's other messages,
    which are not rows of the table. `whole`: the message is this one column.
    """

    id: int
    prefix: bytes
    plan: Struct
    message: str
    others: Mapping[bytes, str] = field(default_factory=dict)
    whole: str | None = None


@dataclass(frozen=True, slots=True)
class PlainWriter:
    """Bytes that are kept unchanged, in one column; `text`: they must be UTF-8."""

    id: int
    prefix: bytes
    column: str
    text: bool


Writer = AvroWriter | JsonWriter | ProtobufWriter | PlainWriter


def reframed(writer: Writer, frame: bytes, new: bytes) -> Writer:
    """The same for values that begin with a new frame in the place of `frame`."""
    found = replace(writer, prefix=new + writer.prefix[len(frame) :])
    if not isinstance(found, ProtobufWriter):
        return found
    return replace(found, others={new + each[len(frame) :]: name for each, name in found.others.items()})
