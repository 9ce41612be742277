"""Structs and keys of maps as columns, items of a list as rows: what the step `flatten` makes, told without the engine."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from calve.config.steps import Flatten
from calve.names import SYSTEM_COLUMN
from cli.verify.columns import ends, entries, lengths

Keys = Mapping[str, tuple[str, ...]]


def flattened(rows: pa.RecordBatch, step: Flatten, stay: Collection[str]) -> pa.RecordBatch:
    """Structs, but those that stay, as columns named by their paths. The list that is exploded is a list yet."""
    return _in_columns(rows, step.separator, _keys(step, of_items=False), {*stay, SYSTEM_COLUMN})


def exploded(rows: pa.RecordBatch, step: Flatten) -> pa.RecordBatch:
    """A row of each item, and one of each record that has none, of rows that are `flattened`."""
    if step.explode is None:
        return rows
    name = _column(step.explode, step)
    parents, items = _items(rows.column(name))
    place = rows.schema.get_field_index(name)
    made = rows.take(pa.array(parents)).set_column(place, pa.field(name, items.type), items)
    return _in_columns(made, step.separator, _keys(step, of_items=True), {*rows.schema.names} - {name})


def _in_columns(rows: pa.RecordBatch, separator: str, keys: Keys, stay: Collection[str]) -> pa.RecordBatch:
    found: dict[str, Any] = {}
    for name, column in zip(rows.schema.names, rows.columns, strict=True):
        found |= {name: column} if name in stay else dict(_leaves(name, column, separator, keys))
    return pa.RecordBatch.from_pydict(found)


def _leaves(name: str, column: Any, separator: str, keys: Keys) -> Iterator[tuple[str, Any]]:
    if pa.types.is_struct(column.type):
        for each, inner in zip(column.type, column.flatten(), strict=True):
            yield from _leaves(f"{name}{separator}{each.name}", inner, separator, keys)
    elif name in keys:
        yield name, _without(column, keys[name])
        for key in keys[name]:
            yield f"{name}{separator}{key}", _value_of(column, key)
    else:
        yield name, column


def _items(column: Any) -> tuple[Any, Any]:
    """Of each row to be made: the number of the row that it comes from, and the item, null where the list has none."""
    sizes = lengths(column)
    parents = np.repeat(np.arange(len(sizes)), np.maximum(sizes, 1))
    is_item = sizes[parents] > 0
    places = pa.array(np.cumsum(is_item) - 1, pa.int64(), mask=~is_item)
    return parents, pc.list_flatten(column).take(places)


def _without(column: Any, names: Collection[str]) -> Any:
    """The maps without these keys."""
    parents, keys, values = _entries(column)
    kept = pc.invert(pc.is_in(keys, pa.array(names, keys.type)))
    sizes = np.bincount(parents[kept.to_numpy(zero_copy_only=False)], minlength=len(column))
    left = keys.filter(kept), values.filter(kept)
    return pa.MapArray.from_arrays(ends(sizes), *left, column.type, mask=column.is_null())


def _value_of(column: Any, key: str) -> Any:
    """What each map has under the key; null where it has it not."""
    parents, keys, values = _entries(column)
    here = pc.fill_null(pc.equal(keys, pa.scalar(key, keys.type)), False).to_numpy(zero_copy_only=False)  # noqa: FBT003 a value
    places = np.full(len(column), -1)
    places[parents[here]] = np.flatnonzero(here)
    return values.take(pa.array(places, pa.int64(), mask=places < 0))


def _entries(column: Any) -> tuple[Any, Any, Any]:
    """Of each entry of the maps: the number of its row, its key and its value."""
    lists = entries(column)
    parents = pc.list_parent_indices(lists).to_numpy(zero_copy_only=False)
    return parents, *pc.list_flatten(lists).flatten()


def _keys(step: Flatten, *, of_items: bool) -> Keys:
    """By column: of the record, or of the items of the list that is exploded."""
    inside = None if step.explode is None else f"{step.explode}."
    return {
        _column(path, step): keys
        for path, keys in step.maps.items()
        if (inside is not None and path.startswith(inside)) == of_items
    }


def _column(path: str, step: Flatten) -> str:
    return path.replace(".", step.separator)
