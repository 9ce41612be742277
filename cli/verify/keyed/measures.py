"""Measures read and computed without the engine: the text by Python's own parser, the values as Python's own numbers."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any

EXACT = Context(prec=1000)
"""More digits than any sum of a topic has."""
EVERY = "count(*)"
_CAST = re.compile(r"\bas decimal\((\d+), (\d+)\)")
_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_MARK = "x"
"""Stands before each name: a column may have one that is a keyword of Python's."""
_SIGNS = {ast.Add: EXACT.add, ast.Sub: EXACT.subtract, ast.Mult: EXACT.multiply}

Value = Callable[[Mapping[str, Any]], Any]


@dataclass(frozen=True, slots=True)
class Measure:
    """`value` of a record, by the columns that it is made of; `added` to what is known so far, either of which may be None."""

    name: str
    function: str
    paths: tuple[str, ...]
    value: Value

    @property
    def start(self) -> Any:
        """What it is of no records."""
        return 0 if self.function == "count" else None

    def added(self, so_far: Any, found: Any) -> Any:
        if found is None:
            return so_far
        match self.function:
            case "count":
                return so_far + 1
            case "sum":
                return found if so_far is None else EXACT.add(so_far, found)
            case "min":
                return found if so_far is None else min(so_far, found, key=_order)
        return found if so_far is None else max(so_far, found, key=_order)


def measure(name: str, text: str) -> Measure:
    """The measure that a table's position describes."""
    if text == EVERY:
        return Measure(name, "count", (), lambda _: True)
    source = _NAME.sub(lambda found: _MARK + found[0], _CAST.sub(r", \1, \2", text))
    call = ast.parse(source, mode="eval").body
    if not isinstance(call, ast.Call):
        raise TypeError(f"{text} is no measure")
    paths: list[str] = []
    value = _value(call.args[0], source, paths)
    function = ast.unparse(call.func).removeprefix(_MARK)
    return Measure(
        name, function, tuple(dict.fromkeys(paths)), _number(value) if function == "sum" else value
    )


def same(one: Any, other: Any) -> bool:
    """True for equal values, nulls and NaN among them."""
    return bool(one == other) or (_is_nan(one) and _is_nan(other))


def _value(node: ast.expr, source: str, paths: list[str]) -> Value:
    match node:
        case ast.Constant():
            number = Decimal(ast.get_source_segment(source, node) or "")
            return lambda _: number
        case ast.BinOp(left, sign, right):
            return _both(
                _SIGNS[type(sign)], *(_number(_value(each, source, paths)) for each in (left, right))
            )
        case ast.Call(args=[of, _, ast.Constant(value=int(scale))]):
            return _rounded(_value(of, source, paths), int(scale))
    path = ast.unparse(node).replace(f".{_MARK}", ".").removeprefix(_MARK)
    paths.append(path)
    return lambda record: record[path]


def _both(sign: Callable[[Decimal, Decimal], Decimal], left: Value, right: Value) -> Value:
    def value(record: Mapping[str, Any]) -> Any:
        one, other = left(record), right(record)
        return None if one is None or other is None else sign(one, other)

    return value


def _rounded(of: Value, scale: int) -> Value:
    unit = Decimal(1).scaleb(-scale)

    def value(record: Mapping[str, Any]) -> Any:
        found = of(record)
        if found is None:
            return None
        return (
            _nearest(found, scale)
            if isinstance(found, float)
            else Decimal(found).quantize(unit, ROUND_HALF_UP, EXACT)
        )

    return value


def _nearest(found: float, scale: int) -> Decimal:
    """The decimal next to a float, by the arithmetic of floats, which is the same everywhere; its digits as a text are not."""
    scaled = found * 10.0**scale
    if not math.isfinite(scaled):
        return Decimal("nan")
    size = abs(scaled)
    below = math.floor(size)
    units = Decimal(below + (size - below >= 0.5))
    return units.copy_sign(Decimal(scaled)).scaleb(-scale, EXACT)


def _number(of: Value) -> Value:
    def value(record: Mapping[str, Any]) -> Any:
        found = of(record)
        return None if found is None else Decimal(found)

    return value


def _order(value: Any) -> tuple[bool, Any]:
    """Spark's: NaN is greater than all numbers."""
    return (True, 0) if _is_nan(value) else (False, value)


def _is_nan(value: Any) -> bool:
    return isinstance(value, float | Decimal) and math.isnan(value)
