"""Snowflake's SQL as text: names are quoted, values escaped, options written out. Nothing else makes a statement of values."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from calve.errors import ConfigError

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_$-]{0,254}")


class Word(str):
    """A word of Snowflake's own, which stands without quotes."""

    __slots__ = ()


def name(*parts: str) -> str:
    """A name of one or more parts.

    Raises:
        ConfigError: a part is no name that calve admits.
    """
    for part in parts:
        if not NAME.fullmatch(part):
            raise ConfigError(f'"{part}" is no name for Snowflake', fix="use letters, digits, _, $ and -")
    return ".".join(f'"{part}"' for part in parts)


def text(value: str) -> str:
    """A string constant."""
    escaped = value.replace("\\", "\\\\").replace("'", "''")
    return f"'{escaped}'"


def options(values: Mapping[str, object], separator: str = " ") -> str:
    """`KEY = value` of each; a mapping becomes `(KEY = value ...)`, a list `(a, b)`."""
    return separator.join(f"{key} = {_value(value)}" for key, value in values.items())


def call(function: str, *arguments: str) -> str:
    """A SELECT of one system function."""
    return f"SELECT {function}({', '.join(map(text, arguments))}) AS ANSWER"


def _value(value: object) -> str:
    match value:
        case bool():
            return str(value).upper()
        case int() | Word():
            return str(value)
        case str():
            return text(value)
        case Mapping():
            return f"({options(value)})"
        case Sequence():
            return f"({', '.join(map(_value, value))})"
    raise TypeError(f"{type(value).__name__} is no value of an option")
