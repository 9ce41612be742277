"""Explain why bytes do not match a JSON shape (`calve.schema.json_schema`). Doubtful cases count as a match."""

from __future__ import annotations

import base64
import json
import math
import re
import struct
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from functools import partial
from typing import Any

from calve.schema.columns import Json, decimal_digits
from calve.schema.writers import JsonWriter
from glue_jobs.decode.explaining.walk import Walk, article

STRING = re.compile(r'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
BRACKET = re.compile(r"[\[\]{}]")
WHOLE = re.compile(r"-?[0-9]++")
YEAR = "(?!0000)[0-9]{4}"
DAY = re.compile(rf"{YEAR}-[0-9]{{2}}-[0-9]{{2}}\Z")
INSTANT = re.compile(
    rf"{YEAR}-[0-9]{{2}}-[0-9]{{2}}[Tt ][0-9]{{2}}:[0-9]{{2}}:[0-9]{{2}}(?:\.[0-9]{{1,6}}0*)?(?:[Zz]|[+-][0-9]{{2}}:[0-9]{{2}})\Z"
)
"""RFC 3339 with microseconds. A text with more decimals, or without an offset, is not an exact timestamp."""
FAR_AWAY = re.compile(
    r"(?:[+-]?infinity|(?:\+[0-9]{5,}|-[0-9]{4,}|0000)-[0-9]{2}-[0-9]{2}T[0-9:.]+(?:Z|[+-][0-9:]+))\Z"
)
"""A database's timestamp whose year does not have four digits."""
DATABASE_NUMBERS = ("database_float", "database_double")
NOT_FINITE = ("NaN", "Infinity", "-Infinity")
"""Texts that converters write for database numbers that JSON lacks."""
OFFSET = re.compile(r"(?:[Zz]|[+-](?:(?:0[0-9]|1[0-7]):[0-5][0-9]|18:00))\Z")
BITS = {"int": 32, "long": 64, "days": 32, "millis": 64, "local_millis": 64, "local_micros": 64}
MOST_DEPTH = 998
MOST_BYTES = 16


@dataclass(frozen=True, slots=True)
class Number:
    """A number as it was written."""

    text: str


def explain(data: bytes, writer: JsonWriter, walk: Walk) -> None:
    """Raises `Misfit` if the framed value does not match the writer's shape."""
    walk.step(len(data) // 100)
    try:
        text = data[len(writer.prefix) :].decode()
    except UnicodeDecodeError:
        raise walk.wrong("a text in UTF-8", "other bytes") from None
    value, found = _parsed(text, walk), JsonValues(walk)
    shape, null = writer.shape, writer.scalar is not None
    if writer.scalar is not None:
        shape = shape["fields"][0]["type"]
    if writer.member is None:
        found.value(value, shape, null=null)
        return
    found.members(value, {writer.member: shape}, null=null)
    if all(name != writer.member for name, _ in value):
        raise walk.wrong(f"an object with {writer.member}", "an object without it")


def _parsed(text: str, walk: Walk) -> Any:
    """An object is a tuple of names and values. A float is NaN or infinite, which JSON lacks.

    Depth and number of values are checked before any are created.
    """
    walk.step(text.count('"') // 50)
    signs, depth = STRING.sub("", text), 0
    for each in BRACKET.finditer(signs):
        walk.step()
        depth += 1 if each[0] in "[{" else -1
        if depth > MOST_DEPTH:
            raise walk.wrong(f"at most {MOST_DEPTH} levels", "more")
    walk.step(signs.count(","))
    # The parser recurses once per level, and Python's limit is close to ours.
    sys.setrecursionlimit(max(sys.getrecursionlimit(), 4 * MOST_DEPTH))
    try:
        return json.loads(
            text, object_pairs_hook=tuple, parse_int=Number, parse_float=Number, parse_constant=float
        )
    except json.JSONDecodeError as error:
        # The message names what the parser expected. After a colon it may quote the text.
        why = error.msg.partition(": ")[0]
        raise walk.wrong("JSON", f"an error at character {error.pos + 1:,} ({why})") from None


class JsonValues:
    """Compares parsed values with shapes."""

    def __init__(self, walk: Walk) -> None:
        self._walk = walk

    def value(self, value: Any, shape: Json, *, null: bool = True) -> None:
        """A value of the shape, or null."""
        if null and value is None:
            return
        if isinstance(shape, str):
            self._leaf(value, shape)
        elif shape["type"] == "list":
            for number, each in enumerate(self._of_kind(value, list, "a list")):
                with self._walk.at(f"[{number}]"):
                    self.value(each, shape["element"])
        elif shape["type"] == "map":
            self._map(value, shape["value"])
        else:
            self.members(value, {each["name"]: each["type"] for each in shape["fields"]})

    def members(self, value: Any, kinds: Mapping[str, Json], *, null: bool = True) -> None:
        """Declared members, the only ones an explanation may name, and other members."""
        for name, each in self._of_kind(value, tuple, "an object"):
            if self._whole_text(name) in kinds:
                with self._walk.at(name):
                    self.value(each, kinds[name], null=null)
            else:
                self._anything(each)

    def _map(self, value: Any, shape: Json) -> None:
        names = set()
        for name, each in self._of_kind(value, tuple, "an object"):
            if self._whole_text(name) in names:
                raise self._walk.wrong("each key once", "a key that is there twice")
            names.add(name)
            with self._walk.at("[key]"):
                self.value(each, shape)

    def _leaf(self, value: Any, shape: str) -> None:
        if shape in BITS:
            self._whole(value, shape)
        elif shape.endswith(("float", "double")):
            self._real(value, shape.removeprefix("database_"), texts=shape in DATABASE_NUMBERS)
        elif digits := decimal_digits(shape):
            self._decimal(value, *digits)
        elif shape == "boolean":
            self._of_kind(value, bool, "a boolean")
        elif shape == "json":
            self._anything(value)
        else:
            self._text(value, shape)

    def _whole(self, value: Any, shape: str) -> None:
        text = self._of_kind(value, Number, "a whole number").text
        if not WHOLE.fullmatch(text):
            raise self._walk.wrong("a whole number", _kind(value))
        unit = 1000 if shape == "millis" else 1
        bound = 2 ** (BITS[shape] - 1)
        if len(text) > 20 or not -bound <= int(text) * unit < bound:
            raise self._walk.wrong(f"a whole number of {BITS[shape]} bits", "a number beyond it")

    def _real(self, value: Any, shape: str, *, texts: bool) -> None:
        if texts and isinstance(value, str):
            if self._whole_text(value) not in NOT_FINITE:
                raise self._walk.wrong(article(shape), "another string")
            return
        number = float(self._of_kind(value, Number, article(shape)).text)
        try:
            struct.pack("<f" if shape == "float" else "<d", number)
        except OverflowError:
            number = math.inf
        if math.isinf(number):
            raise self._walk.wrong(article(shape), "a number beyond it")

    def _decimal(self, value: Any, precision: int, scale: int) -> None:
        kind = f"a decimal({precision}, {scale})"
        if isinstance(value, str):
            text = self._whole_text(value)
            data = base64.b64decode(text) if _is_base64(text) else b""
            if not 1 <= len(data) <= MOST_BYTES:
                raise self._walk.wrong(kind, "a string that is no number in Base64")
            fits = abs(int.from_bytes(data, "big", signed=True)) < 10**precision
        else:
            text = self._of_kind(value, Number, kind).text
            if "e" in text.lower():
                raise self._walk.wrong(kind, _kind(value))
            whole, _, fraction = text.lstrip("-").partition(".")
            fits = len(fraction.rstrip("0")) <= scale and len(whole.lstrip("0")) <= precision - scale
        if not fits:
            raise self._walk.wrong(kind, "a number with more digits")

    def _text(self, value: Any, shape: str) -> None:
        kind, is_right = TEXTS.get(shape, ("a string", None))
        text = self._whole_text(self._of_kind(value, str, "a string" if shape == "binary" else kind))
        if is_right is not None and not is_right(text):
            raise self._walk.wrong(kind, "another string")

    def _of_kind(self, value: Any, kind: type[Any], expected: str) -> Any:
        if not isinstance(value, kind):
            raise self._walk.wrong(expected, _kind(value))
        return value

    def _whole_text(self, text: str) -> str:
        if not text.isascii() and any("\ud800" <= each <= "\udfff" for each in text):
            raise self._walk.wrong("a string", "a string with half of a surrogate pair")
        return text

    def _anything(self, value: Any) -> None:
        """Any value, at any depth."""
        waiting = [value]
        while waiting:
            match waiting.pop():
                case tuple() as members:
                    waiting += [part for member in members for part in member]
                case list() as items:
                    waiting += items
                case str() as text:
                    self._whole_text(text)
                case float():
                    raise self._walk.wrong("a JSON value", "no JSON value")


def _kind(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case tuple():
            return "an object"
        case list():
            return "a list"
        case Number(text):
            fraction = "a number with a fraction" if "." in text else "a number"
            return "a number with an exponent" if "e" in text.lower() else fraction
        case str():
            return "a string"
    return "no JSON value"


def _parses(parse: Callable[[str], object], text: str) -> bool:
    try:
        parse(text)
    except ValueError:
        return False
    return True


def is_moment(text: str) -> bool:
    """Whether a text has date, time and offset in the form of `INSTANT`."""
    form = INSTANT.fullmatch(text) and OFFSET.search(text)
    return bool(form) and _parses(datetime.fromisoformat, text.upper())


def is_database_moment(text: str) -> bool:
    return bool(FAR_AWAY.fullmatch(text)) or is_moment(text)


_is_base64: Callable[[str], bool] = partial(_parses, partial(base64.b64decode, validate=True))
TEXTS: Mapping[str, tuple[str, Callable[[str], bool]]] = {
    "binary": ("a string in Base64", _is_base64),
    "date": ("a date", lambda text: bool(DAY.fullmatch(text)) and _parses(date.fromisoformat, text)),
    "timestamptz": ("a date-time", is_moment),
    "instant": ("a date-time", is_database_moment),
}
