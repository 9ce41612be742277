"""Why bytes are no JSON value of a shape (`calve.json_schema`). What they may be in doubt, they are."""

from __future__ import annotations

import base64
import json
import re
import struct
from collections.abc import Iterator
from datetime import date

from calve.columns import Json, decimal_digits
from calve.writers import JsonWriter
from glue_jobs.explaining.walk import Walk, article
from glue_jobs.json_leaves import DATABASE_NUMBERS, NOT_FINITE
from glue_jobs.shapes import DATE, FAR, MOMENT

SPACE = re.compile(r"[ \t\r\n]*+")
STRING = re.compile(r'"(?:[^"\\\x00-\x1f]++|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*+"')
NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?")
WHOLE = re.compile(r"-?[0-9]++")
WORDS = {"t": "true", "f": "false", "n": "null"}
TEXTS = {"date": "a date", "timestamptz": "a date-time", "instant": "a date-time"}
DAY, INSTANT = (re.compile(each.replace(r"\z", r"\Z")) for each in (DATE, MOMENT))
FAR_AWAY = re.compile(FAR.replace(r"\z", r"\Z"))
MOST_OFFSET = 18 * 60
BITS = {"int": 32, "long": 64, "days": 32, "millis": 64, "local_millis": 64, "local_micros": 64}
SCALED = ("millis",)
MOST_DEPTH = 998
MOST_BYTES = 16
END = "the end of the text"


def explain(data: bytes, writer: JsonWriter, walk: Walk) -> None:
    """Raises `Misfit` where the value, with its frame, is none of the writer's."""
    walk.step(len(data) // 100)
    try:
        text = data[len(writer.prefix) :].decode()
    except UnicodeDecodeError:
        raise walk.wrong("a text in UTF-8", "other bytes") from None
    found = JsonText(text, walk)
    shape = writer.shape if writer.scalar is None else writer.shape["fields"][0]["type"]
    if writer.member is not None:
        found.with_member(writer.member, shape, null=writer.scalar is not None)
    else:
        found.value(shape, null=writer.scalar is not None)
    found.space()
    if found.kind != END:
        raise walk.wrong("the end", "more text")


class JsonText:
    """Reads one value; `at` is the place of the next character."""

    def __init__(self, text: str, walk: Walk) -> None:
        self._text, self.at, self._walk = text, 0, walk

    @property
    def kind(self) -> str:
        """What begins at the place."""
        match self._text[self.at : self.at + 1]:
            case "":
                return END
            case "{":
                return "an object"
            case "[":
                return "a list"
            case '"':
                return "a string"
            case "t" | "f":
                return "a boolean"
            case "n":
                return "null"
            case each if each in "-0123456789":
                return "a number"
        return "no JSON value"

    def space(self) -> None:
        self.at = self._match(SPACE).end()

    def value(self, shape: Json, *, null: bool = True) -> None:
        """A value of the shape, or null."""
        self._walk.step()
        self.space()
        if null and self.kind == "null":
            self._scalar("null")
        elif isinstance(shape, str):
            self._leaf(shape)
        elif shape["type"] == "list":
            self._list(shape["element"])
        elif shape["type"] == "map":
            self._map(shape["value"])
        else:
            kinds = {each["name"]: each["type"] for each in shape["fields"]}
            for name in self._members():
                self._member(name, kinds.get(name))

    def with_member(self, wanted: str, shape: Json, *, null: bool) -> None:
        """An object with one member that is the value."""
        there = False
        self.space()
        for name in self._members():
            there = there or name == wanted
            self._member(name, shape if name == wanted else None, null=null)
        if not there:
            raise self._walk.wrong(f"an object with {wanted}", "an object without it")

    def _member(self, name: str, shape: Json | None, *, null: bool = True) -> None:
        """A declared member, which alone may be named, or another one."""
        if shape is None:
            self._anything()
            return
        self._walk.path.append(name)
        self.value(shape, null=null)
        self._walk.path.pop()

    def _map(self, shape: Json) -> None:
        names = set()
        for name in self._members():
            if name in names:
                raise self._walk.wrong("each key once", "a key that is there twice")
            names.add(name)
            self._walk.path.append("[key]")
            self.value(shape)
            self._walk.path.pop()

    def _list(self, shape: Json) -> None:
        for number in self._items():
            self._walk.path.append(f"[{number}]")
            self.value(shape)
            self._walk.path.pop()

    def _members(self) -> Iterator[str]:
        """The name of each member, with the place at its value."""
        for _ in self._parts("{", "}", "an object"):
            self.space()
            yield self._name()

    def _items(self) -> Iterator[int]:
        return self._parts("[", "]", "a list")

    def _parts(self, first: str, last: str, kind: str) -> Iterator[int]:
        if self.kind != kind:
            raise self._walk.wrong(kind, self._found())
        self.at += len(first)
        self.space()
        if self._next(last):
            return
        number = 0
        while True:
            yield number
            self.space()
            if self._next(last):
                return
            if not self._next(","):
                raise self._walk.wrong(f"a comma or the end of {kind}", self.kind)
            number += 1

    def _next(self, sign: str) -> bool:
        there = self._text.startswith(sign, self.at)
        self.at += len(sign) if there else 0
        return there

    def _name(self) -> str:
        name = self._string() if self.kind == "a string" else None
        self.space()
        if name is None or not self._next(":"):
            raise self._walk.wrong("a name and a colon", self.kind)
        return name

    def _leaf(self, shape: str) -> None:
        if shape in BITS:
            self._whole(shape)
        elif shape.endswith(("float", "double")):
            self._real(shape.removeprefix("database_"), texts=shape in DATABASE_NUMBERS)
        elif digits := decimal_digits(shape):
            self._decimal(*digits)
        elif shape == "boolean":
            self._scalar("a boolean")
        elif shape == "json":
            self._anything()
        else:
            self._text_of(shape)

    def _whole(self, shape: str) -> None:
        text = self._scalar("a whole number", "a number")
        if not WHOLE.fullmatch(text):
            raise self._walk.wrong("a whole number", _of_number(text))
        most = 2 ** (BITS[shape] - 1)
        most = most // 1000 if shape in SCALED else most
        if len(text) > 20 or not -most <= int(text) <= most - (shape not in SCALED):
            raise self._walk.wrong(f"a whole number of {BITS[shape]} bits", "a number beyond it")

    def _real(self, shape: str, *, texts: bool) -> None:
        if texts and self.kind == "a string":
            if self._string() not in NOT_FINITE:
                raise self._walk.wrong(article(shape), "another string")
            return
        number = float(self._scalar(article(shape), "a number"))
        try:
            struct.pack("<f" if shape == "float" else "<d", number)
        except OverflowError:
            number = float("inf")
        if number in (float("inf"), float("-inf")):
            raise self._walk.wrong(article(shape), "a number beyond it")

    def _decimal(self, precision: int, scale: int) -> None:
        kind = f"a decimal({precision}, {scale})"
        if self.kind == "a string":
            number = _of_base64(self._string())
            if number is None:
                raise self._walk.wrong(kind, "a string that is no number in Base64")
            fits = abs(number) < 10**precision
        else:
            text = self._scalar(kind, "a number")
            if "e" in text.lower():
                raise self._walk.wrong(kind, _of_number(text))
            whole, _, fraction = text.lstrip("-").partition(".")
            fits = len(fraction.rstrip("0")) <= scale and len(whole.lstrip("0")) <= precision - scale
        if not fits:
            raise self._walk.wrong(kind, "a number with more digits")

    def _text_of(self, shape: str) -> None:
        kind = TEXTS.get(shape, "a string")
        if self.kind != "a string":
            raise self._walk.wrong(kind, self._found())
        text = self._string()
        if shape == "binary" and not _is_base64(text):
            raise self._walk.wrong("a string in Base64", "another string")
        if (
            (shape == "date" and not _is_day(text))
            or (shape == "timestamptz" and not is_moment(text))
            or (shape == "instant" and not is_database_moment(text))
        ):
            raise self._walk.wrong(kind, "another string")

    def _found(self) -> str:
        """The kind of what is there, with what kind of number it is."""
        number = NUMBER.match(self._text, self.at) if self.kind == "a number" else None
        return _of_number(number[0]) if number else self.kind

    def _scalar(self, expected: str, kind: str = "") -> str:
        """The text of a value that has no parts, of one kind."""
        if self.kind != (kind or expected):
            raise self._walk.wrong(expected, self._found())
        match self.kind:
            case "a string":
                begin = self.at
                self._string()
                return self._text[begin : self.at]
            case "a number":
                found = NUMBER.match(self._text, self.at)
                text = found[0] if found else ""
            case _:
                text = WORDS[self._text[self.at]]
        if not text or not self._next(text):
            raise self._walk.wrong(expected, "no JSON value")
        return text

    def _string(self) -> str:
        found = STRING.match(self._text, self.at)
        if not found:
            raise self._walk.wrong(
                "a string", "a string that does not end, or with a character that needs an escape"
            )
        self.at = found.end()
        text: str = json.loads(found[0])
        if not text.isascii() and any("\ud800" <= each <= "\udfff" for each in text):
            raise self._walk.wrong("a string", "a string with half of a surrogate pair")
        return text

    def _anything(self) -> None:
        """Any value, however deep."""
        closing: list[str] = []
        while True:
            self._walk.step()
            self.space()
            opened = self.kind in ("an object", "a list")
            if opened:
                closing.append("}" if self._text[self.at] == "{" else "]")
                self.at += 1
                self.space()
            elif self.kind in (END, "no JSON value"):
                raise self._walk.wrong("a JSON value", self.kind)
            else:
                self._scalar(self.kind)
            if len(closing) > MOST_DEPTH:
                raise self._walk.wrong(f"at most {MOST_DEPTH} levels", "more")
            if not self._closed(closing, opened=opened):
                return

    def _closed(self, closing: list[str], *, opened: bool) -> bool:
        """Go to the next value within what is open; False where nothing is open any more."""
        while closing:
            self.space()
            if self._next(closing[-1]):
                closing.pop()
                opened = False
                continue
            if not opened and not self._next(","):
                what = "an object" if closing[-1] == "}" else "a list"
                raise self._walk.wrong(f"a comma or the end of {what}", self.kind)
            if closing[-1] == "}":
                self.space()
                self._name()
            return True
        return False

    def _match(self, pattern: re.Pattern[str]) -> re.Match[str]:
        found = pattern.match(self._text, self.at)
        assert found is not None  # noqa: S101 the pattern matches nothing, too
        return found


def _of_number(text: str) -> str:
    if "e" in text.lower():
        return "a number with an exponent"
    return "a number with a fraction" if "." in text else "a number"


def _is_day(text: str) -> bool:
    try:
        return bool(DAY.fullmatch(text) and date.fromisoformat(text))
    except ValueError:
        return False


def is_database_moment(text: str) -> bool:
    return bool(FAR_AWAY.fullmatch(text)) or is_moment(text)


def is_moment(text: str) -> bool:
    """Whether a text says date, time and offset as `glue_jobs.shapes.moment` reads them."""
    if not INSTANT.fullmatch(text):
        return False
    offset = text[-6:] if text[-1] not in "zZ" else "+00:00"
    minutes = int(offset[1:3]) * 60 + int(offset[4:])
    hour, minute, second = int(text[11:13]), int(text[14:16]), int(text[17:19])
    in_time = hour < 24 and minute < 60 and second < 60
    return _is_day(text[:10]) and in_time and minutes <= MOST_OFFSET and int(offset[4:]) < 60


def _is_base64(text: str) -> bool:
    try:
        base64.b64decode(text, validate=True)
    except ValueError:
        return False
    return True


def _of_base64(text: str) -> int | None:
    """Two's complement, big-endian."""
    data = base64.b64decode(text) if _is_base64(text) else b""
    return int.from_bytes(data, "big", signed=True) if 1 <= len(data) <= MOST_BYTES else None
