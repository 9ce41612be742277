"""Frozen dataclasses as JSON and back, by their type hints. Standard library only: a Glue job and a function have no pydantic."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import MISSING, asdict, fields, is_dataclass
from functools import cache
from types import UnionType
from typing import Any, Self, TypeVar, Union, get_args, get_origin, get_type_hints

_T = TypeVar("_T")


class Stored:
    """A dataclass that is stored as the JSON of its fields. A release reads what earlier ones wrote: new fields have defaults."""

    __slots__ = ()

    def to_json(self) -> str:
        return json.dumps(asdict(self))  # type: ignore[call-overload]

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Raises: as `from_plain`."""
        return from_plain(cls, json.loads(text))


def from_plain(kind: type[_T], raw: Any, *, lenient: bool = False) -> _T:
    """A dataclass from the output of `dataclasses.asdict`, also after JSON, whose keys are texts and whose tuples are lists.

    Of several alternatives, the one whose field `kind`, or else whose required fields `raw` has. Plain values are not checked.
    lenient: ignore keys that this release does not know.

    Raises AttributeError, KeyError, TypeError, ValueError: `raw` is not such a value.
    """
    if raw is None:
        raise TypeError("null is not a value")
    found: _T = _value(kind, raw, lenient)
    return found


def _value(kind: Any, raw: Any, lenient: bool) -> Any:  # noqa: FBT001
    if raw is None:
        return None
    if isinstance(kind, type) and is_dataclass(kind):
        hints, known = hints_of(kind), {each.name for each in fields(kind)}
        given = {name: each for name, each in raw.items() if name in known or not lenient}
        return kind(**{name: _value(hints.get(name), each, lenient) for name, each in given.items()})
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        choices = [each for each in inner if is_dataclass(each)]
        if not choices:
            return raw
        for each in choices:
            if _fits(each, raw):
                return _value(each, raw, lenient)
        raise TypeError(f"none of {len(choices)} alternatives has these fields")
    if origin is tuple:
        return tuple(_value(inner[0], each, lenient) for each in raw)
    if origin in (dict, Mapping):
        of_key = int if inner[0] is int else str
        return {of_key(key): _value(inner[1], each, lenient) for key, each in raw.items()}
    return raw


def _fits(kind: Any, raw: Mapping[str, Any]) -> bool:
    return all(
        raw[each.name] == each.default if each.name == "kind" else each.name in raw
        for each in fields(kind)
        if each.name == "kind" or (each.default is MISSING and each.default_factory is MISSING)
    )


@cache
def hints_of(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)
