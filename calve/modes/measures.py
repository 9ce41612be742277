"""Measures of an aggregate table, such as `sum(price * quantity)`: their text as trees, and their types (ADR 20).

calve.yaml and the job use the same parser: no external text becomes part of SQL.

All arithmetic is exact: integers are `long`, all else is a decimal with room for every digit after the point.
A measure that needs rounding is refused, unless a cast allows it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, get_args

from calve.errors import CalveError, Suspended
from calve.schema.columns import Json, decimal_digits
from calve.schema.evolution import column_at, no_column

Function = Literal["count", "sum", "min", "max"]
MAX_DIGITS = 38
LEAST_SCALE = 6
"""Digits after the point that Spark always keeps: https://spark.apache.org/docs/latest/sql-ref-ansi-compliance.html."""
WHOLE = {"int": 10, "long": 19}
"""Integer types and their number of digits."""
FLOATS = ("float", "double")
MAX_DIGITS_OF_FLOATS = 18
"""Up to here, cutting a float at a digit gives the same result everywhere. Beyond it, a float's text differs between systems."""
WIDEST = {"int": "long", "float": "double"}
_STRENGTH = {"+": 1, "-": 1, "*": 2}


@dataclass(frozen=True, slots=True)
class ColumnAt:
    """The column of a record at a path of names."""

    path: str

    def __str__(self) -> str:
        return self.path


@dataclass(frozen=True, slots=True)
class Number:
    """Digits, perhaps with a point; no sign."""

    text: str

    @property
    def digits(self) -> tuple[int, int]:
        before, _, after = self.text.partition(".")
        return len(before.lstrip("0")) + len(after) or 1, len(after)

    @property
    def kind(self) -> str:
        return decimal(*self.digits) if "." in self.text else "long"

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class Cast:
    """`kind`: `long`, or `decimal(precision, scale)`; digits beyond the scale are rounded, halves away from zero.

    of_float: a decimal of at most `MAX_DIGITS_OF_FLOATS` digits next to a float. It is n / 10^scale. n is the float times
    10^scale, computed as a double, then rounded as above.
    """

    of: Expression
    kind: str
    of_float: bool = False

    def __str__(self) -> str:
        return f"cast({self.of} as {self.kind})"


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """Two expressions with `+`, `-` or `*` between them."""

    sign: str
    left: Expression
    right: Expression

    def __str__(self) -> str:
        strength = _STRENGTH[self.sign]
        left, right = (
            f"({each})" if isinstance(each, Arithmetic) and _STRENGTH[each.sign] < least else str(each)
            for each, least in ((self.left, strength), (self.right, strength + 1))
        )
        return f"{left} {self.sign} {right}"


Expression = ColumnAt | Number | Cast | Arithmetic


@dataclass(frozen=True, slots=True)
class Term:
    """A function and its expression; `of`: None counts records."""

    function: Function
    of: Expression | None

    def __str__(self) -> str:
        return f"{self.function}({'*' if self.of is None else self.of})"


@dataclass(frozen=True, slots=True)
class Typed:
    """An expression with all required casts, and its type."""

    of: Expression
    kind: str


def typed(expression: Expression, columns: Json) -> Typed:
    """Type an expression over these columns. Raises Suspended: `measure_unusable`: its types allow no exact arithmetic."""
    match expression:
        case ColumnAt(path):
            found = column_at(columns, path)
            if found is None:
                raise unusable(no_column(columns, path))
            if isinstance(kind := found["type"], dict):
                raise unusable(f"{path} is a {kind['type']}, which has no order")
            return Typed(expression, str(kind))
        case Number():
            return Typed(expression, expression.kind)
        case Cast(of, kind):
            inner = typed(of, columns)
            if inner.kind not in FLOATS:
                return Typed(Cast(_number(expression, of, inner).of, kind), kind)
            precision, _ = decimal_digits(kind) or (0, 0)
            if precision > MAX_DIGITS_OF_FLOATS:
                why = f"{expression}: a {inner.kind} has fewer digits than {precision}"
                raise unusable(why, f"cast it to a decimal of at most {MAX_DIGITS_OF_FLOATS} digits")
            return Typed(Cast(inner.of, kind, of_float=True), kind)
    left, right = (
        _number(expression, each, typed(each, columns)) for each in (expression.left, expression.right)
    )
    if left.kind in WHOLE and right.kind in WHOLE:
        whole = Arithmetic(expression.sign, Cast(left.of, "long"), Cast(right.of, "long"))
        return Typed(whole, "long")
    one, other = _digits(left), _digits(right)
    return Typed(
        Arithmetic(expression.sign, Cast(left.of, decimal(*one)), Cast(right.of, decimal(*other))),
        decimal(*result_digits(expression, one, other)),
    )


def type_of(term: Term, columns: Json) -> str:
    """The type of a measure's column: the widest of its kind, for wider source columns. Raises Suspended: `measure_unusable`."""
    if term.of is None:
        return "long"
    kind = typed(term.of, columns).kind
    if term.function == "count":
        return "long"
    if term.function != "sum":
        return widest(kind)
    if kind in FLOATS:
        raise unusable(
            f"{term}: the sum of a {kind} depends on the order in which the records are read", CASTS
        )
    if kind not in WHOLE and decimal_digits(kind) is None:
        raise unusable(f"{term}: a {kind} cannot be added up")
    return widest(kind)


def columns_in(expression: Expression) -> Iterator[str]:
    match expression:
        case ColumnAt(path):
            yield path
        case Cast(of):
            yield from columns_in(of)
        case Arithmetic(_, left, right):
            yield from columns_in(left)
            yield from columns_in(right)


def widest(kind: str) -> str:
    """The type that holds all values of this one and of every type it may be widened to."""
    digits = decimal_digits(kind)
    return decimal(MAX_DIGITS, digits[1]) if digits else WIDEST.get(kind, kind)


CASTS = "cast it to a decimal, such as sum(cast(price as decimal(18, 4)) * quantity)"


def unusable(why: str, fix: str = "change the measure in calve.yaml") -> Suspended:
    return Suspended("measure_unusable", f"a measure cannot be computed: {why}", fix=fix)


def _number(whole: Expression, written: Expression, found: Typed) -> Typed:
    """A part of an expression, as `written`, which must be an exact number."""
    if found.kind in FLOATS:
        raise unusable(f"{whole}: {written} is a {found.kind}, which is not exact", CASTS)
    if found.kind not in WHOLE and decimal_digits(found.kind) is None:
        raise unusable(f"{whole}: {written} is a {found.kind}, which is not a number")
    return found


def result_digits(written: Arithmetic, one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
    """Precision and scale by Spark's rules: https://spark.apache.org/docs/latest/sql-ref-ansi-compliance.html.

    If the result has too many digits, Spark drops digits after the point; this is refused here.
    Too many digits before the point are detected when a value is computed.
    """
    (p1, s1), (p2, s2) = one, other
    scale = s1 + s2 if written.sign == "*" else max(s1, s2)
    precision = p1 + p2 + 1 if written.sign == "*" else max(p1 - s1, p2 - s2) + scale + 1
    if precision > MAX_DIGITS and max(MAX_DIGITS - (precision - scale), min(scale, LEAST_SCALE)) != scale:
        why = f"{written} may have {precision} digits, {scale} of them after the point, and {MAX_DIGITS} can be kept"
        raise unusable(
            why, "cast the columns to decimals of fewer digits, such as cast(price as decimal(18, 4))"
        )
    return min(precision, MAX_DIGITS), scale


def _digits(each: Typed) -> tuple[int, int]:
    if isinstance(each.of, Number):
        return each.of.digits
    return decimal_digits(each.kind) or (WHOLE[each.kind], 0)


def decimal(precision: int, scale: int) -> str:
    return f"decimal({precision}, {scale})"


FUNCTIONS: tuple[Function, ...] = get_args(Function)
MAX_CHARACTERS = 300
_TOKEN = re.compile(
    r"\s*(?:(?P<number>\d+(?:\.\d+)?)|(?P<name>[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)|(?P<sign>\S)|(?P<end>\Z))",
    re.ASCII,
)


class MeasureProblem(CalveError):
    """The text is not a measure. The message names the fault and its place."""


def parse(text: str) -> Term:
    """Parse a measure; its `str` is the same text with normal spacing. Raises MeasureProblem: the text is not a measure."""
    if len(text) > MAX_CHARACTERS:
        raise MeasureProblem(f"it has more than {MAX_CHARACTERS} characters")
    return _Parser(text).term()


class _Parser:
    """Reads one measure from its first token to its last."""

    def __init__(self, text: str) -> None:
        self._tokens = list(_TOKEN.finditer(text))

    @property
    def _kind(self) -> str | None:
        return self._tokens[0].lastgroup

    @property
    def _text(self) -> str:
        return self._tokens[0][self._kind or 0]

    def term(self) -> Term:
        function = next((each for each in FUNCTIONS if self._text.lower() == each), None)
        if function is None:
            if self._text.lower() in ("avg", "average", "mean"):
                raise self._problem(
                    "cannot be kept as a total: keep sum(x) and count(x), and divide where you read"
                )
            raise self._problem("is not a function of a measure: use count, sum, min or max")
        self._take()
        self._take("(")
        of = None
        if function == "count" and self._text == "*":
            self._take()
        else:
            of = self._expression()
        self._take(")")
        if self._kind != "end":
            raise self._problem("is after the end of the measure")
        return Term(function, of)

    def _expression(self, least: int = 1) -> Expression:
        """Values with signs of at least this strength between them."""
        found = self._value()
        while (strength := _STRENGTH.get(self._text, 0)) >= least:
            found = Arithmetic(self._take(), found, self._expression(strength + 1))
        return found

    def _value(self) -> Expression:
        if self._kind == "number":
            return self._number()
        if self._kind == "name":
            name = self._take()
            return self._cast() if name.lower() == "cast" and self._text == "(" else ColumnAt(name)
        if self._text == "-":
            self._take()
            return Arithmetic("-", Number("0"), self._value())
        self._take("(")
        found = self._expression()
        self._take(")")
        return found

    def _number(self) -> Number:
        before, point, after = self._text.partition(".")
        if len(before.lstrip("0")) + len(after) > (MAX_DIGITS if point else WHOLE["long"] - 1):
            raise MeasureProblem(f"the number at character {self._place} has too many digits")
        self._take()
        return Number((before.lstrip("0") or "0") + point + after)

    def _cast(self) -> Cast:
        self._take("(")
        of = self._expression()
        self._take("as")
        if self._text.lower() != "decimal":
            raise self._problem("is not a type of a cast: write decimal(18, 4)")
        self._take()
        digits = []
        for before in ("(", ","):
            self._take(before)
            if not self._text.isdecimal() or len(self._text) > 2:
                raise self._problem("is not a number of digits: write decimal(18, 4)")
            digits.append(int(self._take()))
        precision, scale = digits
        if not 0 < precision <= MAX_DIGITS or scale > precision:
            raise MeasureProblem(
                f"decimal({precision}, {scale}) is not a type: a decimal has 1 to {MAX_DIGITS} digits, not more after the point"
            )
        self._take(")")
        self._take(")")
        return Cast(of, decimal(precision, scale))

    def _take(self, wanted: str | None = None) -> str:
        """The text of the next token, which must be `wanted`."""
        text = self._text
        if wanted is not None and text.lower() != wanted:
            if text in ("/", "%"):
                raise self._problem("cannot be used: a quotient would be rounded; divide where you read")
            raise self._problem(f'is where "{wanted}" is expected')
        del self._tokens[0]
        return text

    @property
    def _place(self) -> int:
        return self._tokens[0].start(self._kind or 0) + 1

    def _problem(self, why: str) -> MeasureProblem:
        if self._kind == "end":
            return MeasureProblem("it ends too early")
        return MeasureProblem(f'"{self._text}" at character {self._place} {why}')
