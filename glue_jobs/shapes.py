"""What Avro's own resolution cannot do: unions, maps whose keys are no strings, wider decimals (`calve.avro_reader.Resolution`).

Only for schemas that need it: a value is taken apart and put together again by expressions, which Spark interprets.
"""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from calve.columns import Json
from calve.names import quote

TYPES = {"long": "bigint", "timestamptz": "timestamp", "timestamp": "timestamp_ntz"}
"""Iceberg's names of types that Spark calls otherwise."""


def shaped(value: Column, shape: Json) -> Column:
    """The value in its shape; null where it is null.

    The value becomes the variable of a lambda, or Spark would decode it again for every field that is taken from it.
    """
    return F.transform(F.array(value), lambda each: _shaped(each, shape))[0]


def _shaped(value: Column, shape: Json | None) -> Column:
    if shape is None:
        return value
    [(kind, parts)] = shape.items()
    match kind:
        case "cast":
            return value.cast(spark_type(parts))
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
