"""Decode the values of records, or their keys, as Spark has them: each with its columns, or the reason why it has none."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from calve.decoding.decode_plan import DecodePlan
from calve.schema.columns import Json
from calve.schema.wire import Wire
from glue_jobs.columns.arrow_types import arrow_type
from glue_jobs.columns.buffers import Spans, spans_of
from glue_jobs.columns.texts import Longs
from glue_jobs.decode.machines.change_events import Events
from glue_jobs.decode.machines.parts import NOBODY, PartDecoder, Prefixes, structs

Places = NDArray[np.int32]
CHUNK_BYTES = 4_000_000
"""How many bytes of values are decoded at once, plus one value."""


class Judge:
    """Not thread-safe. columns: of the structs that it makes, as Spark has them. Memory: as `PartDecoder`.

    order: of change events, the fields of `source` that order them; None: the values are no change events.
    """

    def __init__(self, decoding: DecodePlan, columns: Json, order: Sequence[str] | None = None) -> None:
        self._decoding, self._columns = decoding, arrow_type(columns, fixed=False)
        self._events = None if order is None else Events(decoding, order)
        self._decoder = PartDecoder(decoding)
        known = [(frame, n) for each, n in decoding.numbers.items() for frame in decoding.wire.frames(each)]
        self._magics = Prefixes([decoding.wire.magic])
        self._frames, self._known = (
            Prefixes([frame for frame, _ in known]),
            np.array([n for _, n in known], np.int64),
        )

    def judge(
        self, values: pa.Array, sizes: Places | None = None, headers: pa.Array | None = None
    ) -> Iterator[pa.Array]:
        """The values (binary) in arrays of structs, in order. sizes: as received; None: those of the values.

        headers: of the records, if those are CloudEvents.
        """
        spans = spans_of(values)
        sizes = spans.sizes if sizes is None else sizes
        begin = 0
        while begin < len(values):
            end = max(begin + 1, int(np.searchsorted(spans.places, int(spans.places[begin]) + CHUNK_BYTES)))
            some = replace(spans, records=spans.records[begin:end])
            theirs = None if headers is None else headers[begin:end]
            yield self._judged(some, begin, sizes[begin:end], theirs)
            begin = end

    def _judged(self, spans: Spans, begin: int, sizes: Places, headers: pa.Array | None) -> pa.Array:
        found, count = self._decoder.read(spans, headers), spans.records.size
        held, rejected = found.columns, found.rejected
        if self._events is not None:
            does = self._events.of(held, found.records.size)
            held, rejected = pa.table(does.rows), [*rejected, ("bad_change", found.records[does.bad])]
        rows = structs(held, self._columns, found.records.size)
        if found.records.size < count:
            places = found.places(spans.sizes.size)[spans.records]
            rows = rows.take(pa.array(places, mask=places < 0))
        return pa.StructArray.from_arrays(
            [
                rows,
                _filled(count, pa.string(), ((why, each - begin) for why, each in rejected)),
                self._numbers(spans),
                _filled(count, pa.int32(), ((place, each - begin) for place, each in found.foreign)),
                pa.array(sizes, mask=sizes < 0),
            ],
            names=["value", "reason", "number", "other", "size"],
        )

    def _numbers(self, spans: Spans) -> pa.Array:
        """`_kafka.schema_id` of each value: of the schema that reads it, or that it names; null if there is none."""
        decoding, wire, sizes = self._decoding, self._decoding.wire, spans.sizes[spans.records]
        if not wire.size:
            [only] = decoding.ids
            number = decoding.numbers.get(only, only)
            return pa.array(np.full(sizes.size, number), pa.int32(), mask=(sizes < 0) | (number == 0))
        found, known = np.zeros(sizes.size, np.int64), np.zeros(sizes.size, np.bool_)
        if wire.names_are_numbers:
            known = (self._magics.find(spans) != NOBODY) & (sizes >= wire.size)
            found = _ids(spans, wire)
        if self._known.size:
            which = self._frames.find(spans)
            found[which != NOBODY], known = self._known[which[which != NOBODY]], known | (which != NOBODY)
        return pa.array(found.astype(np.int32), mask=~known)


def _ids(spans: Spans, wire: Wire) -> Longs:
    """The 32-bit numbers in the headers, as signed numbers; any number for a value without a header."""
    found = np.zeros(spans.records.size, np.int64)
    for place in range(len(wire.magic), wire.size):
        at = np.minimum(spans.places[spans.records] + place, spans.data.size - 1)
        found = found << 8 | spans.data[at]
    return found.astype(np.uint32).astype(np.int32).astype(np.int64)


def _filled(count: int, kind: Any, parts: Iterator[tuple[Any, NDArray[np.int64]]]) -> pa.Array:
    """An array of nulls with some values at some places."""
    held: list[Any] = []
    which = np.full(count, -1)
    for value, places in parts:
        which[places] = len(held)
        held.append(value)
    return pa.array(held, kind).take(pa.array(which, mask=which < 0))
