"""The tokens of a .proto text, and its options: their syntax, and those that say what bytes or columns mean."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from calve.schema.evolution import Rule, SchemaProblem
from calve.schema.protobuf.model import Field

_TOKEN = re.compile(
    r"""(?P<space>[ \t\r\f\v\ufeff]+)|(?P<newline>\n)|(?P<line>//[^\n]*)|(?P<block>/\*.*?\*/)
    |(?P<name>[A-Za-z_]\w*)
    |(?P<number>0[xX][0-9a-fA-F]+|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?[fF]?)
    |(?P<text>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
    |(?P<symbol>[{}()\[\]<>=;:,.+\-/])""",
    re.VERBOSE | re.DOTALL | re.ASCII,
)
_ESCAPE = re.compile(
    r"\\(?:([0-7]{1,3})|[xX]([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))", re.DOTALL
)
_SIMPLE = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
MAX_CHARACTERS = 4_000_000


@dataclass(frozen=True, slots=True)
class Token:
    """`doc`: the comment directly above it."""

    kind: str
    text: str
    line: int
    doc: str | None = None


def unreadable(why: str, line: int) -> SchemaProblem:
    return SchemaProblem("", f"this is no Protobuf schema: {why} in line {line}", Rule.UNREADABLE_SCHEMA)


def tokens(source: str) -> Iterator[Token]:
    """All tokens, and a last one of kind `end`.

    Raises:
        SchemaProblem: an invalid character.
    """
    if len(source) > MAX_CHARACTERS:
        raise SchemaProblem("", "the schema is too long to be read", Rule.UNREADABLE_SCHEMA)
    line, place, above, lines_below = 1, 0, list[str](), 0
    while place < len(source):
        match = _TOKEN.match(source, place)
        if match is None:
            raise unreadable("an unexpected character", line)
        kind, text, place = str(match.lastgroup), match[0], match.end()
        match kind:
            case "newline":
                lines_below += 1
                if lines_below > 1:
                    above.clear()
            case "line" | "block":
                lines_below = 0
                above.append(_comment(kind, text))
            case "space":
                pass
            case _:
                yield Token(kind, text, line, "\n".join(above).strip() or None)
                above, lines_below = [], 0
        line += text.count("\n")
    yield Token("end", "", line)


def string(text: str) -> str:
    """The value of a quoted text."""
    return _ESCAPE.sub(_unescaped, text[1:-1])


def _unescaped(match: re.Match[str]) -> str:
    octal, hexadecimal, short, long, simple = match.groups()
    if simple is not None:
        return _SIMPLE.get(simple, simple)
    code = int(octal, 8) if octal else int(hexadecimal or short or long, 16)
    return chr(code) if code <= 0x10FFFF else "\ufffd"


def _comment(kind: str, text: str) -> str:
    if kind == "line":
        return text.lstrip("/").strip()
    lines = (line.strip().removeprefix("*").strip() for line in text[2:-2].splitlines())
    return "\n".join(line for line in lines if line)


@dataclass(slots=True)
class TokenReader:
    """The position of a parser. An unexpected token is a `SchemaProblem` with its line."""

    words: list[Token]
    place: int = 0

    def peek(self) -> Token:
        return self.words[self.place]

    def take(self) -> Token:
        word = self.words[self.place]
        self.place = min(self.place + 1, len(self.words) - 1)
        return word

    def passed(self, text: str) -> bool:
        """Whether this is the next token; consumes it then."""
        found = self.peek().text == text
        if found:
            self.take()
        return found

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
        while self.passed("."):
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


MAX_DEPTH = 64
META = "(confluent.field_meta)"
Option = str | list["Option"] | tuple[tuple[str, "Option"], ...]
Options = tuple[tuple[str, Option], ...]


class OptionReader(TokenReader):
    """Parses options: a constant is text, a list, or a message as names and constants; so are all options of one field."""

    __slots__ = ()

    def bracketed(self) -> Options:
        found: list[tuple[str, Option]] = []
        if self.passed("["):
            while not self.passed("]"):
                found.append(self.option())
                self.passed(",")
        return tuple(found)

    def option(self) -> tuple[str, Option]:
        parts = [self.option_part()]
        while self.passed("."):
            parts.append(self.option_part())
        self.expect("=")
        return ".".join(parts), self.constant(0)

    def option_part(self) -> str:
        if not self.passed("("):
            return self.name()
        name = self.dotted()
        self.expect(")")
        return f"({name.lstrip('.')})"

    def constant(self, depth: int) -> Option:
        if depth > MAX_DEPTH:
            raise SchemaProblem("", "options are nested too deep", Rule.NESTED_TOO_DEEP)
        if self.peek().kind == "text":
            return self.string()
        word = self.take()
        match word.text:
            case "{" | "<":
                return self.aggregate(depth, "}" if word.text == "{" else ">")
            case "[":
                found: list[Option] = []
                while not self.passed("]"):
                    found.append(self.constant(depth + 1))
                    self.passed(",")
                return found
            case "-" | "+":
                return word.text + self.take().text
        if word.kind not in ("name", "number"):
            raise self.wrong(word)
        return word.text

    def aggregate(self, depth: int, end: str) -> Options:
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
            self.passed(":")
            found.append((name, self.constant(depth + 1)))
        return tuple(found)


def features(options: Options) -> dict[str, str]:
    """The language features in options, each alone or in one message."""
    found: dict[str, str] = {}
    for name, value in options:
        if name == "features":
            found |= texts(value)
        elif name.startswith("features."):
            found[name.removeprefix("features.")] = str(value)
    return found


def texts(value: Option) -> dict[str, str]:
    """The members of an option's message that are not messages."""
    found = value if isinstance(value, tuple) else ()
    return {name: each for name, each in found if isinstance(each, str)}


def explain(each: Field, options: Options) -> None:
    """The values of `confluent.field_meta` for a field: `doc`, `params` and `tags`."""
    params: dict[str, str] = {}
    for name, value in _of_meta(options):
        if name == "params":
            pair = texts(value)
            params[pair.get("key", "")] = pair.get("value", "")
        elif name == "tags" and isinstance(value, str):
            each.tags.append(value)
        elif name == "doc" and value:
            each.doc = str(value)
    each.params = params


def _of_meta(options: Options) -> Iterator[tuple[str, Option]]:
    """The members, given in one message or alone; repeated ones alone or in a list."""
    for option, given in options:
        if not option.startswith(META):
            continue
        members = given if option == META and isinstance(given, tuple) else ((option, given),)
        for name, value in members:
            for each in value if isinstance(value, list) else [value]:
                yield name.removeprefix(f"{META}."), each
