"""JSON text, parsed strictly and exactly, in the normal form that tables keep, and as values of columns."""

from __future__ import annotations

import base64
import json
import math
import re
import struct
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import date
from decimal import Decimal
from functools import partial
from itertools import accumulate
from typing import Any, Self

import numpy as np
import pyarrow as pa

from calve.schema import writers
from calve.schema.columns import Json, decimal_digits
from cli.verify.formats.fields import (
    EPOCH,
    EXACT,
    Convert,
    Writer,
    bounded,
    database_timestamp_us,
    timestamp_us,
    written_in,
)

MAX_DEPTH = 998
MAX_DIGITS = 1_000
MAX_NAME = 50_000
DECIMAL_DIGITS = 38
STRINGS = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
ESCAPES = re.compile(r"\\(?:u(....)|.)")
DAY = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
DECIMAL_BYTES = 16
WHOLE = re.compile("-?(0|[1-9][0-9]*)", re.ASCII)
NUMBER = re.compile(rf"{WHOLE.pattern}(\.[0-9]+)?([eE][+-]?[0-9]+)?", re.ASCII)
NOT_FINITE = {text: float(text) for text in ("NaN", "Infinity", "-Infinity")}
"""What converters write for numbers of a database for which JSON has none."""


class Members(dict[str, Any]):
    """A JSON object; the last of equally named members counts, and `twice` says which there are. pairs: all members then."""

    twice: frozenset[str] = frozenset()
    pairs: Sequence[tuple[str, Any]] = ()


class Real(float):
    """A number with a point or an exponent, with its digits as written."""

    __slots__ = ("text",)
    text: str

    def __new__(cls, text: str) -> Self:
        made = super().__new__(cls, text)
        made.text = text
        return made


def read(data: bytes) -> Any:
    """The one value of a text. Raises ValueError or RecursionError if the text is not JSON."""
    text = data.decode()
    if text.count("[") + text.count("{") > MAX_DEPTH // 4:
        opened = ((each in "[{") - (each in "]}") for each in STRINGS.sub("", text))
        if max(accumulate(opened, initial=0)) > MAX_DEPTH:
            raise ValueError
        sys.setrecursionlimit(max(sys.getrecursionlimit(), 4 * MAX_DEPTH))  # the json module recurses
    # NaN and the infinities are no numbers of JSON: int refuses them.
    found = json.JSONDecoder(
        object_pairs_hook=_members, parse_float=_real, parse_int=_integer, parse_constant=int
    ).decode(text)
    if "\\ud" in text or "\\uD" in text:
        json.dumps(found, ensure_ascii=False).encode()
    return found


def written(value: Any, *, pointed: bool = False) -> str:
    """The text of a value as tables keep it: sorted names, no spaces, shortest digits. pointed: 1.0 is no 1."""
    match value:
        case None | bool():
            return json.dumps(value)
        case str():
            return _text(value)
        case int() | Real():
            number = _number(value)
            if pointed and isinstance(value, Real) and WHOLE.fullmatch(number):
                return "-0.0" if number == "0" and value.text.startswith("-") else f"{number}.0"
            return number
        case list():
            return f"[{','.join(written(each, pointed=pointed) for each in value)}]"
    if value.twice:
        raise ValueError
    members = sorted(value.items(), key=lambda member: member[0].encode("utf-16-be"))
    return "{" + ",".join(f"{_text(n)}:{written(each, pointed=pointed)}" for n, each in members) + "}"


def repeats(value: Any) -> bool:
    """Whether any object has a duplicate member."""
    if isinstance(value, Members):
        return bool(value.twice) or any(map(repeats, value.values()))
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


def _text(value: str) -> str:
    return ESCAPES.sub(
        lambda found: found[0] if found[1] is None else f"\\u{found[1].upper()}",
        json.dumps(value, ensure_ascii=False),
    )


def _number(value: Any) -> str:
    number = exact(value)
    if number is None:
        return _double(float(value))
    text = f"{number:f}"
    short = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if short in ("-0", "") else short


def _double(value: float) -> str:
    """The shortest digits of a double, with an exponent below 0.001 and from 10,000,000. Java writes the least one otherwise."""
    if math.isinf(value):
        raise ValueError
    if abs(value) == math.ulp(0):
        return "4.9E-324" if value > 0 else "-4.9E-324"
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return np.format_float_positional(value, trim="0")
    return np.format_float_scientific(value, trim="0", exp_digits=1).upper().replace("+", "")


def _members(pairs: list[tuple[str, Any]]) -> Members:
    found = Members(pairs)
    if len(found) < len(pairs):
        names = Counter(name for name, _ in pairs)
        found.twice = frozenset(name for name, times in names.items() if times > 1)
        found.pairs = pairs
    if any(len(name) > MAX_NAME for name in found):
        raise ValueError
    return found


def _real(text: str) -> Real:
    if sum(map(str.isdigit, text)) > MAX_DIGITS:
        raise ValueError
    return Real(text)


def _integer(text: str) -> int:
    if len(text.lstrip("-")) > MAX_DIGITS:
        raise ValueError
    return int(text)


class JsonWriter(Writer):
    """For values of a shape (`calve.schema.json_schema`): objects whose members are the columns, or one column."""

    def __init__(self, frame: bytes, columns: pa.Schema, plan: writers.JsonWriter, whole: str | None) -> None:
        super().__init__(frame, columns)
        self._member, self._rest = plan.member, plan.rest
        self._whole = plan.scalar or whole
        shape, table = plan.shape, plan.table
        if plan.scalar:
            shape, table = shape["fields"][0]["type"], table["fields"][0]["type"]
        self._is_object, self._is_lenient = plan.scalar is None, plan.lenient
        self._declared = {each["name"] for each in shape["fields"]} if self._is_object else set()
        self._convert = converter(shape, table, closed=plan.lenient)

    def decode(self, value: bytes) -> Any:
        return self.row(read(value[len(self.frame) :]))

    def row(self, found: Any) -> Any:
        """The row of a value of JSON. Raises as `decode`."""
        if self._member is not None:
            if not isinstance(found, Members) or self._member not in found:
                raise ValueError
            found = found[self._member]
        if self._is_object != isinstance(found, Members):
            raise ValueError
        if self._is_lenient:
            return self._lenient(found)
        row = self._convert(found)
        if self._whole:
            return {self._whole: row}
        return row | {self._rest: self._undeclared(found)} if self._rest else row

    def _lenient(self, found: Members) -> Any:
        """The row, where every member that does not fit its column is in the rest."""
        pairs = found.pairs or tuple(found.items())
        if any(repeats(each) for _, each in pairs):
            raise ValueError
        misfits = {name for name, each in pairs if name in self._declared and not self._fits(name, each)}
        kept = [
            (n, each) for n, each in pairs if each is not None and (n in misfits or n not in self._declared)
        ]
        rest = Members(kept)
        rest.twice = frozenset(name for name, times in Counter(n for n, _ in kept).items() if times > 1)
        declared = Members({n: each for n, each in found.items() if n in self._declared - misfits})
        return self._convert(declared) | {self._rest: written(rest, pointed=True) if rest else None}

    def _fits(self, name: str, value: Any) -> bool:
        try:
            self._convert(Members({name: value}))
        except (ValueError, OverflowError):
            return False
        return True

    def is_ambiguous(self, value: Any) -> bool:
        return repeats(read(value[len(self.frame) :]))

    def _undeclared(self, found: Members) -> str | None:
        """The JSON text of undeclared members. No object may have a duplicate member, at any depth."""
        if any(map(repeats, found.values())):
            raise ValueError
        rest = Members({name: each for name, each in found.items() if name not in self._declared})
        rest.twice = found.twice - self._declared
        return written(rest) if rest else None


class DocumentWriter(JsonWriter):
    """For MongoDB's documents, which are JSON once values of MongoDB's own types have their plain form."""

    def decode(self, value: bytes) -> Any:
        return self.row(plain(read(value)))


FORMS = {
    "$oid": 0,
    "$numberLong": 1,
    "$numberInt": 1,
    "$numberDouble": 2,
    "$numberDecimal": 3,
    "$date": 4,
    "$binary": 5,
    "$symbol": 6,
}
"""MongoDB's types in the order in which the job replaces them: a form may hold another one only if that has a lower number."""


def plain(value: Any) -> Any:
    """A document's value, where each object that stands for a value of a type of MongoDB is that value."""
    return _plain(value)[0]


def _plain(value: Any) -> tuple[Any, int]:
    """The value, and the number of the form that it had; -1: none."""
    if isinstance(value, list):
        return [plain(each) for each in value], -1
    if not isinstance(value, Members):
        return value, -1
    inner = {name: _plain(each) for name, each in value.items()}
    found = Members({name: each for name, (each, _) in inner.items()})
    found.twice = value.twice
    place = FORMS.get(next(iter(found), ""), -1)
    if found.twice or any(held >= place for _, held in inner.values()):
        return found, -1
    made = _of_type(found)
    return (found, -1) if made is None else (made, place)


def _of_type(found: Members) -> Any:
    """The value of MongoDB that an object stands for; None: it stands for none."""
    match tuple(found), *found.values():
        case ("$oid",), str(text) if re.fullmatch("[0-9a-fA-F]{24}", text):
            return text
        case ("$numberLong",) | ("$numberInt",), str(text) if WHOLE.fullmatch(text):
            return _integer(text)
        case ("$numberDouble",), str(text) if NUMBER.fullmatch(text):
            return _integer(text) if WHOLE.fullmatch(text) else _real(text)
        case ("$numberDecimal",), str(text) if re.fullmatch("[-+.0-9A-Za-z]*", text):
            return text
        case ("$binary", "$type"), str(text), str(kind) if re.fullmatch("[0-9a-fA-F]{1,2}", kind):
            return text if re.fullmatch("[A-Za-z0-9+/=]*", text) else None
        case ("$symbol",), str(text):
            return text
        case ("$date",), int(moment):
            return moment
    return None


def converter(shape: Json, column: Json, *, closed: bool = False) -> Convert:
    """Converts JSON values of a shape into values of a column (None: there is none; they are only checked).

    closed: no object has an undeclared member, unless it is null, and texts are `pointed`.
    """
    convert = _converter(shape, column, closed=closed)
    return lambda value: None if value is None else convert(value)


def _converter(shape: Json, column: Json, *, closed: bool) -> Convert:
    if shape == "json" and closed:
        return partial(written, pointed=True)
    if isinstance(shape, str):
        digits = decimal_digits(column or shape)
        return partial(_decimal, digits=digits) if digits else LEAVES[shape]
    match shape["type"]:
        case "struct":
            return _struct(shape, column, closed=closed)
        case "list":
            items = converter(shape["element"], column and column["element"])
            return lambda value: [items(each) for each in _instance(value, list)]
    values = converter(shape["value"], column and column["value"])

    def entries(value: Any) -> list[tuple[str, Any]]:
        members = _instance(value, Members)
        if members.twice:
            raise ValueError
        return [(name, values(each)) for name, each in members.items()]

    return entries


def _struct(shape: Json, column: Json, *, closed: bool) -> Convert:
    columns = {source: (name, kind) for name, source, kind in written_in(column)} if column else {}
    parts = [
        (each["name"], name, converter(each["type"], kind, closed=closed))
        for each in shape["fields"]
        for name, kind in [columns.get(each["name"], (None, None))]
    ]

    declared = {each["name"] for each in shape["fields"]}

    def members(value: Any) -> dict[str, Any]:
        found = _instance(value, Members)
        if closed and any(each is not None for name, each in found.items() if name not in declared):
            raise ValueError
        values = [(name, convert(found.get(source))) for source, name, convert in parts]
        return {name: value for name, value in values if name is not None}

    return members


def _instance(value: Any, *kinds: type) -> Any:
    if type(value) not in kinds:
        raise ValueError
    return value


def _whole(value: Any, bits: int) -> int:
    number = int(_instance(value, int))
    if not -(2 ** (bits - 1)) <= number < 2 ** (bits - 1):
        raise ValueError
    return number


def _finite(value: Any) -> float:
    number = float(_instance(value, int, Real))
    if math.isinf(number):
        raise ValueError
    return number


def _single(value: Any) -> float:
    return float(struct.unpack("<f", struct.pack("<f", _finite(value)))[0])


def _decimal(value: Any, digits: tuple[int, int]) -> Decimal:
    """From a number's digits, or from its unscaled number in Base64, two's complement. digits: precision and scale."""
    precision, scale = digits
    number: Decimal | None
    if type(value) is str:
        data = _bytes(value)
        number = Decimal(int.from_bytes(data, "big", signed=True)).scaleb(-scale, EXACT)
        if not 1 <= len(data) <= DECIMAL_BYTES:
            raise ValueError
    elif (number := exact(_instance(value, int, Real))) is None:
        raise ValueError
    scaled = number.scaleb(scale, EXACT)
    if scaled != scaled.to_integral_value() or scaled.copy_abs() >= Decimal(10**precision):
        raise ValueError
    return number


def _day(value: Any) -> int:
    if not DAY.fullmatch(_instance(value, str)):
        raise ValueError
    return (date.fromisoformat(value) - EPOCH.date()).days


def _bytes(value: Any) -> bytes:
    return base64.b64decode(_instance(value, str), validate=True)


def _of_database(value: Any, real: Callable[[Any], float]) -> float:
    return NOT_FINITE[value] if type(value) is str and value in NOT_FINITE else real(value)


LEAVES: dict[str, Convert] = {
    "json": written,
    "boolean": lambda value: _instance(value, bool),
    "string": lambda value: _instance(value, str),
    "binary": _bytes,
    "int": partial(_whole, bits=32),
    "long": partial(_whole, bits=64),
    "float": _single,
    "double": _finite,
    "date": _day,
    "timestamptz": lambda value: timestamp_us(_instance(value, str)),
    "days": partial(_whole, bits=32),
    "millis": lambda value: _whole(_whole(value, 64) * 1000, 64),
    "instant": lambda value: database_timestamp_us(_instance(value, str)),
    "local_millis": lambda value: bounded(_whole(value, 64) * 1000),
    "local_micros": lambda value: bounded(_whole(value, 64)),
    "database_float": partial(_of_database, real=_single),
    "database_double": partial(_of_database, real=_finite),
}
"""Leaf of a shape -> how its values are read. Decimals are apart."""
