"""The keys of modes: the columns that identify a table's rows, and their note in the position (docs/modes.md)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, replace
from typing import Any, Literal, TypeVar

from calve.config.job import (
    Aggregate,
    ChangeData,
    Deduplicate,
    Measure,
    Mode,
    Transform,
    Upsert,
    Window,
)
from calve.errors import Suspended
from calve.schema.columns import Json
from calve.schema.evolution import column_at, no_column
from calve.table.position import Offsets, TopicKey, decode_offsets, encode_offsets

BUCKETS = 8
"""Partitions of a table without a configured layout: a round writes files into each that it touches."""
_M = TypeVar("_M", bound=Upsert | Deduplicate)
UNFIT = ("float", "double")
"""Types that cannot be keys: equal values may differ in bytes, or not equal themselves."""


def keyed(columns: Json, mode: _M) -> _M:
    """The mode with the plain columns of its key, as the table has them.

    Raises:
        Suspended: `key_unusable`: a column is missing, or its type cannot identify rows.
    """
    key = plain_columns(columns, mode.key, f"{mode.kind}.key")
    if isinstance(mode, Upsert) and mode.order_by is not None:
        option = f"{mode.kind}.order_by"
        kind = _column(columns, mode.order_by, option)["type"]
        if not isinstance(kind, str):
            raise _unusable(f"{mode.order_by} is a {kind['type']}, which has no order", option)
    return replace(mode, key=key)


def plain_columns(columns: Json, paths: Iterable[str], option: str) -> tuple[str, ...]:
    """The columns at these paths; structs are replaced by their fields. `option`: their place in calve.yaml, as `upsert.key`.

    Raises:
        Suspended: `key_unusable`: a column is missing, or its type cannot identify rows.
    """
    return tuple(path for each in paths for path in _leaves(_column(columns, each, option), each, option))


def noted(columns: Json, mode: Mode | None) -> str | None:
    """The mode in a position: JSON with the key's field ids, which survive renames. None: all records are rows.

    For an aggregate it has the text of calve.yaml: its source columns are not columns of the table.
    """
    if mode is None:
        return None
    if isinstance(mode, Aggregate):
        return _noted_totals(mode)
    key = [_column(columns, each, "key")["id"] for each in keyed(columns, mode).key]
    if isinstance(mode, Deduplicate):
        return json.dumps({"mode": "deduplicate", "key": key, "window_ms": mode.window_ms})
    order = None if mode.order_by is None else _column(columns, mode.order_by, "order_by")["id"]
    found: dict[str, Any] = {"mode": "upsert", "key": key, "order_by": order}
    if isinstance(mode, ChangeData):
        deleted = "keep" if mode.keep_deleted else "remove"
        found |= {"mode": "change_data", "source": mode.source_order, "deleted": deleted}
    return json.dumps(found)


def require_tombstones(name: str, mode: Mode | None, *, compacted: bool) -> None:
    """Refuse a compacted topic whose tombstones the table ignores: compaction removes all else of a deletion.

    Raises:
        Suspended: `topic_compacted`: tombstones mean nothing to this table.
    """
    if compacted and isinstance(mode, ChangeData) and not mode.deletes:
        raise Suspended(
            "topic_compacted",
            f"topic {name} is compacted: of a deletion only a tombstone is left in the end, by which this table"
            " deletes no row",
            fix="keep the topic by time alone (cleanup.policy=delete), or let the record key be the key of the table"
            " and remove `deletes: keep`",
            at=("change_data",),
        )


def buckets(columns: Json, mode: Upsert) -> tuple[Transform, ...]:
    """The partitioning of a table without a configured one."""
    kinds = {path: _column(columns, path, "key")["type"] for path in keyed(columns, mode).key}
    first = next((path for path, kind in kinds.items() if kind != "boolean"), None)
    return (Transform(first, "bucket", BUCKETS),) if first else ()


Switch = Literal["fold", "open"]
"""`fold`: the rows become what upserts would have made of them. `open`: they stay, and each further record is a row."""


def switch(table: str, name: str, before: str | None, wanted: str | None) -> Switch | None:
    """How to change a table from the mode in its position (`before`) to `wanted`; None if there is nothing to do.

    Raises:
        Suspended: `mode_changed`: the rows do not show what the other mode would have made of them.
    """
    was, now = kind_of(before), kind_of(wanted)
    if before == wanted or was == now == "append":
        return None
    if (was, now) == ("upsert", "append"):
        return "open"
    if (was, now) == ("append", "upsert") and folded_as(before) in (None, wanted):
        return "fold"
    if was == now:
        text = f"table {table} was made with other settings of `{now}`"
    elif folded_as(before):
        text = f"table {table} has held the newest record of each key before, by other settings of `upsert`"
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
    "change_data": "is to hold the rows of a database's table",
    "deduplicate": "is to hold the first record of each key",
    "aggregate": "is to hold totals of groups of records",
}
KEPT = {
    "append": "has held every record",
    "upsert": "has held the newest of each key",
    "change_data": "has held the rows of a database's table",
    "deduplicate": "has held the first of each key",
    "aggregate": "has held totals of groups of them",
}


def opened(before: str, offsets: Mapping[TopicKey, Offsets]) -> str:
    """The mode of a table that holds the newest record of each key up to these offsets, and every record since."""
    return json.dumps({"mode": "append", "folded": json.loads(before), "to": encode_offsets(offsets)})


def folded_as(mode: str | None) -> str | None:
    """The mode of the rows before `folded_to`, for a table that is now appended to."""
    found = json.loads(mode).get("folded") if mode else None
    return json.dumps(found) if found else None


def folded_to(mode: str | None) -> dict[TopicKey, Offsets]:
    """The offsets below which a now appended table holds the newest record of each key; empty if it holds all."""
    found = json.loads(mode).get("to") if mode else None
    return decode_offsets(found) if found else {}


def described(columns: Json, mode: str | None) -> str:
    """A position's mode as text, with the current column names: `upsert by id, of.shop; newest by updated_at`."""
    kind = kind_of(mode)
    if mode is None or kind == "append":
        return "append"
    if kind == "aggregate":
        return _described_totals(json.loads(mode))
    names, found = _paths(columns, ""), json.loads(mode)
    text = f"{kind} by {', '.join(names.get(each, '?') for each in found['key'])}"
    if kind == "change_data":
        order = f"; newest by source.{', source.'.join(found['source'])}" if found["source"] else ""
        return f"{text}{order}" + ("; deleted rows stay" if found["deleted"] == "keep" else "")
    if order := found.get("order_by"):
        return f"{text}; newest by {names.get(order, '?')}"
    window = found.get("window_ms")
    return f"{text}; within {window / 1000:g} s" if window else text


def kind_of(mode: str | None) -> str:
    """`append`, `upsert`, `change_data`, `deduplicate` or `aggregate`."""
    return "append" if mode is None else str(json.loads(mode)["mode"])


def _noted_totals(mode: Aggregate) -> str:
    window = asdict(mode.window) if mode.window else None
    measures = {each.name: each.text for each in mode.measures}
    return json.dumps({"mode": "aggregate", "by": mode.by, "measures": measures, "window": window})


def noted_totals(mode: str) -> Aggregate:
    """The aggregate mode in a position."""
    found = json.loads(mode)
    measures = tuple(Measure(*each) for each in found["measures"].items())
    return Aggregate(tuple(found["by"]), measures, Window(**found["window"]) if found["window"] else None)


def _described_totals(found: Json) -> str:
    measures = ", ".join(f"{name} = {text}" for name, text in found["measures"].items())
    text = f"aggregate by {', '.join(found['by'])}; {measures}"
    window = found["window"]
    return f"{text}; each {window['size_ms'] / 1000:g} s of {window['column']}" if window else text


def _leaves(found: Json, path: str, option: str) -> Iterator[str]:
    kind = found["type"]
    if isinstance(kind, dict) and kind["type"] == "struct":
        for each in kind["fields"]:
            yield from _leaves(each, f"{path}.{each['name']}", option)
    elif isinstance(kind, dict) or kind in UNFIT:
        shown = kind["type"] if isinstance(kind, dict) else kind
        raise _unusable(f"{path} is a {shown}, which tells no rows apart", option)
    else:
        yield path


def _column(columns: Json, path: str, option: str) -> Json:
    found = column_at(columns, path)
    if found is None:
        raise _unusable(no_column(columns, path), option)
    return found


def _paths(columns: Json, above: str) -> dict[int, str]:
    """Field id -> path of names, through all structs."""
    found: dict[int, str] = {}
    for each in columns["fields"]:
        path = found[each["id"]] = f"{above}{each['name']}"
        if isinstance(each["type"], dict) and each["type"]["type"] == "struct":
            found |= _paths(each["type"], f"{path}.")
    return found


def _unusable(why: str, option: str) -> Suspended:
    return Suspended(
        "key_unusable",
        f"the rows of the table cannot be told apart: {why}",
        fix=f"in calve.yaml, change {option}",
        at=tuple(option.split(".")),
    )
