"""The .proto language, as far as it says what bytes mean: proto2, proto3 and editions.

Services, extensions and options that do not change bytes are read over. `protoc` checks more: a text that it refuses is never
registered.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from calve.schema.evolution import Rule, SchemaProblem
from calve.schema.protobuf.model import SCALARS, Enum, Field, File, Message, Presence
from calve.schema.protobuf.options import MAX_DEPTH, OptionWords, explain, features
from calve.schema.protobuf.tokens import Token, tokens

LABELS = ("optional", "required", "repeated")


def parse(source: str) -> File:
    """A file whose `type_name`s are still as they were written.

    Raises:
        SchemaProblem: it is no .proto file.
    """
    return _Parser(list(tokens(source))).file()


@dataclass(slots=True)
class _Parser(OptionWords):
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
        """The first word of each member between braces; options are none."""
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
