"""What Avro's own resolution cannot do: unions, maps whose keys are no strings, wider decimals, texts that say moments
(`calve.avro_reader.Resolution`).

Only for schemas that need it: a value is taken apart and put together again by expressions, which Spark interprets.
"""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from calve.columns import Json
from calve.names import quote
from glue_jobs.conditions import any_in, any_of, false
from glue_jobs.moments import database_millis, database_moment

TYPES = {"long": "bigint", "timestamptz": "timestamp", "timestamp": "timestamp_ntz"}
"""Iceberg's names of types that Spark calls otherwise."""


def shaped(decoded: Column, shape: Json, end: bytes) -> Column:
    """What was decoded (a struct of `value` and `end`), the value in its shape; null where it is null.

    `end` is null where it was this one, and a text of the value says nothing. What was decoded becomes the variable of a lambda,
    or Spark would decode it again for every field that is taken from it.
    """
    return F.transform(F.array(decoded), lambda each: _judged(each, shape, end))[0]


def _judged(decoded: Column, shape: Json, end: bytes) -> Column:
    value, found = decoded["value"], decoded["end"]
    wrong = _misread(value, shape)
    if wrong is not None:
        found = F.when(~F.coalesce(wrong, false()) | (found != F.lit(bytearray(end))), found)
    return F.when(decoded.isNotNull(), F.struct(_shaped(value, shape).alias("value"), found.alias("end")))


def _misread(value: Column, shape: Json | None) -> Column | None:
    """True (else false or null) where a text of a value says no moment; None: it has no such texts."""
    if shape is None:
        return None
    [(kind, parts)] = shape.items()
    match kind:
        case "moment":
            return value.isNotNull() & database_moment(value).isNull()
        case "list":
            return any_in(value, lambda each: _misread(each, parts))
        case "map":
            return any_in(F.map_values(value), lambda each: _misread(each, parts))
        case "entries":
            sides = list(zip(("key", "value"), parts, strict=True))
            return any_in(value, lambda each: any_of(_misread(each[name], side) for name, side in sides))
        case "struct":
            return any_of(_misread(value[name], inner) for name, inner, absent in parts if not absent)
        case "union":
            return any_of(_misread(value[member], inner) for _, member, inner, _ in parts if member)
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
            return F.map_from_entries(F.transform(value, lambda each: _entry(each, *parts)))
        case "struct":
            fields = [
                _null(absent, name) if absent else _field(value, name, name, s) for name, s, absent in parts
            ]
        case _:
            fields = [
                _field(value, name, member, s) if member else _null(kind, name)
                for name, member, s, kind in parts
            ]
    return F.when(value.isNotNull(), F.struct(*fields))


def _entry(value: Column, key: Json | None, item: Json | None) -> Column:
    return F.struct(_field(value, "key", "key", key), _field(value, "value", "value", item))


def _field(value: Column, name: str, source: str, shape: Json | None) -> Column:
    return _shaped(value.getField(source), shape).alias(name)


def _null(kind: Json, name: str) -> Column:
    return F.lit(None).cast(spark_type(kind)).alias(name)


def spark_type(kind: Json) -> str:
    """A column type in Spark's words."""
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
