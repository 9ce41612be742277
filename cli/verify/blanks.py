"""Values that updates of a database lack, taken from the row as it was when the update was read, one record after the other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from calve.changes import UNAVAILABLE
from cli.verify.columns import is_text
from cli.verify.hashing import column_hashes, row_hashes

Blanks = Mapping[int, int]
"""Columns that may lack a value, by their place -> the hash of what stands there then."""


def blanks_in(columns: pa.Schema) -> dict[int, int]:
    """The blanks of a table of a database's changes."""
    found: dict[int, int] = {}
    for place, each in enumerate(columns):
        for blank in (UNAVAILABLE, UNAVAILABLE.encode(), [UNAVAILABLE], [(UNAVAILABLE, UNAVAILABLE)]):
            if _is_of(blank, each.type):
                found[place] = column_hashes([pa.array([blank], each.type)])[0][0].as_py()
    return found


def filled(records: pa.Table, blanks: Blanks, *, ordered: bool) -> pa.Table:
    """Records with the hashes of their columns (`columns`), blanks being filled in; `filled` is true for those that had any.

    `ordered`: a record of a lesser `order` than the row has changes nothing.
    """
    before = records["columns"].combine_chunks().flatten().to_numpy().reshape(records.num_rows, -1)
    lacking = np.zeros(records.num_rows, bool)
    for place, blank in blanks.items():
        lacking |= before[:, place] == np.uint64(blank)
    if not lacking.any():
        return records
    columns = before.copy()
    for group in _groups(records, lacking):
        _fill(columns, group, records.take(pa.array(group)), blanks, ordered=ordered)
    changed = (columns != before).any(axis=1)
    hashes = row_hashes([pa.array(np.ascontiguousarray(column)) for column in columns.T])
    made = {
        "columns": pa.FixedSizeListArray.from_arrays(pa.array(columns.reshape(-1)), columns.shape[1]),
        "hash": hashes,
        "filled": pa.array(changed | records["filled"].to_numpy()),
    }
    for name, array in made.items():
        records = records.set_column(records.schema.get_field_index(name), name, array)
    return records


def by_key(records: pa.Table) -> tuple[Any, Any]:
    """The places of the records by key, partition and offset, and where in that order a key and partition begins."""
    key, partition, offset = (records[name].to_numpy() for name in ("key", "partition", "offset"))
    order = np.lexsort((offset, partition, key))
    return order, np.flatnonzero(np.r_[True, (np.diff(key[order]) != 0) | (np.diff(partition[order]) != 0)])


def _groups(records: pa.Table, lacking: Any) -> Iterator[Any]:
    """The places of the records of each key and partition of which one lacks a value, by their offsets."""
    order, starts = by_key(records)
    some = np.logical_or.reduceat(lacking[order], starts)
    ends = np.r_[starts[1:], len(order)]
    for start, end in zip(starts[some], ends[some], strict=True):
        yield order[start:end]


def _fill(columns: Any, places: Any, records: pa.Table, blanks: Blanks, *, ordered: bool) -> None:
    row = None
    held: tuple[Any, ...] = (False,)
    dead, orders = records["dead"].to_pylist(), records["order"].to_pylist()
    for place, deletes, order in zip(places, dead, orders, strict=True):
        if deletes:
            row, held = None, (False,)
            continue
        rank = (False,) if order is None else (True, order)
        if ordered and rank < held:
            continue
        for column, blank in blanks.items():
            if row is not None and columns[place, column] == np.uint64(blank):
                columns[place, column] = columns[row, column]
        row, held = place, rank


def _is_of(value: Any, kind: Any) -> bool:
    """Whether a value is one of a type, without any conversion."""
    if isinstance(value, list):
        pair = isinstance(value[0], tuple)
        if pa.types.is_map(kind):
            return pair and _is_of(value[0][0], kind.key_type) and _is_of(value[0][1], kind.item_type)
        return (
            not pair
            and (pa.types.is_list(kind) or pa.types.is_large_list(kind))
            and _is_of(value[0], kind.value_type)
        )
    if isinstance(value, bytes):
        return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))
    return is_text(kind)
