"""The options of a .proto text: their language, and those that say what bytes or columns mean."""

from __future__ import annotations

from collections.abc import Iterator

from calve.schema.evolution import Rule, SchemaProblem
from calve.schema.protobuf.model import Field
from calve.schema.protobuf.tokens import Words

MAX_DEPTH = 64
META = "(confluent.field_meta)"
Option = str | list["Option"] | tuple[tuple[str, "Option"], ...]
Options = tuple[tuple[str, Option], ...]


class OptionWords(Words):
    """Reads options: a constant is text, a list, or a message as names and constants; so are all options of one field."""

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
    """What options say of the language, each alone or in one message."""
    found: dict[str, str] = {}
    for name, value in options:
        if name == "features":
            found |= texts(value)
        elif name.startswith("features."):
            found[name.removeprefix("features.")] = str(value)
    return found


def texts(value: Option) -> dict[str, str]:
    """The members of a message in an option that are no messages."""
    found = value if isinstance(value, tuple) else ()
    return {name: each for name, each in found if isinstance(each, str)}


def explain(each: Field, options: Options) -> None:
    """What `confluent.field_meta` says of a field: `doc`, `params` and `tags`."""
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
    """The members that are given in one message or alone; those that are repeated, alone or in a list."""
    for option, given in options:
        if not option.startswith(META):
            continue
        members = given if option == META and isinstance(given, tuple) else ((option, given),)
        for name, value in members:
            for each in value if isinstance(value, list) else [value]:
                yield name.removeprefix(f"{META}."), each
