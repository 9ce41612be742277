"""What a position says of its table's mode, and which changes of mode are possible (ADR 18)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Literal

from calve.errors import Suspended
from calve.modes.mode import Mode
from calve.schema.columns import Json
from calve.table.position import Offsets, TopicKey, decode_offsets, encode_offsets
from calve.table.summary import kind_of

Switch = Literal["fold", "open", "version"]
"""`fold`: the rows become what upserts would have made of them. `open`: they stay, and each further record is a row.

`version`: each row becomes a version.
"""
CHANGES = {("append", "upsert"), ("upsert", "append"), ("append", "history")}


def switch(table: str, name: str, before: str | None, wanted: str | None) -> Switch | None:
    """How to change a table from the mode in its position to `wanted`; None: not at all. Raises Suspended: `mode_changed`."""
    was, now = kind_of(before), kind_of(wanted)
    if before == wanted or was == now == "append":
        return None
    if (was, now) == ("upsert", "append"):
        return "open"
    if (was, now) == ("append", "upsert") and folded_as(before) in (None, wanted):
        return "fold"
    reads_changes = now == "history" and json.loads(str(wanted))["changes"]
    if (was, now) == ("append", "history") and not folded_as(before) and not reads_changes:
        return "version"
    if before and wanted and _by(before) != _by(wanted):
        raise Suspended(
            "mode_changed",
            f"the keys of the rows of table {table} are {_by(before)}, and are to be {_by(wanted)}: they would not be found",
            fix=f"take back the change of `mask` at table {name} in calve.yaml, or name another table",
        )
    if was == now:
        text = f"table {table} was made with other settings of `{now}`"
    elif folded_as(before):
        text = f"table {table} has held the newest record of each key before, by other settings of `upsert`"
    else:
        text = _of_kinds(table, was, now)
    raise _refused(text, name, was, now)


def require_kind(table: str, name: str, before: str | None, now: Mode) -> None:
    """Refuse modes to which the one in the position never changes, whatever their settings. Raises Suspended: `mode_changed`."""
    was = kind_of(before)
    if was == now.kind == "history":
        possible = json.loads(str(before))["changes"] == now.reads_changes
    elif was == now.kind:
        possible = True
    else:
        possible = (was, now.kind) in CHANGES and not now.reads_changes
    if not possible:
        raise _refused(_of_kinds(table, was, now.kind), name, was, now.kind)


def _of_kinds(table: str, was: str, now: str) -> str:
    if was == now:
        return (
            f"table {table} is to hold versions of other records: a topic has changes of a database, or rows"
        )
    return f"table {table} is to hold {HELD[now]}, but it has held {HELD[was]} so far"


def _refused(text: str, name: str, was: str, now: str) -> Suspended:
    changed = " or ".join(f"`{each}`" for each in dict.fromkeys((was, now)) if each != "append")
    return Suspended(
        "mode_changed",
        text,
        fix=f"take back the change of {changed} at table {name} in calve.yaml, or name another table",
    )


HELD = {
    "append": "every record",
    "upsert": "the newest record of each key",
    "change_data": "the rows of a database's table",
    "history": "every version of each row",
    "deduplicate": "the first record of each key",
    "aggregate": "totals of groups of records",
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
    found = json.loads(mode)
    if kind == "aggregate":
        measures = ", ".join(f"{name} = {text}" for name, text in found["measures"].items())
        text = f"aggregate by {', '.join(found['by'])}; {measures}"
        window = found["window"]
        return f"{text}; each {window['size_ms'] / 1000:g} s of {window['column']}" if window else text
    names = _paths(columns, "")
    text = f"{kind} by {', '.join(names.get(each, '?') for each in found['key'])}"
    if "hashed_by" in found:
        text += f" ({_by(mode)})"
    if kind == "history":
        if order := found["order_by"]:
            return f"{text}; from {names.get(order, '?')}"
        return text + ("; of change events" if found["changes"] else "")
    if kind == "change_data":
        order = f"; newest by source.{', source.'.join(found['source'])}" if found["source"] else ""
        return f"{text}{order}" + ("; deleted rows stay" if found["deleted"] == "keep" else "")
    if order := found.get("order_by"):
        return f"{text}; newest by {names.get(order, '?')}"
    window = found.get("window_ms")
    return f"{text}; within {window / 1000:g} s" if window else text


def _by(mode: str) -> str:
    by = json.loads(mode).get("hashed_by")
    return f"hashed by the masking key {', '.join(by)}" if by else "not hashed"


def _paths(columns: Json, above: str) -> dict[int, str]:
    """Field id -> path of names, through all structs."""
    found: dict[int, str] = {}
    for each in columns["fields"]:
        path = found[each["id"]] = f"{above}{each['name']}"
        if isinstance(each["type"], dict) and each["type"]["type"] == "struct":
            found |= _paths(each["type"], f"{path}.")
    return found
