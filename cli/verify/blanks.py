"""Values that updates of a database lack, taken from the row as it was when the update was read, one record after the other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from cli.verify.hashing import row_hashes

Blanks = Mapping[int, int]
"""Columns that may lack a value, by their place -> the hash of what stands there then."""


def filled(records: pa.Table, blanks: Blanks, *, ordered: bool) -> pa.Table:
    """Records with the hashes of their columns (`columns`), blanks being filled in; `filled` is true for those that had any.

    `ordered`: a record of a lesser `order` than the row has changes nothing.
    """
    columns = np.stack(records["columns"].combine_chunks().flatten().to_numpy().reshape(records.num_rows, -1))
    lacking = np.zeros(records.num_rows, bool)
    for place, blank in blanks.items():
        lacking |= columns[:, place] == np.uint64(blank)
    if not lacking.any():
        return records
    before = columns.copy()
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


def _groups(records: pa.Table, lacking: Any) -> Iterator[Any]:
    """The places of the records of each key and partition of which one lacks a value, by their offsets."""
    key, partition, offset = (records[name].to_numpy() for name in ("key", "partition", "offset"))
    order = np.lexsort((offset, partition, key))
    starts = np.flatnonzero(np.r_[True, (np.diff(key[order]) != 0) | (np.diff(partition[order]) != 0)])
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
