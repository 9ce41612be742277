"""Whole rows of data files, read by Arrow in tasks, as the table has them now: files name columns as they were once."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pyspark import SparkContext

from calve.schema.columns import Json
from glue_jobs.columns.arrow_types import arrow_type
from glue_jobs.decode.machines.cells import Items
from glue_jobs.iceberg.delete_files import LiveFile
from glue_jobs.iceberg.storage import FIELD_ID, Storage, failures
from glue_jobs.index.data_files import FEW_VALUES, Unreadable, groups_at, read_each

Places = Mapping[str, NDArray[np.int64]]


def read_rows(
    context: SparkContext, columns: Json, files: Sequence[LiveFile], places: Places, storage: Storage
) -> tuple[dict[str, pa.Table], float]:
    """The rows at positions of files, by path, without those of unreadable files; and the CPU seconds of workers.

    columns: of the table, as Iceberg's struct type. Raises Retryable: the object store failed.
    """
    return read_each(
        context, files, FEW_VALUES, lambda file: rows_at(columns, file, places[file.path], storage)
    )


def rows_at(columns: Json, file: LiveFile, positions: NDArray[np.int64], storage: Storage) -> pa.Table:
    """The rows at positions, in ascending order. Raises Retryable: the object store failed. Unreadable."""
    if file.format != "PARQUET" or not _is_known(columns):
        raise Unreadable
    with failures():
        try:
            with storage.open(file.path) as source, pq.ParquetFile(source, pre_buffer=True) as parquet:
                return pa.concat_tables(
                    _as_now(rows.take(here), columns) for rows, here in groups_at(parquet, positions)
                )
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):  # whose text may quote a value
            raise Unreadable from None


def _is_known(columns: Json) -> bool:
    """Whether Arrow has all types, and rows that are older than a column have no value for it."""
    try:
        arrow_type(columns)
    except KeyError:
        return False
    return "initial-default" not in json.dumps(columns)


def _as_now(rows: pa.Table, columns: Json) -> pa.Table:
    arrays = [each.combine_chunks() for each in rows.columns]
    names = [each["name"] for each in columns["fields"]]
    return pa.table(_fields(list(rows.schema), arrays, columns, len(rows)), names)


def _fields(fields: Iterable[pa.Field], arrays: Iterable[Any], kind: Json, count: int) -> list[pa.Array]:
    """The fields of a struct type, found by their ids; null if the file is older than one."""
    found = {}
    for field, array in zip(fields, arrays, strict=True):
        if FIELD_ID not in (field.metadata or {}):
            raise Unreadable
        found[int(field.metadata[FIELD_ID])] = array
    return [
        _converted(found[each["id"]], each["type"])
        if each["id"] in found
        else pa.nulls(count, arrow_type(each["type"]))
        for each in kind["fields"]
    ]


def _converted(array: Any, kind: Json) -> pa.Array:
    if isinstance(kind, str):
        return array.cast(arrow_type(kind))
    if kind["type"] == "struct":
        fields = list(array.type)
        made = _fields(fields, (array.field(n) for n in range(len(fields))), kind, len(array))
        return pa.StructArray.from_arrays(made, fields=list(arrow_type(kind)), mask=pc.is_null(array))
    items = Items.of(array)
    of = kind["element"] if kind["type"] == "list" else kind["value"]
    return items.with_values(_converted(items.values, of)).cast(arrow_type(kind))
