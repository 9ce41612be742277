"""JSON values that are no object and no array, as values of Arrow columns."""

from __future__ import annotations

import base64
import math
import re
import struct
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from typing import Any

import pyarrow as pa

from cli.verify.columns import is_text
from cli.verify.conversion import EXACT, Unreadable
from cli.verify.debezium import MICROSECONDS, MOMENT
from cli.verify.json_text import Real, exact, written
from cli.verify.moments import EPOCH, bounded, database_moment, moment

Convert = Callable[[Any], Any]
SEVERAL = "several"
"""The type of values that may be of several types."""
DECIMAL = "org.apache.kafka.connect.data.Decimal"
REAL = ("number", "float32", "float64")
SMALL = ("int8", "int16", "int32")
DAY = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
DECIMAL_BYTES = 16
NOT_FINITE = {text: float(text) for text in ("NaN", "Infinity", "-Infinity")}
"""What converters write for numbers of a database for which JSON has none."""


def converter(facts: dict[str, Any], kind: Any, *, changes: bool) -> Convert:
    """How a JSON value becomes a value of the Arrow type; `changes`: Debezium's names of types mean what they say.

    Raises:
        Unreadable: values of this schema are no values of the type.
    """
    written_as, connect = type_of(facts), facts.get("connect.type")
    if is_text(kind) and written_as in (None, "null", "object", "array", SEVERAL):
        return written
    if written_as in ("integer", "number"):
        return _number(facts, kind, changes=changes)
    if pa.types.is_date(kind) and written_as == "string":
        return _day
    if pa.types.is_timestamp(kind) and written_as == "string":
        return _database_moment if changes and facts.get("title") == MOMENT else _moment
    if pa.types.is_boolean(kind) and written_as == "boolean":
        return lambda value: _instance(value, bool)
    if changes and pa.types.is_decimal(kind) and (connect, facts.get("title")) == ("bytes", DECIMAL):
        return lambda value: _decimal(value, kind)
    if (pa.types.is_binary(kind) or pa.types.is_large_binary(kind)) and connect == "bytes":
        return _bytes
    if is_text(kind) and written_as == "string":
        return lambda value: _instance(value, str)
    raise Unreadable("incompatible_schema")


def _number(facts: dict[str, Any], kind: Any, *, changes: bool) -> Convert:
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
        real = _single if connect == "float32" else _double
        by_text = NOT_FINITE if changes and (connect or type_of(facts)) in REAL else {}
        return lambda value: by_text[value] if type(value) is str and value in by_text else real(value)
    raise Unreadable("incompatible_schema")


def type_of(facts: dict[str, Any]) -> str | None:
    """The one type that is named, or that all listed values have."""
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
    """Numbers of Debezium's, which are local times, or of Connect's, which are milliseconds in UTC."""
    if (title in MICROSECONDS) != (kind.tz is None):
        raise Unreadable("incompatible_schema")
    if title in MICROSECONDS:
        return lambda value: bounded(_whole(value, 64) * MICROSECONDS[title])
    return lambda value: _whole(_whole(value, 64) * 1000, 64)


def _double(value: Any) -> float:
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
        return float(struct.unpack("<f", struct.pack("<f", _double(value)))[0])
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
    """A number by its digits, or the number without its point in Base64, two's complement."""
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


def _database_moment(value: Any) -> int:
    found = database_moment(_instance(value, str))
    if found is None:
        raise Unreadable("malformed")
    return found


def _moment(value: Any) -> int:
    found = moment(_instance(value, str))
    if found is None:
        raise Unreadable("malformed")
    return found


def _bytes(value: Any) -> bytes:
    try:
        return base64.b64decode(_instance(value, str), validate=True)
    except ValueError:
        raise Unreadable("malformed") from None
