"""From when to when each version of a row is valid, and which rows a batch may change, on arrays (ADR 67).

`glue_jobs.modes.history` has the first in Spark.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from calve.modes.history import DELETED, VALID_FROM, VALID_TO, History
from calve.names import SYSTEM_COLUMN
from calve.schema.columns import CHANGE, HISTORY
from glue_jobs.columns.arrow_types import arrow_type, column_at
from glue_jobs.index.decision import KeyedRecords, starts
from glue_jobs.index.key_index import Held
from glue_jobs.index.window import accumulated

Times = NDArray[np.int64]
Mask = NDArray[np.bool_]
NEVER = int(np.iinfo(np.int64).max)
MOMENT = pa.timestamp("us", "UTC")


def as_versions(rows: pa.Table, mode: History, *, gone: bool) -> pa.Table:
    """Records as rows of the table, each from its own time on. None has an end. gone: they delete: only their key stays."""
    times = [path for path in mode.times if path.partition(".")[0] in rows.column_names]
    begin = pc.coalesce(*(column_at(rows, path).cast(MOMENT) for path in times))
    deleted = pa.repeat(pa.scalar(gone), len(rows))
    if mode.changes and not gone:
        deleted = pc.fill_null(column_at(rows, f"{CHANGE['name']}.deleted"), pa.scalar(gone))
    if gone:
        rows = _keys_alone(rows, mode)
    return rows.append_column(HISTORY["name"], _history(begin, pa.nulls(len(rows), MOMENT), deleted))


def _keys_alone(rows: pa.Table, mode: History) -> pa.Table:
    keys = [each.split(".") for each in mode.key]
    kept = {
        name: _only(rows[name].combine_chunks(), within)
        for name in rows.column_names
        if (within := [key[1:] for key in keys if key[0] == name])
    }
    system = {name: rows[name] for name in rows.column_names if name == SYSTEM_COLUMN}
    return pa.table(kept | system)


def _only(array: pa.Array, keys: list[list[str]]) -> pa.Array:
    """An array of structs with nothing but these paths in it, or a key itself."""
    if [] in keys:
        return array
    made = []
    for each in array.type:
        within = [key[1:] for key in keys if key[0] == each.name]
        made.append(_only(array.field(each.name), within) if within else pa.nulls(len(array), each.type))
    return pa.StructArray.from_arrays(made, fields=list(array.type), mask=pc.is_null(array))


def _history(begin: pa.Array, end: pa.Array, deleted: pa.Array) -> pa.StructArray:
    fields = list(arrow_type(HISTORY["type"]))
    return pa.StructArray.from_arrays([begin, end, pc.is_null(end), deleted], fields=fields)


class Versions(NamedTuple):
    """Versions of rows, and where they come in their order: arrays of one length. Times are in microseconds; `NEVER`: no end.

    new: records of the round. The others are rows of the table.
    """

    records: KeyedRecords
    new: Mask
    begin: Times
    end: Times
    deleted: Mask

    @classmethod
    def of(cls, rows: pa.Table, records: KeyedRecords, new: Mask) -> Versions:
        begin, end = (column_at(rows, path).cast(pa.int64()) for path in (VALID_FROM, VALID_TO))
        deleted = column_at(rows, DELETED).to_numpy(zero_copy_only=False)
        return cls(records, new, begin.to_numpy(), pc.fill_null(end, NEVER).to_numpy(), deleted)

    def with_times(self, *, by_offset: bool) -> Versions:
        """The same, with their times. by_offset: in a partition, none begins before the one that it follows."""
        begin = self._after_those_before() if by_offset else self.begin
        line, begins = self._line(begin)
        new, start, number = self.new[line], begin[line], np.arange(len(line))
        # What ended the last row of the table up to each version also ends the version.
        last = accumulated(np.where(new, -1, number), begins)
        cut = np.where(last < 0, NEVER, self._cuts()[line][last])
        end = np.minimum(np.where(cut > start, cut, NEVER), _following(start, begins))
        found = np.empty(len(line), np.int64)
        found[line] = np.where(self.deleted[line], start, end)
        return self._replace(begin=begin, end=found)

    def known_before(self, lacking: Mapping[str, Mask]) -> Iterator[tuple[str, Mask, NDArray[np.int64]]]:
        """Each column with the versions that lack its value, and the last version of each one's row that has it; -1: none.

        None comes from before the row was deleted last.
        """
        line, begins = self._line(self.begin)
        number, lives = np.arange(len(line)), begins | self.deleted[line]
        for name, lacks in lacking.items():
            last = accumulated(np.where((lacks | self.deleted)[line], -1, number), lives)
            found = np.empty(len(line), np.int64)
            found[line] = np.where(last < 0, -1, line[last])
            yield name, lacks, found

    def _line(self, begin: Times) -> tuple[NDArray[np.intp], Mask]:
        """The numbers of the versions, row by row in their order, and where a row begins."""
        high, low, partition, offset = self.records[:4]
        line = np.lexsort((offset, partition, begin, low, high))
        return line, starts((high[line], low[line]))

    def _after_those_before(self) -> Times:
        high, low, partition, offset = self.records[:4]
        line = np.lexsort((offset, self.new, partition, low, high))
        found = np.empty(len(line), np.int64)
        found[line] = accumulated(self.begin[line], starts((high[line], low[line], partition[line])))
        return found

    def _cuts(self) -> Times:
        """Where rows of the table end though none begins there: the one that did was forgotten."""
        held, found = np.flatnonzero(~self.new), np.full(len(self.new), NEVER)
        rows = self._replace(records=self.records.take(held), begin=self.begin[held])
        line, begins = rows._line(rows.begin)
        following = _following(rows.begin[line], begins)
        ends = self.end[held][line]
        found[held[line]] = np.where(ends == following, NEVER, ends)
        return found


def _following(start: Times, begins: Mask) -> Times:
    """Where the next version of the row begins."""
    last = np.append(begins[1:], True)[: len(start)]
    return np.where(last, NEVER, np.append(start[1:], NEVER)[: len(start)])


def with_history(rows: pa.Table, versions: Versions) -> pa.Table:
    """The rows with the times of their versions."""
    begin = pa.array(versions.begin).cast(MOMENT)
    end = pa.array(versions.end, mask=versions.end == NEVER).cast(MOMENT)
    place = rows.schema.get_field_index(HISTORY["name"])
    made: Any = _history(begin, end, pa.array(versions.deleted)).cast(rows.schema.field(place).type)
    return rows.set_column(place, rows.schema.field(place), made)


def every_row(rows: Held, _: Held) -> NDArray[np.bool_]:
    return np.ones(len(rows[0]), bool)


def next_to(rows: Held, records: Held) -> NDArray[np.bool_]:
    """Which rows lie next to one of the records in their order: before it, beside it, or after it; all of an equal order."""
    groups, group_of = _groups(rows)
    places = np.unique(_by_order(records))
    at, wanted = np.searchsorted(groups, places), np.zeros(len(groups), bool)
    for step in (-1, 0, 1):
        here = at + step
        inside = (here >= 0) & (here < len(groups))
        here = here[inside]
        wanted[here[groups["key"][here] == places["key"][inside]]] = True
    return wanted[group_of]


def from_before(rows: Held, records: Held) -> NDArray[np.bool_]:
    """Which rows do not come before the first record of their key, and those of the greatest order before it."""
    groups, group_of = _groups(rows)
    line = _by_order(records)
    firsts = line[np.lexsort((line["order"], line["key"]))]
    firsts = firsts[starts([firsts["key"]])]
    least = np.searchsorted(groups, firsts)
    before = np.maximum(least - 1, 0)
    begins = least - ((least > 0) & (groups["key"][before] == firsts["key"]))
    ends = np.searchsorted(groups["key"], firsts["key"], side="right")
    marks = np.zeros(len(groups) + 1, np.int64)
    np.add.at(marks, begins, 1)
    np.add.at(marks, ends, -1)
    found: NDArray[np.bool_] = np.cumsum(marks)[:-1][group_of] > 0
    return found


def _by_order(held: Held) -> NDArray[Any]:
    return np.rec.fromarrays(held, dtype=[("key", "i8"), ("order", "i8")])


def _groups(rows: Held) -> tuple[NDArray[Any], NDArray[np.intp]]:
    """The orders that each key has, sorted, and the number of that of each row."""
    return np.unique(_by_order(rows), return_inverse=True)
