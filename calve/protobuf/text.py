"""The .proto language, as far as it says what bytes mean: proto2, proto3 and editions.

Services, extensions and options that do not change bytes are read over. `protoc` checks more: a text that it refuses is never
registered.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from calve.evolution import Rule, SchemaProblem
from calve.protobuf.model import SCALARS, Enum, Field, File, Message, Presence
from calve.protobuf.tokens import Token, string, tokens, unreadable

LABELS = ("optional", "required", "repeated")
MAX_DEPTH = 64
Option = str | list["Option"] | list[tuple[str, "Option"]]
Options = Mapping[str, Option]


def parse(source: str) -> File:
    """A file whose `type_name`s are still as they were written.

    Raises:
        SchemaProblem: it is no .proto file.
    """
    return _Parser(list(tokens(source))).file()


@dataclass(slots=True)
class _Parser:
    words: list[Token]
    place: int = 0
    proto3: bool = False
    editions: bool = False
    presence: str = "EXPLICIT"
    delimited: bool = False
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
                self.file_option()

    def file_option(self) -> None:
        name, value = self.option()
        if name == "features.field_presence":
            self.presence = str(value)
        elif name == "features.message_encoding":
            self.delimited = value == "DELIMITED"
        elif name == "features":
            found = _pairs(value)
            self.presence = found.get("field_presence", self.presence)
            self.delimited = found.get("message_encoding") == "DELIMITED"

    def message(self, scope: str, depth: int) -> Message:
        name = self.name()
        return self.body(Message(f"{scope}.{name}" if scope else name), depth)

    def body(self, made: Message, depth: int) -> Message:
        if depth > MAX_DEPTH:
            raise SchemaProblem("", f"messages are nested deeper than {MAX_DEPTH}", Rule.NESTED_TOO_DEEP)
        self.expect("{")
        while (word := self.member()).text != "}":
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
                case "option" if following.kind == "name" or following.text == "(":
                    self.option()
                    self.expect(";")
                case "extend":
                    self.skip_block()
                case ";":
                    pass
                case _:
                    self.field(made, word, depth)
        return made

    def member(self) -> Token:
        """The first word of a member of a message, without what edition 2024 may put before it."""
        word = self.take()
        if word.text in ("export", "local") and self.peek().text in ("message", "enum"):
            word = self.take()
        return word

    def oneof(self, made: Message, depth: int) -> None:
        name = self.name()
        made.oneofs.append(name)
        self.expect("{")
        while (word := self.take()).text != "}":
            if word.text == "option":
                self.option()
                self.expect(";")
            elif word.text != ";":
                self.field(made, word, depth, oneof=name)

    def field(self, made: Message, first: Token, depth: int, *, oneof: str | None = None) -> None:
        label, word = "", first
        if word.text in LABELS and oneof is None and self.peek().text not in ("=", ";"):
            label, word = word.text, self.take()
        if word.text == "map" and self.peek().text == "<":
            self.map(made, first)
            return
        type_name = self.dotted(word)
        named = self.take()
        if named.kind != "name":
            raise self.wrong(named)
        self.expect("=")
        number = self.integer()
        options = self.bracketed()
        group = type_name == "group" and self.peek().text == "{"
        kind = "group" if group else type_name if type_name in SCALARS else ""
        each = Field(named.text, number, kind, type_name if not kind else "")
        each.repeated, each.oneof, each.doc = label == "repeated", oneof, first.doc
        each.presence = self.presence_of(label, oneof, options)
        _explain(each, options)
        if group:
            each.name, each.type_name = named.text.lower(), f".{made.name}.{named.text}"
            made.messages.append(self.body(Message(f"{made.name}.{named.text}"), depth + 1))
        else:
            self.expect(";")
            if not kind and self.is_delimited(options):
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
        _explain(each, options)
        made.fields.append(each)

    def presence_of(self, label: str, oneof: str | None, options: Options) -> Presence:
        if label == "required":
            return Presence.REQUIRED
        if self.editions and oneof is None:
            found = str(_feature(options, "field_presence") or self.presence)
            return {"IMPLICIT": Presence.IMPLICIT, "LEGACY_REQUIRED": Presence.REQUIRED}.get(
                found, Presence.EXPLICIT
            )
        return Presence.IMPLICIT if self.proto3 and not label and oneof is None else Presence.EXPLICIT

    def is_delimited(self, options: Options) -> bool:
        found = _feature(options, "message_encoding")
        return found == "DELIMITED" or (found is None and self.delimited)

    def enum(self, scope: str) -> Enum:
        name = self.name()
        made = Enum(f"{scope}.{name}" if scope else name)
        self.expect("{")
        while (word := self.take()).text != "}":
            if word.text == "option" and self.peek().text != "=":
                self.option()
                self.expect(";")
            elif word.text == "reserved" and self.peek().text != "=":
                self.skip_statement()
            elif word.text != ";":
                if word.kind != "name":
                    raise self.wrong(word)
                self.expect("=")
                made.values.append((word.text, self.integer()))
                self.bracketed()
                self.expect(";")
        return made

    # Options

    def bracketed(self) -> Options:
        found: dict[str, Option] = {}
        if self.peek().text != "[":
            return found
        self.take()
        while self.peek().text != "]":
            name, value = self.option()
            several = found.setdefault(name, []) if name.endswith(".params") else None
            if isinstance(several, list):
                several.append(value)  # type: ignore[arg-type]
            else:
                found[name] = value
            if self.peek().text == ",":
                self.take()
        self.take()
        return found

    def option(self) -> tuple[str, Option]:
        parts = [self.option_part()]
        while self.peek().text == ".":
            self.take()
            parts.append(self.option_part())
        self.expect("=")
        return ".".join(parts), self.constant(0)

    def option_part(self) -> str:
        if self.peek().text != "(":
            return self.name()
        self.take()
        name = self.dotted()
        self.expect(")")
        return f"({name.lstrip('.')})"

    def constant(self, depth: int) -> Option:
        if depth > MAX_DEPTH:
            raise SchemaProblem("", "options are nested too deep", Rule.NESTED_TOO_DEEP)
        word = self.take()
        match word.text:
            case "{" | "<":
                return self.aggregate(depth, "}" if word.text == "{" else ">")
            case "[":
                found: list[Option] = []
                while self.peek().text != "]":
                    found.append(self.constant(depth + 1))
                    if self.peek().text == ",":
                        self.take()
                self.take()
                return found
            case "-" | "+":
                return word.text + self.take().text
        if word.kind == "text":
            value = string(word.text)
            while self.peek().kind == "text":
                value += string(self.take().text)
            return value
        if word.kind not in ("name", "number"):
            raise self.wrong(word)
        return word.text

    def aggregate(self, depth: int, end: str) -> Option:
        found: list[tuple[str, Option]] = []
        while (word := self.take()).text != end:
            if word.text in (",", ";"):
                continue
            name = word.text
            if name == "[":
                name = ""
                while (part := self.take()).text != "]":
                    if part.kind == "end":
                        raise self.wrong(part)
                    name += part.text
            elif word.kind != "name":
                raise self.wrong(word)
            if self.peek().text == ":":
                self.take()
            found.append((name, self.constant(depth + 1)))
        return found

    # Words

    def peek(self) -> Token:
        return self.words[self.place]

    def take(self) -> Token:
        word = self.words[self.place]
        self.place = min(self.place + 1, len(self.words) - 1)
        return word

    def expect(self, text: str) -> None:
        word = self.take()
        if word.text != text or word.kind != "symbol":
            raise self.wrong(word)

    def name(self) -> str:
        word = self.take()
        if word.kind != "name":
            raise self.wrong(word)
        return word.text

    def dotted(self, first: Token | None = None) -> str:
        word = first or self.take()
        name = word.text
        if word.text == ".":
            name += self.name()
        elif word.kind != "name":
            raise self.wrong(word)
        while self.peek().text == ".":
            self.take()
            name += "." + self.name()
        return name

    def string(self) -> str:
        word = self.take()
        if word.kind != "text":
            raise self.wrong(word)
        value = string(word.text)
        while self.peek().kind == "text":
            value += string(self.take().text)
        return value

    def integer(self) -> int:
        word, sign = self.take(), 1
        if word.text == "-":
            word, sign = self.take(), -1
        text = word.text
        try:
            octal = text.startswith("0") and text.isdigit() and text != "0"
            return sign * (int(text, 8) if octal else int(text, 0))
        except ValueError:
            raise self.wrong(word) from None

    def skip_statement(self) -> None:
        while (word := self.take()).text != ";":
            if word.kind == "end":
                raise self.wrong(word)

    def skip_block(self) -> None:
        while (word := self.take()).text != "{":
            if word.kind == "end":
                raise self.wrong(word)
        depth = 1
        while depth:
            word = self.take()
            if word.kind == "end":
                raise self.wrong(word)
            if word.kind == "symbol":
                depth += {"{": 1, "}": -1}.get(word.text, 0)

    def wrong(self, word: Token) -> SchemaProblem:
        if word.kind == "end":
            return unreadable("it ends too early", word.line)
        return unreadable(f'"{word.text[:40]}" is not expected', word.line)


def _feature(options: Options, name: str) -> Option | None:
    found = options.get(f"features.{name}")
    return found if found is not None else _pairs(options.get("features")).get(name)


def _pairs(value: Option | None) -> dict[str, str]:
    """The members of a message in an option that are no messages."""
    found = (each for each in value or () if isinstance(each, tuple)) if isinstance(value, list) else ()
    return {name: each for name, each in found if isinstance(each, str)}


def _explain(each: Field, options: Options) -> None:
    """What `confluent.field_meta` says of a field: `doc` and `params`."""
    meta = options.get("(confluent.field_meta)")
    members = [m for m in meta if isinstance(m, tuple)] if isinstance(meta, list) else []
    entries = [value for name, value in members if name == "params"]
    if (alone := options.get("(confluent.field_meta).params")) is not None:
        entries.append(alone)
    params: dict[str, str] = {}
    for entry in entries:
        several = isinstance(entry, list) and entry and not isinstance(entry[0], tuple)
        for one in entry if several else [entry]:
            pair = _pairs(one)  # type: ignore[arg-type]
            params[pair.get("key", "")] = pair.get("value", "")
    each.params = params
    doc = options.get("(confluent.field_meta).doc", _pairs(meta).get("doc"))
    each.doc = str(doc) if doc else each.doc


def _entry(name: str) -> str:
    """The name that protoc gives to the message of a map's entries."""
    return "".join(part[:1].upper() + part[1:] for part in name.split("_")) + "Entry"
