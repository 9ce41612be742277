"""The columns of a mode's key: paths of `calve.yaml` as plain columns of a table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from calve.errors import Suspended
from calve.schema.columns import Json, Transform
from calve.schema.evolution import column_at, no_column

BUCKETS = 8
"""Partitions of a table without a configured layout: a round writes files into each that it touches."""
UNFIT = ("float", "double")
"""Types that cannot be keys: equal values may differ in bytes, or not equal themselves."""


def plain_columns(columns: Json, paths: Iterable[str], option: str) -> tuple[str, ...]:
    """The columns at these paths; structs are replaced by their fields. `option`: their place in calve.yaml, as `upsert.key`.

    Raises:
        Suspended: `key_unusable`: a column is missing, or its type cannot identify rows.
    """
    return tuple(path for each in paths for path in _leaves(column(columns, each, option), each, option))


def buckets(columns: Json, key: Iterable[str]) -> tuple[Transform, ...]:
    """The partitioning of a table without a configured one; key: plain columns."""
    kinds = {path: column(columns, path, "key")["type"] for path in key}
    first = next((path for path, kind in kinds.items() if kind != "boolean"), None)
    return (Transform(first, "bucket", BUCKETS),) if first else ()


def _leaves(found: Json, path: str, option: str) -> Iterator[str]:
    kind = found["type"]
    if isinstance(kind, dict) and kind["type"] == "struct":
        for each in kind["fields"]:
            yield from _leaves(each, f"{path}.{each['name']}", option)
    elif isinstance(kind, dict) or kind in UNFIT:
        shown = kind["type"] if isinstance(kind, dict) else kind
        raise unusable(f"{path} is a {shown}, which tells no rows apart", option)
    else:
        yield path


def column(columns: Json, path: str, option: str) -> Json:
    found = column_at(columns, path)
    if found is None:
        raise unusable(no_column(columns, path), option)
    return found


def unusable(why: str, option: str) -> Suspended:
    return Suspended(
        "key_unusable",
        f"the rows of the table cannot be told apart: {why}",
        fix=f"in calve.yaml, change {option}",
        at=tuple(option.split(".")),
    )
