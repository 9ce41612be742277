"""Structs become columns, a list makes a row of each item, keys of maps become columns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from calve.steps import Leaf
from glue_jobs.columnar.steps.rows import Rows
from glue_jobs.columnar.types import Items, weights

MOST_ROWS = 65_536
MOST_BYTES = 64 << 20
"""About what the rows that a list makes may take at a time: a record may hold much, and many items."""


@dataclass(frozen=True, slots=True)
class Flattening:
    """The columns of rows, made of the structs and maps that they have."""

    leaves: tuple[Leaf, ...]

    def run(self, rows: Rows) -> Rows:
        return rows.with_columns({each.name: _value(rows.at(each.path), each) for each in self.leaves})


@dataclass(frozen=True, slots=True)
class Explosion:
    """A row for each item of the list in a column, and one with null for a record whose list is empty or null."""

    column: str

    def run(self, rows: Rows) -> Iterator[Rows]:
        """The rows, in parts of which each takes a bounded amount of memory."""
        array = rows.columns[self.column]
        items, kept = (
            Items.of(array),
            np.where(pc.is_valid(array), pc.fill_null(pc.list_value_length(array), 0), 0),
        )
        records = np.repeat(np.arange(len(rows)), np.maximum(kept, 1))
        first = np.cumsum(np.maximum(kept, 1)) - np.maximum(kept, 1)
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
    """Those of the items, of which there is one even where there is none."""
    return weights(items.values) if len(items.values) else np.zeros(1, np.int64)


def _parts(weight: NDArray[np.int64]) -> Iterator[slice]:
    """Rows one after another that take about `MOST_BYTES`, or are `MOST_ROWS`; at least one part, and one row in each."""
    before, start = np.cumsum(weight), 0
    while True:
        full = int(np.searchsorted(before, (before[start - 1] if start else 0) + MOST_BYTES, "right"))
        end = max(min(full, start + MOST_ROWS), start + 1)
        yield slice(start, end)
        start = end
        if start >= len(weight):
            return
