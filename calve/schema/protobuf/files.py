"""The .proto language (proto2, proto3, editions), and the types that a file takes from the files it imports.

Services, extensions and options that do not change bytes are skipped. `protoc` checks more, but a text that it refuses is never
registered.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from calve.schema.columns import join
from calve.schema.evolution import Rule, SchemaProblem
from calve.schema.protobuf import descriptor
from calve.schema.protobuf.model import KNOWN_FILES, SCALARS, Enum, Field, File, Message, Presence
from calve.schema.protobuf.tokens import MAX_DEPTH, OptionReader, Token, explain, features, tokens
from calve.schema.wire import Schema

LABELS = ("optional", "required", "repeated")


def parse(source: str) -> File:
    """A file; its `type_name`s are not resolved.

    Raises:
        SchemaProblem: it is not a .proto file.
    """
    return _Parser(list(tokens(source))).file()


@dataclass(slots=True)
class _Parser(OptionReader):
    proto3: bool = False
    editions: bool = False
    features: dict[str, str] = field(default_factory=dict)
    result: File = field(default_factory=File)

    def file(self) -> File:
        while (word := self.take()).kind != "end":
            match word.text:
                case "syntax" | "edition" | "import" | "package" | "option":
                    self.head(word.text)
                    self.expect(";")
                case "message":
                    self.result.messages.append(self.message(self.result.package, 0))
                case "enum":
                    self.result.enums.append(self.enum(self.result.package))
                case "extend" | "service":
                    self.skip_block()
                case "export" | "local" | ";":
                    pass
                case _:
                    raise self.wrong(word)
        return self.result

    def head(self, what: str) -> None:
        match what:
            case "syntax" | "edition":
                self.expect("=")
                version = self.string()
                self.proto3, self.editions = version == "proto3", what == "edition"
            case "import":
                if self.peek().kind == "name":
                    self.take()
                self.result.imports.append(self.string())
            case "package":
                self.result.package = self.dotted()
            case _:
                self.features |= features((self.option(),))

    def message(self, scope: str, depth: int) -> Message:
        name = self.name()
        return self.body(Message(f"{scope}.{name}" if scope else name), depth)

    def body(self, made: Message, depth: int) -> Message:
        if depth > MAX_DEPTH:
            raise SchemaProblem("", f"messages are nested deeper than {MAX_DEPTH}", Rule.NESTED_TOO_DEEP)
        for word in self.members():
            if word.text in ("export", "local") and self.peek().text in ("message", "enum"):
                word = self.take()  # edition 2024 has them before a type
            following = self.peek()
            match word.text:
                case "message" if following.kind == "name":
                    made.messages.append(self.message(made.name, depth + 1))
                case "enum" if following.kind == "name":
                    made.enums.append(self.enum(made.name))
                case "oneof" if following.kind == "name":
                    self.oneof(made, depth)
                case "extensions" | "reserved" if following.text != ".":
                    self.skip_statement()
                case "extend":
                    self.skip_block()
                case _:
                    self.field(made, word, depth)
        return made

    def members(self) -> Iterator[Token]:
        """The first token of each member between braces, without options."""
        self.expect("{")
        while (word := self.take()).text != "}":
            following = self.peek()
            if word.text == "option" and (following.kind == "name" or following.text == "("):
                self.option()
                self.expect(";")
            elif word.text != ";":
                yield word

    def oneof(self, made: Message, depth: int) -> None:
        name = self.name()
        made.oneofs.append(name)
        for word in self.members():
            self.field(made, word, depth, oneof=name)

    def field(self, made: Message, first: Token, depth: int, *, oneof: str | None = None) -> None:
        label, word = "", first
        if word.text in LABELS and oneof is None and self.peek().text not in ("=", ";"):
            label, word = word.text, self.take()
        if word.text == "map" and self.peek().text == "<":
            self.map(made, first)
            return
        type_name = self.dotted(word)
        name = self.name()
        self.expect("=")
        number = self.integer()
        options = self.bracketed()
        group = type_name == "group" and self.peek().text == "{"
        kind = "group" if group else type_name if type_name in SCALARS else ""
        each = Field(name, number, kind, type_name if not kind else "")
        each.repeated, each.oneof, each.doc = label == "repeated", oneof, first.doc
        own = self.features | features(options)
        each.presence = self.presence_of(label, oneof, own)
        explain(each, options)
        if group:
            each.name, each.type_name = name.lower(), f".{made.name}.{name}"
            made.messages.append(self.body(Message(f"{made.name}.{name}"), depth + 1))
        else:
            self.expect(";")
            if not kind and own.get("message_encoding") == "DELIMITED":
                each.kind = "group"
        made.fields.append(each)

    def map(self, made: Message, first: Token) -> None:
        self.expect("<")
        key = self.dotted()
        self.expect(",")
        value = self.dotted()
        self.expect(">")
        name = self.name()
        self.expect("=")
        number = self.integer()
        options = self.bracketed()
        self.expect(";")
        entry = Message(f"{made.name}.{_entry(name)}", is_map_entry=True)
        for number_inside, label, kind in ((1, "key", key), (2, "value", value)):
            scalar = kind if kind in SCALARS else ""
            entry.fields.append(Field(label, number_inside, scalar, "" if scalar else kind))
        made.messages.append(entry)
        each = Field(name, number, "", f".{entry.name}", repeated=True, doc=first.doc)
        explain(each, options)
        made.fields.append(each)

    def presence_of(self, label: str, oneof: str | None, own: Mapping[str, str]) -> Presence:
        if label == "required":
            return Presence.REQUIRED
        if self.editions and oneof is None:
            found = {"IMPLICIT": Presence.IMPLICIT, "LEGACY_REQUIRED": Presence.REQUIRED}
            return found.get(own.get("field_presence", ""), Presence.EXPLICIT)
        return Presence.IMPLICIT if self.proto3 and not label and oneof is None else Presence.EXPLICIT

    def enum(self, scope: str) -> Enum:
        name = self.name()
        made = Enum(f"{scope}.{name}" if scope else name)
        for word in self.members():
            if word.text == "reserved" and self.peek().text != "=":
                self.skip_statement()
                continue
            if word.kind != "name":
                raise self.wrong(word)
            self.expect("=")
            made.values.append((word.text, self.integer()))
            self.bracketed()
            self.expect(";")
        return made


def _entry(name: str) -> str:
    """The name that protoc gives to the message of a map's entries."""
    return "".join(part[:1].upper() + part[1:] for part in name.split("_")) + "Entry"


GREATEST_NUMBER = 536_870_911


@lru_cache(maxsize=1024)
def load(schema: Schema) -> File:
    """The file of a schema (text, or Base64 of its descriptor), with all types resolved.

    Raises:
        SchemaProblem: it cannot be parsed, or names an undefined type.
    """
    linker = _Linker(schema.references)
    own = _parse(schema.text)
    linker.add(own)
    for message in own.messages:
        linker.resolve(message, "")
    return own


def message_of(file: File, name: str | None) -> tuple[tuple[int, ...], Message]:
    """A message by its name, with or without the package (None: the first of the file), and its place in the file.

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
        return parse(source)


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
                raise SchemaProblem(
                    here, f"{each.number} is no valid field number, or is used twice", Rule.UNREADABLE_SCHEMA
                )
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
        """A type by its name, as resolved from inside a message: the innermost match."""
        if name.startswith("."):
            return self.types.get(name[1:])
        while scope:
            if (found := self.types.get(f"{scope}.{name}")) is not None:
                return found
            scope = scope.rpartition(".")[0]
        return self.types.get(name)
