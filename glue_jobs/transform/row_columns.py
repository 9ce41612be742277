"""The columns of rows between steps: data columns, system columns, and helper columns, whose names have a colon.

A step changes data columns and keeps all others. It drops no row: it marks a row as filtered, or its record as rejected.
Its results for rows that are not live do not matter, but it must not fail on them.
For a tombstone, the columns computed from the key alone do matter.

Updates of a database lack values that did not change. Debezium writes a placeholder for them (ADR 19). A step may move or mask
it, but cannot compute with it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.types import DataType, StructType

from calve.errors import Suspended
from calve.names import SYSTEM_COLUMN, nearest
from calve.schema.change_events import UNAVAILABLE, UPDATES
from calve.schema.columns import CHANGE
from glue_jobs.columns.expressions import FILTERED, IDLE, OTHER, REJECT, TOMBSTONE, at, false

CHANGE_FIELDS = [each["name"] for each in CHANGE["type"]["fields"]]


def system(frame: DataFrame) -> list[str]:
    """`_kafka`, and `_change` of change events. A field `_change` of other records has other fields."""
    found = [SYSTEM_COLUMN] if SYSTEM_COLUMN in frame.columns else []
    return [*found, CHANGE["name"]] if has_changes(frame) else found


def has_changes(frame: DataFrame) -> bool:
    """Whether the rows come from change events."""
    if CHANGE["name"] not in frame.columns:
        return False
    kind = frame.schema[CHANGE["name"]].dataType
    return isinstance(kind, StructType) and kind.names == CHANGE_FIELDS


def data(frame: DataFrame) -> list[str]:
    others = beside(frame)
    return [name for name in frame.columns if name not in others]


def beside(frame: DataFrame) -> list[str]:
    return [*system(frame), *(name for name in frame.columns if ":" in name)]


def record(frame: DataFrame) -> StructType:
    names = data(frame)
    return StructType([each for each in frame.schema.fields if each.name in names])


def remade(
    frame: DataFrame,
    made: DataFrame,
    columns: Iterable[Column | str],
    *,
    reject: Column | None = None,
    filtered: Column | None = None,
) -> DataFrame:
    """The rows of `frame` with other data columns, read from `made`: the same rows with further columns.

    reject: why a step rejects a row that was good; null: it does not. filtered: True for rows that a step filters.
    """
    names: dict[str, Column] = {name: F.col(name) for name in beside(frame)}
    if reject is not None:
        names[REJECT] = F.coalesce(names[REJECT], reject) if REJECT in names else reject
    if filtered is not None:
        names[FILTERED] = names[FILTERED] | filtered if FILTERED in names else filtered
    return made.select(*columns, *(each.alias(name) for name, each in names.items()))


def is_live(frame: DataFrame) -> Column:
    """True for rows that, so far, will be rows of the table."""
    live = F.lit(True)  # noqa: FBT003 a literal column
    for name in (REJECT, OTHER):
        live = live & F.col(name).isNull() if name in frame.columns else live
    for name in (FILTERED, TOMBSTONE, IDLE):
        live = live & ~F.col(name) if name in frame.columns else live
    return live


def unusable(why: str) -> Suspended:
    """The error of a step that does not fit its columns. The caller adds which step it is."""
    return Suspended("step_unusable", why, fix="change the step in calve.yaml, or the schema")


def type_at(record: StructType, path: str) -> DataType:
    """The type at a path of structs. Raises Suspended: `step_unusable`, with a suggestion."""
    found: DataType = record
    for depth, name in enumerate(path.split(".")):
        if not isinstance(found, StructType):
            raise unusable(f'"{".".join(path.split(".")[:depth])}" has no fields, so there is no "{path}"')
        found = type_of(found, name, "column of the record")
    return found


def type_of(columns: StructType, name: str, what: str) -> DataType:
    """The type of a column, matched case-insensitively. what: its description for the error.

    Raises Suspended: `step_unusable`, with a suggestion.
    """
    by_lower = {field.name.lower(): field for field in columns}
    if name.lower() in by_lower:
        return by_lower[name.lower()].dataType
    near = nearest(name, columns.names)
    hint = f'did you mean "{near}"?' if near else f"there are {', '.join(columns.names)}"
    raise unusable(f'"{name}" is no {what}; {hint}')


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
