"""Parses the text of a measure into a tree, for calve.yaml and the job alike: no external text becomes part of SQL."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import get_args

from calve.errors import CalveError
from calve.modes.measures import (
    MAX_DIGITS,
    WHOLE,
    Arithmetic,
    Cast,
    ColumnAt,
    Expression,
    Function,
    Number,
    Term,
    decimal,
)

FUNCTIONS: tuple[Function, ...] = get_args(Function)
MAX_CHARACTERS = 300
_TOKEN = re.compile(r"\s*(?:(\d+(?:\.\d+)?)|([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)|(\S))", re.ASCII)


class MeasureProblem(CalveError):
    """The text is not a measure; the message says what is wrong, and where."""


def parse(text: str) -> Term:
    """Parse a measure; its `str` is the same text with normal spacing.

    Raises:
        MeasureProblem: the text is not a measure.
    """
    if len(text) > MAX_CHARACTERS:
        raise MeasureProblem(f"it has more than {MAX_CHARACTERS} characters")
    return _Parser(text).term()


@dataclass(frozen=True, slots=True)
class _Token:
    text: str
    place: int
    is_name: bool = False
    is_number: bool = False


class _Parser:
    """Reads one measure from its first token to its last."""

    def __init__(self, text: str) -> None:
        self._tokens = [
            _Token(
                match[1] or match[2] or match[3],
                match.start(match.lastindex or 0) + 1,
                bool(match[2]),
                bool(match[1]),
            )
            for match in _TOKEN.finditer(text)
        ]
        self._end = _Token("", len(text) + 1)
        self._next = 0

    def term(self) -> Term:
        function = self._function()
        self._take("(")
        if function == "count" and self._peek().text == "*":
            self._take("*")
            term = Term(function, None)
        else:
            term = Term(function, self._sum())
        self._take(")")
        if self._peek() is not self._end:
            raise self._problem("is after the end of the measure")
        return term

    def _function(self) -> Function:
        word = self._peek().text.lower()
        for function in FUNCTIONS:
            if word == function:
                self._next += 1
                return function
        if word in ("avg", "average", "mean"):
            raise self._problem(
                "cannot be kept as a total: keep sum(x) and count(x), and divide where you read"
            )
        raise self._problem("is no function of a measure: use count, sum, min or max")

    def _sum(self) -> Expression:
        return self._chain(self._product, ("+", "-"))

    def _product(self) -> Expression:
        return self._chain(self._atom, ("*",))

    def _chain(self, inner: Callable[[], Expression], signs: Sequence[str]) -> Expression:
        found = inner()
        while self._peek().text in signs:
            found = Arithmetic(self._take().text, found, inner())
        return found

    def _atom(self) -> Expression:
        token = self._peek()
        if token.is_number:
            self._next += 1
            return self._number(token)
        if token.is_name:
            self._next += 1
            return (
                self._cast()
                if token.text.lower() == "cast" and self._peek().text == "("
                else ColumnAt(token.text)
            )
        if token.text == "-":
            self._next += 1
            return Arithmetic("-", Number("0"), self._atom())
        self._take("(")
        found = self._sum()
        self._take(")")
        return found

    def _number(self, token: _Token) -> Number:
        before, point, after = token.text.partition(".")
        if len(before.lstrip("0")) + len(after) > (MAX_DIGITS if point else WHOLE["long"] - 1):
            raise MeasureProblem(f"the number at character {token.place} has too many digits")
        return Number((before.lstrip("0") or "0") + point + after)

    def _cast(self) -> Cast:
        self._take("(")
        of = self._sum()
        self._take("as")
        if self._peek().text.lower() != "decimal":
            raise self._problem("is no type of a cast: write decimal(18, 4)")
        self._next += 1
        self._take("(")
        precision = self._count()
        self._take(",")
        scale = self._count()
        if not 0 < precision <= MAX_DIGITS or scale > precision:
            raise MeasureProblem(
                f"decimal({precision}, {scale}) is no type: a decimal has 1 to {MAX_DIGITS} digits, and no more after the point"
            )
        self._take(")")
        self._take(")")
        return Cast(of, decimal(precision, scale))

    def _count(self) -> int:
        token = self._peek()
        if not token.text.isdecimal() or len(token.text) > 2:
            raise self._problem("is no number of digits: write decimal(18, 4)")
        self._next += 1
        return int(token.text)

    def _peek(self) -> _Token:
        return self._tokens[self._next] if self._next < len(self._tokens) else self._end

    def _take(self, wanted: str | None = None) -> _Token:
        token = self._peek()
        if wanted is not None and token.text.lower() != wanted:
            if token.text in ("/", "%"):
                raise self._problem("cannot be used: a quotient would be rounded; divide where you read")
            raise self._problem(f'stands where "{wanted}" is expected')
        self._next += 1
        return token

    def _problem(self, why: str) -> MeasureProblem:
        token = self._peek()
        if token is self._end:
            return MeasureProblem("it ends too early")
        return MeasureProblem(f'"{token.text}" at character {token.place} {why}')
