"""The words of a .proto text, taken one after the other."""

from __future__ import annotations

from dataclasses import dataclass

from calve.evolution import SchemaProblem
from calve.protobuf.tokens import Token, string, unreadable


@dataclass(slots=True)
class Words:
    """Where a reader stands. Whatever is not as expected is a `SchemaProblem` that names the line."""

    words: list[Token]
    place: int = 0

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
