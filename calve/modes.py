"""Modes of a table: which columns tell its rows apart, and what it notes of that (docs/modes.md)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import TypeVar

from calve.columns import Json
from calve.errors import Suspended
from calve.job import Mode, Transform, Upsert

MODE = "calve.mode"
"""Property of a table that does not hold every record: JSON of its mode and of the field ids of its key; ids outlive renames."""
BUCKETS = 8
"""Partitions of a table for which none are configured: a round writes files into each that it touches."""
_M = TypeVar("_M", bound=Mode)
UNFIT = ("float", "double")
"""Types that no key can have: values that are equal need not have equal bytes, nor be equal to themselves."""


def keyed(columns: Json, mode: _M) -> _M:
    """The same, with the plain columns that its key is made of, as the table has them.

    Raises:
        Suspended: `key_unusable`: a column is missing, or has a type that tells no rows apart.
    """
    key = tuple(path for each in mode.key for path in _leaves(_column(columns, each), each))
    if isinstance(mode, Upsert) and mode.order_by is not None:
        kind = _column(columns, mode.order_by)["type"]
        if not isinstance(kind, str):
            raise _unusable(f"{mode.order_by} is a {kind['type']}, which has no order", "order_by")
    return replace(mode, key=key)


def noted(columns: Json, mode: Mode | None) -> str | None:
    """What a table with these columns notes in `MODE`. None: it holds every record."""
    if mode is None:
        return None
    key = [_column(columns, each)["id"] for each in keyed(columns, mode).key]
    if isinstance(mode, Upsert):
        order = None if mode.order_by is None else _column(columns, mode.order_by)["id"]
        return json.dumps({"mode": "upsert", "key": key, "order_by": order})
    return json.dumps({"mode": "deduplicate", "key": key, "window_ms": mode.window_ms})


def buckets(columns: Json, upsert: Upsert) -> tuple[Transform, ...]:
    """The partitioning of a table for which none was configured."""
    kinds = {path: _column(columns, path)["type"] for path in keyed(columns, upsert).key}
    first = next((path for path, kind in kinds.items() if kind != "boolean"), None)
    return (Transform(first, "bucket", BUCKETS),) if first else ()


def require_mode(table: str, name: str, noted_before: str | None, wanted: str | None) -> None:
    """Compare what a table notes of its mode with what calve.yaml wants.

    Raises:
        Suspended: `mode_changed`.
    """
    if noted_before == wanted:
        return
    was, now = _kind(noted_before), _kind(wanted)
    if was == now:
        text = f"table {table} was made with other settings of `{now}`"
    else:
        text = f"table {table} {WANTED[now]}, but {KEPT[was]} so far"
    changed = " or ".join(f"`{each}`" for each in dict.fromkeys((was, now)) if each != "append")
    raise Suspended(
        "mode_changed",
        text,
        fix=f"take back the change of {changed} at table {name} in calve.yaml, or name another table",
    )


WANTED = {
    "append": "is to hold every record",
    "upsert": "is to hold the newest record of each key",
    "deduplicate": "is to hold the first record of each key",
}
KEPT = {
    "append": "has held every record",
    "upsert": "has held the newest of each key",
    "deduplicate": "has held the first of each key",
}


def _kind(noted_mode: str | None) -> str:
    return "append" if noted_mode is None else str(json.loads(noted_mode)["mode"])


def _leaves(found: Json, path: str) -> Iterator[str]:
    kind = found["type"]
    if isinstance(kind, dict) and kind["type"] == "struct":
        for each in kind["fields"]:
            yield from _leaves(each, f"{path}.{each['name']}")
    elif isinstance(kind, dict) or kind in UNFIT:
        shown = kind["type"] if isinstance(kind, dict) else kind
        raise _unusable(f"{path} is a {shown}, which tells no rows apart", "key")
    else:
        yield path


def _column(columns: Json, path: str) -> Json:
    found, kind = None, columns
    for name in path.split("."):
        fields = kind["fields"] if isinstance(kind, dict) and kind["type"] == "struct" else ()
        found = next((each for each in fields if each["name"] == name), None)
        if found is None:
            raise _unusable(f"the schemas of its records make no column {path}", "key or order_by")
        kind = found["type"]
    return found


def _unusable(why: str, option: str) -> Suspended:
    return Suspended(
        "key_unusable",
        f"the rows of the table cannot be told apart: {why}",
        fix=f"in calve.yaml, change the {option} of its mode",
    )
