"""Decodes values without the job's code. Which field of a version fills which column is `calve.schema.lineage`'s answer."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from calve.config.job import PartName
from calve.decoding.decode_plan import fits
from calve.decoding.formats import FIELDS, Top, own_columns, writer
from calve.names import SYSTEM_COLUMN
from calve.schema import writers
from calve.schema.change_events import DOCUMENT as OF_TEXT
from calve.schema.change_events import read_as
from calve.schema.columns import CHANGE, Json
from calve.schema.evolution import SchemaProblem
from calve.schema.lineage import Fit
from calve.schema.wire import BARE, Schema
from calve.schema.writers import reframed
from cli.verify.columns import arrow_columns, iceberg_columns, with_children
from cli.verify.formats.avro import AvroWriter
from cli.verify.formats.cloud_events import Event, Events
from cli.verify.formats.fields import (
    CONFLUENT,
    FIRST,
    LAST,
    MALFORMED,
    Framing,
    Unreadable,
    Writer,
    as_written,
)
from cli.verify.formats.json_values import DocumentWriter, JsonWriter
from cli.verify.formats.protobuf import ProtobufWriter, compiled
from cli.verify.topic import Records, timestamp_us

PLAIN = ("STRING", "BYTES")
ROW_OF = {"c": "after", "r": "after", "u": "after", "d": "before", "t": None, "m": None}
"""Operation -> the part of an event that is the row; None: it concerns no single row."""
DOCUMENT = "document"
"""Where an event has the row of its document, once that is read."""
DIGITS = re.compile(r"[0-9]{1,20}")
MICROSECONDS = {"ts_us_long": 1, "ts_ms_long": 1000}
UNFIT = (Unreadable, SchemaProblem, ValueError, LookupError, TypeError, AttributeError, RecursionError)
"""Errors for a schema whose values do not fit the table."""
Refused = list[tuple[int, str]]
"""The places of records that make no row, each with the reason."""


class _PlainWriter(Writer):
    def __init__(self, frame: bytes, columns: pa.Schema, plan: writers.PlainWriter) -> None:
        super().__init__(frame, columns)
        self._plan = plan

    def decode(self, value: bytes | None) -> Any:
        return {self._plan.column: value.decode() if value is not None and self._plan.text else value}


class _ChangeWriter(Writer):
    """Events of a database's changes, ordered by fields of their source. The newest change is a column.

    documents: reads MongoDB's documents, which events hold in the place of rows; None: they do not.
    """

    def __init__(
        self, columns: pa.Schema, events: Writer, order: Sequence[str], documents: Writer | None
    ) -> None:
        super().__init__(events.frame, columns)
        self._events = events
        self._order = order
        self._documents = documents

    def decode(self, value: bytes) -> Any:
        event = self._events.decode(value)
        op = event.get("op")
        if op not in ROW_OF or (ROW_OF[op] == "after" and event.get("after") is None):
            raise Unreadable("bad_change")
        return event if self._documents is None else event | {DOCUMENT: self._document(event)}

    def _document(self, event: Mapping[str, Any]) -> Any:
        """The row that a document is. A deletion needs none."""
        text = event.get(ROW_OF[event["op"]] or "")
        try:
            return {} if text is None or self._documents is None else self._documents.decode(text.encode())
        except MALFORMED:
            if event["op"] == "d":
                return {}
            raise Unreadable("bad_change") from None

    def is_ambiguous(self, value: bytes) -> bool:
        return self._events.is_ambiguous(value)

    def project(self, rows: list[Any]) -> list[Any]:
        # The inner writer lays out `before` and `after` alike, so the row is put where it looks for the latter.
        with_row = [event | {"after": event.get(ROW_OF[event["op"]] or "")} for event in rows]
        names = [each.name for each in self._events.columns]
        parts = dict(zip(names, self._events.project(with_row), strict=True))
        if self._documents is None:
            columns, arrays = list(parts["after"].type), parts["after"].flatten()
        else:
            columns = self._documents.columns
            arrays = self._documents.project([event[DOCUMENT] for event in rows])
        row = zip(columns, arrays, strict=True)
        found = {each.name: _within_years(array) for each, array in row}
        ops, sources = parts["op"].to_pylist(), parts["source"].to_pylist()
        kinds = {each.name: each.type for each in self.columns}
        changes = [self._change(*each) for each in zip(ops, sources, strict=True)]
        found[CHANGE["name"]] = pa.array(changes, kinds[CHANGE["name"]])
        return [found[name] for name in kinds]

    def _change(self, op: str, source: Mapping[str, Any] | None) -> dict[str, Any]:
        known = source or {}
        moments = (known[name] * unit for name, unit in MICROSECONDS.items() if known.get(name) is not None)
        numbers = ((known.get(f"{name}_long"), known.get(f"{name}_string")) for name in self._order)
        position = [_sortable(text if number is None else number) for number, text in numbers]
        has_position = any(each is not None for each in position)
        return {
            "op": op,
            "at": next(moments, None),
            "position": "/".join(each or "" for each in position) if has_position else None,
            "deleted": op == "d",
        }


def _within_years(array: Any) -> Any:
    """The same, with dates and timestamps outside the years 1 to 9999 set to the nearest one inside."""
    kind = array.type
    if pa.types.is_date32(kind) or pa.types.is_timestamp(kind):
        unit, whole = (86_400 * 10**6, pa.int32()) if pa.types.is_date32(kind) else (1, pa.int64())
        first, last = (pa.scalar(each // unit, whole) for each in (FIRST, LAST))
        bounded = pc.max_element_wise(array.cast(whole), first, skip_nulls=False)
        return pc.min_element_wise(bounded, last, skip_nulls=False).cast(kind)
    if pa.types.is_nested(kind):
        return with_children(array, lambda _name, child, _parents: _within_years(child)).cast(kind)
    return array


def _sortable(value: str | int | None) -> str | None:
    text = None if value is None else str(value)
    return text.zfill(20) if text is not None and DIGITS.fullmatch(text) else text


class Decoded(NamedTuple):
    """The rows of records, and the records without rows."""

    batches: list[pa.RecordBatch]
    refused: Refused


class Decoding(Protocol):
    """Turns records into rows, or gives a reason."""

    def rows(self, records: Records, *, tombstones: bool = False) -> Decoded:
        """tombstones: make rows of key and place only, from records without a value."""
        ...

    def dropped(self, records: Records) -> list[pa.RecordBatch]:
        """Rows of key and place only, of records that a step leaves out."""
        ...

    def doubtful(self, records: Records) -> set[int]:
        """The places of records that decode, but may be malformed: JSON with a duplicate member."""
        ...


@dataclass(slots=True)
class Values:
    """Decodes values into data columns, by their frames.

    `schema_of` finds a registry id. `versions`: of the subject, oldest first: they say which column has which earlier names.
    `foreign`: whether a frame's schema is another table's. `only`: values have no frame and this schema.
    """

    columns: pa.Schema
    schema_of: Callable[[int], Schema | None]
    top: Top = FIELDS
    versions: Sequence[Schema] = ()
    framing: Framing = CONFLUENT
    foreign: Callable[[bytes], bool] = lambda _: False
    only: Schema | None = None
    _writers: dict[bytes, Writer | str] = field(default_factory=dict)
    _fits: dict[int, Fit] = field(default_factory=dict)

    def of(self, records: Records, part: PartName = "value") -> list[bytes | None]:
        """The values that `decode` takes: those of records, or their keys."""
        if self.only is None:
            return self.framing.of(records, part)
        return records.values if part == "value" else records.keys

    def decode(self, value: bytes | None) -> tuple[Writer, Any]:
        """The writer of a value, and its row. Raises Unreadable if it makes none."""
        writer, plain = self._unframed(value)
        try:
            return writer, writer.decode(plain)
        except MALFORMED:
            raise Unreadable("malformed") from None

    def project(self, value: bytes | None) -> list[Any]:
        """The columns of a value. Raises Unreadable if it makes no row."""
        writer, row = self.decode(value)
        try:
            return writer.project([row])
        except MALFORMED:
            raise Unreadable("malformed") from None

    def verdict(self, value: bytes | None) -> str | None:
        """Why a value makes no row; None if it makes one."""
        try:
            self.project(value)
        except Unreadable as error:
            return error.reason
        return None

    def is_doubtful(self, value: bytes | None) -> bool:
        try:
            writer, plain = self._unframed(value)
            writer.decode(plain)
            return writer.is_ambiguous(plain)
        except (Unreadable, *MALFORMED):
            return False

    def _unframed(self, value: bytes | None) -> tuple[Writer, Any]:
        if self.only is not None and (value is not None or self.only.type in PLAIN):
            return self._writer(b""), value
        if value is None:
            raise Unreadable("null_value")
        return self._writer(self.framing.header(value)), self.framing.inflated(value)

    def _writer(self, frame: bytes) -> Writer:
        found = self._writers.get(frame)
        if found is None:
            found = self._writers[frame] = self._look_up(frame)
        if isinstance(found, str):
            raise Unreadable(found)
        return found

    def _look_up(self, frame: bytes) -> Writer | str:
        schema = self.only or self.schema_of(self.framing.schema_id(frame))
        if schema is None:
            return "unknown_schema_id"
        if self.only is None and self.foreign(frame):
            return "incompatible_schema"
        try:
            writer = self._writer_of(frame, schema)
        except UNFIT:
            return "incompatible_schema"
        writer.schema_id = None if schema.type in PLAIN else schema.number or None
        return writer

    def _writer_of(self, frame: bytes, schema: Schema) -> Writer:
        """The writer of a schema; raises one of `UNFIT` if the table cannot hold its values."""
        top = self.top
        change = CHANGE["name"] if top.changes else None
        read = self._read_as(pa.schema([each for each in self.columns if each.name != change]), schema)
        plan = reframed(writer(schema, read, self.framing, top), self.framing.frame(schema.id), frame)
        if not top.changes:
            return _writer(frame, self.columns, schema, read, plan, top)
        documents = None if top.document is None else _documents(top.document, read, top)
        read = read_as(own_columns(schema, top), read if documents is None else OF_TEXT, top.order)
        events = _writer(frame, arrow_columns(read), schema, read, plan, top)
        return _ChangeWriter(self.columns, events, top.order, documents)

    def _read_as(self, columns: pa.Schema, schema: Schema) -> Json:
        """The columns with the names by which the schema writes them."""
        table = iceberg_columns(columns)
        if schema.id not in self._fits:
            listed = any(each.id == schema.id for each in self.versions)
            versions = self.versions if listed else [*self.versions, schema]
            found = {each.id: fit for each, fit in fits(table, versions, self.top)}
            self._fits = found | self._fits
        fit = self._fits[schema.id]
        if fit.named is None:
            raise Unreadable("incompatible_schema")
        return as_written(table, fit.named)


def _documents(schema: Schema, read: Json, top: Top) -> Writer:
    """read: the columns of documents."""
    columns = arrow_columns(read)
    match writer(schema, read, BARE, top.of_document):
        case writers.JsonWriter() as plan:
            return DocumentWriter(b"", columns, plan, None)
        case writers.PlainWriter() as plan:
            return _PlainWriter(b"", columns, plan)
    raise Unreadable("incompatible_schema")


def _writer(
    frame: bytes, columns: pa.Schema, schema: Schema, read: Json, plan: writers.Writer, top: Top
) -> Writer:
    match plan:
        case writers.AvroWriter():
            return AvroWriter(frame, columns, schema, read, top)
        case writers.JsonWriter():
            return JsonWriter(frame, columns, plan, top.column)
        case writers.ProtobufWriter():
            return ProtobufWriter(frame, columns, compiled(schema), read, plan, top.column)
        case writers.PlainWriter():
            return _PlainWriter(frame, columns, plan)


class Keys:
    """Reads keys into their column; null without a key, and if `values` is None: keys were not read then."""

    def __init__(self, column: pa.Field, values: Values | None) -> None:
        self.column: str = column.name
        self._type = column.type
        self._values = values

    def of(self, records: Records) -> list[bytes | None]:
        return records.keys if self._values is None else self._values.of(records, "key")

    def read(self, key: bytes | None) -> Any:
        """The value of the column. Raises Unreadable with a reason `key_...`."""
        if key is None or self._values is None:
            return None
        try:
            [array] = self._values.project(key)
        except Unreadable as error:
            by_schema = error.reason in ("unknown_schema_id", "incompatible_schema")
            raise Unreadable(f"key_{error.reason}" if by_schema else "key_malformed") from None
        return array

    def array(self, found: list[Any]) -> Any:
        arrays = [pa.nulls(1, self._type) if each is None else each for each in found]
        return pa.concat_arrays(arrays) if arrays else pa.nulls(0, self._type)


@dataclass(frozen=True, slots=True)
class Decoder:
    """Decodes the records of one topic into one table's columns, including `_kafka` and the key's."""

    columns: pa.Schema
    topic: str
    values: Values
    key: Keys | None = None
    events: Events | None = None

    def rows(self, records: Records, *, tombstones: bool = False) -> Decoded:
        decoded: dict[Writer | None, tuple[list[int], list[Any]]] = {}
        refused: Refused = []
        keys: dict[int, Any] = {}
        key_values = self.key.of(records) if self.key else []
        attributes: dict[int, Any] = {}
        for place, event in enumerate(self._opened(records, tombstones=tombstones)):
            value = None
            try:
                value, attributes[place] = _good(event)
                writer, row = (None, None) if tombstones else self.values.decode(value)
                keys[place] = self.key.read(key_values[place]) if self.key else None
            except Unreadable as error:
                of_value = None if tombstones or error is event else self.values.verdict(value)
                refused.append((place, of_value or error.reason))
                continue
            places, found = decoded.setdefault(writer, ([], []))
            places.append(place)
            found.append(row)
        batches = []
        for writer, (places, found) in decoded.items():
            for kept, values in self._convertible(writer, places, found, refused):
                key = self.key.array([keys[place] for place in kept]) if self.key else None
                schema_id = writer.schema_id if writer else None
                events = self.events and self.events.array([attributes[place] for place in kept])
                batches.append(self._batch(records.select(kept), values, key, events, schema_id))
        return Decoded(batches, refused)

    def dropped(self, _: Records) -> list[pa.RecordBatch]:
        return []

    def doubtful(self, records: Records) -> set[int]:
        return {
            place
            for place, event in enumerate(self._opened(records))
            if not isinstance(event, Unreadable) and self.values.is_doubtful(event[0])
        }

    def _opened(self, records: Records, *, tombstones: bool = False) -> Iterable[Event | Unreadable]:
        """The values, and the attributes of CloudEvents."""
        values = self.values.of(records)
        if self.events is None or tombstones:
            return [(value, {}) for value in values]
        return self.events.of(records, values)

    def _convertible(
        self, writer: Writer | None, places: list[int], found: list[Any], refused: Refused
    ) -> Iterable[tuple[list[int], list[Any]]]:
        """The columns of all rows at once; if a value does not fit (an int of 64 bits), of each row that fits."""
        if writer is None:
            return [(places, [pa.nulls(len(places), each.type) for each in self.values.columns])]
        try:
            return [(places, writer.project(found))]
        except MALFORMED:
            if len(places) == 1:
                refused.append((places[0], "malformed"))
                return []
        each = zip(places, found, strict=True)
        return [one for n, row in each for one in self._convertible(writer, [n], [row], refused)]

    def _batch(
        self, records: Records, values: list[Any], key: Any, events: Any, schema_id: int | None
    ) -> pa.RecordBatch:
        kind = self.columns.field(SYSTEM_COLUMN).type
        facts = received(records, self.topic) | {"schema_id": [schema_id] * len(records)}
        kafka = [pa.array(facts[each.name], each.type) for each in kind]
        made = dict(zip(self.values.columns.names, values, strict=True))
        made[SYSTEM_COLUMN] = pa.StructArray.from_arrays(kafka, fields=list(kind))
        if self.key is not None:
            made[self.key.column] = key
        if self.events is not None:
            made[self.events.column] = events
        return pa.record_batch([made[name] for name in self.columns.names], schema=self.columns)


def _good(event: Event | Unreadable) -> Event:
    if isinstance(event, Unreadable):
        raise event
    return event


def received(records: Records, topic: str) -> dict[str, list[Any]]:
    """Kafka's facts of records beside their values, in the form of both tables."""
    headers = [
        None if each is None else [{"key": key, "value": value} for key, value in each]
        for each in records.headers
    ]
    return {
        "topic": [topic] * len(records),
        "partition": records.partitions,
        "offset": records.offsets,
        "timestamp": list(map(timestamp_us, records.timestamps_ms)),
        "timestamp_type": records.timestamp_types,
        "key": records.keys,
        "headers": headers,
    }
