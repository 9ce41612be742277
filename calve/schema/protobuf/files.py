"""A schema as a file whose types are resolved: its own, and those of the files that it imports."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from calve.schema.columns import join
from calve.schema.evolution import Rule, SchemaProblem
from calve.schema.protobuf import descriptor, text
from calve.schema.protobuf.model import KNOWN_FILES, Enum, Field, File, Message
from calve.schema.wire import Schema

GREATEST_NUMBER = 536_870_911


@lru_cache(maxsize=1024)
def load(schema: Schema) -> File:
    """The file of a schema (text, or Base64 of its descriptor), with all types resolved.

    Raises `SchemaProblem` if it cannot be parsed, or names an undefined type.
    """
    linker = _Linker(schema.references)
    own = _parse(schema.text)
    linker.add(own)
    for message in own.messages:
        linker.resolve(message, "")
    return own


def message_of(file: File, name: str | None) -> tuple[tuple[int, ...], Message]:
    """A message by its name, with or without the package (None: the first of the file), and its place in the file.

    Raises `SchemaProblem` if there is no such message.
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
    """The messages of a name, with or without the package."""
    for path, each in messages(file.messages):
        if each.name in (name, f"{file.package}.{name}") and not each.is_map_entry:
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
        self.know(file)
        for name in file.imports:
            source = self.references.get(name, KNOWN_FILES.get(name))
            if source is not None and name not in self.files:
                self.files.add(name)
                self.add(_parse(source))

    def know(self, scope: File | Message) -> None:
        own: list[Message | Enum] = [*scope.enums, *scope.messages]
        for each in own:
            self.types.setdefault(each.name, each)
        for message in scope.messages:
            self.know(message)

    def resolve(self, message: Message, path: str) -> None:
        if id(message) in self.done:
            return
        self.done.add(id(message))
        numbers: set[int] = set()
        for each in message.fields:
            here = join(path, each.name)
            if not 0 < each.number <= GREATEST_NUMBER or each.number in numbers:
                why = f"{each.number} is no valid field number, or is used twice"
                raise SchemaProblem(here, why, Rule.UNREADABLE_SCHEMA)
            numbers.add(each.number)
            if each.type_name:
                self.resolve_type(each, message, here)
            if each.entry:
                each.entry[1].params = each.params
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
        """A type by its name, as resolved from inside a message: the innermost match."""
        if name.startswith("."):
            return self.types.get(name[1:])
        while scope:
            if (found := self.types.get(f"{scope}.{name}")) is not None:
                return found
            scope = scope.rpartition(".")[0]
        return self.types.get(name)
