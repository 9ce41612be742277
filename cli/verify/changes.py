"""Debezium's change events as verification sees them: the row that an event tells of, by its own rules, not the engine's."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from calve import registry
from calve.columns import CHANGE
from cli.verify import connect_schema
from cli.verify.conversion import Unreadable, others, resolved
from cli.verify.json_schema import Schemas
from cli.verify.moments import FIRST, LAST
from cli.verify.renames import Renames
from cli.verify.writers import writer_of

ROW_OF = {"c": "after", "r": "after", "u": "after", "d": "before", "t": None, "m": None}
"""The operations -> the part of an event that is the row; None: it is about no single row."""
DIGITS = re.compile(r"[0-9]{1,20}")
MICROSECONDS = {"ts_us": 1, "ts_ms": 1000}


class ChangeWriter:
    """Stands where a writer of rows does: reads events. `columns` are the table's, the newest change among them."""

    def __init__(
        self,
        frame: bytes,
        schema: registry.Schema,
        columns: pa.Schema,
        renames: Renames,
        order: Sequence[str],
    ) -> None:
        row = pa.struct([each for each in columns if each.name != CHANGE["name"]])
        kinds = _source_kinds(schema)
        wanted = {name: kinds[name] for name in (*MICROSECONDS, *order) if name in kinds}
        if any(name not in wanted for name in order):
            raise Unreadable("incompatible_schema")
        event = [("op", pa.string()), ("before", row), ("after", row), ("source", pa.struct(wanted.items()))]
        read = pa.schema([each for each in event if each[0] != "source" or wanted])
        self._inner = writer_of(frame, schema, read, renames, changes=True)
        self.frame = self._inner.frame
        self.schema_id = self._inner.schema_id
        self._columns = columns
        self._row = row
        self._order = order

    def decode(self, value: bytes) -> Any:
        event = self._inner.decode(value)
        op = event.get("op")
        if op not in ROW_OF or (ROW_OF[op] == "after" and event.get("after") is None):
            raise Unreadable("bad_change")
        return event

    def project(self, rows: list[Any]) -> list[Any]:
        # The inner writer lays out `before` and `after` alike, so the row is put where it looks for the latter.
        told = [event | {"after": event.get(ROW_OF[event["op"]] or "")} for event in rows]
        op, _, after, *source = self._inner.project(told)
        found = dict(zip((each.name for each in self._row), map(within_years, after.flatten()), strict=True))
        sources = source[0].to_pylist() if source else [None] * len(rows)
        changes = [self._change(*each) for each in zip(op.to_pylist(), sources, strict=True)]
        kind = self._columns.field(CHANGE["name"]).type
        return [found.get(name, pa.array(changes, kind)) for name in self._columns.names]

    def _change(self, op: str, source: Mapping[str, Any] | None) -> dict[str, Any]:
        known = source or {}
        moments = (known[name] * unit for name, unit in MICROSECONDS.items() if known.get(name) is not None)
        position = [_sortable(known.get(name)) for name in self._order]
        return {
            "op": op,
            "at": next(moments, None),
            "position": "/".join(each or "" for each in position)
            if any(each is not None for each in position)
            else None,
            "deleted": op == "d",
        }


def within_years(array: Any) -> Any:
    """The same, with the days and moments that are before the year 1 or after 9999 as the first or the last one that is not."""
    kind = array.type
    if pa.types.is_date32(kind) or pa.types.is_timestamp(kind):
        unit = 86_400 * 10**6 if pa.types.is_date32(kind) else 1
        whole = pa.int32() if pa.types.is_date32(kind) else pa.int64()
        first, last = (pa.scalar(each // unit, whole) for each in (FIRST, LAST))
        found = array.cast(whole)
        found = pc.if_else(pc.less(found, first), first, found)
        return pc.if_else(pc.greater(found, last), last, found).cast(kind)
    if pa.types.is_struct(kind):
        parts = [within_years(each) for each in array.flatten()]
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=array.is_null())
    if pa.types.is_list(kind):
        return pa.ListArray.from_arrays(array.offsets, within_years(array.values), kind, mask=array.is_null())
    if pa.types.is_map(kind):
        items = within_years(array.items)
        return pa.MapArray.from_arrays(array.offsets, array.keys, items, kind, mask=array.is_null())
    return array


def _sortable(value: str | int | None) -> str | None:
    text = None if value is None else str(value)
    return text.zfill(20) if text is not None and DIGITS.fullmatch(text) else text


def _source_kinds(schema: registry.Schema) -> dict[str, Any]:
    """The whole numbers and texts that a schema has in `source`, as Arrow types."""
    named = _json_kinds(schema) if schema.type == "JSON" else _avro_kinds(schema)
    types = {"integer": pa.int64(), "int": pa.int64(), "long": pa.int64(), "string": pa.string()}
    return {name: types[kind] for name, kind in named.items() if kind in types}


def _json_kinds(schema: registry.Schema) -> dict[str, str]:
    text = connect_schema.described(schema) or schema.text
    return Schemas(text, schema.references, {}, changes=True).kinds("source")


def _avro_kinds(schema: registry.Schema) -> dict[str, str]:
    names: dict[str, Any] = {}
    for each in schema.references.values():
        resolved(json.loads(each), names, "")
    fields = {each["name"]: each["type"] for each in resolved(json.loads(schema.text), names, "")["fields"]}
    source = _only(fields.get("source"))
    kinds = {each["name"]: _only(each["type"]) for each in (source or {}).get("fields", ())}
    return {name: kind["type"] for name, kind in kinds.items() if kind and "logicalType" not in kind}


def _only(kind: Any) -> Any:
    """The type, without null; None where there are several."""
    if not isinstance(kind, list):
        return kind
    found = others(kind)
    return found[0] if len(found) == 1 else None
