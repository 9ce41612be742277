"""Values that updates of change data lack: from the key's row before the event, as if events were applied one by one (ADR 19).

A value comes from the last event of the key in its partition that became the row when it was read, and has the value.
Else it comes from the table's row, unless the key was deleted in between. Else Debezium's placeholder stays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from calve.schema.evolution import column_at
from glue_jobs.decode.machines.change_events import Mask, lacking
from glue_jobs.iceberg.delete_files import LiveFile
from glue_jobs.index.data_files import KeyColumns
from glue_jobs.index.decision import KeyedRecords, KeyRule, ended, overtaken, ranks, starts
from glue_jobs.index.window import accumulated
from glue_jobs.table.open_table import OpenTable

Numbers = NDArray[np.int64]
Sources = dict[str, tuple[Numbers, Numbers]]
"""By column: the events that ask for a value, and the event that each gets it from; -1: the table's row."""
INFLATION = 4
"""How many bytes of memory a byte of a Parquet file may become."""
MOST_BYTES = 128_000_000
"""The estimated bytes of values that the driver reads for one round."""


class TooLarge(Exception):
    """The driver has no room for the values that updates lack. Nothing was read or written."""


def filled(
    table: OpenTable,
    rule: KeyRule,
    every: KeyedRecords,
    kept: Mask,
    aside: pa.Table,
    files: Sequence[LiveFile],
) -> pa.Table:
    """The rows set aside that stay, with the values that they lack, as the table is now.

    every: the records of `files` by position, of `aside`, and deletions. kept: which of them stay.
    Raises TooLarge.
    """
    begin = sum(each.rows for each in files)
    here = slice(begin, begin + len(aside))
    lacks = {name: each for name, each in lacking(aside).items() if (each & kept[here]).any()}
    rows = aside.filter(pa.array(kept[here]))
    if not lacks:
        return rows
    needy = kept[here] & reduce(np.logical_or, lacks.values())
    events = _Events.of(table, rule, every, every.high[here][needy])

    def marked(of_aside: Mask) -> Mask:
        found = np.zeros(len(every.high), bool)
        found[here] = of_aside
        return found[events.places]

    sources: Sources = {}
    for name, each in lacks.items():
        asking = np.flatnonzero(marked(each & needy))
        sources[name] = asking, events.last(~marked(each))[asking]
    of_files, of_table = _not_at_hand(events, sources, begin)
    keys = events.records.keys.take(of_table)
    stored = table.index.bytes_of(table.main, keys, rule.key)
    if INFLATION * (stored + _bytes(of_files, files)) > MOST_BYTES:
        raise TooLarge
    numbers, held = table.index.values(table.main, keys, rule.key, list(lacks))
    read = _read(table, aside.schema, list(lacks), of_files, files)
    # Where values are among those of `aside`, `read` and `held`: of each record, and of the table's row of each event.
    of_place, of_row = np.arange(len(every.high)) - begin, np.full(len(events.places), -1)
    of_place[of_files] = len(aside) + np.arange(len(of_files))
    of_row[of_table[numbers]] = len(aside) + len(of_files) + np.arange(len(numbers))
    for name, (asking, last) in sources.items():
        own = of_place[events.places[asking]]
        found = np.where(last < 0, of_row[asking], of_place[events.places[last]])
        take = np.arange(len(aside))
        take[own] = np.where(found < 0, own, found)
        field = aside.schema.field(name)
        chunks = [chunk.cast(field.type) for part in (aside, read, held) for chunk in part[name].chunks]
        values = pa.chunked_array(chunks, field.type).take(pa.array(take[kept[here]]))
        rows = rows.set_column(rows.column_names.index(name), field, values)
    return rows


@dataclass(frozen=True, slots=True)
class _Events:
    """The records of some keys that no deletion ends, in groups of a key and partition, by offset.

    places: their numbers in all records. rows: which of them became the row of their key when they were read.
    forgotten: which of them have a key that the batch has deleted.
    """

    places: Numbers
    records: KeyedRecords
    begins: Mask
    rows: Mask
    forgotten: Mask

    @classmethod
    def of(cls, table: OpenTable, rule: KeyRule, every: KeyedRecords, high: NDArray[np.uint64]) -> _Events:
        """high: of the keys. Other keys with the same half of a hash are groups of their own."""
        places = np.flatnonzero(np.isin(every.high, high))
        places = places[~ended(every.take(places))]
        found = every.take(places)
        order = np.lexsort((found.offset, found.partition, found.low, found.high))
        places, found = places[order], found.take(order)
        begins = starts((found.high, found.low, found.partition))
        rows, number = ~found.deletes, np.arange(len(places))
        if rule.order_by is not None:
            orders = ranks(found.order)
            lost = overtaken(found, *table.index.orders(table.main, found.keys, rule.key))
            rows &= (orders == accumulated(orders, begins)) & ~lost
        # What is left of a group begins with its last deletion, if it has one.
        firsts = accumulated(np.where(begins, number, 0), begins)
        return cls(places, found, begins, rows, found.deletes[firsts])

    def last(self, known: Mask) -> Numbers:
        """The number of the last known row up to each event; -1: there is none."""
        return accumulated(np.where(self.rows & known, np.arange(len(known)), -1), self.begins)


def _not_at_hand(events: _Events, sources: Sources, begin: int) -> tuple[Numbers, Numbers]:
    """What to read: places of records in files, which end at `begin`, and numbers of events whose table's row is a source."""
    last = np.concatenate([last for _, last in sources.values()])
    of_events = np.unique(events.places[last[last >= 0]])
    of_table = np.unique(np.concatenate([asking[last < 0] for asking, last in sources.values()]))
    return of_events[of_events < begin], of_table[~events.forgotten[of_table]]


def _numbers_of_files(places: Numbers, files: Sequence[LiveFile]) -> Numbers:
    """The number of each record's file."""
    return np.searchsorted(np.cumsum([each.rows for each in files]), places, side="right")


def _bytes(places: Numbers, files: Sequence[LiveFile]) -> float:
    """The bytes of records of staged files."""
    counts = np.bincount(_numbers_of_files(places, files), minlength=len(files)).tolist()
    return sum(each.bytes_of(count) for each, count in zip(files, counts, strict=True))


def _read(
    table: OpenTable, schema: pa.Schema, names: list[str], places: Numbers, files: Sequence[LiveFile]
) -> pa.Table:
    """Values of records of staged files, in the order of their places."""
    firsts, numbers = np.cumsum([0, *(each.rows for each in files)]), _numbers_of_files(places, files)
    some = np.unique(numbers).tolist()
    positions = {files[number].path: places[numbers == number] - firsts[number] for number in some}
    columns = ((column_at(table.main.schema, each) or {}, schema.field(each).type) for each in names)
    read = KeyColumns(tuple((each["id"], kind) for each, kind in columns), None)
    parts = table.index.values_at(table.main, read, [files[number] for number in some], positions)
    found = [parts[path].rename_columns(names) for path in positions]
    return pa.concat_tables([schema.empty_table().select(names), *found], promote_options="permissive")
