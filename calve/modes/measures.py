"""Measures of an aggregate table, such as `sum(price * quantity)`, as trees, and their types (ADR 20).

All arithmetic is exact: integers are `long`, all else is a decimal with room for every digit after the point.
A measure that needs rounding is refused, unless a cast allows it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from calve.errors import Suspended
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
        """Precision and scale."""
        before, _, after = self.text.partition(".")
        return len(before.lstrip("0")) + len(after) or 1, len(after)

    @property
    def kind(self) -> str:
        return decimal(*self.digits) if "." in self.text else "long"

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class Cast:
    """`kind`: `long`, or `decimal(precision, scale)`; digits beyond the scale are rounded, halves away from zero."""

    of: Expression
    kind: str

    def __str__(self) -> str:
        return f"cast({self.of} as {self.kind})"


@dataclass(frozen=True, slots=True)
class Nearest:
    """The decimal next to a float: a `Cast` of one, once types are known.

    It is n / 10^scale. n is the float times 10^scale, computed as a double, then rounded, halves away from zero.
    """

    of: Expression
    precision: int
    scale: int

    def __str__(self) -> str:
        return f"cast({self.of} as {decimal(self.precision, self.scale)})"


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """Two expressions with `+`, `-` or `*` between them."""

    sign: str
    left: Expression
    right: Expression

    def __str__(self) -> str:
        strength = _STRENGTH[self.sign]
        left, right = _within(self.left, strength), _within(self.right, strength + 1)
        return f"{left} {self.sign} {right}"


Expression = ColumnAt | Number | Cast | Nearest | Arithmetic


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
    """Type an expression over these columns.

    Raises:
        Suspended: `measure_unusable`: a column is missing, or its type allows no exact arithmetic.
    """
    match expression:
        case ColumnAt(path):
            return Typed(expression, _plain_type(columns, path))
        case Number():
            return Typed(expression, expression.kind)
        case Nearest(_, precision, scale):
            return Typed(expression, decimal(precision, scale))
        case Cast(of, kind):
            inner = typed(of, columns)
            if inner.kind in FLOATS:
                return Typed(_nearest(expression, inner), kind)
            return Typed(Cast(_number(expression, of, inner).of, kind), kind)
    left, right = (
        _number(expression, each, typed(each, columns)) for each in (expression.left, expression.right)
    )
    if left.kind in WHOLE and right.kind in WHOLE:
        whole = Arithmetic(expression.sign, Cast(left.of, "long"), Cast(right.of, "long"))
        return Typed(whole, "long")
    one, other = _digits(left), _digits(right)
    return Typed(
        Arithmetic(expression.sign, Cast(left.of, decimal(*one)), Cast(right.of, decimal(*other))),
        decimal(*_result(expression, one, other)),
    )


def type_of(term: Term, columns: Json) -> str:
    """The type of the measure's column: the widest of its kind, so that it still fits after its source columns are widened.

    Raises:
        Suspended: `measure_unusable`: as `typed`, or the sum would depend on the order of records.
    """
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
    """Paths of the columns in an expression."""
    match expression:
        case ColumnAt(path):
            yield path
        case Cast(of) | Nearest(of):
            yield from columns_in(of)
        case Arithmetic(_, left, right):
            yield from columns_in(left)
            yield from columns_in(right)


def widest(kind: str) -> str:
    """The type that holds all values of this one and of every type it may be widened to."""
    digits = decimal_digits(kind)
    return decimal(MAX_DIGITS, digits[1]) if digits else WIDEST.get(kind, kind)


CASTS = "cast it to a decimal, such as sum(cast(price as decimal(18, 4)) * quantity)"


def unusable(why: str, cure: str = "change the measure in calve.yaml") -> Suspended:
    return Suspended("measure_unusable", f"a measure cannot be computed: {why}", fix=cure)


def _number(whole: Expression, written: Expression, found: Typed) -> Typed:
    """A part of an expression, as `written`, which must be an exact number."""
    if found.kind in FLOATS:
        raise unusable(f"{whole}: {written} is a {found.kind}, which is not exact", CASTS)
    if found.kind not in WHOLE and decimal_digits(found.kind) is None:
        raise unusable(f"{whole}: {written} is a {found.kind}, which is no number")
    return found


def _nearest(written: Cast, inner: Typed) -> Nearest:
    precision, scale = decimal_digits(written.kind) or (0, 0)
    if precision > MAX_DIGITS_OF_FLOATS:
        why = f"{written}: a {inner.kind} has fewer digits than {precision}"
        raise unusable(why, f"cast it to a decimal of at most {MAX_DIGITS_OF_FLOATS} digits")
    return Nearest(inner.of, precision, scale)


def _result(written: Arithmetic, one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
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


def _plain_type(columns: Json, path: str) -> str:
    found = column_at(columns, path)
    if found is None:
        raise unusable(no_column(columns, path))
    if isinstance(kind := found["type"], dict):
        raise unusable(f"{path} is a {kind['type']}, which has no order")
    return str(kind)


def _within(inner: Expression, strength: int) -> str:
    return f"({inner})" if isinstance(inner, Arithmetic) and _STRENGTH[inner.sign] < strength else str(inner)
