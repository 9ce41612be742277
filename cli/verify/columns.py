"""Rows laid out as the columns of a table, and Arrow's types as Iceberg names them."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema

from calve.columns import Json, field, list_of, map_of, struct, with_ids
from calve.errors import CalveError


def laid_out(rows: pa.RecordBatch, columns: pa.Schema) -> pa.RecordBatch:
    """Rows with just these columns, by name at every depth: null where a row has none, wider where these are.

    Raises:
        CalveError: values of a column are none of the table's.
    """
    held = dict(zip(rows.schema.names, rows.columns, strict=True))
    arrays = []
    for each in columns:
        try:
            arrays.append(_as(held.get(each.name), each.type, rows.num_rows))
        except pa.ArrowException:
            text = (
                f"the steps make {each.name} a {held[each.name].type}, which the table holds as {each.type}"
            )
            raise CalveError(text, fix="verify with the steps that the table was filled with") from None
    return pa.record_batch(arrays, schema=columns)


def iceberg_columns(columns: pa.Schema) -> Json:
    """The columns in Iceberg's JSON form, without field ids."""
    return struct(*(field(each.name, _iceberg(each.type)) for each in columns))


def arrow_columns(columns: Json) -> pa.Schema:
    """Columns in Iceberg's JSON form, as Arrow has them."""
    numbered = json.dumps(with_ids(columns) | {"schema-id": 0})
    return schema_to_pyarrow(Schema.model_validate_json(numbered), include_field_ids=False)


def is_text(kind: Any) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _as(column: Any, kind: Any, size: int) -> Any:
    if column is None:
        return pa.nulls(size, kind)
    if column.type == kind:
        return column
    if pa.types.is_struct(kind) and pa.types.is_struct(column.type):
        parts = dict(zip((each.name for each in column.type), column.flatten(), strict=True))
        made = [_as(parts.get(each.name), each.type, size) for each in kind]
        return pa.StructArray.from_arrays(made, fields=list(kind), mask=column.is_null())
    if pa.types.is_map(kind) and pa.types.is_map(column.type):
        lists = entries(column)
        keys, values = pc.list_flatten(lists).flatten()
        keys, values = _as(keys, kind.key_type, len(keys)), _as(values, kind.item_type, len(keys))
        return pa.MapArray.from_arrays(ends(lengths(lists)), keys, values, kind, mask=column.is_null())
    if _is_list(kind) and _is_list(column.type):
        items = pc.list_flatten(column)
        values = _as(items, kind.value_type, len(items))
        large = pa.types.is_large_list(kind)
        made_of, width = (pa.LargeListArray, pa.int64()) if large else (pa.ListArray, pa.int32())
        return made_of.from_arrays(
            ends(lengths(column)).cast(width), values, type=kind, mask=column.is_null()
        )
    return column.cast(kind)


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


def _is_list(kind: Any) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def _iceberg(kind: Any) -> Json:
    if pa.types.is_struct(kind):
        return struct(*(field(each.name, _iceberg(each.type)) for each in kind))
    if _is_list(kind):
        return list_of(_iceberg(kind.value_type))
    if pa.types.is_map(kind):
        return map_of(_iceberg(kind.item_type), key=_iceberg(kind.key_type))
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision}, {kind.scale})"
    if pa.types.is_timestamp(kind):
        return "timestamptz" if kind.tz else "timestamp"
    return next((name for is_kind, name in _PLAIN if is_kind(kind)), "binary")


_PLAIN = (
    (pa.types.is_boolean, "boolean"),
    (pa.types.is_int8, "int"),
    (pa.types.is_int16, "int"),
    (pa.types.is_int32, "int"),
    (pa.types.is_int64, "long"),
    (pa.types.is_float32, "float"),
    (pa.types.is_float64, "double"),
    (pa.types.is_date32, "date"),
    (is_text, "string"),
)
