"""A registered Protobuf schema with the schemas that it imports: every name of a type is the type."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from calve.schema.evolution import Rule, SchemaProblem, join
from calve.schema.protobuf import descriptor, text
from calve.schema.protobuf.known import KNOWN_FILES
from calve.schema.protobuf.model import Enum, Field, File, Message
from calve.schema.registered import Schema

GREATEST_NUMBER = 536_870_911


@lru_cache(maxsize=1024)
def load(schema: Schema) -> File:
    """The file of a schema, which is text or the Base64 of its descriptor, with all types resolved.

    Raises:
        SchemaProblem: it cannot be read, or names a type that nothing defines.
    """
    linker = _Linker(schema.references)
    own = _parse(schema.text)
    linker.add(own)
    for message in own.messages:
        linker.resolve(message, "")
    return own


def message_of(file: File, name: str | None) -> tuple[tuple[int, ...], Message]:
    """A message by its name, with or without the package (None: the first of the file), and where it stands in the file.

    Raises:
        SchemaProblem: there is no such message.
    """
    if not file.messages:
        raise SchemaProblem("", "a table needs a message, and this file has none", Rule.NO_RECORD)
    if name is None:
        return (0,), file.messages[0]
    found = next(_named(file, name), None)
    if found is None:
        raise SchemaProblem("", f'there is no message "{name}" in this file', Rule.NO_RECORD)
    return found


def has_message(file: File, name: str) -> bool:
    return any(_named(file, name))


def _named(file: File, name: str) -> Iterator[tuple[tuple[int, ...], Message]]:
    for path, each in messages(file.messages):
        if each.name in (name, file.qualified(name)) and not each.is_map_entry:
            yield path, each


def messages(
    found: Sequence[Message], above: tuple[int, ...] = ()
) -> Iterator[tuple[tuple[int, ...], Message]]:
    """All messages with their message indexes."""
    for number, each in enumerate(found):
        yield (*above, number), each
        yield from messages(each.messages, (*above, number))


def _parse(source: str) -> File:
    try:
        return descriptor.parse(base64.b64decode("".join(source.split()), validate=True))
    except (ValueError, LookupError):
        return text.parse(source)


@dataclass(slots=True)
class _Linker:
    references: Mapping[str, str]
    types: dict[str, Message | Enum] = field(default_factory=dict)
    files: set[str] = field(default_factory=set)
    done: set[int] = field(default_factory=set)

    def add(self, file: File) -> None:
        for enum in file.enums:
            self.types.setdefault(enum.name, enum)
        for message in file.messages:
            self.know(message)
        for name in file.imports:
            source = self.references.get(name, KNOWN_FILES.get(name))
            if source is not None and name not in self.files:
                self.files.add(name)
                self.add(_parse(source))

    def know(self, message: Message) -> None:
        self.types.setdefault(message.name, message)
        for enum in message.enums:
            self.types.setdefault(enum.name, enum)
        for each in message.messages:
            self.know(each)

    def resolve(self, message: Message, path: str) -> None:
        if id(message) in self.done:
            return
        self.done.add(id(message))
        numbers: set[int] = set()
        for each in message.fields:
            here = join(path, each.name)
            if not 0 < each.number <= GREATEST_NUMBER or each.number in numbers:
                raise SchemaProblem(here, f"{each.number} is no number of its own", Rule.UNREADABLE_SCHEMA)
            numbers.add(each.number)
            if each.type_name:
                self.resolve_type(each, message, here)
            if each.message is not None and each.is_map:
                each.message.fields[1].params = each.params
        for inner in message.messages:
            self.resolve(inner, "")

    def resolve_type(self, each: Field, inside: Message, path: str) -> None:
        each.type = self.find(each.type_name, inside.name)
        if each.type is None:
            missing = each.type_name.lstrip(".")
            raise SchemaProblem(path, f'"{missing}" is not defined in this schema', Rule.UNRESOLVED_TYPE_REF)
        if isinstance(each.type, Enum):
            each.kind = "enum"
            return
        if not each.kind or inside.is_map_entry or each.type.is_map_entry:
            each.kind = "message"
        self.resolve(each.type, path)

    def find(self, name: str, scope: str) -> Message | Enum | None:
        """A type by its name as seen from inside a message: the innermost one that fits."""
        if name.startswith("."):
            return self.types.get(name[1:])
        while scope:
            if (found := self.types.get(f"{scope}.{name}")) is not None:
                return found
            scope = scope.rpartition(".")[0]
        return self.types.get(name)
