"""JSON text read strictly and exactly, and written the way tables keep JSON of any form."""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from decimal import Decimal
from typing import Any, Self

from cli.verify.conversion import Unreadable

MAX_DEPTH = 998
MAX_DIGITS = 1_000
MAX_NAME = 50_000
DECIMAL_DIGITS = 38
STRINGS = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)


class Members(dict[str, Any]):
    """A JSON object; the last of several members with one name holds, and `repeated` says that there were several: `twice`."""

    repeated = False
    twice: frozenset[str] = frozenset()


class Real(float):
    """A number with a point or an exponent, and its digits as they were written."""

    __slots__ = ("text",)
    text: str

    def __new__(cls, text: str) -> Self:
        made = super().__new__(cls, text)
        made.text = text
        return made


def read(data: bytes) -> Any:
    """The one value of a text.

    Raises:
        Unreadable: it is no JSON (`malformed`).
    """
    try:
        text = data.decode()
        if text.count("[") + text.count("{") > MAX_DEPTH // 4:
            _allow(_depth(text))
        found = json.JSONDecoder(
            object_pairs_hook=_members, parse_float=_real, parse_int=_integer, parse_constant=_refuse
        ).decode(text)
        if "\\ud" in text or "\\uD" in text:
            json.dumps(found, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        raise Unreadable("malformed") from None
    return found


def written(value: Any) -> str:
    """The text of a value as tables keep it: names in order, no space, numbers as their shortest digits."""
    match value:
        case None | bool() | str():
            return json.dumps(value, ensure_ascii=False)
        case int() | Real():
            return _number(value)
        case list():
            return f"[{','.join(written(each) for each in value)}]"
    if value.repeated:
        raise Unreadable("malformed")
    members = sorted(value.items(), key=lambda member: member[0].encode("utf-16-be"))
    return "{" + ",".join(f"{json.dumps(n, ensure_ascii=False)}:{written(each)}" for n, each in members) + "}"


def repeats(value: Any) -> bool:
    """Whether any object has a member twice."""
    if isinstance(value, Members):
        return value.repeated or any(map(repeats, value.values()))
    return isinstance(value, list) and any(map(repeats, value))


def exact(value: Any) -> Decimal | None:
    """A number by its digits; None where it has an exponent or more digits than a decimal holds."""
    text = value.text if isinstance(value, Real) else str(value)
    if "e" in text.lower():
        return None
    number = Decimal(text)
    _, digits, exponent = number.as_tuple()
    fits = len("".join(map(str, digits)).lstrip("0")) <= DECIMAL_DIGITS and -int(exponent) <= DECIMAL_DIGITS
    return number if fits else None


def _number(value: Any) -> str:
    number = exact(value)
    if number is not None:
        text = f"{number:f}"
        short = text.rstrip("0").rstrip(".") if "." in text else text
        return "0" if short in ("-0", "") else short
    try:
        return _double(float(value))
    except OverflowError:
        raise Unreadable("malformed") from None


def _double(value: float) -> str:
    """The digits of a double, with an exponent below 0.001 and from 10,000,000."""
    if value in (float("inf"), float("-inf")):
        raise Unreadable("malformed")
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    point = len(digits) + int(exponent)
    minus, figures = "-" if sign else "", "".join(map(str, digits))
    if value == 0:
        return f"{minus}0.0"
    if not -3 < point <= 7:
        return f"{minus}{figures[0]}.{figures[1:] or '0'}E{point - 1}"
    whole = figures[:point].ljust(point, "0") if point > 0 else "0"
    return f"{minus}{whole}.{'0' * -min(point, 0) + figures[max(point, 0) :] or '0'}"


def _members(pairs: list[tuple[str, Any]]) -> Members:
    found = Members(pairs)
    if len(found) < len(pairs):
        names = Counter(name for name, _ in pairs)
        found.repeated, found.twice = True, frozenset(name for name, times in names.items() if times > 1)
    if any(len(name) > MAX_NAME for name in found):
        raise ValueError
    return found


def _real(text: str) -> Real:
    if len(text) > MAX_DIGITS:
        raise ValueError
    return Real(text)


def _integer(text: str) -> int:
    if len(text.lstrip("-")) > MAX_DIGITS:
        raise ValueError
    return int(text)


def _refuse(text: str) -> Any:
    raise ValueError(text)


def _allow(depth: int) -> None:
    """Refuse text nested deeper than the limit, and make room for the rest: the json module recurses."""
    if depth > MAX_DEPTH:
        raise ValueError(depth)
    sys.setrecursionlimit(max(sys.getrecursionlimit(), 4 * MAX_DEPTH))


def _depth(text: str) -> int:
    deepest = depth = 0
    for each in STRINGS.sub("", text):
        depth += (each in "[{") - (each in "]}")
        deepest = max(deepest, depth)
    return deepest
