"""Avro schemas in short, and the rows of a table as two independent readers see them."""

from __future__ import annotations

from typing import Any

from cli.lake import open_catalog
from tests.integration.support.engine import DATABASE, Engine

Avro = Any
Row = dict[str, Any]


def logical(kind: str, name: str, **settings: int) -> Avro:
    return {"type": kind, "logicalType": name, **settings}


def nullable(kind: Avro) -> Avro:
    return ["null", kind]


def record(name: str, /, **fields: Avro) -> Avro:
    return {"type": "record", "name": name, "fields": [{"name": n, "type": t} for n, t in fields.items()]}


def entries(name: str, key: Avro, value: Avro, **more: Any) -> Avro:
    """A map as converters write it whose keys are no strings."""
    fields = [{"name": "key", "type": key}, {"name": "value", "type": value}]
    return {"type": "array", "items": {"type": "record", "name": name, "fields": fields}, **more}


def optional(name: str, kind: Avro) -> Avro:
    """A field that may be added to a record."""
    return {"name": name, "type": nullable(kind), "default": None}


def same(value: Any) -> Any:
    """A value that equals itself, told apart by its type: nan, -0.0 and True are not 0.0 and 1."""
    if isinstance(value, dict):
        return {name: same(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [same(each) for each in value]
    return (type(value).__name__, repr(value)) if isinstance(value, bool | float) else value


def read(engine: Engine, topic: str) -> list[Row]:
    """The data columns of every row in the order of offsets: what Spark reads, once PyIceberg has read the same."""
    table = open_catalog(engine.job().lake).load_table((DATABASE, topic))
    found = spark_rows(engine, topic)
    assert same(found) == same(_data(table.scan().to_arrow().to_pylist()))
    return found


def spark_rows(engine: Engine, topic: str) -> list[Row]:
    """What Spark reads alone: PyIceberg reads lists and maps of structs that are null as empty ones."""
    return _data(engine.rows(topic).toArrow().to_pylist())


def _data(rows: list[Row]) -> list[Row]:
    by_offset = sorted(rows, key=lambda row: row["_kafka"]["offset"])
    return [{name: value for name, value in row.items() if name != "_kafka"} for row in by_offset]
