"""The leaf types of a JSON shape: how each is parsed, checked, and converted to its column."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import cast

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.avro.functions import from_avro

from calve.schema.columns import MOST_MILLIS, Json, decimal_digits
from glue_jobs.columns.expressions import false, spark_type
from tests.spark_decoder.shapes import (
    any_in,
    any_of,
    database_millis,
    database_moment,
    date,
    moment,
)

SAME: dict[str, T.DataType] = {
    "boolean": T.BooleanType(),
    "int": T.IntegerType(),
    "long": T.LongType(),
    "float": T.FloatType(),
    "double": T.DoubleType(),
    "string": T.StringType(),
}
PARSED: dict[str, T.DataType] = SAME | {
    "binary": T.StringType(),
    "date": T.StringType(),
    "timestamptz": T.StringType(),
    "instant": T.StringType(),
    "days": T.IntegerType(),
    "millis": T.LongType(),
    "local_millis": T.LongType(),
    "local_micros": T.LongType(),
    "json": T.VariantType(),
    "database_float": T.FloatType(),
    "database_double": T.DoubleType(),
}
"""Types that Spark's parser reads too leniently, or not at all, are read as another type and converted exactly."""
TEXTS = ("string", "binary", "date", "timestamptz", "instant")
BASE64 = r"\A(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?\z"
DECIMAL_BYTES = 16
DATABASE_NUMBERS = ("database_float", "database_double")
NOT_FINITE = ("NaN", "Infinity", "-Infinity")
"""Texts that converters write for database numbers that JSON lacks."""
INFINITE = float("inf")
OVERFLOWN = '"-?Infinity"'
CAN_OVERFLOW = r"[eE][+]?[0-9]{3}|[0-9]{309}"

Walk = Callable[[Json, Column], Column | None]
NONE: Mapping[str, Column] = {}


def parse_type(shape: Json) -> T.StructType:
    """The Spark type for parsing a struct."""

    def parsed(leaf: str) -> T.DataType:
        return T.VariantType() if leaf.startswith("decimal") else PARSED[leaf]

    return cast("T.StructType", _mapped(shape, parsed))


def strings(shape: Json) -> T.DataType | None:
    """A Spark type with only the strings of a shape, as a type that the parser accepts from any JSON string and nothing else."""
    return _mapped(shape, lambda leaf: T.CalendarIntervalType() if leaf in TEXTS else None)


def strict_numbers(shape: Json) -> T.DataType | None:
    """A Spark type with only the numbers that may be texts. It shows which of both they are."""
    return _mapped(shape, lambda leaf: T.VariantType() if leaf in DATABASE_NUMBERS else None)


def not_finite(shape: Json, value: Column) -> Column | None:
    """True if a number that may be a text is NaN or infinite; None if there are no such numbers."""
    if isinstance(shape, str):
        return F.isnan(value) | (F.abs(value) == INFINITE) if shape in DATABASE_NUMBERS else None
    return _any(shape, value, not_finite)


def no_number(shape: Json, value: Column) -> Column | None:
    """True if a value of `strict_numbers` is a text without a number, or a number beyond its type."""
    if isinstance(shape, str):
        if shape not in DATABASE_NUMBERS:
            return None
        number = F.try_variant_get(value, "$", shape.removeprefix("database_"))
        text = F.schema_of_variant(value) == "STRING"
        return F.when(text, ~value.cast("string").isin(*NOT_FINITE)).otherwise(F.abs(number) == INFINITE)
    return _any(shape, value, no_number)


def invalid(shape: Json, value: Column, text: Column) -> Column | None:
    """True (else false or null) if a parsed value differs from the JSON `text`; None if that is impossible."""
    match shape:
        case "float" | "double":
            return F.abs(value) == INFINITE
        case "binary" | "date" | "timestamptz" | "instant" | "millis":
            return value.isNotNull() & _made(shape, value).isNull()
        case "json":
            overflown = F.to_json(value).rlike(OVERFLOWN)
            return F.when(overflown, text.rlike(CAN_OVERFLOW))
        case str() if shape.startswith("decimal"):
            return value.isNotNull() & ~F.is_variant_null(value) & _made(shape, value).isNull()
    found = _any(shape, value, lambda inner, each: invalid(inner, each, text))
    if isinstance(shape, dict) and shape["type"] == "map":
        names = F.map_keys(value)
        twice = F.size(names) != F.size(F.array_distinct(names))
        return twice if found is None else twice | F.coalesce(found, false())
    return found


def converted(shape: Json, column: Json, value: Column, given: Mapping[str, Column] = NONE) -> Column:
    """Convert a parsed value to a table column (Iceberg type, JSON form). `given` supplies some fields of a struct."""
    if _same(shape, column):
        return value
    if isinstance(shape, str):
        return _made(shape, value).cast(spark_type(column))
    match shape["type"]:
        case "struct":
            held = {each["name"]: each["type"] for each in shape["fields"]}
            fields = []
            for each in column["fields"]:
                source = each.get("written", each["name"])
                if source in held:
                    found = converted(held[source], each["type"], value[source])
                else:
                    found = given.get(each["name"], F.lit(None).cast(spark_type(each["type"])))
                fields.append(found.alias(each["name"]))
            return F.when(value.isNotNull(), F.struct(*fields))
        case "list":
            return F.transform(value, lambda each: converted(shape["element"], column["element"], each))
        case _:
            return F.transform_values(value, lambda _, each: converted(shape["value"], column["value"], each))


def _bytes(text: Column) -> Column:
    """Strict Base64: Spark's reader skips spaces and control characters."""
    return F.unbase64(F.when(text.rlike(BASE64), text))


MADE: Mapping[str, Callable[[Column], Column]] = {
    "binary": _bytes,
    "date": date,
    "timestamptz": moment,
    "instant": database_moment,
    "days": F.date_from_unix_date,
    "local_millis": database_millis,
    "local_micros": F.timestamp_micros,
}


def _made(shape: str, value: Column) -> Column:
    """The value of a leaf; null if there is none."""
    match shape:
        case "millis":
            return F.when(value.between(-MOST_MILLIS, MOST_MILLIS), F.timestamp_millis(value))
        case "json":
            return F.when(~F.is_variant_null(value), F.to_json(value))
        case str() if shape.startswith("decimal"):
            return _decimal(shape, value)
    return MADE[shape](value) if shape in MADE else value


def _decimal(shape: str, value: Column) -> Column:
    """A number whose digits all fit. Spark's parser keeps up to 38 digits exactly and turns longer ones into a double.

    A string is the unscaled number in Base64, the default of Kafka Connect.
    """
    _, scale = cast("tuple[int, int]", decimal_digits(shape))
    text, kind = value.cast("string"), F.schema_of_variant(value)
    fits = text.rlike(rf"\A-?[0-9]+(?:\.[0-9]{{1,{scale}}})?\z" if scale else r"\A-?[0-9]+\z")
    number = F.when(kind.rlike(r"\A(?:BIGINT|DECIMAL)") & fits, text.try_cast(shape))
    return F.when(kind == "STRING", _from_base64(text, scale).try_cast(shape)).otherwise(number)


def _from_base64(text: Column, scale: int) -> Column:
    """Two's complement, big-endian, at most 16 bytes: an Avro decimal after its length byte."""
    unscaled = _bytes(text)
    size = F.length(unscaled)
    framed = F.when(
        (size >= 1) & (size <= DECIMAL_BYTES), F.concat(F.char(size * 2).cast("binary"), unscaled)
    )
    kind = {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": scale}
    return from_avro(framed, json.dumps(kind), {"mode": "PERMISSIVE"})


def _any(shape: Json, value: Column, test: Walk) -> Column | None:
    """True if a test is true for a part of a value."""
    if isinstance(shape, str):
        return None
    match shape["type"]:
        case "struct":
            return any_of(test(each["type"], value[each["name"]]) for each in shape["fields"])
        case "list":
            return any_in(value, lambda each: test(shape["element"], each))
        case _:
            return any_in(F.map_values(value), lambda each: test(shape["value"], each))


def _same(shape: Json, column: Json) -> bool:
    """True if a parsed value equals the column's value without conversion."""
    if isinstance(shape, str):
        return shape == column and shape in SAME
    if shape["type"] == "struct":
        pairs = zip(shape["fields"], column["fields"], strict=False)
        return len(shape["fields"]) == len(column["fields"]) and all(
            held["name"] == each["name"] == each.get("written", each["name"])
            and _same(held["type"], each["type"])
            for held, each in pairs
        )
    inner = "element" if shape["type"] == "list" else "value"
    return _same(shape[inner], column[inner])


def _mapped(shape: Json, leaf: Callable[[str], T.DataType | None]) -> T.DataType | None:
    """A Spark type of the same form, without parts that have no type."""
    if isinstance(shape, str):
        return leaf(shape)
    match shape["type"]:
        case "struct":
            found = [(each["name"], _mapped(each["type"], leaf)) for each in shape["fields"]]
            fields = [T.StructField(name, kind) for name, kind in found if kind is not None]
            return T.StructType(fields) if fields else None
        case "list":
            element = _mapped(shape["element"], leaf)
            return T.ArrayType(element) if element is not None else None
        case _:
            value = _mapped(shape["value"], leaf)
            return T.MapType(T.StringType(), value) if value is not None else None
