"""Values of the same form as those of records, which nobody can turn back: the key is random and never stored.

A letter becomes a letter and a digit a digit. Dates, times of day and UUIDs stay valid. Equal values become equal ones, in all
fields of a capture. Null, true and false, zero and signs stay.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from datetime import date
from hashlib import shake_256
from math import isfinite

Path = tuple[str, ...]
"""The names of the fields that contain a value, without those of list items and of a map's values."""

_UUID = r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}"
_PIECE = re.compile(
    r"(?P<date>(?<!\d)\d{4}-\d\d-\d\d(?:[Tt](?=\d\d:)|(?!\d)))"
    r"|(?P<clock>(?<!\d)(?:[01]\d|2[0-3]):[0-5]\d(?::[0-5]\d(?:\.\d+)?)?(?P<zone>[Zz]|[+-]\d\d:\d\d)?(?!\w))"
    rf"|(?P<hex>\b(?:{_UUID}|[0-9a-fA-F]{{16,}})\b)"
    r"|(?P<real>(?<![\w.])[+-]?\d+(?:\.\d+)?[eE][+-]?\d+(?![\w.]))"
    r"|(?P<number>\d+)|(?P<other>.)",
    re.DOTALL | re.ASCII,
)
_TOKEN = re.compile(
    r'(?P<text>"(?:[^"\\]|\\.)*"?)|(?P<mark>[{}\[\]:,]|\s+)|(?P<bare>[^\s"{}\[\]:,]+)', re.DOTALL
)
_BEFORE_VALUE = re.compile(r"\s*:")
_ESCAPED = re.compile(r"\\(?:u[0-9a-fA-F]{0,4}|.?)", re.DOTALL)
_CLOCK = re.compile(r"\.\d+|\d\d")
_LITERALS = ("true", "false", "null")
_DIGITS, _LOWER, _UPPER = "0123456789", "abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_OF_BYTES = {2: "é", 3: "中", 4: "😀"}
"""By its length in UTF-8, the character in the place of another one that is not ASCII."""
_NOT_TEXT = "\udc80"
"""Where bytes are not UTF-8. It becomes a byte that is none either."""
LONG, INT = 2**63 - 1, 2**31 - 1
DEEPEST = 100
"""Names of a path behind so many do not count: no column is as deep."""


@dataclass(slots=True)
class Pseudonyms:
    """Masks the values of one capture.

    kept: paths of fields that keep their values; `("*",)` keeps all. used: those of them that a value has had.
    words: texts that are no data, such as symbols of a schema.
    names: the members of JSON objects that keep their names; None: all do.
    """

    kept: Collection[Path] = ()
    words: Collection[str] = ()
    names: Collection[str] | None = None
    secret: bytes = field(default_factory=lambda: os.urandom(32))
    used: set[Path] = field(default_factory=set)

    def keeps(self, path: Path) -> bool:
        found = [each for each in self.kept if each == ("*",) or path[: len(each)] == each]
        self.used.update(found)
        return bool(found)

    def text(self, value: str) -> str:
        """As long in UTF-8 as before. A text that is a JSON object or list keeps the names in it."""
        if not value or value in self.words:
            return value
        if value.lstrip()[:1] in ("{", "["):
            return self.json(value)
        return self._spelt(value)

    def integer(self, value: int, most: int = LONG) -> int:
        """With the same sign, and as many digits unless that is more than `most`."""
        if str(value) in self.words:
            return value
        found = int(self._spelt(str(abs(value))))
        found = found if found <= max(most, abs(value)) else found % most
        return -found if value < 0 else found

    def real(self, value: float) -> float:
        """Of the same size; infinite and no number stay."""
        found = float(self._spelt(repr(value))) if isfinite(value) else value
        return found if isfinite(found) or not isfinite(value) else 1.0

    def string(self, data: bytes) -> bytes:
        """Text in UTF-8. Bytes that are none become others that are none."""
        return self.text(data.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")

    def raw(self, data: bytes) -> bytes:
        """Bytes of unknown meaning: text as text, others become random ones, as many."""
        try:
            is_text = all(each.isprintable() or each.isspace() for each in data.decode())
        except UnicodeDecodeError:
            is_text = False
        return self.string(data) if is_text else shake_256(self.secret + data).digest(len(data))

    def json(self, text: str) -> str:
        """A JSON document, also a broken one. Text outside the form of JSON is masked, too."""
        made: list[str] = []
        around: list[Path] = []
        path: Path = ()
        for token in _TOKEN.finditer(text):
            found = token[0]
            if token["text"] and around and _BEFORE_VALUE.match(text, token.end()):
                name = _unquoted(found)
                path = (*around[-1], name or "")[:DEEPEST]
                found = found if self._is_known(name) or self.keeps(path) else self._quoted(found)
            elif token["mark"] is None:
                found = found if self.keeps(path) else self._scalar(found)
            elif found in ("{", "["):
                around.append(path)
            elif found in ("}", "]") and around:
                path = around.pop()
            made.append(found)
        return "".join(made)

    def _is_known(self, member: str | None) -> bool:
        if member is None:
            return False
        return self.names is None or member in self.names or member in self.words or member.startswith("$")

    def _scalar(self, token: str) -> str:
        if token in _LITERALS or token in self.words:
            return token
        if token.startswith('"'):
            return self._quoted(token)
        if re.fullmatch(r"-?\d{1,19}", token, re.ASCII):
            return "-" * token.startswith("-") + self._whole(token.lstrip("-"))
        return self._spelt(token)

    def _whole(self, digits: str) -> str:
        """A number that a long holds stays one, and one that is too large stays too large."""
        found = self._spelt(digits)
        if int(digits) > LONG >= int(found):
            return "99" + found[2:]
        return found if int(digits) > LONG or int(found) <= LONG else str(int(found) % LONG)

    def _quoted(self, token: str) -> str:
        text = _unquoted(token)
        if text is not None:
            return json.dumps(self.text(text), ensure_ascii="\\u" in token)
        end = '"' if len(token) > 1 and token.endswith('"') else ""
        inner = token[1 : len(token) - len(end)]
        return f'"{self._spelt(_ESCAPED.sub("?", inner))}{end}'

    def _spelt(self, text: str) -> str:
        data = self.secret + text.encode("utf-8", "surrogatepass")
        stream = iter(shake_256(data).digest(4 * len(text)))
        return _PIECE.sub(lambda piece: _replaced(piece, stream), text)


def _unquoted(token: str) -> str | None:
    """The text of a JSON string; None if it is none."""
    try:
        return str(json.loads(token, strict=False))
    except ValueError:
        return None


def _replaced(piece: re.Match[str], stream: Iterator[int]) -> str:
    text = piece[0]
    match piece.lastgroup:
        case "date" if _is_date(text[:10]):
            day = f"{1970 + next(stream) % 80}-{1 + next(stream) % 12:02}-{1 + next(stream) % 28:02}"
            return day + text[10:]
        case "clock":
            zone, limits = piece["zone"] or "", iter((24, 60, 60))
            return (
                _CLOCK.sub(
                    lambda part: (
                        _number(part[0], stream) if part[0][0] == "." else f"{next(stream) % next(limits):02}"
                    ),
                    text[: len(text) - len(zone)],
                )
                + zone
            )
        case "hex" if not text.isdecimal():
            return "".join(each if each == "-" else _one_of(_hex_digits(text), stream) for each in text)
        case "real":
            mantissa, mark, exponent = re.split("([eE])", text)
            return _number(mantissa, stream) + mark + exponent
        case "other":
            return _character(text, stream)
    return _number(text, stream)


def _hex_digits(text: str) -> str:
    return "0123456789ABCDEF" if text.isupper() else "0123456789abcdef"


def _number(text: str, stream: Iterator[int]) -> str:
    """The first digit stays zero, or another one."""
    made = ""
    for each in text:
        if each.isdecimal() and not (each == "0" and not made.strip("+-")):
            each = _one_of(_DIGITS if made.strip("+-") else _DIGITS[1:], stream)
        made += each
    return made


def _character(each: str, stream: Iterator[int]) -> str:
    for kind in (_LOWER, _UPPER):
        if each in kind:
            return _one_of(kind, stream)
    if each.isascii():
        return each
    return _NOT_TEXT if "\ud800" <= each <= "\udfff" else _OF_BYTES[len(each.encode())]


def _one_of(characters: str, stream: Iterator[int]) -> str:
    return characters[next(stream) % len(characters)]


def _is_date(text: str) -> bool:
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True
