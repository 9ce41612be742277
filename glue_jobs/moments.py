"""Texts and numbers that say a moment; those of a database may be infinite, or before or after all that tables hold (ADR 40)."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

YEAR = "(?!0000)[0-9]{4}"
DATE = rf"\A{YEAR}-[0-9]{{2}}-[0-9]{{2}}\z"
ZONE = r"(?:[Zz]|[+-][0-9]{2}:[0-9]{2})"
MOMENT = rf"\A{YEAR}-[0-9]{{2}}-[0-9]{{2}}[Tt ][0-9]{{2}}:[0-9]{{2}}:[0-9]{{2}}(?:\.[0-9]{{1,6}}0*)?{ZONE}\z"
"""RFC 3339 with microseconds: what has more of them, or no offset, is no exact moment of a column."""


FAR = r"\A(?:[+-]?infinity|(?:\+[0-9]{5,}|-[0-9]{4,}|0000)-[0-9]{2}-[0-9]{2}T[0-9:.]+(?:Z|[+-][0-9:]+))\z"
"""A moment that no year of four digits says."""
DAY_MICROS = 86_400_000_000
FIRST, LAST = -62_135_596_800_000_000, 253_402_300_799_999_999
"""The first and the last moment that all readers of tables know, in microseconds: those of the years 1 and 9999."""


def date(text: Column) -> Column:
    """The day that a text says; null where it says none."""
    return F.when(text.rlike(DATE), text.try_cast("date"))


def moment(text: Column) -> Column:
    """The moment that a text says, to the microsecond; null where it says none."""
    return F.when(text.rlike(MOMENT), F.upper(text).try_cast("timestamp"))


def database_moment(text: Column) -> Column:
    """As `moment`; of a database, the first or the last one for those before or after it."""
    far = F.when(text.startswith("-") | text.startswith("0000"), F.lit(FIRST)).otherwise(F.lit(LAST))
    return F.when(text.rlike(FAR), F.timestamp_micros(far)).otherwise(moment(text))


def database_millis(value: Column) -> Column:
    """The moment of a number of a database; beyond the first and the last one there are two more, for all others."""
    return F.timestamp_millis(_bounded(value, F.lit(FIRST // 1000 - 1), F.lit(LAST // 1000 + 1)))


def _within_years(value: Column, kind: T.DataType) -> Column | None:
    """A value whose days and moments are those of the years 1 to 9999, at any depth; None: it has none of them."""
    match kind:
        case T.DateType():
            first, last = (F.lit(each // DAY_MICROS) for each in (FIRST, LAST))
            return _bounded(value, F.date_from_unix_date(first), F.date_from_unix_date(last))
        case T.TimestampType() | T.TimestampNTZType():
            return _bounded(value, *(F.timestamp_micros(F.lit(each)).cast(kind) for each in (FIRST, LAST)))
        case T.ArrayType(elementType=inner):
            if _within_years(value, inner) is None:
                return None
            return F.transform(value, lambda each: kept_within_years(each, inner))
        case T.MapType(valueType=inner):
            if _within_years(value, inner) is None:
                return None
            return F.transform_values(value, lambda _, each: kept_within_years(each, inner))
        case T.StructType(fields=fields):
            if all(_within_years(value, each.dataType) is None for each in fields):
                return None
            parts = (
                kept_within_years(value.getField(each.name), each.dataType).alias(each.name)
                for each in fields
            )
            return F.when(value.isNotNull(), F.struct(*parts))
    return None


def kept_within_years(value: Column, kind: T.DataType) -> Column:
    """As `within_years`, and the value itself where it has none."""
    found = _within_years(value, kind)
    return value if found is None else found


def _bounded(value: Column, first: Column, last: Column) -> Column:
    return F.when(value < first, first).when(value > last, last).otherwise(value)
