"""All steps of a table on Arrow columns, as `glue_jobs.transform.chain` on Spark rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from calve.config.masking_keys import Key
from calve.config.steps import Leaf, Rule, Value
from calve.names import SYSTEM_COLUMN
from glue_jobs.engines.columnar.cells import Items, conformed, weights
from glue_jobs.engines.columnar_steps.expressions import Expression, Mask, Rows, as_mask, evaluate
from glue_jobs.engines.columnar_steps.mask import Tokens, masked

MOST_ROWS = 65_536
MOST_BYTES = 64 << 20
"""The approximate memory for the rows of one part of an explosion: a record may be large and have many items."""


@dataclass(frozen=True, slots=True)
class Flattening:
    """Flattened columns, made from structs and maps."""

    leaves: tuple[Leaf, ...]

    def run(self, rows: Rows) -> Rows:
        return rows.with_columns({each.name: _value(rows.at(each.path), each) for each in self.leaves})


@dataclass(frozen=True, slots=True)
class Explosion:
    """One row per item of the list in a column. A record with an empty or null list gives one row with null."""

    column: str

    def run(self, rows: Rows) -> Iterator[Rows]:
        """The rows, in parts of limited memory."""
        array = rows.columns[self.column]
        items, kept = Items.of(array), pc.fill_null(pc.list_value_length(array), 0).to_numpy()
        made_of_each = np.maximum(kept, 1)
        records = np.repeat(np.arange(len(rows)), made_of_each)
        first = np.cumsum(made_of_each) - made_of_each
        item = items.begins[:-1][records] + np.arange(len(records)) - first[records]
        nothing = (kept == 0)[records]
        beside = rows.with_columns({n: c for n, c in rows.columns.items() if n != self.column})
        for part in _parts(_weights(beside)[records] + _item_weights(items)[np.where(nothing, 0, item)]):
            made = beside.take(records[part])
            values = items.values.take(pa.array(item[part], mask=nothing[part]))
            yield made.with_columns(
                {n: values if n == self.column else made.columns[n] for n in rows.columns}
            )


def _value(value: pa.Array, leaf: Leaf) -> pa.Array:
    if leaf.key is not None:
        return pc.map_lookup(value, pa.scalar(leaf.key), "first")
    if leaf.without:
        items = Items.of(value)
        return items.only(pc.invert(pc.is_in(items.keys, value_set=pa.array(leaf.without, pa.string()))))
    return value


def _weights(rows: Rows) -> NDArray[np.int64]:
    return sum((weights(each) for each in rows.columns.values()), weights(rows.kafka))


def _item_weights(items: Items) -> NDArray[np.int64]:
    """The weights of the items. Never empty, even without items."""
    return weights(items.values) if len(items.values) else np.zeros(1, np.int64)


def _parts(weight: NDArray[np.int64]) -> Iterator[slice]:
    """Consecutive rows of about `MOST_BYTES`, at most `MOST_ROWS`. At least one part, and one row in each."""
    before, start = np.cumsum(weight), 0
    while True:
        full = int(np.searchsorted(before, (before[start - 1] if start else 0) + MOST_BYTES, "right"))
        end = max(min(full, start + MOST_ROWS), start + 1)
        yield slice(start, end)
        start = end
        if start >= len(weight):
            return


Received = Literal["hash", "null", "keep"]


@dataclass(frozen=True, slots=True)
class Inside:
    """The change of the items of a list, or of the values of a map."""

    each: Change


@dataclass(frozen=True, slots=True)
class Fields:
    """The remaining fields of a struct, by place, with the change of each."""

    left: tuple[tuple[int, Change], ...]


Change = Rule | Inside | Fields | None
"""A change of a value; None for no change."""


@dataclass(frozen=True, slots=True)
class Masking:
    """columns: the remaining columns, with the change of each. key, headers: as in `calve.config.steps.Mask`."""

    columns: tuple[tuple[str, Change], ...]
    key: Received
    headers: Received

    def run(self, rows: Rows, keys: Sequence[Key]) -> Rows:
        tokens = Tokens.of(keys, rows.kafka)
        columns = {name: _masked(rows.columns[name], how, tokens) for name, how in self.columns}
        return Rows(columns, self._record(rows.kafka, tokens), rows.record)

    def _record(self, kafka: pa.StructArray, tokens: Tokens) -> pa.StructArray:
        """`_kafka` with its key and header values masked. Its type stays the same."""
        arrays = {each.name: kafka.field(each.name) for each in kafka.type}
        arrays["key"] = _received(arrays["key"], self.key, tokens)
        if self.headers != "keep":
            items = Items.of(arrays["headers"])
            values = _received(items.values.field("value"), self.headers, tokens.of_items(items.sizes))
            header = pa.StructArray.from_arrays(
                [items.values.field("key"), values], fields=list(items.values.type)
            )
            arrays["headers"] = items.with_values(header)
        return pa.StructArray.from_arrays(list(arrays.values()), fields=list(kafka.type))


def _masked(array: pa.Array, how: Change, tokens: Tokens) -> pa.Array:
    match how:
        case None:
            return array
        case Rule("null"):
            return pa.nulls(len(array), array.type)
        case Rule():
            return masked(array, how, tokens)
        case Inside():
            items = Items.of(array)
            return items.with_values(_masked(items.values, how.each, tokens.of_items(items.sizes)))
    made = [_masked(array.field(place), each, tokens) for place, each in how.left]
    fields = [
        array.type.field(place).with_type(one.type) for (place, _), one in zip(how.left, made, strict=True)
    ]
    return pa.StructArray.from_arrays(made, fields=fields, mask=pc.is_null(array))


def _received(array: pa.Array, how: Received, tokens: Tokens) -> pa.Array:
    match how:
        case "hash":
            return tokens.made_of(array).cast(pa.binary())
        case "null":
            return pa.nulls(len(array), array.type)
    return array


@dataclass(frozen=True, slots=True)
class Condition:
    """The condition of `filter`, or WHERE."""

    expression: Expression

    def run(self, rows: Rows) -> tuple[Rows, Mask, Mask]:
        """The rows, those for which the condition is not true, and those for which it fails."""
        found = evaluate(self.expression, rows)
        failed = np.zeros(len(rows), np.bool_) if found.failed is None else found.failed
        return rows, ~as_mask(found.array(len(rows))) & ~failed, failed


@dataclass(frozen=True, slots=True)
class Computation:
    """A select list."""

    columns: tuple[tuple[str, Expression], ...]

    def run(self, rows: Rows) -> tuple[Rows, Mask, Mask]:
        """The computed rows, no filtered rows, and the rows for which a column fails."""
        found = {name: evaluate(each, rows) for name, each in self.columns}
        nothing = np.zeros(len(rows), np.bool_)
        failures = [nothing, *(each.failed for each in found.values() if each.failed is not None)]
        made = rows.with_columns({name: each.array(len(rows)) for name, each in found.items()})
        return made, nothing, np.logical_or.reduce(failures)


@dataclass(frozen=True, slots=True)
class Routing:
    """As `calve.config.steps.Route`; its path is spelled as in the columns."""

    path: tuple[str, ...]
    values: tuple[Value, ...]
    named: tuple[Value, ...]
    others: Literal["leave_out", "keep", "reject"]

    def run(self, rows: Rows) -> tuple[Rows, Mask, Mask]:
        """The rows, the filtered ones, and the rejected ones."""
        value = rows.at(self.path)
        own, named = _is_one(value, self.values), _is_one(value, self.named)
        match self.others:
            case "leave_out":
                left_out, lost = ~own, np.zeros_like(own)
            case "keep":
                left_out, lost = named, np.zeros_like(own)
            case "reject":
                left_out, lost = named & ~own, ~named
        return rows, left_out, lost


def _is_one(value: pa.Array, values: Sequence[Value]) -> Mask:
    """A null is none of the values."""
    wanted = pa.array([each for each in values if _fits(each, value.type)], value.type)
    found: Mask = pc.is_in(value, value_set=wanted).to_numpy(zero_copy_only=False)
    return found


def _fits(value: Value, kind: pa.DataType) -> bool:
    if not pa.types.is_integer(kind):
        return True
    least: int = -(1 << kind.bit_width - 1)
    return least <= int(value) < -least


Columns = tuple[tuple[str, pa.DataType], ...]
Operation = Routing | Flattening | Masking | Condition | Computation


@dataclass(frozen=True, slots=True)
class Made:
    """The result of the steps. rows: the columns of the table, with `_kafka`. left_out: the number of filtered records.

    rejected: places of the rejected records. made: the number of rows, where a record may make several.
    `failed` of these could not be computed, and `cut` were filtered. Neither is in `rows`.
    """

    rows: pa.Table
    left_out: int
    rejected: NDArray[np.int64]
    made: int | None = None
    failed: int = 0
    cut: int = 0


@dataclass(frozen=True, slots=True)
class Steps:
    """of_records: operations on records. explosion: makes several rows of each. of_rows: operations on these.

    source: the columns that records are decoded to, as in Spark. columns: those of the table.
    Holds no secret: `run` receives the masking keys.
    """

    of_records: tuple[Operation, ...]
    explosion: Explosion | None
    of_rows: tuple[Operation, ...]
    source: Columns
    columns: Columns

    def run(self, batch: pa.Table | pa.RecordBatch, keys: Sequence[Key] = ()) -> Iterator[Made]:
        """The results for good records with their decoded columns and `_kafka`, in one or several parts.

        keys: `calve.config.masking_keys.read_keys`, if the table masks.
        """
        rows, left_out, rejected = _run(self.of_records, _as(self.source, Rows.of(batch)), keys)
        if self.explosion is None:
            yield Made(self._table(rows), left_out, rejected)
            return
        for number, part in enumerate(self.explosion.run(rows)):
            made, cut, failed = _run(self.of_rows, part, keys)
            first = number == 0
            yield Made(
                self._table(made),
                left_out if first else 0,
                rejected if first else rejected[:0],
                len(part),
                len(failed),
                cut,
            )

    def _table(self, rows: Rows) -> pa.Table:
        return pa.table({**_as(self.columns, rows).columns, SYSTEM_COLUMN: rows.kafka})


def _as(columns: Columns, rows: Rows) -> Rows:
    """Rows with exactly these columns and types."""
    return rows.with_columns(
        {name: conformed(rows.columns.get(name), kind, len(rows)) for name, kind in columns}
    )


def _run(
    operations: Sequence[Operation], rows: Rows, keys: Sequence[Key]
) -> tuple[Rows, int, NDArray[np.int64]]:
    """The remaining rows, the number of filtered rows, and the records of rejected rows."""
    left_out, rejected = 0, [rows.record[:0]]
    for each in operations:
        match each:
            case Flattening():
                rows = each.run(rows)
            case Masking():
                rows = each.run(rows, keys)
            case Routing() | Condition() | Computation():
                made, cut, failed = each.run(rows)
                left_out += int(cut.sum())
                rejected.append(rows.record[failed])
                rows = made.where(~(cut | failed))
    return rows, left_out, np.concatenate(rejected)
