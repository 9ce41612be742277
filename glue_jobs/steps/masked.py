"""A single value masked: as a token, in part, or as the beginning of the span that it is in. Null stays null."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    TimestampNTZType,
    TimestampType,
)

from calve.masking import FIRST_YEAR_DAY, FIRST_YEAR_US
from calve.steps import Rule
from glue_jobs.steps.frame import unusable
from glue_jobs.steps.tokens import token

INTEGERS = (ByteType, ShortType, IntegerType, LongType)
FLOATS = (FloatType, DoubleType)
MOMENTS = {
    TimestampType: "yyyy-MM-dd'T'HH:mm:ss.SSSSSS'Z'",
    TimestampNTZType: "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
DOMAIN = r"(@[A-Za-z0-9.-]+\.[A-Za-z][A-Za-z0-9-]*)\z"
"""What is shown of an e-mail address. Whatever else may follow an @ is hidden: it need not be one."""
LONGS = 2.0**63


def masked(value: Column, kind: DataType, rule: Rule, path: str) -> Column:
    """A value of a type that is no struct, list or map, by a rule that is neither `drop` nor `null`.

    Raises:
        Suspended: the rule cannot mask values of this type.
    """
    match rule.how:
        case "hash":
            return token(_bytes(value, kind, path))
        case "partial":
            return _partial(_shown(value, kind, path), rule.argument)
        case "generalise" if isinstance(rule.argument, int):
            return _band(value, kind, rule.argument, path)
        case "generalise":
            return _span(value, kind, str(rule.argument), path)
    raise AssertionError(f"{rule.how} is no rule of a single value")


def text(value: Column, kind: DataType) -> Column | None:
    """The one text that a value has, whatever the type of its column: 12 as an int, a long, a decimal and a text is `12`.

    Integers and decimals in decimal digits without needless zeros; days and times in ISO 8601, times in UTC with six decimals;
    `true` and `false`. None: values of this type have no such text.
    """
    match kind:
        case StringType():
            return value
        case BooleanType() | ByteType() | ShortType() | IntegerType() | LongType() | DateType():
            return value.cast("string")
        case DecimalType():
            return _digits(value, kind.scale)
        case TimestampType() | TimestampNTZType():
            return F.date_format(value, MOMENTS[type(kind)])
    return None


def _bytes(value: Column, kind: DataType, path: str) -> Column:
    if isinstance(kind, BinaryType):
        return value
    found = text(value, kind)
    if found is None:
        raise unusable(f"{path} is {_named(kind)}: its values have no text that is always the same to hash")
    return found.cast("binary")


def _digits(value: Column, scale: int) -> Column:
    """Every digit of a decimal: as a string Spark writes 1E-7."""
    grouped = F.format_number(value, scale)
    plain = F.regexp_replace(grouped, ",", "")
    return F.regexp_replace(plain, r"\.?0+\z", "") if scale else plain


def _shown(value: Column, kind: DataType, path: str) -> Column:
    found = text(value, kind) if isinstance(kind, (StringType, DecimalType, *INTEGERS)) else None
    if found is None:
        raise unusable(f"{path} is {_named(kind)}: partial is for texts, whole numbers and decimals")
    return found


def _partial(value: Column, stays: str | int | None) -> Column:
    if not isinstance(stays, int):
        return F.concat(F.lit("***"), F.regexp_extract(value, DOMAIN, 1))
    length = F.length(value)
    stars = F.when(length > stays, length - stays).otherwise(length)
    return F.concat(F.repeat(F.lit("*"), stars), F.substring(value, stars + 1, F.lit(stays)))


def _span(value: Column, kind: DataType, unit: str, path: str) -> Column:
    """The first day of the year or the month; null where there is no such day in the type."""
    match kind:
        case DateType():
            return F.when(F.unix_date(value) >= FIRST_YEAR_DAY, F.trunc(value, unit))
        case TimestampType():
            return F.when(F.unix_micros(value) >= FIRST_YEAR_US, F.date_trunc(unit, value))
        case TimestampNTZType():
            moment = value.cast("timestamp")
            return _span(moment, TimestampType(), unit, path).cast("timestamp_ntz")
    raise unusable(f"{path} is {_named(kind)}: only dates and timestamps generalise to the {unit}")


def _band(value: Column, kind: DataType, width: int, path: str) -> Column:
    """The greatest multiple of `width` that is not greater; null where there is no such number in the type."""
    if isinstance(kind, FLOATS):
        steps = value.cast("double") / F.lit(float(width))
        whole = F.floor(F.when(F.abs(steps) < LONGS, steps))
        return (whole.cast("double") * F.lit(float(width))).cast(kind)
    if isinstance(kind, DecimalType):
        whole = F.floor(value)
    elif isinstance(kind, INTEGERS):
        whole = value.cast("long")
    else:
        raise unusable(f"{path} is {_named(kind)}: only numbers generalise to bands of {width}")
    return F.try_subtract(whole, F.pmod(whole, F.lit(width).cast("long"))).try_cast(kind)


def _named(kind: DataType) -> str:
    return f"of type {kind.simpleString()}"
