"""Values that updates of a database lack, because its log omits what did not change (ADR 19).

Debezium writes a placeholder for them. A step may move or mask it; it cannot compute with it.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from calve.schema.change_events import UNAVAILABLE, UPDATES
from calve.schema.columns import CHANGE
from glue_jobs.columns.expressions import REJECT, at, false
from glue_jobs.transform.row_columns import has_changes, is_live

LACKS_VALUE = "value_unavailable"


def lacks_values(rows: DataFrame) -> Column:
    """True for updates that lack a value of a column; never null."""
    return reduce(Column.__or__, (lacks(each) for each in may_lack(rows)), false())


def may_lack(rows: DataFrame) -> list[T.StructField]:
    """Columns of types that may contain Debezium's placeholder."""
    return [each for each in rows.schema.fields if _placeholder(each.dataType) and ":" not in each.name]


def lacks(column: T.StructField) -> Column:
    """True for updates that lack the value of a column; never null. In rows of other operations the placeholder is a value."""
    value = at(column.name)
    if isinstance(column.dataType, T.MapType):
        value = F.map_keys(value)
    is_update = at(f"{CHANGE['name']}.op") == UPDATES
    return F.coalesce(is_update & (value == F.lit(_placeholder(column.dataType))), false())


def lacking(frame: DataFrame, names: Collection[str]) -> Column:
    """True for updates that lack a value of these columns, which a step reads; never null."""
    if not has_changes(frame):
        return false()
    wanted = {name.lower() for name in names}
    return reduce(
        Column.__or__, (lacks(each) for each in may_lack(frame) if each.name.lower() in wanted), false()
    )


def rejecting(frame: DataFrame, names: Collection[str]) -> DataFrame:
    """The frame before a step that reads these columns: live updates that lack a value of them are rejected."""
    if not has_changes(frame):
        return frame
    reject = F.when(is_live(frame) & lacking(frame, names), F.lit(LACKS_VALUE))
    return frame.withColumn(REJECT, F.coalesce(REJECT, reject) if REJECT in frame.columns else reject)


def _placeholder(kind: T.DataType) -> str | bytearray | list[str] | None:
    match kind:
        case T.StringType():
            return UNAVAILABLE
        case T.BinaryType():
            return bytearray(UNAVAILABLE.encode())
        case T.ArrayType(elementType=T.StringType()) | T.MapType(keyType=T.StringType()):
            return [UNAVAILABLE]
    return None
