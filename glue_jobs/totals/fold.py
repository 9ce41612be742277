"""Fold totals of groups: a record is the totals of itself, and a row those of all its records so far (ADR 20, ADR 50).

One function folds both, in tasks and in the driver. So the result does not depend on rounds, record order or the number of
tasks. A table of totals has the columns of the group, the measures, a flag beside each measure, and `LAST`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from calve.modes.aggregate import (
    EMPTY,
    Aggregate,
    Total,
    groups_of,
    require_same_columns,
    totals_of,
)
from calve.modes.measures import columns_in
from calve.names import SYSTEM_COLUMN
from calve.schema.columns import KAFKA, Json, decimal_digits
from glue_jobs.columns.arrow_types import arrow_type, leaf_type, turned
from glue_jobs.totals.measures import MOST_DIGITS, Columns, fitted, is_lost, value

LAST = "calve:last"
"""Fields of `_kafka` of the last record that changed the group in this round; null in rows of the table."""
OF_LAST = ("timestamp", "partition", "offset", "topic", "timestamp_type", "schema_id")
"""The first three decide which record is last."""
IN_KAFKA = tuple(f"{SYSTEM_COLUMN}.{name}" for name in OF_LAST)
KIND = arrow_type(KAFKA["type"])
LAST_KIND = pa.struct([KIND.field(name) for name in OF_LAST])
FEW = 131_072
"""Rows that are gathered before they are folded."""


@dataclass(frozen=True, slots=True)
class Fold:
    """The fold of one table. key: paths of the group's columns in records. groups: its columns, with the table's types.

    window_us: the size of windows in microseconds; None: there are none.
    """

    key: tuple[str, ...]
    groups: Mapping[str, str]
    totals: tuple[Total, ...]
    window_us: int | None

    @classmethod
    def of(cls, aggregate: Aggregate, table: str, held: Json, records: Json) -> Fold:
        """held: the columns of the table. records: those of its records, without `_kafka`.

        Raises Suspended: `measure_changed`, `measure_unusable`, `key_unusable`: the records do not fit the table's columns.
        """
        require_same_columns(table, held, records, aggregate)
        groups, totals = groups_of(records, aggregate), totals_of(records, aggregate)
        window = aggregate.window
        return cls(aggregate.key, groups, tuple(totals), window.size_ms * 1000 if window else None)

    @property
    def paths(self) -> tuple[str, ...]:
        """The columns of records that it needs."""
        measured = (path for each in self.totals if each.of for path in columns_in(each.of.of))
        return tuple(dict.fromkeys((*self.key, *measured, *IN_KAFKA)))

    @property
    def schema(self) -> pa.Schema:
        groups = [(name, leaf_type(kind)) for name, kind in self.groups.items()]
        totals = [(each.name, _folding_type(each)) for each in self.totals]
        return pa.schema(
            [*groups, *totals, *((_flag(each), pa.bool_()) for each in self.totals), (LAST, LAST_KIND)]
        )

    def alone(self, columns: Columns) -> pa.Table:
        """Each record as the totals of itself. columns: those of `paths`."""
        length = len(columns[IN_KAFKA[0]])
        outside = pa.repeat(pa.scalar(False), length)  # noqa: FBT003 a value, not a switch
        groups = [columns[path] for path in self.key]
        if self.window_us is not None:
            groups[-1] = _window_start(groups[-1], self.window_us)
            outside = pc.is_null(groups[-1])
        values = [value(each.of, columns, length) if each.of else None for each in self.totals]
        totals = [_alone(each, found, length) for each, found in zip(self.totals, values, strict=True)]
        flags = [
            pc.or_(outside, is_lost(each.of, columns, found)) if each.of else outside
            for each, found in zip(self.totals, values, strict=True)
        ]
        last = pa.StructArray.from_arrays([columns[path] for path in IN_KAFKA], fields=list(LAST_KIND))
        groups = [each.cast(kind) for each, kind in zip(groups, self.schema.types, strict=False)]
        return pa.Table.from_arrays([*groups, *totals, *flags, last], schema=self.schema)

    def held(self, rows: pa.Table) -> pa.Table:
        """Rows of the table as totals. rows: with the columns of groups and measures, as the table has them."""
        groups = [rows[name] for name in self.groups]
        totals = [_folding(each, rows[each.name].combine_chunks()) for each in self.totals]
        flags = [pa.repeat(pa.scalar(False), len(rows))] * len(totals)  # noqa: FBT003 a value, not a switch
        return pa.Table.from_arrays(
            [*groups, *totals, *flags, pa.nulls(len(rows), LAST_KIND)], schema=self.schema
        )

    def folded(self, totals: pa.Table) -> pa.Table:
        """The totals of each group. A flag is true if a value of the group is lost."""
        last = totals[LAST].combine_chunks()
        order = _in_order(last)
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order))
        functions = [each.term.function.replace("count", "sum") for each in self.totals]
        functions += ["any"] * len(self.totals) + ["max"]
        # Arrow makes names of its own out of those of columns: of numbers, no two are alike.
        names = [str(number) for number in range(len(self.groups) + len(functions))]
        keys, values = names[: len(self.groups)], names[len(self.groups) :]
        numbered = pa.table([*totals.columns[:-1], pa.array(place)], names)
        wanted = list(zip(values, functions, strict=True))
        found = numbered.group_by(keys, use_threads=False).aggregate(wanted)
        *columns, places = (found[each] for each in (*keys, *("_".join(each) for each in wanted)))
        return pa.Table.from_arrays(
            [*columns, last.take(pa.array(order[places.to_numpy()]))], schema=self.schema
        )

    def together(self, parts: Sequence[pa.Table]) -> pa.Table:
        """The totals of several parts, each with one row for each group."""
        found = [each for each in parts if len(each)]
        return found[0] if len(found) == 1 else self.folded(pa.concat_tables(parts))

    def rows(self, totals: pa.Table) -> tuple[pa.Table, dict[str, int]]:
        """The same as rows of the table; and for each measure that is not exact, the number of its groups."""
        columns, inexact = {name: totals[name] for name in self.groups}, {}
        for each in self.totals:
            found = totals[each.name].combine_chunks()
            columns[each.name] = kept = _kept(each, found)
            lost = pc.or_(totals[_flag(each)], pc.and_(pc.is_valid(found), pc.is_null(kept)))
            if count := pc.sum(lost).as_py():
                inexact[each.name] = count
        last = totals[LAST].combine_chunks()
        fields = [
            pa.nulls(len(last), each.type) if each.name in EMPTY else last.field(each.name) for each in KIND
        ]
        kafka = pa.StructArray.from_arrays(fields, fields=list(KIND))
        return pa.table({**columns, SYSTEM_COLUMN: kafka}), inexact


@dataclass(frozen=True, slots=True)
class Totals:
    """rows: a table of totals, with one row for each group. A task sends them compressed: most bytes of a sum are zero."""

    fold: Fold
    rows: pa.Table

    def __reduce__(self) -> tuple[Any, ...]:
        return _received, (self.fold, packed(self.rows))


class Gathered:
    """The totals of records that come in parts. Memory holds at most as many rows as groups and `FEW`, twice."""

    def __init__(self, fold: Fold) -> None:
        self.fold = fold
        self._parts = [fold.schema.empty_table()]
        self._pending, self._groups = 0, 0

    def add(self, columns: Columns) -> None:
        """columns: as `Fold.alone`."""
        part = self.fold.alone(columns)
        self._parts.append(part)
        self._pending += len(part)
        if self._pending >= max(FEW, self._groups):
            self.together()

    def together(self) -> Totals:
        """The totals of all records so far."""
        if self._pending:
            found = self.fold.folded(pa.concat_tables(self._parts))
            self._parts, self._pending, self._groups = [found], 0, len(found)
        return Totals(self.fold, self._parts[0])


def packed(totals: pa.Table | pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, totals.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as stream:
        stream.write(totals)
    return bytes(sink.getvalue())


def unpacked(totals: bytes | pa.Buffer) -> pa.Table:
    return pa.ipc.open_stream(totals).read_all()


def _received(fold: Fold, totals: bytes) -> Totals:
    return Totals(fold, unpacked(totals))


def _window_start(moments: pa.Array, size_us: int) -> pa.Array:
    """The start of each moment's window, counted from the epoch; null if 64 bits cannot hold it."""
    micros = moments.cast(pa.int64()).to_numpy()
    since = micros % size_us
    outside = micros < np.iinfo(np.int64).min + since
    return pa.array(np.where(outside, 0, micros - since), mask=outside)


def _alone(total: Total, found: pa.Array | None, length: int) -> pa.Array:
    if found is None:
        return pa.repeat(pa.scalar(1, _folding_type(total)), length)
    if total.term.function == "count":
        found = pc.is_valid(found).cast(pa.int64())
    return _folding(total, found)


def _folding(total: Total, found: pa.Array) -> pa.Array:
    """Values in the type that they are folded in: sums with 256 bits, which no round can exceed; floats by their order."""
    kind = _folding_type(total)
    if pa.types.is_floating(found.type):
        return _ordered(found)
    return found.cast(kind)


def _folding_type(total: Total) -> pa.DataType:
    if total.term.function in ("min", "max"):
        return pa.int64() if total.kind == "double" else leaf_type(total.kind)
    _, scale = decimal_digits(total.kind) or (0, 0)
    return pa.decimal256(MOST_DIGITS, scale)


def _kept(total: Total, found: pa.Array) -> pa.Array:
    """Folded values in the type of their column; null if they have too many digits."""
    if total.term.function not in ("min", "max"):
        return fitted(found, total.kind)
    return _floats(found) if total.kind == "double" else found


def _ordered(found: pa.Array) -> pa.Array:
    """Numbers that are ordered as floats are by Spark: NaN is the greatest. Zero is greater than the negative zero."""
    floats = found.cast(pa.float64()).to_numpy(zero_copy_only=False)
    bits = np.where(np.isnan(floats), np.nan, floats).view(np.int64)
    return pa.array(turned(bits), mask=found.is_null().to_numpy(zero_copy_only=False))


def _floats(numbers: pa.Array) -> pa.Array:
    floats = turned(pc.fill_null(numbers, 0).to_numpy()).view(np.float64)
    return pa.array(floats, mask=numbers.is_null().to_numpy(zero_copy_only=False))


def _in_order(last: pa.StructArray) -> NDArray[np.intp]:
    """The numbers of rows: first those without a record, then from the first record to the last one."""
    timestamp, partition, offset = (
        pc.fill_null(pc.struct_field(last, name).cast(pa.int64()), 0).to_numpy() for name in OF_LAST[:3]
    )
    known = last.is_valid().to_numpy(zero_copy_only=False)
    return np.lexsort((offset, partition, timestamp, known))


def _flag(total: Total) -> str:
    return f"calve:lost:{total.name}"
