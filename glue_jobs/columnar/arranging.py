"""Rows in the order of their files: those of a partition together, each partition sorted as Spark would sort it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from calve.job import Transform
from glue_jobs.columnar.layouts import Layout, SortField
from glue_jobs.columnar.transforms import applied

NAN = np.int64(2**63 - 1)


def arranged(rows: pa.Table, layout: Layout) -> Iterator[tuple[str | None, pa.Table]]:
    """Partition tuple, as Iceberg's JSON, and its rows, for each partition that there is."""
    tuples = [
        pa.nulls(rows.num_rows, pa.int32()) if each.transform is None else _value(rows, each.transform)
        for each in layout.partition
    ]
    places = _places(tuples, rows.num_rows)
    order = _order(places, [_sort_key(rows, each) for each in layout.order], layout.order)
    if order is not None:
        rows, places = rows.combine_chunks().take(pa.array(order)), places[order]
    begins = np.flatnonzero(np.diff(places, prepend=-1))
    for begin, end in zip(begins, [*begins[1:], rows.num_rows], strict=True):
        first = int(order[begin]) if order is not None else int(begin)
        held = {str(each.id): _json(of[first]) for each, of in zip(layout.partition, tuples, strict=True)}
        yield json.dumps(held) if held else None, rows.slice(begin, end - begin)


def _value(rows: pa.Table, transform: Transform) -> pa.Array:
    first, *rest = transform.column.split(".")
    column = rows.column(first)
    for name in rest:
        column = pc.struct_field(column, name)
    values = column.combine_chunks()
    values = pa.concat_arrays(values.chunks) if isinstance(values, pa.ChunkedArray) else values
    plain = values.dictionary_decode() if pa.types.is_dictionary(values.type) else values
    return applied(transform, plain)


def _places(tuples: list[pa.Array], count: int) -> NDArray[np.int64]:
    """The number of each row's partition."""
    found = np.zeros(count, np.int64)
    for values in tuples:
        each = values.dictionary_encode(null_encoding="encode")
        found = found * max(len(each.dictionary), 1) + each.indices.to_numpy()
        found = pa.array(found).dictionary_encode().indices.to_numpy().astype(np.int64)
    return found


def _order(
    places: NDArray[np.int64], keys: list[pa.Array], fields: tuple[SortField, ...]
) -> NDArray[np.int64] | None:
    """The rows' numbers in the order wanted; None: they have it already."""
    if not keys:
        found = np.argsort(places, kind="stable")
    else:
        columns, wanted = {"places": pa.array(places)}, [("places", "ascending")]
        for at, (key, each) in enumerate(zip(keys, fields, strict=True)):
            if each.nulls_first and key.null_count:
                columns[f"null {at}"] = pc.is_null(key).cast(pa.int8())
                wanted.append((f"null {at}", "descending"))
            columns[str(at)] = key
            wanted.append((str(at), "descending" if each.transform.descending else "ascending"))
        found = pc.sort_indices(pa.table(columns), sort_keys=wanted).to_numpy().astype(np.int64)
    return None if np.array_equal(found, np.arange(len(found))) else found


def _sort_key(rows: pa.Table, field: SortField) -> pa.Array:
    """Values that Arrow orders as Spark does its own: NaN is the greatest number, zeros are equal."""
    values = _value(rows, field.transform)
    if not pa.types.is_floating(values.type):
        return values
    null = pc.is_null(values).to_numpy(zero_copy_only=False)
    numbers = values.cast(pa.float64()).to_numpy(zero_copy_only=False) + 0.0
    bits = numbers.view(np.int64)
    ordered = np.where(bits < 0, bits ^ NAN, bits)
    return pa.array(np.where(np.isnan(numbers), NAN, ordered), mask=null)


def _json(value: pa.Scalar) -> Any:
    """A value as Iceberg's JSON has it (https://iceberg.apache.org/spec/#json-single-value-serialization)."""
    kind = value.type
    if not value.is_valid:
        return None
    if pa.types.is_decimal(kind):
        return f"{value.as_py():f}"
    if pa.types.is_string(kind):
        return value.as_buffer().to_pybytes().decode("utf-8", "replace")
    if pa.types.is_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return value.as_py().hex()
    if pa.types.is_date(kind):
        return _iso(np.datetime64(value.value, "D"))
    if pa.types.is_timestamp(kind):
        return _iso(np.datetime64(value.value, "us")) + ("+00:00" if kind.tz else "")
    return value.as_py()


def _iso(moment: np.datetime64) -> str:
    """ISO 8601: a year has four digits at least, and a sign where it is negative or has more."""
    text = str(moment)
    sign, year = ("-", text[1:]) if text.startswith("-") else ("", text)
    digits, _, rest = year.partition("-")
    return f"{sign or '+' * (len(digits) > 4)}{digits:0>4}-{rest}"
