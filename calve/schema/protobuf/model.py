"""Protobuf files as calve sees them: messages, fields and enums, whatever they were written in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

SCALARS = frozenset(
    {
        "double", "float", "int32", "int64", "uint32", "uint64", "sint32", "sint64", "fixed32", "fixed64", "sfixed32",
        "sfixed64", "bool", "string", "bytes",
    }
)  # fmt: skip


class Presence(StrEnum):
    """Whether a field that is not written is told from one with its type's default."""

    IMPLICIT = "implicit"
    EXPLICIT = "explicit"
    REQUIRED = "required"


@dataclass(slots=True, eq=False)
class Enum:
    """`name` has the package and the messages around it."""

    name: str
    values: list[tuple[str, int]] = field(default_factory=list)

    @property
    def symbols(self) -> dict[int, str]:
        """The first name of each number."""
        return {number: name for name, number in reversed(self.values)}


@dataclass(slots=True, eq=False)
class Field:
    """One field.

    kind: a scalar type, `message`, `group` or `enum`; empty until `type_name` is resolved.
    type: the message or enum.
    oneof: the name of the oneof that it is a member of.
    params, tags: what `confluent.field_meta` says of it.
    """

    name: str
    number: int
    kind: str
    type_name: str = ""
    repeated: bool = False
    presence: Presence = Presence.EXPLICIT
    oneof: str | None = None
    doc: str | None = None
    params: Mapping[str, str] = field(default_factory=dict)
    tags: list[str] = field(default_factory=list)
    type: Message | Enum | None = None

    @property
    def message(self) -> Message | None:
        return self.type if isinstance(self.type, Message) else None

    @property
    def is_map(self) -> bool:
        return self.message is not None and self.message.is_map_entry


@dataclass(slots=True, eq=False)
class Message:
    """`name` has the package and the messages around it; `messages` are those defined inside, in their order."""

    name: str
    fields: list[Field] = field(default_factory=list)
    oneofs: list[str] = field(default_factory=list)
    messages: list[Message] = field(default_factory=list)
    enums: list[Enum] = field(default_factory=list)
    is_map_entry: bool = False


@dataclass(slots=True, eq=False)
class File:
    """One .proto file; `imports` are the names of those that it needs."""

    package: str = ""
    imports: list[str] = field(default_factory=list)
    messages: list[Message] = field(default_factory=list)
    enums: list[Enum] = field(default_factory=list)

    def qualified(self, name: str) -> str:
        return f"{self.package}.{name}" if self.package else name
