"""Decode Kafka records to the columns of a table: find the good records, and their values as Arrow arrays.

The good records and their values are the same as those of `glue_jobs.decode.decode`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from calve.decoding.decode_plan import DecodePlan
from calve.modes.mode import APPEND, Mode
from calve.schema.columns import Json
from glue_jobs.columns.arrow_types import arrow_type
from glue_jobs.columns.texts import Longs
from glue_jobs.decode.machines.change_events import Events, Mask
from glue_jobs.decode.machines.parts import Found, PartDecoder
from glue_jobs.kafka.records import DELIVERED, Records, header_lists, named


@dataclass(frozen=True, slots=True)
class Decoded:
    """columns: an Arrow table of the good records, in order. good, rejected: their places among the records.

    All others belong to other tables. `others` counts them by index in `DecodePlan.other_ids`, at most `MAX_OTHERS`.
    schema_id: `_kafka.schema_id` of the good ones (an int32 array).
    deletions: the same of records that delete: change events, and tombstones, which have only the columns of their keys.
    truncates: the number of events that empty the table.
    """

    columns: Any
    good: Longs
    rejected: Longs
    others: Mapping[int, int]
    schema_id: Any
    deletions: tuple[Decoded, ...] = ()
    truncates: int = 0


class Decoder:
    """Not thread-safe. columns: the columns that records are decoded to (`RowPlan.source`), for a table of this mode.

    Memory: as `PartDecoder`.
    """

    def __init__(self, decoding: DecodePlan, columns: Json, mode: Mode = APPEND) -> None:
        self._schema = pa.schema(arrow_type(columns))
        self._mode, self._has_events = mode, decoding.event is not None
        self._events = Events(decoding, mode.source_order) if mode.reads_changes else None
        self._value = PartDecoder(decoding)
        self._key = PartDecoder(decoding.key) if decoding.key else None

    def decode(self, records: Records) -> Decoded:
        delivered = np.flatnonzero(records.refused == DELIVERED)
        none = records.value_size[delivered] < 0
        judged = self._mode.deletes or self._mode.reads_changes
        values, empty = (delivered[~none], delivered[none]) if judged else (delivered, delivered[:0])
        headers = header_lists(records, values) if self._has_events else None
        found = self._value.read(named(records, "value", values, self._value.wire), headers)
        rejected = np.ones(len(records), np.bool_)
        others = Counter[int]()
        for place, each in found.foreign:
            rejected[each] = False
            others[place] += each.size

        def with_key(columns: Any, good: Longs, numbers: Any) -> Decoded:
            return self._with_key(records, columns, good, numbers, rejected)

        deletions: list[Decoded] = []
        truncates = 0
        if self._events is None:
            made = with_key(found.columns, found.records, found.numbers)
        else:
            made, deletions, truncates = self._opened(found, self._events, with_key)
        if empty.size:
            tombstones = with_key(pa.table({}), empty, pa.nulls(empty.size, pa.int32()))
            deletions += [tombstones] if self._mode.deletes else []
        return replace(
            made,
            rejected=np.flatnonzero(rejected),
            others=others,
            deletions=tuple(deletions),
            truncates=truncates,
        )

    def _opened(
        self, found: Found, events: Events, with_key: Callable[[Any, Longs, Any], Decoded]
    ) -> tuple[Decoded, list[Decoded], int]:
        """The rows that events write, those that they delete, and the number of truncations."""
        does = events.of(found.columns, found.records.size)

        def those(wanted: Mask) -> Decoded:
            if wanted.all():
                return with_key(pa.table(does.rows), found.records, found.numbers)
            mask = pa.array(wanted)
            return with_key(
                pa.table(does.rows.filter(mask)), found.records[wanted], found.numbers.filter(mask)
            )

        gone = does.deletes & (not self._mode.keep_deleted)
        idle = those(does.idle & ~(does.truncates & self._mode.keeps_versions))
        made = those(~(does.bad | does.idle | gone))
        truncates = np.isin(idle.good, found.records[does.truncates]).sum()
        return made, [those(gone)] if gone.any() else [], int(truncates)

    def _with_key(
        self, records: Records, columns: Any, good: Longs, numbers: Any, rejected: NDArray[np.bool_]
    ) -> Decoded:
        """The records among `good` whose key is good, which `rejected` marks no longer; with all columns."""
        of_key: Any = pa.table({})
        if self._key is not None:
            of_key, kept = self._key.of(named(records, "key", good, self._key.wire))
            mask = pa.array(kept)
            good, numbers = good[kept], numbers.filter(mask)
            columns = columns.filter(mask) if columns.num_columns else columns
        rejected[good] = False
        held = {name: part.column(name) for part in (columns, of_key) for name in part.column_names}
        return Decoded(_with_columns(pa.table(held), self._schema, good.size), good, good[:0], {}, numbers)


def _with_columns(held: Any, schema: pa.Schema, size: int) -> Any:
    """A table with the columns of a schema, in its order; those that are missing are null."""
    arrays = [
        held[each.name] if each.name in held.column_names else pa.nulls(size, each.type) for each in schema
    ]
    return pa.Table.from_arrays(arrays, schema=schema)
