"""Upserts: which columns tell the rows of a table apart, and what a table notes of that (ADR 16)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace

from calve.columns import Json
from calve.errors import Suspended
from calve.job import Transform, Upsert

MODE = "calve.upsert"
"""Property of an upsert table: JSON of the field ids of its key, and of the column that orders its records."""
BUCKETS = 8
"""Partitions of a table for which none are configured: a round writes files into each that it touches."""
UNFIT = ("float", "double")
"""Types that no key can have: values that are equal need not have equal bytes, nor be equal to themselves."""


def keyed(columns: Json, upsert: Upsert) -> Upsert:
    """The same, with the plain columns that its key is made of, as the table has them.

    Raises:
        Suspended: `key_unusable`: a column is missing, or has a type that tells no rows apart.
    """
    key = tuple(path for each in upsert.key for path in _leaves(_column(columns, each), each))
    if upsert.order_by is not None:
        kind = _column(columns, upsert.order_by)["type"]
        if not isinstance(kind, str):
            raise _unusable(f"{upsert.order_by} is a {kind['type']}, which has no order", "order_by")
    return replace(upsert, key=key)


def noted(columns: Json, upsert: Upsert | None) -> str | None:
    """What a table with these columns notes in `MODE`; ids outlive renames. None: rows are only ever appended."""
    if upsert is None:
        return None
    found = keyed(columns, upsert)
    order = None if found.order_by is None else _column(columns, found.order_by)["id"]
    return json.dumps({"key": [_column(columns, each)["id"] for each in found.key], "order_by": order})


def buckets(columns: Json, upsert: Upsert) -> tuple[Transform, ...]:
    """The partitioning of a table for which none was configured."""
    kinds = {path: _column(columns, path)["type"] for path in keyed(columns, upsert).key}
    first = next((path for path, kind in kinds.items() if kind != "boolean"), None)
    return (Transform(first, "bucket", BUCKETS),) if first else ()


def require_mode(table: str, name: str, noted_before: str | None, wanted: str | None) -> None:
    """Compare what a table notes of its key with what calve.yaml wants.

    Raises:
        Suspended: `mode_changed`.
    """
    if noted_before == wanted:
        return
    if noted_before is None or wanted is None:
        became = "is to keep one row for each key" if wanted else "is to be appended to"
        was = "appended to" if wanted else "kept by key"
        text = f"table {table} {became}, but has been {was} so far"
    else:
        text = f"table {table} was made with another key, or another order_by"
    raise Suspended(
        "mode_changed",
        text,
        fix=f"take back the change of `upsert` at table {name} in calve.yaml, or name another table",
    )


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
        f"the rows of an upsert table cannot be told apart: {why}",
        fix=f"in calve.yaml, change {option} of its `upsert`",
    )
