"""Translate resolved Spark expressions to `columnar_steps.expressions`; refuse those that may compute differently.

Spark's optimizer may remove or merge expressions that could fail. So such an expression is allowed only where Spark keeps it.
It is refused beside a constant in AND or OR, twice in a comparison, and in functions with conditional operands.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame

from calve.config.engine_choice import Unsupported
from glue_jobs.engines.columnar_steps.expressions import At, Call, Constant, Expression
from glue_jobs.process.java import elements

KINDS = {
    "boolean": pa.bool_(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
MOST_DIGITS = 38
INTEGER_DIGITS = {pa.int32(): 10, pa.int64(): 19}
MOMENT, BOOLEAN = KINDS["timestamp"], pa.bool_()
LIKE = re.compile(r"(%?)([^%_\\]*)(%?)", re.DOTALL)
LIKE_IS = {("", ""): "equal", ("", "%"): "begins_with", ("%", ""): "ends_with", ("%", "%"): "contains"}


@dataclass(frozen=True, slots=True)
class Planned:
    """kind: the type of the values; None if the value is only passed on. fails: whether a row may fail."""

    of: Expression
    kind: pa.DataType | None
    fails: bool = False


Arguments = Sequence[Planned]


def kind_of(tree: Any) -> pa.DataType | None:
    """The type of a resolved Spark expression."""
    name = str(tree.dataType().json()).strip('"')
    digits = DECIMAL.fullmatch(name)
    return pa.decimal128(int(digits[1]), int(digits[2])) if digits else KINDS.get(name)


def planned_call(name: str, arguments: Arguments, tree: Any) -> Planned | None:
    """A function by its Spark class name; None if it is not supported, or not for these arguments."""
    if name in QUIET and not any(each.fails for each in arguments):
        return QUIET[name](arguments, tree)
    return STRICT[name](arguments, tree) if name in STRICT else None


def _call(function: str, arguments: Arguments, kind: pa.DataType | None, *, fails: bool = False) -> Planned:
    fails = fails or any(each.fails for each in arguments)
    return Planned(Call(function, tuple(each.of for each in arguments), kind), kind, fails)


def _alike(arguments: Arguments) -> bool:
    first = arguments[0].kind
    return first is not None and all(each.kind == first for each in arguments)


Plan = Callable[[Arguments, Any], Planned | None]


def _where(
    accepts: Callable[[Arguments], bool], function: str, kind: pa.DataType | None, *, fails: bool = False
) -> Plan:
    """A function for arguments that are accepted. kind: of its result; None: that of the arguments."""

    def planned(arguments: Arguments, _: Any) -> Planned | None:
        if not accepts(arguments):
            return None
        return _call(function, arguments, kind or arguments[0].kind, fails=fails)

    return planned


def _any(_: Arguments) -> bool:
    return True


def _comparable(arguments: Arguments) -> bool:
    left, right = arguments
    return _alike(arguments) and not (left.fails and left.of == right.of)


def _connectable(arguments: Arguments) -> bool:
    fails = any(each.fails for each in arguments)
    return not (fails and any(isinstance(each.of, Constant) for each in arguments))


def _listed(arguments: Arguments) -> bool:
    value, *others = arguments
    constant = all(isinstance(each.of, Constant) for each in others)
    return constant and _alike(arguments) and not pa.types.is_floating(value.kind)


def _texts(arguments: Arguments) -> bool:
    return all(each.kind == pa.string() for each in arguments)


def _patterned(arguments: Arguments) -> bool:
    pattern = arguments[1].of
    return _texts(arguments) and isinstance(pattern, Constant) and pattern.value is not None


def _whole(arguments: Arguments) -> bool:
    return arguments[0].kind in INTEGER_DIGITS


def _summed(of_integers: str, of_others: str) -> Plan:
    def planned(arguments: Arguments, tree: Any) -> Planned | None:
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
        return found if found and _constants(found.of, of_integers) <= 1 else None

    return planned


def _attempted(function: str, arguments: Arguments, kind: pa.DataType, tree: Any) -> Planned | None:
    """A function that fails on overflow; in Spark's TRY mode the result is null instead."""
    match _mode(tree):
        case "ANSI":
            return _call(function, arguments, kind, fails=True)
        case "TRY" if not any(each.fails for each in arguments):
            return Planned(Call(function, tuple(each.of for each in arguments), kind, tries=True), kind)
    return None


def _constants(of: Expression, function: str) -> int:
    """The number of constants in a sum or product: Spark may combine them first."""
    if isinstance(of, Call) and of.function == function:
        return sum(_constants(each, function) for each in of.arguments)
    return isinstance(of, Constant)


def _has_room(function: str, arguments: Arguments, kind: pa.DataType) -> bool:
    """Whether the type has room for every sum or product of these decimals."""
    one, other = (each.kind for each in arguments)
    if one is None or other is None or not all(pa.types.is_decimal(each) for each in (one, other)):
        return False
    if function == "times":
        digits, scale = one.precision + other.precision + 1, one.scale + other.scale
    else:
        scale = max(one.scale, other.scale)
        digits = max(one.precision - one.scale, other.precision - other.scale) + scale + 1
    return bool(kind == pa.decimal128(digits, scale)) if digits <= MOST_DIGITS else False


def _divided(function: str, *kinds: pa.DataType) -> Plan:
    def planned(arguments: Arguments, tree: Any) -> Planned | None:
        known = _alike(arguments) and arguments[0].kind in kinds
        return _attempted(function, arguments, arguments[0].kind, tree) if known else None

    return planned


def _mode(tree: Any) -> str:
    return str(tree.evalMode().toString())


def _cast(arguments: Arguments, tree: Any) -> Planned | None:
    [of], to = arguments, kind_of(tree)
    if of.kind is None or to is None:
        return None
    if of.kind == MOMENT and to == pa.date32():
        return _call("day_of", arguments, to)
    return _call("cast", arguments, to) if _holds(of.kind, to) else None


def _holds(of: pa.DataType, to: pa.DataType) -> bool:
    """Whether a type holds all values of another one: strings with one text per value, floats with the nearest value."""
    if of in INTEGER_DIGITS:
        if pa.types.is_decimal(to):
            return bool(to.precision - to.scale >= INTEGER_DIGITS[of])
        return bool(
            pa.types.is_floating(to) or pa.types.is_string(to) or (of, to) == (pa.int32(), pa.int64())
        )
    if pa.types.is_decimal(of):
        wide = pa.types.is_decimal(to) and to.scale >= of.scale
        return bool(wide and to.precision - to.scale >= of.precision - of.scale)
    return (of, to) == (pa.float32(), pa.float64()) or (to == pa.string() and of in (pa.bool_(), pa.date32()))


def _chosen(arguments: Arguments, tree: Any) -> Planned | None:
    kind = kind_of(tree)
    otherwise = [] if len(arguments) % 2 else [Planned(Constant(None, kind), kind)]
    parts = [*arguments, *otherwise]
    if kind is None or any(each.kind != kind for each in (*parts[1::2], parts[-1])):
        return None
    return _call("chosen", parts, kind)


def _like(arguments: Arguments, tree: Any) -> Planned | None:
    value, pattern = arguments
    if not isinstance(pattern.of, Constant) or str(tree.escapeChar()) != "\\":
        return None
    found = LIKE.fullmatch(str(pattern.of.value))
    if found is None or pattern.of.value is None:
        return None
    plain = Planned(Constant(found[2], pa.string()), pa.string())
    return _where(_patterned, LIKE_IS[found[1], found[3]], BOOLEAN)([value, plain], tree)


def _at_key(arguments: Arguments, tree: Any) -> Planned | None:
    _, key = arguments
    if not isinstance(key.of, Constant) or key.kind != pa.string() or key.of.value is None:
        return None
    return _call("at_key", arguments, kind_of(tree))


STRICT: Mapping[str, Plan] = {
    "EqualTo": _where(_comparable, "equal", BOOLEAN),
    "LessThan": _where(_comparable, "less", BOOLEAN),
    "GreaterThan": _where(_comparable, "greater", BOOLEAN),
    "LessThanOrEqual": _where(_comparable, "less_equal", BOOLEAN),
    "GreaterThanOrEqual": _where(_comparable, "greater_equal", BOOLEAN),
    "And": _where(_connectable, "and", BOOLEAN),
    "Or": _where(_connectable, "or", BOOLEAN),
    "Not": _where(_any, "not", BOOLEAN),
    "Add": _summed("add", "plus"),
    "Subtract": _summed("subtract", "minus"),
    "Multiply": _summed("multiply", "times"),
    "Divide": _divided("divide", pa.float64()),
    "Remainder": _divided("remainder", pa.int32(), pa.int64()),
    "IntegralDivide": _divided("quotient", pa.int64()),
    "Cast": _cast,
    "SecondsToTimestamp": _where(_whole, "moment_of_seconds", MOMENT, fails=True),
    "MillisToTimestamp": _where(_whole, "moment_of_millis", MOMENT, fails=True),
}
QUIET: Mapping[str, Plan] = {
    "IsNull": _where(_any, "is_null", BOOLEAN),
    "IsNotNull": _where(_any, "is_not_null", BOOLEAN),
    "EqualNullSafe": _where(_comparable, "equal_or_both_null", BOOLEAN),
    "In": _where(_listed, "one_of", BOOLEAN),
    "Coalesce": _where(_alike, "first_there", None),
    "If": _chosen,
    "CaseWhen": _chosen,
    "Concat": _where(_texts, "joined", pa.string()),
    "StartsWith": _where(_patterned, "begins_with", BOOLEAN),
    "EndsWith": _where(_patterned, "ends_with", BOOLEAN),
    "Contains": _where(_patterned, "contains", BOOLEAN),
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
        self._shared: dict[str, Planned] = {}

    def of(self, column: Column | str) -> Expression:
        """Plan an expression, or a column by name.

        Raises:
            Unsupported: the expression is not known to compute the same.
        """
        if isinstance(column, str):
            return At(spelled(self._frame, [column]))
        return self._planned(self._tree(column._jc)).of

    def _planned(self, tree: Any) -> Planned:
        if self._replaceable.isInstance(tree):
            return self._planned(tree.replacement())
        if tree.foldable():
            return self._constant(tree)
        match str(tree.getClass().getSimpleName()):
            case "AttributeReference":
                return self._at(tree, (str(tree.name()),))
            case "Alias":
                return self._planned(tree.child())
            case "GetStructField":
                return self._field(tree)
            case "With":
                for each in elements(tree.defs()):
                    self._shared[each.id().toString()] = self._planned(each.child())
                return self._planned(tree.child())
            case "CommonExpressionRef":
                return self._shared[tree.id().toString()]
            case name:
                found = planned_call(name, [self._planned(each) for each in elements(tree.children())], tree)
        if found is None:
            raise self._refused(tree)
        return found

    def _at(self, tree: Any, path: tuple[str, ...]) -> Planned:
        return Planned(At(spelled(self._frame, path)), kind_of(tree))

    def _field(self, tree: Any) -> Planned:
        above = self._planned(tree.child()).of
        if not isinstance(above, At):
            raise self._refused(tree)
        return self._at(tree, (*above.path, str(tree.childSchema().fieldNames()[tree.ordinal()])))

    def _constant(self, tree: Any) -> Planned:
        """The value that Spark computes."""
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
        return Planned(Constant(value, kind), kind)

    def _refused(self, tree: Any) -> Unsupported:
        return Unsupported(f"{self._place}: {tree.prettyName()} needs the row engine")
