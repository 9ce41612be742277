"""How the values of one schema are read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from calve.schema.columns import Json
from calve.schema.protobuf.reading import Struct


@dataclass(frozen=True, slots=True)
class AvroWriter:
    """A schema id, the schema its framed values were written with, and the one to read them with (Avro JSON text).

    `prefix`: what its values begin with. `shape`: what is left to do with the value (`calve.schema.avro_reader.Resolution`).
    """

    id: int
    prefix: bytes
    schema: str
    reader: str
    shape: Json | None = None


@dataclass(frozen=True, slots=True)
class JsonWriter:
    """A schema id, what its values begin with and hold (a shape of `calve.schema.json_schema`), and the columns to read them as.

    rest: the column of what the schema does not declare. scalar: a value is no object, but what this one field of the shape is.
    member: each is an object, and this member of it is the value.
    """

    id: int
    prefix: bytes
    shape: Json
    table: Json
    rest: str | None = None
    scalar: str | None = None
    member: str | None = None


@dataclass(frozen=True, slots=True)
class ProtobufWriter:
    """A schema id, what the values of one of its messages begin with, and how they are read.

    `prefix`: the frame and the indexes of `message`, which is its name. `others`: those of the schema's other messages, which
    are no rows of the table, and their names.
    """

    id: int
    prefix: bytes
    plan: Struct
    message: str
    others: Mapping[bytes, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PlainWriter:
    """Bytes that are kept as they are, in one column; `text`: they must be UTF-8."""

    id: int
    prefix: bytes
    column: str
    text: bool


@dataclass(frozen=True, slots=True)
class WholeWriter:
    """A writer whose value is one column, not several."""

    inner: Writer
    column: str

    @property
    def id(self) -> int:
        return self.inner.id

    @property
    def prefix(self) -> bytes:
        return self.inner.prefix


Writer = AvroWriter | JsonWriter | ProtobufWriter | PlainWriter | WholeWriter
