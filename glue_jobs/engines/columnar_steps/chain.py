"""All steps of a table on Arrow columns, as `glue_jobs.transform.chain` on Spark rows.

Each operation takes rows and the masking keys; `glue_jobs.engines.columnar_steps.planning` binds its other arguments.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from calve.config.masking_keys import Key, hashing
from calve.config.steps import Leaf, Route
from calve.config.steps import Mask as MaskStep
from calve.schema.change_events import UNAVAILABLE
from calve.schema.columns import CHANGE
from glue_jobs.decode.machines.cells import Items, conformed, weights
from glue_jobs.decode.machines.change_events import lacking
from glue_jobs.engines.columnar_steps.expressions import Expression, Mask, Rows, as_mask, either, evaluate
from glue_jobs.engines.columnar_steps.mask import Tokens

MOST_ROWS = 65_536
MOST_BYTES = 64 << 20
"""The approximate memory for the rows of one part of an explosion: a record may be large and have many items."""

Keys = Sequence[Key]
Outcome = tuple[Rows, Mask | None, Mask | None]
"""The rows, those to filter, and those that are rejected; None: none of them."""
Operation = Callable[[Rows, Keys], Outcome]


def flattened(leaves: Sequence[Leaf], rows: Rows, _: Keys) -> Outcome:
    return rows.with_columns({each.name: _leaf(rows.at(each.path), each) for each in leaves}), None, None


def _leaf(value: pa.Array, leaf: Leaf) -> pa.Array:
    if leaf.key is not None:
        return pc.map_lookup(value, pa.scalar(leaf.key), "first")
    if leaf.without:
        items = Items.of(value)
        return items.only(pc.invert(pc.is_in(items.keys, value_set=pa.array(leaf.without, pa.string()))))
    return value


def exploded(column: str, rows: Rows) -> Iterator[Rows]:
    """One row per item of the list in a column, in parts of limited memory.

    A record with an empty or null list gives one row with null.
    """
    array = rows.columns[column]
    items, kept = Items.of(array), pc.fill_null(pc.list_value_length(array), 0).to_numpy()
    made_of_each = np.maximum(kept, 1)
    records = np.repeat(np.arange(len(rows)), made_of_each)
    first = np.cumsum(made_of_each) - made_of_each
    item = items.begins[:-1][records] + np.arange(len(records)) - first[records]
    nothing = (kept == 0)[records]
    beside = rows.with_columns({name: each for name, each in rows.columns.items() if name != column})
    of_record = sum((weights(each) for each in beside.columns.values()), weights(rows.kafka))
    of_item = weights(items.values) if len(items.values) else np.zeros(1, np.int64)
    for part in _parts(of_record[records] + of_item[np.where(nothing, 0, item)]):
        made = beside.take(records[part])
        values = items.values.take(pa.array(item[part], mask=nothing[part]))
        yield made.with_columns(
            {name: values if name == column else made.columns[name] for name in rows.columns}
        )


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
Change = Callable[[pa.Array, Tokens], pa.Array]


def unchanged(array: pa.Array, _: Tokens) -> pa.Array:
    return array


def items_changed(each: Change, array: pa.Array, tokens: Tokens) -> pa.Array:
    """The items of lists, or the values of maps, changed."""
    items = Items.of(array)
    return items.with_values(each(items.values, tokens.of_items(items.sizes)))


def fields_changed(left: Sequence[tuple[int, Change]], array: pa.Array, tokens: Tokens) -> pa.Array:
    """Structs of the remaining fields. left: these by place, with the change of each."""
    made = [change(array.field(place), tokens) for place, change in left]
    fields = [array.type.field(place).with_type(one.type) for (place, _), one in zip(left, made, strict=True)]
    return pa.StructArray.from_arrays(made, fields=fields, mask=pc.is_null(array))


def masked_rows(columns: Sequence[tuple[str, Change]], step: MaskStep, rows: Rows, keys: Keys) -> Outcome:
    """columns: the remaining columns, with the change of each. Raises Suspended: as `hashing`."""
    tokens, kafka = Tokens.of(hashing(keys, step.masking_key) if keys else (), rows.kafka), rows.kafka
    made = {name: change(rows.columns[name], tokens) for name, change in columns}
    arrays = {each.name: kafka.field(each.name) for each in kafka.type}
    arrays["key"] = _received(arrays["key"], step.key, tokens)
    if step.headers != "keep":
        items = Items.of(arrays["headers"])
        values = _received(items.values.field("value"), step.headers, tokens.of_items(items.sizes))
        header = pa.StructArray.from_arrays(
            [items.values.field("key"), values], fields=list(items.values.type)
        )
        arrays["headers"] = items.with_values(header)
    kafka = pa.StructArray.from_arrays(list(arrays.values()), fields=list(kafka.type))
    return replace(rows, columns=made, kafka=kafka), None, None


def but_placeholders(each: Change, array: pa.Array, tokens: Tokens) -> pa.Array:
    """As `glue_jobs.transform.mask.masked_but_placeholders`."""
    made = each(array, tokens)
    return pc.if_else(pc.equal(array.cast(pa.binary()), UNAVAILABLE.encode()), UNAVAILABLE, made)


def available(columns: Collection[str], operation: Operation, rows: Rows, keys: Keys) -> Outcome:
    """An operation that reads these columns. It also rejects updates that lack a value of them."""
    made, cut, failed = operation(rows, keys)
    read = {name: each for name, each in rows.columns.items() if name in columns}
    lacks = lacking(pa.table({**read, CHANGE["name"]: rows.change}))
    if not lacks:
        return made, cut, failed
    lost = reduce(np.logical_or, lacks.values())
    return made, None if cut is None else cut & ~lost, either(failed, lost)


def _received(array: pa.Array, how: Received, tokens: Tokens) -> pa.Array:
    match how:
        case "hash":
            return tokens.made_of(array).cast(pa.binary())
        case "null":
            return pa.nulls(len(array), array.type)
    return array


def filtered(condition: Expression, rows: Rows, _: Keys) -> Outcome:
    """`filter`, or WHERE: filters rows for which the condition is not true, rejects those for which it fails."""
    found = evaluate(condition, rows)
    cut = ~as_mask(found.array(len(rows)))
    return rows, cut if found.failed is None else cut & ~found.failed, found.failed


def required(condition: Expression, rows: Rows, keys: Keys) -> Outcome:
    """`expect`: rejects rows for which the condition is not true, and those for which it fails."""
    _, cut, failed = filtered(condition, rows, keys)
    return rows, None, either(cut, failed)


def computed(columns: Sequence[tuple[str, Expression]], rows: Rows, _: Keys) -> Outcome:
    """A select list. Rejects rows for which a column fails."""
    found, failed = {name: evaluate(each, rows) for name, each in columns}, None
    for each in found.values():
        failed = either(failed, each.failed)
    return rows.with_columns({name: each.array(len(rows)) for name, each in found.items()}), None, failed


def computed_alone(columns: Sequence[tuple[str, Expression]], rows: Rows, _: Keys) -> Outcome:
    """A select list of rows that delete. Only their keys matter, so a value that fails is null."""
    made = {}
    for name, each in columns:
        found = evaluate(each, rows)
        array = found.array(len(rows))
        made[name] = array if found.failed is None else pc.if_else(pa.array(found.failed), None, array)
    return rows.with_columns(made), None, None


def routed(path: tuple[str, ...], step: Route, rows: Rows, _: Keys) -> Outcome:
    """As `glue_jobs.transform.chain.run_route`. path: that of the step, spelled as in the columns."""
    value = rows.at(path)
    own, named = (_is_one(value, each) for each in (step.values, step.named))
    match step.others:
        case "leave_out":
            return rows, ~own, None
        case "keep":
            return rows, named, None
    return rows, named & ~own, ~named


def _is_one(value: pa.Array, values: Sequence[str | int]) -> Mask:
    """A null is none of the values, and neither is a number that its type cannot hold."""
    kind = value.type
    if pa.types.is_integer(kind):
        most = 1 << kind.bit_width - 1
        values = [each for each in values if -most <= int(each) < most]
    found: Mask = pc.is_in(value, value_set=pa.array(values, kind)).to_numpy(zero_copy_only=False)
    return found


Columns = tuple[tuple[str, pa.DataType], ...]


@dataclass(frozen=True, slots=True)
class Made:
    """The result of the steps. rows: the columns of the table, with `_kafka`. filtered: places of the filtered records.

    rejected: places of the rejected records. made: the number of rows, where a record may make several.
    `failed` of these could not be computed, and `cut` were filtered. Neither is in `rows`.
    by_rule: how many records, or rows, each step filtered, by its number.
    """

    rows: pa.Table
    filtered: NDArray[np.int64]
    rejected: NDArray[np.int64]
    made: int | None = None
    failed: int = 0
    cut: int = 0
    by_rule: Counter[int] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class Steps:
    """of_records: operations on records, each with the number of its step. explode: the list that makes several rows of each.

    of_rows: operations on these.

    of_deletions: operations on records that delete the row of their key.
    source: the columns that records are decoded to, as in Spark. columns: those of the table.
    Holds no secret: `run` receives the masking keys.
    """

    of_records: tuple[tuple[int, Operation], ...]
    explode: str | None
    of_rows: tuple[tuple[int, Operation], ...]
    of_deletions: tuple[Operation, ...]
    source: Columns
    columns: Columns

    def run(self, batch: pa.Table | pa.RecordBatch, keys: Keys = ()) -> Iterator[Made]:
        """The results for good records with their decoded columns and `_kafka`, in one or several parts.

        keys: `calve.config.masking_keys.read_keys`, if the table masks.
        """
        rows, filtered, rejected, by_rule = _run(self.of_records, _as(self.source, Rows.of(batch)), keys)
        if self.explode is None:
            yield Made(self._table(rows), filtered, rejected, by_rule=by_rule)
            return
        for part in exploded(self.explode, rows):
            made, cut, failed, cut_by = _run(self.of_rows, part, keys)
            counts = len(part), len(failed), len(cut), by_rule + cut_by
            yield Made(self._table(made), filtered, rejected, *counts)
            filtered, rejected, by_rule = filtered[:0], rejected[:0], Counter()  # counted with the first part

    def deletions(self, batch: pa.Table | pa.RecordBatch, keys: Keys = ()) -> pa.Table:
        """Records that delete, with the columns of the table. Only those of its key matter."""
        operations = [(0, each) for each in self.of_deletions]
        return self._table(_run(operations, _as(self.source, Rows.of(batch)), keys)[0])

    def _table(self, rows: Rows) -> pa.Table:
        return _as(self.columns, rows).table()


def _as(columns: Columns, rows: Rows) -> Rows:
    return rows.with_columns(
        {name: conformed(rows.columns.get(name), kind, len(rows)) for name, kind in columns}
    )


def _run(
    operations: Sequence[tuple[int, Operation]], rows: Rows, keys: Keys
) -> tuple[Rows, NDArray[np.int64], NDArray[np.int64], Counter[int]]:
    """The remaining rows, the records of filtered and of rejected rows, and how many each step filtered."""
    filtered, rejected, by_rule = [rows.record[:0]], [rows.record[:0]], Counter[int]()
    for number, operation in operations:
        made, cut, failed = operation(rows, keys)
        if cut is not None:
            filtered.append(rows.record[cut])
            by_rule[number] += len(filtered[-1])
        if failed is not None:
            rejected.append(rows.record[failed])
        gone = either(cut, failed)
        rows = made if gone is None else made.where(~gone)
    return rows, np.concatenate(filtered), np.concatenate(rejected), by_rule
