"""Translate resolved Spark expressions to `columnar_steps.expressions`; refuse those that may compute differently.

Spark's optimizer may remove or merge expressions that could fail. So such an expression is allowed only where Spark keeps it.
It is refused beside a constant in AND or OR, twice in a comparison, and in functions with conditional operands.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame

from calve.config.engine_choice import Unsupported
from calve.schema.columns import decimal_digits
from glue_jobs.columns.arrow_types import PRIMITIVES
from glue_jobs.engines.columnar_steps import expressions as ex
from glue_jobs.engines.columnar_steps.expressions import At, Call, Constant, Expression
from glue_jobs.process.java import elements

MOMENT, BOOLEAN = PRIMITIVES["timestamptz"], PRIMITIVES["boolean"]
KINDS = PRIMITIVES | {"integer": pa.int32(), "timestamp": MOMENT, "timestamp_ntz": PRIMITIVES["timestamp"]}
"""By Spark's names."""
MOST_DIGITS = 38
INTEGER_DIGITS = {pa.int32(): 10, pa.int64(): 19}
HELD_BY = {
    pa.int32(): (pa.int64(), pa.float32(), pa.float64(), pa.string()),
    pa.int64(): (pa.float32(), pa.float64(), pa.string()),
    pa.float32(): (pa.float64(),),
    pa.bool_(): (pa.string(),),
    pa.date32(): (pa.string(),),
}
LIKE = re.compile(r"(%?)([^%_\\]*)(%?)", re.DOTALL)
LIKE_IS = {("", ""): ex.equal, ("", "%"): ex.begins_with, ("%", ""): ex.ends_with, ("%", "%"): ex.contains}


Arguments = Sequence[Expression]
Plan = Callable[[Arguments, Any], Expression | None]
"""The arguments and Spark's expression -> the same here; None if it is not supported, or not for these arguments."""


def kind_of(tree: Any) -> pa.DataType | None:
    name = str(tree.dataType().json()).strip('"')
    digits = decimal_digits(name)
    return pa.decimal128(*digits) if digits else KINDS.get(name)


def _call(
    function: Callable[..., Any], arguments: Arguments, kind: pa.DataType | None, *, fails: bool = False
) -> Call:
    return Call(function, tuple(arguments), kind, fails or any(each.fails for each in arguments))


def _alike(arguments: Arguments) -> bool:
    first = arguments[0].kind
    return first is not None and all(each.kind == first for each in arguments)


def _where(
    accepts: Callable[[Arguments], bool], function: Callable[..., Any], kind: pa.DataType | None = BOOLEAN
) -> Plan:
    """A function for arguments that are accepted. kind: of its result; None: that of the arguments."""

    def planned(arguments: Arguments, _: Any) -> Expression | None:
        return _call(function, arguments, kind or arguments[0].kind) if accepts(arguments) else None

    return planned


def _any(_: Arguments) -> bool:
    return True


def _comparable(arguments: Arguments) -> bool:
    left, right = arguments
    return _alike(arguments) and not (left.fails and left == right)


def _connectable(arguments: Arguments) -> bool:
    fails = any(each.fails for each in arguments)
    return not (fails and any(isinstance(each, Constant) for each in arguments))


def _listed(arguments: Arguments) -> bool:
    value, *others = arguments
    constant = all(isinstance(each, Constant) for each in others)
    return constant and _alike(arguments) and not pa.types.is_floating(value.kind)


def _texts(arguments: Arguments) -> bool:
    return all(each.kind == pa.string() for each in arguments)


def _patterned(arguments: Arguments) -> bool:
    pattern = arguments[1]
    return _texts(arguments) and isinstance(pattern, Constant) and pattern.value is not None


def _summed(of_integers: Callable[..., Any], of_others: Callable[..., Any]) -> Plan:
    """A sum, difference or product. of_others: for floats, and for decimals where every result fits."""

    def planned(arguments: Arguments, tree: Any) -> Expression | None:
        kind = kind_of(tree)
        if kind is None:
            return None
        if pa.types.is_decimal(kind):
            room = _has_room(of_others, arguments, kind)
            return _call(of_others, arguments, kind) if room and _mode(tree) == "ANSI" else None
        if not _alike(arguments):
            return None
        if pa.types.is_floating(kind):
            return _call(of_others, arguments, kind)
        found = _attempted(of_integers, arguments, kind, tree) if kind in INTEGER_DIGITS else None
        return found if found and _constants(found, of_integers) <= 1 else None

    return planned


def _attempted(
    function: Callable[..., Any], arguments: Arguments, kind: pa.DataType, tree: Any
) -> Expression | None:
    """A function that fails on overflow; in Spark's TRY mode the result is null instead."""
    match _mode(tree):
        case "ANSI":
            return _call(function, arguments, kind, fails=True)
        case "TRY" if not any(each.fails for each in arguments):
            return Call(function, tuple(arguments), kind, tries=True)
    return None


def _constants(total: Expression, function: Callable[..., Any]) -> int:
    """The number of constants in a sum or product: Spark may combine them first."""
    if isinstance(total, Call) and total.function is function:
        return sum(_constants(each, function) for each in total.arguments)
    return isinstance(total, Constant)


def _has_room(function: Callable[..., Any], arguments: Arguments, kind: pa.DataType) -> bool:
    """Whether the type has room for every sum or product of these decimals."""
    one, other = (each.kind for each in arguments)
    if one is None or other is None or not all(pa.types.is_decimal(each) for each in (one, other)):
        return False
    if function is pc.multiply:
        digits, scale = one.precision + other.precision + 1, one.scale + other.scale
    else:
        scale = max(one.scale, other.scale)
        digits = max(one.precision - one.scale, other.precision - other.scale) + scale + 1
    return digits <= MOST_DIGITS and bool(kind == pa.decimal128(digits, scale))


def _divided(function: Callable[..., Any], *kinds: pa.DataType) -> Plan:
    def planned(arguments: Arguments, tree: Any) -> Expression | None:
        known = _alike(arguments) and arguments[0].kind in kinds
        return _attempted(function, arguments, arguments[0].kind, tree) if known else None

    return planned


def _mode(tree: Any) -> str:
    return str(tree.evalMode().toString())


def _cast(arguments: Arguments, tree: Any) -> Expression | None:
    kind, to = arguments[0].kind, kind_of(tree)
    if kind is None or to is None:
        return None
    if kind == MOMENT and to == pa.date32():
        return _call(ex.day_of, arguments, to)
    return _call(ex.cast, arguments, to) if _holds(kind, to) else None


def _holds(kind: pa.DataType, to: pa.DataType) -> bool:
    """Whether `to` holds all values: strings with one text per value, floats with the nearest value."""
    if pa.types.is_decimal(to):
        whole = to.precision - to.scale
        if pa.types.is_decimal(kind):
            return bool(to.scale >= kind.scale and whole >= kind.precision - kind.scale)
        return kind in INTEGER_DIGITS and bool(whole >= INTEGER_DIGITS[kind])
    return to in HELD_BY.get(kind, ())


def _chosen(arguments: Arguments, tree: Any) -> Expression | None:
    kind = kind_of(tree)
    parts = [*arguments, *([] if len(arguments) % 2 else [Constant(None, kind)])]
    if kind is None or any(each.kind != kind for each in (*parts[1::2], parts[-1])):
        return None
    return _call(ex.chosen, parts, kind)


def _like(arguments: Arguments, tree: Any) -> Expression | None:
    value, pattern = arguments
    if not isinstance(pattern, Constant) or not _patterned(arguments) or str(tree.escapeChar()) != "\\":
        return None
    found = LIKE.fullmatch(str(pattern.value))
    if found is None:
        return None
    return _call(LIKE_IS[found[1], found[3]], [value, Constant(found[2], pa.string())], BOOLEAN)


def _at_key(arguments: Arguments, tree: Any) -> Expression | None:
    _, key = arguments
    if not isinstance(key, Constant) or key.kind != pa.string() or key.value is None:
        return None
    return _call(ex.at_key, arguments, kind_of(tree))


def _moment(micros: int) -> Plan:
    """The timestamp of an integer in units of some microseconds."""

    def planned(arguments: Arguments, _: Any) -> Expression | None:
        if arguments[0].kind not in INTEGER_DIGITS:
            return None
        return _call(ex.multiply, [Constant(micros, pa.int64()), *arguments], MOMENT, fails=True)

    return planned


STRICT: dict[str, Plan] = {
    "EqualTo": _where(_comparable, ex.equal),
    "LessThan": _where(_comparable, ex.less),
    "GreaterThan": _where(_comparable, lambda left, right: ex.less(right, left)),
    "LessThanOrEqual": _where(_comparable, lambda left, right: pc.invert(ex.less(right, left))),
    "GreaterThanOrEqual": _where(_comparable, lambda left, right: pc.invert(ex.less(left, right))),
    "And": _where(_connectable, pc.and_kleene),
    "Or": _where(_connectable, pc.or_kleene),
    "Not": _where(_any, pc.invert),
    "Add": _summed(ex.add, pc.add),
    "Subtract": _summed(ex.subtract, pc.subtract),
    "Multiply": _summed(ex.multiply, pc.multiply),
    "Divide": _divided(ex.divide, pa.float64()),
    "Remainder": _divided(ex.remainder, pa.int32(), pa.int64()),
    "IntegralDivide": _divided(ex.quotient, pa.int64()),
    "Cast": _cast,
    "SecondsToTimestamp": _moment(1_000_000),
    "MillisToTimestamp": _moment(1_000),
}
"""Functions by their Spark class names."""
QUIET: dict[str, Plan] = {
    "IsNull": _where(_any, pc.is_null),
    "IsNotNull": _where(_any, pc.is_valid),
    "EqualNullSafe": _where(_comparable, ex.equal_or_both_null),
    "In": _where(_listed, ex.one_of),
    "Coalesce": _where(_alike, pc.coalesce, None),
    "If": _chosen,
    "CaseWhen": _chosen,
    "Concat": _where(_texts, ex.joined, pa.string()),
    "StartsWith": _where(_patterned, ex.begins_with),
    "EndsWith": _where(_patterned, ex.ends_with),
    "Contains": _where(_patterned, ex.contains),
    "Like": _like,
    "GetMapValue": _at_key,
}
"""Functions whose arguments must not fail."""


def spelled(frame: DataFrame, path: Sequence[str]) -> tuple[str, ...]:
    """A path of names, matched case-insensitively, spelled as in the columns."""
    kind: Any = frame.schema
    found: list[str] = []
    for name in path:
        field = next(each for each in kind.fields if each.name.lower() == name.lower())
        kind = field.dataType
        found.append(field.name)
    return tuple(found)


class Planning:
    """Plans expressions on the columns of a frame. place: their location in calve.yaml."""

    def __init__(self, frame: DataFrame, place: str) -> None:
        self._frame = frame
        self._place = place
        jvm: Any = frame.sparkSession._jvm
        self._tree = jvm.org.apache.spark.sql.classic.ExpressionUtils.expression
        self._replaceable = jvm.java.lang.Class.forName(
            "org.apache.spark.sql.catalyst.expressions.RuntimeReplaceable"
        )
        self._shared: dict[str, Expression] = {}

    def of(self, column: Column | str) -> Expression:
        """Plan an expression, or a column by name. Raises Unsupported: it is not known to compute the same."""
        if isinstance(column, str):
            return At(spelled(self._frame, [column]))
        return self._planned(self._tree(column._jc))

    def _planned(self, tree: Any) -> Expression:
        if self._replaceable.isInstance(tree):
            return self._planned(tree.replacement())
        if tree.foldable():
            return self._constant(tree)
        found: Expression | None = None
        match str(tree.getClass().getSimpleName()):
            case "AttributeReference":
                found = At(spelled(self._frame, (str(tree.name()),)), kind_of(tree))
            case "Alias":
                found = self._planned(tree.child())
            case "GetStructField":
                found = self._field(tree)
            case "With":
                for each in elements(tree.defs()):
                    self._shared[each.id().toString()] = self._planned(each.child())
                found = self._planned(tree.child())
            case "CommonExpressionRef":
                found = self._shared[tree.id().toString()]
            case name:
                arguments = [self._planned(each) for each in elements(tree.children())]
                plan = (STRICT if any(each.fails for each in arguments) else STRICT | QUIET).get(name)
                found = plan(arguments, tree) if plan else None
        if found is None:
            raise self._refused(tree)
        return found

    def _field(self, tree: Any) -> At | None:
        above = self._planned(tree.child())
        if not isinstance(above, At):
            return None
        path = (*above.path, str(tree.childSchema().fieldNames()[tree.ordinal()]))
        return At(spelled(self._frame, path), kind_of(tree))

    def _constant(self, tree: Any) -> Constant:
        kind = kind_of(tree)
        try:
            value = tree.eval(None)
        except (Py4JJavaError, PySparkException):
            raise Unsupported(f"{self._place}: {tree.sql()} fails for every record") from None
        if kind is None:
            raise self._refused(tree)
        if value is not None and pa.types.is_decimal(kind):
            value = Decimal(value.toString())
        elif value is not None and pa.types.is_string(kind):
            value = str(value.toString())
        return Constant(value, kind)

    def _refused(self, tree: Any) -> Unsupported:
        return Unsupported(f"{self._place}: {tree.prettyName()} needs the row engine")
