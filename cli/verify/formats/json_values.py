"""JSON text, parsed strictly and exactly, in the normal form that tables keep, and as values of Arrow columns."""

from __future__ import annotations

import base64
import json
import math
import re
import struct
import sys
from collections import Counter
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from functools import partial
from typing import Any, Self

import pyarrow as pa

from cli.verify.columns import is_bytes, is_text
from cli.verify.formats.fields import (
    EPOCH,
    EXACT,
    MICROSECONDS,
    ZONED,
    Convert,
    Unreadable,
    bounded,
    database_timestamp_us,
    timestamp_us,
)

MAX_DEPTH = 998
MAX_DIGITS = 1_000
MAX_NAME = 50_000
DECIMAL_DIGITS = 38
STRINGS = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
SEVERAL = "several"
"""The type of values that may be of several types."""
DECIMAL = "org.apache.kafka.connect.data.Decimal"
REAL = ("number", "float32", "float64")
SMALL = ("int8", "int16", "int32")
DAY = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
DECIMAL_BYTES = 16
NOT_FINITE = {text: float(text) for text in ("NaN", "Infinity", "-Infinity")}
"""What converters write for numbers of a database for which JSON has none."""


class Members(dict[str, Any]):
    """A JSON object; the last of equally named members counts, and `repeated` says that there were several: `twice`."""

    repeated = False
    twice: frozenset[str] = frozenset()


class Real(float):
    """A number with a point or an exponent, with its digits as written."""

    __slots__ = ("text",)
    text: str

    def __new__(cls, text: str) -> Self:
        made = super().__new__(cls, text)
        made.text = text
        return made


def read(data: bytes) -> Any:
    """The one value of a text.

    Raises:
        Unreadable: the text is not JSON (`malformed`).
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
    """The text of a value as tables keep it: sorted names, no spaces, shortest digits."""
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
    """Whether any object has a duplicate member."""
    if isinstance(value, Members):
        return value.repeated or any(map(repeats, value.values()))
    return isinstance(value, list) and any(map(repeats, value))


def exact(value: Any) -> Decimal | None:
    """A number by its digits; None with an exponent or more digits than a decimal holds."""
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
    """Refuse text nested deeper than the limit, and raise Python's limit for the rest: the json module recurses."""
    if depth > MAX_DEPTH:
        raise ValueError(depth)
    sys.setrecursionlimit(max(sys.getrecursionlimit(), 4 * MAX_DEPTH))


def _depth(text: str) -> int:
    deepest = depth = 0
    for each in STRINGS.sub("", text):
        depth += (each in "[{") - (each in "]}")
        deepest = max(deepest, depth)
    return deepest


def converter(facts: dict[str, Any], kind: Any, *, changes: bool) -> Convert:
    """Converts a JSON value into a value of the Arrow type; `changes`: Debezium's type names keep their meaning.

    Raises:
        Unreadable: values of this schema do not fit the type.
    """
    written_as, connect = type_of(facts), facts.get("connect.type")
    if is_text(kind) and written_as in (None, "null", "object", "array", SEVERAL):
        return written
    if written_as in ("integer", "number"):
        return _of_number(facts, kind, changes=changes)
    if pa.types.is_date(kind) and written_as == "string":
        return _day
    if pa.types.is_timestamp(kind) and written_as == "string":
        return partial(
            _moment, read=database_timestamp_us if changes and facts.get("title") == ZONED else timestamp_us
        )
    if pa.types.is_boolean(kind) and written_as == "boolean":
        return lambda value: _instance(value, bool)
    if changes and pa.types.is_decimal(kind) and (connect, facts.get("title")) == ("bytes", DECIMAL):
        return lambda value: _decimal(value, kind)
    if is_bytes(kind) and connect == "bytes":
        return _bytes
    if is_text(kind) and written_as == "string":
        return lambda value: _instance(value, str)
    raise Unreadable("incompatible_schema")


def _of_number(facts: dict[str, Any], kind: Any, *, changes: bool) -> Convert:
    connect, title = facts.get("connect.type"), facts.get("title")
    if pa.types.is_decimal(kind) and title == DECIMAL:
        return lambda value: _decimal(value, kind)
    if pa.types.is_date(kind):
        return lambda value: _whole(value, 32)
    if pa.types.is_timestamp(kind):
        return _since_1970(title if changes else None, kind)
    if pa.types.is_integer(kind):
        return lambda value: _whole(value, 32 if connect in SMALL else 64)
    if pa.types.is_floating(kind):
        real = _single if connect == "float32" else _finite
        by_text = NOT_FINITE if changes and (connect or type_of(facts)) in REAL else {}
        return lambda value: by_text[value] if type(value) is str and value in by_text else real(value)
    raise Unreadable("incompatible_schema")


def type_of(facts: dict[str, Any]) -> str | None:
    """The named type, or the type of all listed values."""
    if "type" in facts or not ("enum" in facts or "const" in facts):
        return facts.get("type")
    values = [each for each in facts.get("enum", [facts.get("const")]) if each is not None]
    for name, kinds in (("string", [str]), ("boolean", [bool]), ("integer", [int]), ("number", [int, float])):
        if values and all(type(each) in kinds for each in values):
            return name
    return SEVERAL


def _instance(value: Any, kind: type) -> Any:
    if type(value) is not kind:
        raise Unreadable("malformed")
    return value


def _whole(value: Any, bits: int) -> int:
    number = int(_instance(value, int))
    if not -(2 ** (bits - 1)) <= number < 2 ** (bits - 1):
        raise Unreadable("malformed")
    return number


def _since_1970(title: Any, kind: Any) -> Convert:
    """Converts Debezium's numbers, which are local times, and Connect's, which are milliseconds in UTC."""
    if (title in MICROSECONDS) != (kind.tz is None):
        raise Unreadable("incompatible_schema")
    if title in MICROSECONDS:
        return lambda value: bounded(_whole(value, 64) * MICROSECONDS[title])
    return lambda value: _whole(_whole(value, 64) * 1000, 64)


def _finite(value: Any) -> float:
    if type(value) not in (int, Real):
        raise Unreadable("malformed")
    try:
        number = float(value)
    except OverflowError:
        raise Unreadable("malformed") from None
    if math.isinf(number):
        raise Unreadable("malformed")
    return number


def _single(value: Any) -> float:
    try:
        return float(struct.unpack("<f", struct.pack("<f", _finite(value)))[0])
    except OverflowError:
        raise Unreadable("malformed") from None


def _decimal(value: Any, kind: Any) -> Decimal:
    number = _exact(value, kind)
    if number is None:
        raise Unreadable("malformed")
    scaled = number.scaleb(kind.scale, EXACT)
    if scaled != scaled.to_integral_value() or scaled.copy_abs() >= Decimal(10**kind.precision):
        raise Unreadable("malformed")
    return number


def _exact(value: Any, kind: Any) -> Decimal | None:
    """A decimal: from a number's digits, or from its unscaled number in Base64, two's complement."""
    if type(value) is not str:
        return exact(value) if type(value) in (int, Real) else None
    data = _bytes(value)
    if not 1 <= len(data) <= DECIMAL_BYTES:
        return None
    return Decimal(int.from_bytes(data, "big", signed=True)).scaleb(-kind.scale, EXACT)


def _day(value: Any) -> int:
    try:
        if DAY.fullmatch(_instance(value, str)):
            return (date.fromisoformat(value) - EPOCH.date()).days
    except ValueError:
        pass
    raise Unreadable("malformed")


def _moment(value: Any, read: Callable[[str], int | None]) -> int:
    found = read(_instance(value, str))
    if found is None:
        raise Unreadable("malformed")
    return found


def _bytes(value: Any) -> bytes:
    try:
        return base64.b64decode(_instance(value, str), validate=True)
    except ValueError:
        raise Unreadable("malformed") from None
