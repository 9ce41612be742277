"""The options of a .proto text: their language, and those that say what bytes or columns mean."""

from __future__ import annotations

from collections.abc import Mapping

from calve.evolution import Rule, SchemaProblem
from calve.protobuf.model import Field
from calve.protobuf.tokens import string
from calve.protobuf.words import Words

MAX_DEPTH = 64
Option = str | list["Option"] | list[tuple[str, "Option"]]
Options = Mapping[str, Option]


class OptionWords(Words):
    """Reads options: a constant is text, a list, or a message as a list of its members."""

    __slots__ = ()

    def bracketed(self) -> Options:
        found: dict[str, Option] = {}
        if self.peek().text != "[":
            return found
        self.take()
        while self.peek().text != "]":
            name, value = self.option()
            several = found.setdefault(name, []) if name.endswith((".params", ".tags")) else None
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


def feature(options: Options, name: str) -> Option | None:
    found = options.get(f"features.{name}")
    return found if found is not None else pairs(options.get("features")).get(name)


def pairs(value: Option | None) -> dict[str, str]:
    """The members of a message in an option that are no messages."""
    found = (each for each in value or () if isinstance(each, tuple)) if isinstance(value, list) else ()
    return {name: each for name, each in found if isinstance(each, str)}


def explain(each: Field, options: Options) -> None:
    """What `confluent.field_meta` says of a field: `doc`, `params` and `tags`."""
    meta = options.get("(confluent.field_meta)")
    members = [m for m in meta if isinstance(m, tuple)] if isinstance(meta, list) else []
    entries = [value for name, value in members if name == "params"]
    if (alone := options.get("(confluent.field_meta).params")) is not None:
        entries.append(alone)
    params: dict[str, str] = {}
    for entry in entries:
        several = isinstance(entry, list) and entry and not isinstance(entry[0], tuple)
        for one in entry if several else [entry]:
            pair = pairs(one)  # type: ignore[arg-type]
            params[pair.get("key", "")] = pair.get("value", "")
    each.params = params
    each.tags = _texts(
        [options.get("(confluent.field_meta).tags"), *(v for name, v in members if name == "tags")]
    )
    doc = options.get("(confluent.field_meta).doc", pairs(meta).get("doc"))
    each.doc = str(doc) if doc else each.doc


def _texts(value: Option | list[Option | None] | None) -> list[str]:
    """All texts of a repeated field: each is given alone, or in a list."""
    if isinstance(value, list):
        return [text for each in value for text in _texts(each)]  # type: ignore[arg-type]
    return [value] if isinstance(value, str) else []
