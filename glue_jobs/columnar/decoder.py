"""Kafka records to the columns of a table: which records are good, and their values as Arrow arrays.

A record is good where `glue_jobs.decode` finds it good, and its values are those that it finds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from calve.avro_program import program, require_avro
from calve.columns import Json
from calve.decoding import Decoding
from calve.writers import PlainWriter, Writer
from glue_jobs.columnar.cells import Longs
from glue_jobs.columnar.framing import Prefixes
from glue_jobs.columnar.payloads import inflated
from glue_jobs.columnar.reader import PlainReader, Reader, Spans
from glue_jobs.columnar.records import Records
from glue_jobs.columnar.types import arrow_type
from glue_jobs.verdicts import MAX_OTHERS


@dataclass(frozen=True, slots=True)
class Decoded:
    """columns: those of the good records (a table of Arrow's), in their order. good, rejected: places in the records; those in
    neither are of other tables, counted in `others` by the place of their schema in `Decoding.other_ids`, at most `MAX_OTHERS`.
    schema_id: as `_kafka.schema_id` of the good ones (an array of int32).
    """

    columns: Any
    good: Longs
    rejected: Longs
    others: Mapping[int, int]
    schema_id: Any


class Decoder:
    """Not to be shared between threads. columns: all that records are decoded to (`glue_jobs.shaping.Shaping.source`).

    Besides the columns that it gives it takes what `Reader` does for each schema that it has met, and what `inflated` does.

    Raises:
        Unsupported: the values of a writer are only read as rows.
    """

    def __init__(self, decoding: Decoding, columns: Json) -> None:
        self._schema = pa.schema(arrow_type(columns))
        self._value = _Part(decoding, columns)
        self._key = _Part(decoding.key, columns) if decoding.key else None

    def decode(self, records: Records) -> Decoded:
        every = np.arange(len(records))
        found = self._value.read(Spans(records.buffer, records.value_at, records.value_size, every))
        rejected = np.ones(len(records), np.bool_)
        for each in found.foreign:
            rejected[each] = False
        columns, good, numbers = found.columns, found.records, found.numbers
        if self._key is not None:
            keys, kept = self._key.of(good, records)
            mask = pa.array(kept)
            columns, good, numbers = columns.filter(mask), good[kept], numbers.filter(mask)
            for name in keys.column_names:
                columns = columns.append_column(name, keys.column(name))
        rejected[good] = False
        names = set(columns.column_names)
        arrays = [
            columns.column(each.name) if each.name in names else pa.nulls(good.size, each.type)
            for each in self._schema
        ]
        made = pa.Table.from_arrays(arrays, schema=self._schema)
        return Decoded(made, good, np.flatnonzero(rejected), found.others, numbers)


@dataclass(frozen=True, slots=True)
class _Found:
    """What has been read of values or keys. numbers: of the schemas. foreign: records of other tables."""

    columns: Any
    records: Longs
    numbers: Any
    foreign: list[Longs]
    others: Counter[int]


class _Part:
    """The values of records, or their keys."""

    def __init__(self, decoding: Decoding, columns: Json) -> None:
        kinds = {each["name"]: each["type"] for each in columns["fields"]}
        self._wire = decoding.wire
        self._readers = [_reader(each, columns, kinds) for each in decoding.writers]
        self._numbers = [_number(decoding, each) for each in decoding.writers]
        self._plain = any(isinstance(each, PlainReader) for each in self._readers)
        others = decoding.others if decoding.wire.size else ()
        places = {each: min(place, MAX_OTHERS) for place, each in enumerate(decoding.other_ids)}
        self._places = [places[self._wire.schema_id(each)] for each in others]
        self._prefixes = Prefixes([*(each.prefix for each in decoding.writers), *others])
        names = dict.fromkeys(name for each in self._readers for name in each.names)
        self._schema = pa.schema([pa.field(name, arrow_type(kinds[name])) for name in names])

    def read(self, spans: Spans) -> _Found:
        """The good values in the order of their records."""
        foreign, others = list[Longs](), Counter[int]()
        batches, pieces, writers = list[Any](), list[Longs](), list[int]()
        for each in inflated(spans, self._wire):
            whose = self._whose(each)
            for number, reader in enumerate(self._readers):
                mine = replace(each, records=each.records[whose == number])
                for records, batch in reader.read(mine):
                    batches.append(self._complete(batch))
                    pieces.append(records)
                    writers.append(number)
            for number, place in enumerate(self._places, len(self._readers)):
                foreign.append(each.records[whose == number])
                others[place] += foreign[-1].size
        records = np.concatenate([np.zeros(0, np.int64), *pieces])
        columns = pa.Table.from_batches(batches, self._schema)
        numbers = self._numbers_of(writers, pieces)
        if np.any(records[1:] < records[:-1]):
            order = np.argsort(records)
            places = pa.array(order)
            records, numbers = records[order], numbers.take(places)
            columns = columns.combine_chunks().take(places)
        return _Found(columns, records, numbers, foreign, +others)

    def _whose(self, spans: Spans) -> Any:
        """The number of the writer of each value, or of the other table, after those."""
        if self._plain:
            return np.zeros(spans.records.size, np.int32)
        return self._prefixes.find(spans.data, spans.places, spans.sizes, spans.records)

    def _complete(self, batch: Any) -> Any:
        """A writer's columns as those of all writers."""
        if batch.schema.equals(self._schema):
            return batch
        held = set(batch.schema.names)
        arrays = [
            batch.column(each.name) if each.name in held else pa.nulls(batch.num_rows, each.type)
            for each in self._schema
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _numbers_of(self, writers: list[int], pieces: list[Longs]) -> Any:
        each = [
            pa.repeat(pa.scalar(self._numbers[number], pa.int32()), records.size)
            for number, records in zip(writers, pieces, strict=True)
        ]
        return pa.concat_arrays(each) if each else pa.nulls(0, pa.int32())

    def of(self, chosen: Longs, records: Records) -> tuple[Any, Any]:
        """The columns of the keys of chosen records, null where there is no key; which of the records they are, but for those
        whose key is bad.
        """
        has_key = records.key_size[chosen] >= 0
        found = self.read(Spans(records.buffer, records.key_at, records.key_size, chosen[has_key]))
        place = np.full(len(records), -1)
        place[found.records] = np.arange(found.records.size)
        places = place[chosen]
        kept = ~has_key | (places >= 0)
        places = places[kept]
        return found.columns.take(pa.array(places, mask=places < 0)), kept


def _reader(writer: Writer, columns: Json, kinds: Mapping[str, Json]) -> Reader | PlainReader:
    if isinstance(writer, PlainWriter):
        return PlainReader(writer, kinds[writer.column])
    return Reader(program(require_avro(writer), columns), len(writer.prefix))


def _number(decoding: Decoding, writer: Writer) -> int | None:
    """What `glue_jobs.verdicts.schema_id` finds for a good value of this writer."""
    if not decoding.wire.size:
        return decoding.numbers.get(writer.id, writer.id) or None
    if decoding.wire.names_are_numbers:
        return int(decoding.wire.name(writer.id))
    return decoding.numbers.get(writer.id)
