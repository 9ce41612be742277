"""The .proto language (proto2, proto3, editions). A text is statements: words up to `;`, or up to a block of statements.

Services, extensions and options that do not change bytes are skipped. `protoc` checks more, but a text that it refuses is never
registered.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from calve.schema.evolution import Rule, SchemaProblem
from calve.schema.protobuf.model import MAX_DEPTH, SCALARS, Enum, Field, File, Message, Presence, presence_of

_TOKEN = re.compile(
    r"""(?P<space>[ \t\r\f\v\ufeff]+)|(?P<newline>\n)|(?P<line>//[^\n]*)|(?P<block>/\*.*?\*/)
    |(?P<word>[A-Za-z_]\w*
    |0[xX][0-9a-fA-F]+|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?[fF]?
    |"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'
    |[{}()\[\]<>=;:,.+\-/])|(?P<other>.)""",
    re.VERBOSE | re.DOTALL | re.ASCII,
)
_NAME = re.compile(r"\.?[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*", re.ASCII)
_ESCAPE = re.compile(
    r"\\(?:([0-7]{1,3})|[xX]([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))", re.DOTALL
)
_SIMPLE = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
QUOTES = "\"'"
MAX_CHARACTERS = 4_000_000
SKIPPED = ("option", "extensions", "reserved")
META = "(confluent.field_meta)"
PRESENCE = {"IMPLICIT": Presence.IMPLICIT, "LEGACY_REQUIRED": Presence.REQUIRED}

Words = deque[str]
Option = str | list[tuple[str, "Option"]]
Options = list[tuple[str, Option]]
"""Names and values; a message is again names and values. A name is there once for each item of a list."""


def unreadable(why: str, line: int) -> SchemaProblem:
    return SchemaProblem("", f"this is no Protobuf schema: {why} in line {line}", Rule.UNREADABLE_SCHEMA)


@dataclass(slots=True)
class Statement:
    """`doc`: the comment directly above it."""

    line: int
    doc: str | None
    words: list[str] = field(default_factory=list)
    block: list[Statement] | None = None

    @property
    def is_skipped(self) -> bool:
        if self.words[0] in SKIPPED:
            return self.words[1] not in (".", "=")
        return self.words[0] == "extend" and self.block is not None


def tokens(source: str) -> Iterator[tuple[str, int, str | None]]:
    """All words, each with its line and the comment directly above it. Raises `SchemaProblem` at an invalid character."""
    line, above, newlines = 1, list[str](), 0
    for match in _TOKEN.finditer(source):
        text = match[0]
        match match.lastgroup:
            case "newline":
                newlines += 1
                if newlines > 1:
                    above.clear()
            case "line":
                newlines = 0
                above.append(text.lstrip("/").strip())
            case "block":
                newlines = 0
                lines = (each.strip().removeprefix("*").strip() for each in text[2:-2].splitlines())
                above += [each for each in lines if each]
            case "word":
                yield text, line, "\n".join(above).strip() or None
                above, newlines = [], 0
            case "other":
                raise unreadable("an unexpected character", line)
        line += text.count("\n")


def statements(source: str) -> list[Statement]:
    """Raises `SchemaProblem` if the text is too long, has an invalid character, or its brackets do not match."""
    if len(source) > MAX_CHARACTERS:
        raise SchemaProblem("", "the schema is too long to be read", Rule.UNREADABLE_SCHEMA)
    blocks: list[list[Statement]] = [[]]
    current: Statement | None = None
    brackets = 0
    for word, line, doc in tokens(source):
        if current is None and word == "}" and len(blocks) > 1:
            blocks.pop()
        elif word == ";" and not brackets:
            current = None
        elif word == "{" and current is not None and not brackets and current.words[-1] != "=":
            current.block = []
            blocks.append(current.block)
            current = None
        else:
            if current is None:
                current = Statement(line, doc)
                blocks[-1].append(current)
            current.words.append(word)
            brackets += {"[": 1, "{": 1, "]": -1, "}": -1}.get(word, 0)
            if brackets < 0:
                raise unreadable(f'"{word}" is not expected', line)
        if len(blocks) > MAX_DEPTH:
            raise SchemaProblem("", f"messages are nested deeper than {MAX_DEPTH}", Rule.NESTED_TOO_DEEP)
    if current is not None or len(blocks) > 1:
        raise unreadable("it ends too early", source.count("\n") + 1)
    return blocks[0]


def parse(source: str) -> File:
    """A file; its `type_name`s are not resolved. Raises `SchemaProblem` if it is not a .proto file."""
    parser = _Parser()
    _each(statements(source), parser.top)
    return parser.file


def _each(block: Sequence[Statement] | None, read: Callable[[Statement], None]) -> None:
    for each in block or ():
        try:
            read(each)
        except (ValueError, IndexError):
            raise unreadable(f'"{" ".join(each.words)[:40]}" is not expected', each.line) from None


@dataclass(slots=True)
class _Parser:
    """Statements that do not belong where they are raise `ValueError` or `IndexError`."""

    file: File = field(default_factory=File)
    syntax: str = "proto2"
    features: dict[str, Option] = field(default_factory=dict)

    def top(self, each: Statement) -> None:
        match each.words:
            case ["edition", "=", *_]:
                self.syntax = "editions"
            case ["syntax", "=", *version]:
                self.syntax = text(deque(version))
            case ["import", "public" | "weak" | "option", *name] | ["import", *name]:
                self.file.imports.append(text(deque(name)))
            case ["package", *name]:
                self.file.package = dotted(name)
            case ["option", *rest]:
                self.features |= dict(_inside(option(deque(rest)), "features"))
            case ["extend" | "service", *_]:
                pass
            case _ if not self.declares(each, self.file.package, self.file):
                raise ValueError

    def declares(self, each: Statement, scope: str, into: File | Message) -> bool:
        """Whether a statement declares a message or an enum, which is then added."""
        if each.block is None:
            return False
        words = each.words[1:] if each.words[0] in ("export", "local") else each.words
        match words:
            case ["message", name]:
                made = Message(f"{scope}.{name}" if scope else name)
                into.messages.append(made)
                _each(each.block, partial(self.member, made))
            case ["enum", name]:
                enum = Enum(f"{scope}.{name}" if scope else name)
                into.enums.append(enum)
                _each(each.block, partial(self.symbol, enum))
            case _:
                return False
        return True

    def symbol(self, made: Enum, each: Statement) -> None:
        if not each.is_skipped:
            [name], number, _ = numbered(each.words)
            made.values.append((name, number))

    def member(self, made: Message, each: Statement, oneof: str | None = None) -> None:
        if each.is_skipped or (oneof is None and self.declares(each, made.name, made)):
            return
        if each.words[0] == "oneof" and each.block is not None:
            [_, name] = each.words
            made.oneofs.append(name)
            _each(each.block, partial(self.member, made, oneof=name))
            return
        label, rest = "", each.words
        if rest[0] in ("optional", "required", "repeated") and oneof is None:
            label, *rest = rest
        [*kind, name], number, options = numbered(rest)
        if kind[:2] == ["map", "<"]:
            found = Field(name, number, "", _entry(made, name, kind), repeated=True)
        else:
            found = self.typed(made, each, name, number, dotted(kind))
            own = self.features | dict(_inside(options, "features"))
            if not found.kind and own.get("message_encoding") == "DELIMITED":
                found.kind = "group"
            found.repeated, found.oneof = label == "repeated", oneof
            found.presence = presence_of(
                self.syntax,
                PRESENCE.get(str(own.get("field_presence"))),
                required=label == "required",
                alone=oneof is None and (self.syntax == "editions" or not label),
            )
        meta = _inside(options, META)
        params = [dict(value) for key, value in meta if key == "params" and isinstance(value, list)]
        found.params = {str(pair.get("key", "")): str(pair.get("value", "")) for pair in params}
        found.tags = [value for key, value in meta if key == "tags" and isinstance(value, str)]
        found.doc = next((str(value) for key, value in reversed(meta) if key == "doc" and value), each.doc)
        made.fields.append(found)

    def typed(self, made: Message, each: Statement, name: str, number: int, kind: str) -> Field:
        """A field, whose type may be a group that it declares."""
        if kind != "group" or each.block is None:
            return _typed(name, number, kind)
        group = Message(f"{made.name}.{name}")
        made.messages.append(group)
        _each(each.block, partial(self.member, group))
        return Field(name.lower(), number, "group", f".{group.name}")


def _typed(name: str, number: int, kind: str) -> Field:
    return Field(name, number, kind) if kind in SCALARS else Field(name, number, "", kind)


def _entry(made: Message, name: str, kind: Sequence[str]) -> str:
    """The type of a map's entries, which is added to the message under the name that protoc gives it."""
    comma = kind.index(",")
    [*value, end] = kind[comma + 1 :]
    if end != ">":
        raise ValueError
    inside = "".join(part[:1].upper() + part[1:] for part in name.split("_")) + "Entry"
    entry = Message(f"{made.name}.{inside}", is_map_entry=True)
    entry.fields = [_typed("key", 1, dotted(kind[2:comma])), _typed("value", 2, dotted(value))]
    made.messages.append(entry)
    return f".{entry.name}"


def dotted(parts: Sequence[str]) -> str:
    name = "".join(parts)
    if not _NAME.fullmatch(name):
        raise ValueError
    return name


def numbered(parts: list[str]) -> tuple[list[str], int, Options]:
    """What precedes `=`, the number, and the options in brackets."""
    at = parts.index("=")
    end = parts.index("[") if "[" in parts else len(parts)
    digits = "".join(parts[at + 1 : end])
    number = digits.removeprefix("-")
    value = int(number, 8 if number.isdigit() and number.startswith("0") else 0)
    dotted(parts[at - 1 : at])
    options: Options = []
    rest = deque(parts[end + 1 :])
    while rest and rest[0] != "]":
        options += option(rest)
        if rest[0] == ",":
            rest.popleft()
    return parts[:at], value if number == digits else -value, options


def option(rest: Words) -> Options:
    """The next option, `(a.b).c = 1`, as one name in the other."""
    name = ""
    while (word := rest.popleft()) != "=":
        name += word
    first, *inner = re.findall(r"\([^)]*\)|\w+", name.replace("(.", "("))
    found: Options = []
    for value in constants(rest, 0):
        for part in reversed(inner):
            value = [(part, value)]
        found.append((first, value))
    return found


def constants(rest: Words, depth: int) -> list[Option]:
    """The next value, or those of the next list."""
    if depth > MAX_DEPTH:
        raise SchemaProblem("", "options are nested too deep", Rule.NESTED_TOO_DEEP)
    if rest[0][0] in QUOTES:
        return [text(rest)]
    match rest.popleft():
        case "[":
            found: list[Option] = []
            while rest[0] != "]":
                found += constants(rest, depth + 1)
                if rest[0] == ",":
                    rest.popleft()
            rest.popleft()
            return found
        case "{":
            return [list(_members(rest, "}", depth))]
        case "<":
            return [list(_members(rest, ">", depth))]
        case "-" | "+" as sign:
            return [sign + rest.popleft()]
        case word if word in ")]}>=;:,./":
            raise ValueError
        case word:
            return [word]


def _members(rest: Words, end: str, depth: int) -> Iterator[tuple[str, Option]]:
    while (name := rest.popleft()) != end:
        if name in (",", ";"):
            continue
        if name == "[":
            name = ""
            while (part := rest.popleft()) != "]":
                name += part
        if rest[0] == ":":
            rest.popleft()
        for value in constants(rest, depth + 1):
            yield name, value


def _inside(options: Options, name: str) -> Options:
    """The members of all options of a name."""
    return [pair for own, value in options if own == name and isinstance(value, list) for pair in value]


def text(rest: Words) -> str:
    """The value of the next quoted texts."""
    if rest[0][0] not in QUOTES:
        raise ValueError
    value = ""
    while rest and rest[0][0] in QUOTES:
        value += _ESCAPE.sub(_unescaped, rest.popleft()[1:-1])
    return value


def _unescaped(match: re.Match[str]) -> str:
    octal, hexadecimal, short, long, simple = match.groups()
    if simple is not None:
        return _SIMPLE.get(simple, simple)
    code = int(octal, 8) if octal else int(hexadecimal or short or long, 16)
    return chr(code) if code <= 0x10FFFF else "\ufffd"
