"""Rows in Arrow: their places, laid out as the columns of a table, and Arrow's types as Iceberg names them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io.pyarrow import _pyarrow_to_schema_without_ids, schema_to_pyarrow
from pyiceberg.schema import Schema

from calve.errors import CalveError
from calve.names import SYSTEM_COLUMN
from calve.schema.columns import Json, with_ids

SHIFT = 48
"""The partition stands above so many bits of offset."""


@dataclass(frozen=True, slots=True)
class Made:
    """What a step makes of rows. left_out: the places of rows that it leaves out; failed: of those on which it fails, by why."""

    rows: pa.RecordBatch
    left_out: Any = None
    failed: Mapping[str, Any] = field(default_factory=dict)


def number(partition: Any, offset: Any) -> Any:
    """The place as one number, of integers or of arrays of numpy's."""
    return (partition << SHIFT) + offset


def places_of(rows: pa.RecordBatch) -> Any:
    """The number of each row's place."""
    kafka = rows.column(SYSTEM_COLUMN)
    return numbers(kafka.field("partition"), kafka.field("offset"))


def numbers(partitions: Any, offsets: Any) -> Any:
    """As `number`, of arrays of Arrow's."""
    return pc.add(pc.shift_left(partitions.cast(pa.int64()), SHIFT), offsets.cast(pa.int64()))


def within(partitions: Any, offsets: Any, spans: Mapping[int, tuple[int, int]]) -> Any:
    """True for places whose offset lies in the span of their partition."""
    at = pc.index_in(partitions.cast(pa.int64()), pa.array(spans, pa.int64()))
    firsts, ends = (pa.array([each[n] for each in spans.values()], pa.int64()).take(at) for n in (0, 1))
    inside = pc.and_(pc.greater_equal(offsets, firsts), pc.less(offsets, ends))
    return pc.fill_null(inside, False)  # noqa: FBT003 a value


def laid_out(rows: pa.RecordBatch, columns: pa.Schema) -> pa.RecordBatch:
    """Rows with just these columns, by name at every depth: null where a row has none, wider where these are.

    Raises:
        CalveError: values of a column are none of the table's.
    """
    held = dict(zip(rows.schema.names, rows.columns, strict=True))
    arrays = []
    for each in columns:
        try:
            arrays.append(held.get(each.name, pa.nulls(rows.num_rows)).cast(each.type))
        except pa.ArrowException:
            text = (
                f"the steps make {each.name} a {held[each.name].type}, which the table holds as {each.type}"
            )
            raise CalveError(text, fix="verify with the steps that the table was filled with") from None
    return pa.record_batch(arrays, schema=columns)


def iceberg_columns(columns: pa.Schema) -> Json:
    """The columns in Iceberg's JSON form; their ids mean nothing."""
    return json.loads(_pyarrow_to_schema_without_ids(columns, format_version=3).model_dump_json())


def arrow_columns(columns: Json) -> pa.Schema:
    """Columns in Iceberg's JSON form, as Arrow has them."""
    numbered = json.dumps(with_ids(columns) | {"schema-id": 0})
    return schema_to_pyarrow(Schema.model_validate_json(numbered), include_field_ids=False)


def is_text(kind: Any) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def is_bytes(kind: Any) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def is_list(kind: Any) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def entries(maps: Any) -> Any:
    """Maps as lists of their entries, structs of key and value."""
    kind = pa.struct([("key", maps.type.key_type), ("value", maps.type.item_type)])
    return maps.cast(pa.list_(kind))


def lengths(lists: Any) -> Any:
    """How many items each list has, as numpy's integers; none where it is null."""
    return pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)


def ends(sizes: Any) -> Any:
    """Where lists of these sizes end among the items of all, behind where the first of them begins."""
    return pa.array(np.r_[0, np.cumsum(sizes)], pa.int32())
