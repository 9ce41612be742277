"""The key of a table's mode as columns beside those of the rows: a path may lie deep, and no field's name holds a colon."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructType

from calve.names import SYSTEM_COLUMN, quote_path

PARTITION, OFFSET, TIMESTAMP = (f"{SYSTEM_COLUMN}.{name}" for name in ("partition", "offset", "timestamp"))


def at(path: str) -> Column:
    """The column at a path of names."""
    return F.col(quote_path(path))


def kind_at(schema: StructType, path: str) -> DataType | None:
    """The type of what is at a path of names; None where nothing is."""
    kind: DataType = schema
    for name in path.split("."):
        if not isinstance(kind, StructType) or name not in kind.names:
            return None
        kind = kind[name].dataType
    return kind


def key_names(key: Sequence[str]) -> list[str]:
    return [f"calve:key{n}" for n in range(len(key))]


def key_columns(key: Sequence[str]) -> list[Column]:
    """The columns of a key, named by `key_names`."""
    return [at(path).alias(name) for path, name in zip(key, key_names(key), strict=True)]


def keys_of(rows: DataFrame, key: Sequence[str]) -> DataFrame:
    return rows.select(*key_columns(key))
