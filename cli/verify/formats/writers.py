"""The writer of each format, of bare texts and bytes, and of Debezium's events: the row that an event tells of."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from calve.decoding.formats import FORMATS, Top
from calve.schema.columns import CHANGE
from cli.verify.columns import arrow_columns, is_text
from cli.verify.formats.avro import AvroWriter
from cli.verify.formats.fields import Spec, Unreadable, Writer
from cli.verify.formats.json_schema import JsonWriter, WholeJsonWriter
from cli.verify.formats.moments import FIRST, LAST
from cli.verify.formats.protobuf import ProtobufWriter

PLAIN = ("STRING", "BYTES")
VALUE = "value"
ROW_OF = {"c": "after", "r": "after", "u": "after", "d": "before", "t": None, "m": None}
"""The operations -> the part of an event that is the row; None: it is about no single row."""
DIGITS = re.compile(r"[0-9]{1,20}")
MICROSECONDS = {"ts_us": 1, "ts_ms": 1000}


def writer_of(spec: Spec) -> Writer:
    """The writer of a schema whose fields are the columns."""
    kind = spec.schema.type
    if spec.message is not None and kind != "PROTOBUF":
        raise Unreadable("incompatible_schema")
    if kind in PLAIN:
        return _PlainWriter(spec)
    if kind == "JSON":
        return JsonWriter(spec)
    return ProtobufWriter(spec) if kind == "PROTOBUF" else AvroWriter(spec)


def whole_writer(spec: Spec) -> Writer:
    """The writer of a schema that is the one column, whatever it describes."""
    [column] = spec.columns
    kind = spec.schema.type
    if kind in PLAIN:
        return _PlainWriter(replace(spec, own=column.name))
    if kind == "JSON":
        return WholeJsonWriter(spec)
    if kind == "PROTOBUF":
        return ProtobufWriter(spec, whole=True)
    fields = [{"name": column.name, "type": json.loads(spec.schema.text)}]
    text = json.dumps({"type": "record", "name": "whole", "fields": fields})
    return AvroWriter(replace(spec, schema=replace(spec.schema, text=text)))


class _PlainWriter(Writer):
    def __init__(self, spec: Spec) -> None:
        super().__init__(spec)
        self.schema_id = None
        self._name = spec.own or VALUE
        self._text = spec.schema.type == "STRING"

    def decode(self, value: bytes | None) -> Any:
        try:
            return {self._name: value.decode() if value is not None and self._text else value}
        except UnicodeDecodeError:
            raise Unreadable("malformed") from None


class ChangeWriter(Writer):
    """Reads events, ordered by fields of their source. The newest change is among the columns."""

    def __init__(self, spec: Spec, order: Sequence[str]) -> None:
        row = pa.struct([each for each in spec.columns if each.name != CHANGE["name"]])
        parts = arrow_columns(FORMATS[spec.schema.type].columns(spec.schema, Top(changes=True)))
        read = {each.name: each.type for each in parts} | {"before": row, "after": row}
        source = _numbers_and_texts(read.get("source"))
        if any(name not in source for name in order):
            raise Unreadable("incompatible_schema")
        known = {name: source[name] for name in (*MICROSECONDS, *order) if name in source}
        # Of Avro only these fields are read; a JSON value must match its whole schema.
        if spec.schema.type != "JSON":
            read = {name: read[name] for name in ("op", "before", "after")} | {"source": pa.struct(known)}
        self._read = pa.schema([each for each in read.items() if known or each[0] != "source"])
        self._known = set(known)
        self._inner = writer_of(replace(spec, columns=self._read, own=None, message=None, changes=True))
        super().__init__(spec)
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
        names = (each.name for each in self._row)
        found = dict(zip(names, map(within_years, parts["after"].flatten()), strict=True))
        sources = parts["source"].to_pylist() if self._known else [None] * len(rows)
        changes = [self._change(*each) for each in zip(parts["op"].to_pylist(), sources, strict=True)]
        kinds = {each.name: each.type for each in self.columns}
        found[CHANGE["name"]] = pa.array(changes, kinds[CHANGE["name"]])
        return [found[name] for name in kinds]

    def _change(self, op: str, source: Mapping[str, Any] | None) -> dict[str, Any]:
        known = {name: each for name, each in (source or {}).items() if name in self._known}
        moments = (known[name] * unit for name, unit in MICROSECONDS.items() if known.get(name) is not None)
        position = [_sortable(known.get(name)) for name in self._order]
        told = any(each is not None for each in position)
        return {
            "op": op,
            "at": next(moments, None),
            "position": "/".join(each or "" for each in position) if told else None,
            "deleted": op == "d",
        }


def within_years(array: Any) -> Any:
    """The same, with the days and moments that are before the year 1 or after 9999 as the first or the last one that is not."""
    kind = array.type
    if pa.types.is_date32(kind) or pa.types.is_timestamp(kind):
        unit, whole = (86_400 * 10**6, pa.int32()) if pa.types.is_date32(kind) else (1, pa.int64())
        first, last = (pa.scalar(each // unit, whole) for each in (FIRST, LAST))
        bounded = pc.max_element_wise(array.cast(whole), first, skip_nulls=False)
        return pc.min_element_wise(bounded, last, skip_nulls=False).cast(kind)
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
