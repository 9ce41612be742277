"""Conversions beyond Avro's schema resolution (`tests.spark_decoder.resolution.Resolution`).

These are unions, maps with keys that are not strings, wider decimals, and texts that are timestamps.
Used only for schemas that need it: Spark interprets these expressions, which take a value apart and rebuild it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from calve.schema.columns import FIRST_MICROS as FIRST
from calve.schema.columns import LAST_MICROS as LAST
from calve.schema.columns import Json
from glue_jobs.columns.expressions import false, spark_type


def shaped(decoded: Column, shape: Json, end: bytes) -> Column:
    """The decoded struct (`value` and `end`) with its value in the shape; null if it is null.

    `end` becomes null if it was good but a text of the value is not a timestamp.
    The decoded struct is a lambda variable. Otherwise Spark would decode it again for every field.
    """

    def judged(each: Column) -> Column:
        value, found = each["value"], each["end"]
        wrong = _misread(value, shape)
        if wrong is not None:
            found = F.when(~F.coalesce(wrong, false()) | (found != F.lit(bytearray(end))), found)
        return F.when(each.isNotNull(), F.struct(_shaped(value, shape).alias("value"), found.alias("end")))

    return F.transform(F.array(decoded), judged)[0]


def _misread(value: Column, shape: Json | None) -> Column | None:
    """True (else false or null) if a text of a value is not a timestamp; None if it has no such texts."""
    if shape is None:
        return None
    [(kind, parts)] = shape.items()
    match kind:
        case "moment":
            return value.isNotNull() & database_moment(value).isNull()
        case "list" | "entries":
            return any_in(value, lambda each: _misread(each, parts))
        case "map":
            return any_in(F.map_values(value), lambda each: _misread(each, parts))
        case "struct":
            return any_of(_misread(value[source], inner) for _, source, inner, _ in parts if source)
    return None


def _shaped(value: Column, shape: Json | None) -> Column:
    if shape is None:
        return value
    [(kind, parts)] = shape.items()
    match kind:
        case "cast":
            return value.cast(spark_type(parts))
        case "moment":
            return database_moment(value)
        case "millis":
            return database_millis(value).cast(spark_type(parts))
        case "list":
            return F.transform(value, lambda each: _shaped(each, parts))
        case "map":
            return F.transform_values(value, lambda _, each: _shaped(each, parts))
        case "entries":
            return F.map_from_entries(F.transform(value, lambda each: _shaped(each, parts)))
    fields = (
        (F.lit(None).cast(spark_type(null)) if source is None else _shaped(value[source], inner)).alias(name)
        for name, source, inner, null in parts
    )
    return F.when(value.isNotNull(), F.struct(*fields))


YEAR = "(?!0000)[0-9]{4}"
DATE = rf"\A{YEAR}-[0-9]{{2}}-[0-9]{{2}}\z"
ZONE = r"(?:[Zz]|[+-][0-9]{2}:[0-9]{2})"
MOMENT = rf"\A{YEAR}-[0-9]{{2}}-[0-9]{{2}}[Tt ][0-9]{{2}}:[0-9]{{2}}:[0-9]{{2}}(?:\.[0-9]{{1,6}}0*)?{ZONE}\z"
"""RFC 3339 with microseconds. A text with more decimals, or without an offset, is not an exact timestamp."""


FAR = r"\A(?:[+-]?infinity|(?:\+[0-9]{5,}|-[0-9]{4,}|0000)-[0-9]{2}-[0-9]{2}T[0-9:.]+(?:Z|[+-][0-9:]+))\z"
"""A timestamp whose year does not have four digits."""
DAY_MICROS = 86_400_000_000


def date(text: Column) -> Column:
    """The date of a text; null if it has none."""
    return F.when(text.rlike(DATE), text.try_cast("date"))


def moment(text: Column) -> Column:
    """The timestamp of a text, in microseconds; null if it has none."""
    return F.when(text.rlike(MOMENT), F.upper(text).try_cast("timestamp"))


def database_moment(text: Column) -> Column:
    """As `moment`. For a database, timestamps out of range become the first or the last one."""
    far = F.when(text.startswith("-") | text.startswith("0000"), F.lit(FIRST)).otherwise(F.lit(LAST))
    return F.when(text.rlike(FAR), F.timestamp_micros(far)).otherwise(moment(text))


def database_millis(value: Column) -> Column:
    """The timestamp of a database number. Numbers out of range become one millisecond before the first or after the last."""
    return F.timestamp_millis(_bounded(value, F.lit(FIRST // 1000 - 1), F.lit(LAST // 1000 + 1)))


def kept_within_years(value: Column, kind: T.DataType) -> Column:
    """A value with its dates and timestamps limited to the years 1 to 9999, at any depth."""
    if not _has_times(kind):
        return value
    match kind:
        case T.DateType():
            first, last = (F.date_from_unix_date(F.lit(each // DAY_MICROS)) for each in (FIRST, LAST))
            return _bounded(value, first, last)
        case T.ArrayType(elementType=inner):
            return F.transform(value, lambda each: kept_within_years(each, inner))
        case T.MapType(valueType=inner):
            return F.transform_values(value, lambda _, each: kept_within_years(each, inner))
        case T.StructType(fields=fields):
            parts = (
                kept_within_years(value.getField(each.name), each.dataType).alias(each.name)
                for each in fields
            )
            return F.when(value.isNotNull(), F.struct(*parts))
    return _bounded(value, *(F.timestamp_micros(F.lit(each)).cast(kind) for each in (FIRST, LAST)))


def _has_times(kind: T.DataType) -> bool:
    match kind:
        case T.ArrayType(elementType=inner) | T.MapType(valueType=inner):
            return _has_times(inner)
        case T.StructType(fields=fields):
            return any(_has_times(each.dataType) for each in fields)
    return isinstance(kind, T.DateType | T.TimestampType | T.TimestampNTZType)


def _bounded(value: Column, first: Column, last: Column) -> Column:
    return F.when(value < first, first).when(value > last, last).otherwise(value)


def any_of(conditions: Iterable[Column | None]) -> Column | None:
    """True (else false) if one condition is true; null counts as false. None if there are no conditions."""
    some = [F.coalesce(each, false()) for each in conditions if each is not None]
    return _either(some) if some else None


def any_in(values: Column, test: Callable[[Column], Column | None]) -> Column | None:
    """True (else false or null) if a test is true for an item of a list; None if it cannot be."""
    if test(F.lit(None)) is None:
        return None
    return F.exists(values, lambda each: F.coalesce(test(each), false()))  # type: ignore[arg-type]


def _either(conditions: list[Column]) -> Column:
    """OR of all conditions, as a shallow tree: Spark recurses into expressions."""
    if len(conditions) == 1:
        return conditions[0]
    half = len(conditions) // 2
    return _either(conditions[:half]) | _either(conditions[half:])
