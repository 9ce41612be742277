"""Whether what a query makes can be columns of a table."""

from __future__ import annotations

from collections import Counter

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegralType,
    MapType,
    NullType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from calve.names import SYSTEM_COLUMN, field_problem
from glue_jobs.steps.frame import unusable

PLAIN = (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegralType,
    TimestampNTZType,
    TimestampType,
)


def require_columns(row: StructType, *, from_stars: bool) -> None:
    """Refuse names and types that no table has. `from_stars`: `_kafka` is among them, once, and does not count.

    Raises:
        Suspended: `step_unusable`.
    """
    named = [field for field in row if not (from_stars and field.name == SYSTEM_COLUMN)]
    if not named:
        raise unusable("the query makes no column")
    _require_distinct([field.name for field in named], "the query")
    for field in named:
        _require_name(field.name, field.name)
        _require_storable(field.dataType, field.name)


def _require_name(name: str, path: str) -> None:
    if problem := field_problem(path):
        raise unusable(problem)
    if "." in name:
        raise unusable(f'"{path}" has a dot in a name')


def _require_distinct(names: list[str], where: str) -> None:
    for name, count in Counter(name.lower() for name in names).items():
        if count > 1:
            raise unusable(f'{where} makes "{name}" {count} times; leave the other out by * except ({name})')


def _require_storable(type_: DataType, path: str) -> None:
    match type_:
        case StructType():
            _require_distinct(type_.names, f'"{path}"')
            for field in type_:
                _require_name(field.name, f"{path}.{field.name}")
                _require_storable(field.dataType, f"{path}.{field.name}")
        case ArrayType():
            _require_storable(type_.elementType, path)
        case MapType():
            _require_storable(type_.keyType, path)
            _require_storable(type_.valueType, path)
        case NullType():
            raise unusable(f'"{path}" is always null and has no type: cast(null as string) has one')
        case StringType():
            if not type_.isUTF8BinaryCollation():
                raise unusable(f'"{path}" has a collation, which no table keeps: collate it as utf8_binary')
        case _ if not isinstance(type_, PLAIN):
            raise unusable(f'"{path}" is {type_.simpleString()}, which no table has')
