"""Column types in Spark and in Iceberg, and the conversion of rows to a table's columns."""

from __future__ import annotations

from collections import Counter

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from calve.names import SYSTEM_COLUMN, field_problem, quote
from calve.schema.columns import Json, decimal_digits, field, list_of, map_of, struct
from glue_jobs.columns.expressions import spark_type
from glue_jobs.transform.row_columns import unusable

PLAIN: dict[str, T.DataType] = {
    "boolean": T.BooleanType(),
    "int": T.IntegerType(),
    "long": T.LongType(),
    "float": T.FloatType(),
    "double": T.DoubleType(),
    "date": T.DateType(),
    "timestamptz": T.TimestampType(),
    "timestamp": T.TimestampNTZType(),
    "string": T.StringType(),
    "binary": T.BinaryType(),
}
SMALL = (T.ByteType, T.ShortType)
"""Spark types that Iceberg lacks; their values fit an `int`."""
COMMENT = "comment"


def spark_schema(columns: Json) -> T.StructType:
    """Columns as a Spark type. A field's doc becomes its comment."""
    return T.StructType(
        [
            T.StructField(
                each["name"],
                _spark(each["type"]),
                metadata={COMMENT: each["doc"]} if each.get("doc") else None,
            )
            for each in columns["fields"]
        ]
    )


def _spark(kind: Json) -> T.DataType:
    if isinstance(kind, str):
        digits = decimal_digits(kind)
        return T.DecimalType(*digits) if digits else PLAIN.get(kind, T.BinaryType())
    match kind["type"]:
        case "struct":
            return spark_schema(kind)
        case "list":
            return T.ArrayType(_spark(kind["element"]))
        case _:
            return T.MapType(_spark(kind["key"]), _spark(kind["value"]))


def iceberg_columns(schema: T.StructType, where: str = "the table") -> Json:
    """Table columns for rows of a Spark schema; all are optional. where: what makes them, for errors.

    Raises Suspended: `step_unusable`: no table can hold a name or a type.
    """
    return struct(*_fields(schema, "", where))


def _fields(schema: T.StructType, above: str, where: str) -> list[Json]:
    for name, count in Counter(each.name.lower() for each in schema.fields).items():
        if count > 1:
            raise unusable(f'{where} makes "{name}" {count} times; leave the other out by * except ({name})')
    for each in schema.fields:
        if problem := field_problem(f"{above}{each.name}"):
            raise unusable(problem)
        if "." in each.name:
            raise unusable(f'"{above}{each.name}" has a dot in a name')
    return [
        field(each.name, _iceberg(each.dataType, f"{above}{each.name}"), doc=each.metadata.get(COMMENT))
        for each in schema.fields
    ]


def _iceberg(kind: T.DataType, path: str) -> Json:
    match kind:
        case T.StructType(fields=[]):
            raise unusable(f'"{path}" is a struct without fields')
        case T.StructType():
            return struct(*_fields(kind, f"{path}.", f'"{path}"'))
        case T.ArrayType():
            return list_of(_iceberg(kind.elementType, path))
        case T.MapType():
            key = _iceberg(kind.keyType, path)
            return map_of(_iceberg(kind.valueType, path), key=key)
        case T.DecimalType():
            return f"decimal({kind.precision}, {kind.scale})"
        case T.NullType():
            raise unusable(f'"{path}" is always null and has no type: cast(null as string) has one')
        case T.StringType() if not kind.isUTF8BinaryCollation():
            raise unusable(f'"{path}" has a collation, which no table keeps: collate it as utf8_binary')
    name = "int" if isinstance(kind, SMALL) else next((n for n, t in PLAIN.items() if t == kind), None)
    if name is None:
        raise unusable(f'"{path}" is {kind.simpleString()}, which no table has: cast it')
    return name


def conformed(rows: DataFrame, columns: Json) -> DataFrame:
    """Rows with exactly these data columns, by name at every depth. Missing ones are null; narrower ones are widened."""
    kinds = {each.name: each.dataType for each in rows.schema.fields}
    made = (
        _as(F.col(quote(each["name"])), kinds.get(each["name"]), each["type"]).alias(each["name"])
        for each in columns["fields"]
    )
    hidden = [name for name in rows.columns if ":" in name]
    return rows.select(*made, SYSTEM_COLUMN, *map(quote, hidden))


def _as(value: Column, kind: T.DataType | None, wanted: Json) -> Column:
    if kind is None:
        return F.lit(None).cast(spark_type(wanted))
    if kind == _spark(wanted) or isinstance(wanted, str):
        return value if kind == _spark(wanted) else value.cast(spark_type(wanted))
    match kind:
        case T.StructType():
            held = {each.name: each.dataType for each in kind.fields}
            parts = (
                _as(value[each["name"]], held.get(each["name"]), each["type"]).alias(each["name"])
                for each in wanted["fields"]
            )
            return F.when(value.isNotNull(), F.struct(*parts))
        case T.ArrayType():
            return F.transform(value, lambda each: _as(each, kind.elementType, wanted["element"]))
        case T.MapType():
            return F.transform_values(value, lambda _, each: _as(each, kind.valueType, wanted["value"]))
    raise AssertionError("the table was evolved to hold these rows")
