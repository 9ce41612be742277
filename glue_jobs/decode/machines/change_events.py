"""Change events to rows, as Arrow columns: the row that an event changes, and the change (ADR 19).

`calve.schema.change_events.of_event` defines the columns of events: `op`, `before`, `after` and a part of `source`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from calve.decoding.decode_plan import DecodePlan
from calve.schema.change_events import DELETES, SAYS, TRUNCATES, UNAVAILABLE, UPDATES, WRITES, slots
from calve.schema.columns import CHANGE, FIRST_MICROS, LAST_MICROS, MOST_MILLIS
from calve.schema.documents import PLAIN
from calve.schema.writers import JsonWriter
from glue_jobs.columns.arrow_types import arrow_type
from glue_jobs.columns.buffers import spans_of
from glue_jobs.decode.machines.cells import Items
from glue_jobs.decode.machines.moments import DAY_MICROS
from glue_jobs.decode.machines.parts import PartDecoder, structs

Mask = NDArray[np.bool_]
DIGITS = 20
"""The digits of the greatest 64-bit number. Integers are padded to this length, so that their texts sort as they do."""
NUMBER = rf"\A[0-9]{{1,{DIGITS}}}\z"


@dataclass(frozen=True, slots=True)
class Opened:
    """What each event does. rows: the columns of its row, and `CHANGE`; of a deleted row, as the event has it.

    bad: it has an unknown operation, lacks the row that it writes, or has a document that does not match its schema; also events
    that are null. idle: it changes no single row.
    deletes, truncates: it deletes its row, or all of them.
    """

    rows: pa.RecordBatch
    bad: Mask
    idle: Mask
    deletes: Mask
    truncates: Mask


class Events:
    """Opens change events. Not thread-safe. order: fields of `source` that order changes."""

    def __init__(self, decoding: DecodePlan, order: Sequence[str]) -> None:
        self._kind, self._order = arrow_type(decoding.columns), order
        self._documents = Documents(decoding.document) if decoding.document else None

    def of(self, columns: pa.Table, count: int) -> Opened:
        """Open so many events, of these columns."""
        return self.opened(structs(columns, self._kind, count))

    def opened(self, events: pa.StructArray) -> Opened:
        """Open events.

        Databases have dates before year 1 or after 9999. They become the first or the last allowed one (ADR 40).
        """
        op, before, after, source = (
            pc.struct_field(events, name) for name in ("op", "before", "after", "source")
        )
        deleted = pc.equal(op, DELETES)
        deletes, truncates = _mask(deleted), _mask(pc.equal(op, TRUNCATES))
        idle = truncates | _mask(pc.equal(op, SAYS))
        written = _mask(pc.is_in(op, pa.array(WRITES))) & _mask(pc.is_valid(after))
        row = pc.if_else(pa.array(deletes), before, after) if deletes.any() else after
        if self._documents is not None:
            row, misfits = self._documents.read(row)
            written &= ~misfits
        change = pa.StructArray.from_arrays(
            [op, _moment(source), _position(source, self._order), deleted],
            fields=list(arrow_type(CHANGE["type"])),
        )
        held = [kept_within_years(each) for each in row.flatten()]
        rows = pa.RecordBatch.from_arrays(
            [*held, change], [*(each.name for each in row.type), CHANGE["name"]]
        )
        return Opened(rows, ~(written | deletes | idle), idle, deletes, truncates)


class Documents:
    """Reads MongoDB's documents. Not thread-safe."""

    def __init__(self, decoding: DecodePlan) -> None:
        self._kind, self._decoder = arrow_type(decoding.columns), PartDecoder(decoding)
        self._are_json = any(isinstance(each, JsonWriter) for each in decoding.writers)

    def read(self, texts: pa.StringArray) -> tuple[pa.StructArray, Mask]:
        """The rows of texts, and which texts do not match their schema; the rows of those are null, as of texts that are null."""
        if self._are_json:
            for expression, value in PLAIN:
                texts = pc.replace_substring_regex(texts, expression, value)
        spans = spans_of(texts)
        found = self._decoder.read(replace(spans, records=np.flatnonzero(spans.sizes >= 0)))
        places = found.places(len(texts))
        rows = structs(found.columns, self._kind, found.records.size)
        return rows.take(pa.array(places, mask=places < 0)), (spans.sizes >= 0) & (places < 0)


def lacking(rows: pa.Table) -> dict[str, Mask]:
    """Which rows are updates that lack the value of a column, by column; without columns that no row lacks."""
    changes = rows[CHANGE["name"]].combine_chunks()
    updates = _mask(pc.equal(pc.struct_field(changes, "op"), UPDATES))
    if not updates.any():
        return {}
    found = zip(
        rows.column_names, (updates & _lacks(each.combine_chunks()) for each in rows.columns), strict=True
    )
    return {name: each for name, each in found if each.any()}


def kept_within_years(array: pa.Array) -> pa.Array:
    """An array with its dates and timestamps limited to the years 1 to 9999, at any depth."""
    kind = array.type
    if not _has_times(kind):
        return array
    if pa.types.is_struct(kind):
        fields = [kept_within_years(array.field(number)) for number in range(kind.num_fields)]
        return pa.StructArray.from_arrays(fields, fields=list(kind), mask=pc.is_null(array))
    if pa.types.is_list(kind) or pa.types.is_map(kind):
        items = Items.of(array)
        return items.with_values(kept_within_years(items.values))
    unit, plain = (DAY_MICROS, pa.int32()) if pa.types.is_date(kind) else (1, pa.int64())
    first, last = (pa.scalar(each // unit, plain) for each in (FIRST_MICROS, LAST_MICROS))
    numbers = array.view(plain)
    bounded = pc.min_element_wise(
        pc.max_element_wise(numbers, first, skip_nulls=False), last, skip_nulls=False
    )
    return bounded.view(kind)


def _has_times(kind: pa.DataType) -> bool:
    if pa.types.is_map(kind):
        return _has_times(kind.item_type)
    return pa.types.is_temporal(kind) or any(
        _has_times(kind.field(number).type) for number in range(kind.num_fields)
    )


def _moment(source: pa.StructArray) -> pa.Array:
    micros, millis = (pc.struct_field(source, name) for name in ("ts_us_long", "ts_ms_long"))
    fits = pc.and_(pc.greater_equal(millis, -MOST_MILLIS), pc.less_equal(millis, MOST_MILLIS))
    coarse = pc.multiply(pc.if_else(fits, millis, None), 1000)
    return pc.coalesce(micros, coarse).view(pa.timestamp("us", "UTC"))


def _position(source: pa.StructArray, order: Sequence[str]) -> pa.Array:
    """Text that sorts as the fields do, one after the other; null if an event has none of them."""
    parts = []
    for name in order:
        held = [
            pc.struct_field(source, slot).cast(pa.string())
            for slot, (field, _) in slots(order).items()
            if field == name
        ]
        text = pc.coalesce(*held)
        number = pc.match_substring_regex(text, NUMBER)
        parts.append(pc.if_else(number, pc.ascii_lpad(text, DIGITS, "0"), text))
    if not parts:
        return pa.nulls(len(source), pa.string())
    joined = pc.binary_join_element_wise(*parts, "/", null_handling="replace", null_replacement="")
    some = reduce(pc.or_, (pc.is_valid(each) for each in parts))
    return pc.if_else(some, joined, None)


def _lacks(column: pa.Array) -> Mask:
    """Which values are Debezium's placeholder: a text, bytes, a list of one such text, or a map of one such key."""
    kind = column.type
    if pa.types.is_string(kind):
        return _mask(pc.equal(column, UNAVAILABLE))
    if pa.types.is_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return _mask(pc.equal(column.cast(pa.binary()), UNAVAILABLE.encode()))
    if (pa.types.is_list(kind) and pa.types.is_string(kind.value_type)) or (
        pa.types.is_map(kind) and pa.types.is_string(kind.key_type)
    ):
        items = Items.of(column)
        lacking = _mask(pc.equal(items.values if items.keys is None else items.keys, UNAVAILABLE))
        found: Mask = (items.sizes == 1) & _mask(pc.is_valid(column))
        found[found] = lacking[items.begins[:-1][found]]
        return found
    return np.zeros(len(column), np.bool_)


def _mask(condition: pa.BooleanArray) -> Mask:
    """The same without nulls, which count as false."""
    found: Mask = pc.fill_null(condition, False).to_numpy(zero_copy_only=False)  # noqa: FBT003 a value, not a switch
    return found
