"""Decode Kafka records to the columns of a table: find the good records, and their values as Arrow arrays.

The good records and their values are the same as those of `glue_jobs.decode.decode`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from calve.decoding.decode_plan import DecodePlan
from calve.schema.columns import Json
from glue_jobs.columns.arrow_types import arrow_type
from glue_jobs.columns.buffers import Spans
from glue_jobs.columns.texts import Longs
from glue_jobs.decode.machines.parts import PartDecoder
from glue_jobs.kafka.records import DELIVERED, Records


@dataclass(frozen=True, slots=True)
class Decoded:
    """columns: an Arrow table of the good records, in order. good, rejected: their places among the records.

    All others belong to other tables. `others` counts them by index in `DecodePlan.other_ids`, at most `MAX_OTHERS`.
    schema_id: `_kafka.schema_id` of the good ones (an int32 array).
    deletions: the same of records that delete, which have only the columns of their keys; None: no record does.
    """

    columns: Any
    good: Longs
    rejected: Longs
    others: Mapping[int, int]
    schema_id: Any
    deletions: Decoded | None = None


class Decoder:
    """Not thread-safe. columns: the columns that records are decoded to (`RowPlan.source`).

    deletes: a record without a value deletes the row of its key.
    Memory: the returned columns, plus `Reader`'s memory for each schema met, plus that of `inflated`.
    `calve.decoding.avro_program.reasons` says beforehand whether every schema has a program.
    """

    def __init__(self, decoding: DecodePlan, columns: Json, *, deletes: bool = False) -> None:
        self._schema = pa.schema(arrow_type(columns))
        self._deletes = deletes
        self._value = PartDecoder(decoding, columns)
        self._key = PartDecoder(decoding.key, columns) if decoding.key else None

    def decode(self, records: Records) -> Decoded:
        delivered = np.flatnonzero(records.refused == DELIVERED)
        empty = records.value_size[delivered] < 0
        values = delivered[~empty] if self._deletes else delivered
        found = self._value.read(Spans(records.buffer, records.value_at, records.value_size, values))
        rejected = np.ones(len(records), np.bool_)
        for each in found.foreign:
            rejected[each] = False
        made = self._with_key(records, found.columns, found.records, found.numbers, rejected)
        deletions = None
        if self._deletes and empty.any():
            gone = delivered[empty]
            deletions = self._with_key(records, pa.table({}), gone, pa.nulls(gone.size, pa.int32()), rejected)
        return replace(made, rejected=np.flatnonzero(rejected), others=found.others, deletions=deletions)

    def _with_key(
        self, records: Records, columns: Any, good: Longs, numbers: Any, rejected: NDArray[np.bool_]
    ) -> Decoded:
        """The records among `good` whose key is good, which `rejected` marks no longer; with all columns."""
        of_key: Any = pa.table({})
        if self._key is not None:
            of_key, kept = self._key.of(Spans(records.buffer, records.key_at, records.key_size, good))
            mask = pa.array(kept)
            good, numbers = good[kept], numbers.filter(mask)
            columns = columns.filter(mask) if columns.num_columns else columns
        rejected[good] = False
        held = {name: part.column(name) for part in (columns, of_key) for name in part.column_names}
        arrays = [held.get(each.name, pa.nulls(good.size, each.type)) for each in self._schema]
        made = pa.Table.from_arrays(arrays, schema=self._schema)
        return Decoded(made, good, good[:0], {}, numbers)
