"""A JSON Schema for a topic without one, inferred from values that it holds. docs/formats.md says what becomes of each type."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from calve.names import FIELD_NAME, field_problem

_MOMENT = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d{1,6})?([Zz]|[+-]\d\d:\d\d)")
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_LONG = range(-(2**63), 2**63)


def inferred(values: Iterable[bytes]) -> dict[str, Any] | None:
    """The JSON Schema of these values; None if there are none, or one is not a JSON object.

    Nothing is required, because a field that all samples have may be absent tomorrow. A field with values of different types is
    any JSON; a field whose name cannot be a column is left out.
    """
    read: list[Any] = []
    for each in values:
        try:
            read.append(json.loads(each))
        except (ValueError, RecursionError):
            return None
    if not read or not all(isinstance(each, dict) for each in read):
        return None
    return _object(read)


def _object(values: Sequence[dict[str, Any]]) -> dict[str, Any]:
    columns: dict[str, str] = {}
    for name in dict.fromkeys(name for each in values for name in each):
        if FIELD_NAME.fullmatch(name) and field_problem(name) is None:
            columns.setdefault(name.lower(), name)  # Glue's columns have no case
    return {
        "type": "object",
        "properties": {
            name: _type([each[name] for each in values if name in each]) for name in columns.values()
        },
    }


def _type(values: Sequence[Any]) -> dict[str, Any]:
    known = [each for each in values if each is not None]
    match {type(each) for each in known}:
        case kinds if kinds == {bool}:
            return {"type": "boolean"}
        case kinds if kinds == {int} and all(each in _LONG for each in known):
            return {"type": "integer"}
        case kinds if kinds and kinds <= {int, float}:
            return {"type": "number"}
        case kinds if kinds == {str}:
            return {"type": "string", **_format(known)}
        case kinds if kinds == {list}:
            return {"type": "array", "items": _type([item for each in known for item in each])}
        case kinds if kinds == {dict} and (found := _object(known))["properties"]:
            # A struct would lose the fields whose names cannot be columns.
            whole = all(name in found["properties"] for each in known for name in each)
            return found if whole else {}
    return {}


def _format(texts: Sequence[str]) -> dict[str, str]:
    for name, pattern in (("date-time", _MOMENT), ("date", _DATE)):
        if all(pattern.fullmatch(each) and _exists(each) for each in texts):
            return {"format": name}
    return {}


def _exists(moment: str) -> bool:
    try:
        datetime.fromisoformat(moment.upper())
    except ValueError:
        return False
    return True
