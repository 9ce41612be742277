"""Opens CloudEvents without the job's code: the data of an event, and its attributes."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from calve.schema.cloud_events import (
    ATTRIBUTES,
    BASE64,
    CONTENT_TYPE,
    DATA,
    EXTENSIONS,
    MOST_EXTENSIONS,
    OF_JSON,
    PREFIX,
    REQUIRED,
    STRUCTURED,
)
from cli.verify.formats.fields import MALFORMED, Unreadable, timestamp_us
from cli.verify.formats.json_values import read
from cli.verify.topic import Records

Event = tuple[bytes | None, dict[str, Any]]
"""The data, and the fields of the column."""
Headers = Sequence[tuple[str, bytes | None]]
BLANK = " \t\n\r"
TOO_FINE = re.compile(r"(\.\d{6})\d+", re.ASCII)
JSON_EVENT = re.compile(rf"{re.escape(OF_JSON)}[ \t]*(;.*)?", re.DOTALL)
JSON_TYPE = re.compile(r"[^;]*[/+]json[ \t]*(;.*)?", re.DOTALL)
TOKENS = json.JSONDecoder(parse_int=str, parse_float=str)


class Events:
    """column: of the attributes. framed: values begin with schema ids; structured events are then refused.

    read: False for rounds that did not open events yet: their rows have no attributes.
    """

    def __init__(self, column: pa.Field, *, framed: bool, read: bool) -> None:
        self.column: str = column.name
        self._type, self._framed, self._read = column.type, framed, read

    def of(self, records: Records, values: list[bytes | None]) -> list[Event | Unreadable]:
        """The events of records; or, for a record that is none, its reason."""
        if not self._read:
            return [(value, {}) for value in values]
        pairs = zip(values, records.headers or [None] * len(values), strict=True)
        return [self._opened(value, headers or []) for value, headers in pairs]

    def array(self, found: list[dict[str, Any] | None]) -> pa.Array:
        return pa.array([each or None for each in found], self._type)

    def _opened(self, value: bytes | None, headers: Headers) -> Event | Unreadable:
        try:
            return self._event(value, headers)
        except MALFORMED:
            return (None, {}) if value is None else Unreadable("bad_event")

    def _event(self, value: bytes | None, headers: Headers) -> Event:
        """Raises one of MALFORMED."""
        last = dict(headers)
        said = (last.get(CONTENT_TYPE) or b"").decode(errors="replace").lower()
        if not said.startswith(STRUCTURED):
            return value, _fields(_of_headers(last), sum(_is_extension(name) for name, _ in headers))
        if self._framed or value is None or not JSON_EVENT.fullmatch(said):
            raise ValueError
        members = _members(value.decode())
        data = members.pop(DATA, (None, ""))
        encoded, _ = members.pop(BASE64, (None, ""))
        texts = {name: _text(name, *each) for name, each in members.items()}
        fields = _fields(texts, len(texts.keys() - ATTRIBUTES.keys()))
        return _data(data, encoded, texts.get("datacontenttype")), fields


def _of_headers(last: dict[str, bytes | None]) -> dict[str, str | None]:
    """The attributes of a binary event. A header that another one follows under its name does not count."""
    found = {name.removeprefix(PREFIX): value for name, value in last.items() if name.startswith(PREFIX)}
    found["datacontenttype"] = last.get(CONTENT_TYPE)
    return {name: None if value is None else value.decode() for name, value in found.items()}


def _is_extension(header: str) -> bool:
    return header.startswith(PREFIX) and header.removeprefix(PREFIX) not in ATTRIBUTES


def _fields(texts: dict[str, str | None], count: int) -> dict[str, Any]:
    """The fields of the column. count: of extensions, replaced headers included. Raises one of MALFORMED."""
    given: dict[str, Any] = {name: text for name, text in texts.items() if text is not None}
    if count > MOST_EXTENSIONS or not all(given.get(name) for name in REQUIRED):
        raise ValueError
    if "time" in given:
        given["time"] = timestamp_us(TOO_FINE.sub(r"\1", given["time"]))
    own = given.keys() - ATTRIBUTES.keys()
    shortest_first = sorted(own, key=lambda name: (len(name.encode()), name))
    extensions = [(name, given[name]) for name in shortest_first]
    return {name: given.get(name) for name in ATTRIBUTES} | {EXTENSIONS: extensions or None}


def _data(data: tuple[Any, str], encoded: Any, content_type: str | None) -> bytes | None:
    value, token = data
    if encoded is not None:
        if value is not None or not isinstance(encoded, str):
            raise ValueError
        return base64.b64decode(encoded, validate=True)
    if isinstance(value, str) and token.startswith('"') and content_type is not None:
        return token.encode() if JSON_TYPE.fullmatch(content_type.lower()) else value.encode()
    return None if value is None else token.encode()


def _text(name: str, value: Any, token: str) -> str | None:
    """An attribute: a text, or of an extension a number or a truth value as written."""
    if value is None:
        return None
    if isinstance(value, dict | list) or (name in ATTRIBUTES and not token.startswith('"')):
        raise ValueError
    return value if token.startswith('"') else token


def _members(text: str) -> dict[str, tuple[Any, str]]:
    """The members of one object, each with its value and its text. Raises ValueError if a name is there twice."""
    found: dict[str, tuple[Any, str]] = {}
    for name, value, token in _scanned(text):
        if name in found:
            raise ValueError
        read(token.encode())
        found[name] = value, token
    return found


def _scanned(text: str) -> Iterator[tuple[str, Any, str]]:
    at = _after(text, _blank(text, 0), "{")
    at = _blank(text, at)
    more = text[at : at + 1] != "}"
    while more:
        if text[at : at + 1] != '"':
            raise ValueError
        name, at = TOKENS.raw_decode(text, at)
        name.encode()
        begin = _blank(text, _after(text, _blank(text, at), ":"))
        value, end = TOKENS.raw_decode(text, begin)
        yield name, value, text[begin:end]
        at = _blank(text, end)
        more = text[at : at + 1] == ","
        at = _blank(text, at + 1) if more else at
    if _blank(text, _after(text, at, "}")) != len(text):
        raise ValueError


def _after(text: str, at: int, wanted: str) -> int:
    if text[at : at + 1] != wanted:
        raise ValueError
    return at + 1


def _blank(text: str, at: int) -> int:
    while at < len(text) and text[at] in BLANK:
        at += 1
    return at
