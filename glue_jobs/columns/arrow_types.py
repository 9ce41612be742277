"""Columns as Arrow arrays. Only modules that decode to Arrow import this one: a host may lack Arrow."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from calve.schema.columns import Json, decimal_digits

FIELD_ID = b"PARQUET:field_id"
"""The key of a column's field id in the metadata of its Arrow field."""
PRIMITIVES: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us"),
    "timestamptz": pa.timestamp("us", "UTC"),
    "string": pa.string(),
    "binary": pa.binary(),
}


def leaf_type(kind: str) -> pa.DataType:
    """The Arrow type of a primitive type of Iceberg's. Raises `KeyError` if it has none here."""
    if digits := decimal_digits(kind):
        return pa.decimal128(*digits)
    if kind.startswith("fixed["):
        return pa.binary(int(kind[len("fixed[") : -1]))
    return PRIMITIVES[kind]


def arrow_type(kind: Json, *, fixed: bool = True) -> pa.DataType:
    """The type of a column (Iceberg, JSON form). fixed: False: bytes of a fixed length are of any length, as Spark has them."""
    if isinstance(kind, str):
        return leaf_type(kind) if fixed or not kind.startswith("fixed") else pa.binary()
    match kind["type"]:
        case "struct":
            return pa.struct(
                [(each["name"], arrow_type(each["type"], fixed=fixed)) for each in kind["fields"]]
            )
        case "list":
            return pa.list_(pa.field("element", arrow_type(kind["element"], fixed=fixed)))
    return pa.map_(arrow_type(kind["key"], fixed=fixed), arrow_type(kind["value"], fixed=fixed))


def column_at(rows: pa.Table, path: str) -> pa.Array:
    """The column at a path of names, as one array; null where a struct on the way is null."""
    first, *rest = path.split(".")
    column = rows.column(first)
    found = (pc.struct_field(column, rest) if rest else column).combine_chunks()
    return pa.concat_arrays(found.chunks) if isinstance(found, pa.ChunkedArray) else found


def not_utf_8(values: pa.Array) -> NDArray[np.bool_]:
    """Which strings are not UTF-8."""
    wrong = np.zeros(len(values), np.bool_)
    try:
        values.validate(full=True)
    except pa.ArrowInvalid:
        for place, each in enumerate(values.cast(pa.binary()).to_pylist()):
            try:
                (each or b"").decode()
            except UnicodeDecodeError:
                wrong[place] = True
    return wrong


def turned(floats: NDArray[np.int64]) -> NDArray[np.int64]:
    """The bits of doubles as integers of the same order, and back: those of negative doubles decrease as they increase."""
    return np.where(floats < 0, floats ^ np.iinfo(np.int64).max, floats)


def bits(marks: NDArray[Any]) -> NDArray[np.uint8]:
    """Arrow's bitmap of marks."""
    return np.packbits(marks, bitorder="little")
