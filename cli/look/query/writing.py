"""The values of an answer, as text, as a line of CSV, and as JSON has them."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import date, datetime
from typing import Any

from calve.errors import ConfigError

SPECIAL = frozenset(',"\r\n')


def text(value: Any) -> str | None:
    """A value as one text; lists and structs are JSON, null stays null."""
    match value:
        case None | str():
            return value
        case bool():
            return "true" if value else "false"
        case list() | dict():
            return json.dumps(spoken(value), ensure_ascii=False)
        case _:
            return str(spoken(value))


def shown(value: Any) -> str | None:
    """As `text`, for people: a moment is an ISO time of this machine's zone, bytes are hexadecimal digits."""
    match value:
        case datetime() if value.tzinfo is not None:
            try:
                return value.astimezone().isoformat()
            except (OverflowError, ValueError):  # beyond the years that the zone is known for
                return value.isoformat()
        case datetime() | date():
            return value.isoformat()
        case bytes() | bytearray():
            return value.hex()
        case list() | tuple() | dict():
            return json.dumps(_plain(value), ensure_ascii=False)
        case _:
            return text(value)


def moment(value: str, kind: str) -> datetime | str:
    """A text of DuckDB's as the moment that it says, where a type of moments wrote it and Python knows it."""
    try:
        return datetime.fromisoformat(value) if kind.startswith("TIMESTAMP") else value
    except ValueError:
        return value


def _plain(value: Any) -> Any:
    match value:
        case dict():
            return {str(name): _plain(each) for name, each in value.items()}
        case list() | tuple():
            return [_plain(each) for each in value]
        case None | bool() | int() | float() | str():
            return spoken(value)
        case _:
            return shown(value)


def spoken(value: Any) -> Any:
    """The value as JSON can say it: it has no number for NaN and the infinities."""
    match value:
        case float() if not math.isfinite(value):
            return {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value, "NaN")
        case list():
            return [spoken(each) for each in value]
        case dict():
            return {name: spoken(each) for name, each in value.items()}
        case _:
            return value


def csv_lines(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> Iterator[str]:
    """Lines of RFC 4180, without their ends: a null is an empty field, an empty text is `""`.

    A null that is alone on its line is `""`, too: readers skip an empty line.
    """
    yield ",".join(map(_field, columns))
    for row in rows:
        yield ",".join(map(_field, row)) or '""'


def objects(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> list[dict[str, Any]]:
    """The rows as JSON objects.

    Raises:
        ConfigError: two columns have one name, so an object would lose one of them.
    """
    twice = sorted(name for name, times in Counter(columns).items() if times > 1)
    if twice:
        raise ConfigError(
            f'several columns are named "{twice[0]}"', fix="name them apart: ... as another_name"
        )
    return [dict(zip(columns, map(spoken, row), strict=True)) for row in rows]


def _field(value: Any) -> str:
    found = text(value)
    if found is None:
        return ""
    if not found or SPECIAL & set(found):
        return '"' + found.replace('"', '""') + '"'
    return found
