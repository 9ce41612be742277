"""Debezium's change events as verification sees them: the row that an event tells of, by its own rules, not the engine's."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from calve import registry
from calve.columns import CHANGE
from calve.formats import FORMATS, Top
from cli.verify.columns import arrow_columns, is_text
from cli.verify.conversion import Unreadable
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
        parts = arrow_columns(FORMATS[schema.type].columns(schema, Top(changes=True)))
        read = {each.name: each.type for each in parts} | {"before": row, "after": row}
        source = _numbers_and_texts(read.get("source"))
        if any(name not in source for name in order):
            raise Unreadable("incompatible_schema")
        known = {name: source[name] for name in (*MICROSECONDS, *order) if name in source}
        if (
            schema.type != "JSON"
        ):  # Avro: only these fields are read; a JSON value must match its whole schema
            read = {name: read[name] for name in ("op", "before", "after")} | {"source": pa.struct(known)}
        self._read = pa.schema([each for each in read.items() if known or each[0] != "source"])
        self._known = set(known)
        self._inner = writer_of(frame, schema, self._read, renames, changes=True)
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

    def is_ambiguous(self, value: bytes) -> bool:
        return self._inner.is_ambiguous(value)

    def project(self, rows: list[Any]) -> list[Any]:
        # The inner writer lays out `before` and `after` alike, so the row is put where it looks for the latter.
        told = [event | {"after": event.get(ROW_OF[event["op"]] or "")} for event in rows]
        parts = pa.record_batch(self._inner.project(told), self._read)
        found = dict(
            zip((each.name for each in self._row), map(within_years, parts["after"].flatten()), strict=True)
        )
        sources = parts["source"].to_pylist() if self._known else [None] * len(rows)
        changes = [self._change(*each) for each in zip(parts["op"].to_pylist(), sources, strict=True)]
        kind = self._columns.field(CHANGE["name"]).type
        return [found.get(name, pa.array(changes, kind)) for name in self._columns.names]

    def _change(self, op: str, source: Mapping[str, Any] | None) -> dict[str, Any]:
        known = {name: each for name, each in (source or {}).items() if name in self._known}
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


def _numbers_and_texts(kind: Any) -> dict[str, Any]:
    """The whole numbers and texts of a struct, and their types."""
    fields = kind if kind is not None and pa.types.is_struct(kind) else ()
    texts = {each.name: pa.string() for each in fields if is_text(each.type)}
    return texts | {each.name: pa.int64() for each in fields if pa.types.is_integer(each.type)}
