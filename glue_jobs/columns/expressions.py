"""Spark expressions: columns by path, types, the key of a table's mode, conditions; and all helper columns beside a record's.

Names of helper columns have a colon, or belong to a frame without data columns: no field's name has a colon (`calve.names`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructType

from calve.config.job import PartName
from calve.names import SYSTEM_COLUMN, quote, quote_path
from calve.schema.columns import Json
from calve.schema.wire import GUID_MAGIC, GUID_SIZE, HEADERS, Wire

PARTITION, OFFSET, TIMESTAMP = (f"{SYSTEM_COLUMN}.{name}" for name in ("partition", "offset", "timestamp"))
TYPES = {"long": "bigint", "timestamptz": "timestamp", "timestamp": "timestamp_ntz"}
"""Iceberg types with another name in Spark."""


def at(path: str) -> Column:
    return F.col(quote_path(path))


def kind_at(schema: StructType, path: str) -> DataType | None:
    """The type at a path of names; None if the path does not exist."""
    kind: DataType = schema
    for name in path.split("."):
        if not isinstance(kind, StructType) or name not in kind.names:
            return None
        kind = kind[name].dataType
    return kind


def spark_type(kind: Json) -> str:
    """A column type in Spark SQL."""
    if isinstance(kind, str):
        return "binary" if kind.startswith("fixed") else TYPES.get(kind, kind)
    match kind["type"]:
        case "struct":
            fields = ", ".join(
                f"{quote(each['name'])}: {spark_type(each['type'])}" for each in kind["fields"]
            )
            return f"struct<{fields}>"
        case "list":
            return f"array<{spark_type(kind['element'])}>"
        case _:
            return f"map<{spark_type(kind['key'])}, {spark_type(kind['value'])}>"


def key_names(key: Sequence[str]) -> list[str]:
    return [f"calve:key{n}" for n in range(len(key))]


def key_columns(key: Sequence[str]) -> list[Column]:
    """The columns of a key, named by `key_names`."""
    return [at(path).alias(name) for path, name in zip(key, key_names(key), strict=True)]


def keys_of(rows: DataFrame, key: Sequence[str]) -> DataFrame:
    return rows.select(*key_columns(key))


def by_columns(frame: DataFrame, paths: Sequence[str], those: DataFrame, how: str) -> DataFrame:
    """Join a frame's columns at these paths with the columns of another frame, in their order. No nulls match."""
    same = (at(path) == F.col(name) for path, name in zip(paths, those.columns, strict=True))
    return frame.join(those, reduce(Column.__and__, same), how)


def false() -> Column:
    return F.lit(False)  # noqa: FBT003 a literal column


def case(branches: Sequence[tuple[Column, Column]], otherwise: Column) -> Column:
    """The value of the first true condition."""
    first, *rest = branches
    return reduce(lambda found, branch: found.when(*branch), rest, F.when(*first)).otherwise(otherwise)


def named_column(part: PartName, wire: Wire, value: Column, headers: Column) -> Column:
    """As `glue_jobs.kafka.records.named`, of a value (binary) and the headers of its record."""
    if wire.by_guid is None:
        return value
    theirs = F.filter(headers, lambda each: each["key"] == HEADERS[part])
    header = F.try_element_at(theirs, F.lit(-1))["value"]
    is_guid = F.substring(header, 1, len(GUID_MAGIC)) == F.lit(bytearray(GUID_MAGIC))
    is_id = F.substring(header, 1, len(wire.magic)) == F.lit(bytearray(wire.magic))
    by_guid = F.lit(bytearray(wire.by_guid))
    rest = F.substring(header, len(GUID_MAGIC) + 1, 2**31 - 1)
    whole = F.length(rest) >= GUID_SIZE
    return (
        F.when(header.isNull() | value.isNull(), value)
        .when(is_guid, F.concat(by_guid, rest, F.when(whole, value).otherwise(F.lit(bytearray()))))
        .when(is_id & (F.length(header) >= wire.size), F.concat(header, value))
        .otherwise(header)
    )


REFUSED = "calve:refused"
"""Why the source cannot deliver the record, one of `calve.schema.columns.UNDELIVERED`; null for others."""
REJECT = "calve:reject"
"""The reject reason; null for good records."""
SIZE = "calve:size"
"""Bytes of key and value."""
OTHER = "calve:other"
"""The index of the record's schema among those of other tables; null for others."""
DECODED: dict[PartName, str] = {"value": "decoded", "key": "calve:key"}
"""Structs of `value` (the columns; null if bad), `reason`, `number` (of the schema), `other` and `size` (null for null)."""
RECEIVED = "calve:received"
"""The record's bytes as received: key, value and headers."""
SCHEMA_ID = "schema_id"
TOMBSTONE = "calve:tombstone"
"""True: the record deletes the row of its key."""
IDLE = "calve:idle"
"""True: the change event changes no row."""
FILTERED = "calve:filtered"
"""True: a step filtered the row."""
RULE = "calve:rule"
"""The number of the step that filtered the row, or rejected it for an expectation; null for other rows."""
