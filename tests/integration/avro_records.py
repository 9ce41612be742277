"""Avro schemas in short, and the rows of a table as two independent readers see them."""

from __future__ import annotations

from typing import Any

from cli.lake import open_catalog
from tests.integration.engine import DATABASE, Engine

Avro = Any
Row = dict[str, Any]


def logical(kind: str, name: str, **settings: int) -> Avro:
    return {"type": kind, "logicalType": name, **settings}


def nullable(kind: Avro) -> Avro:
    return ["null", kind]


def record(name: str, /, **fields: Avro) -> Avro:
    return {"type": "record", "name": name, "fields": [{"name": n, "type": t} for n, t in fields.items()]}


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
    found = [_data(rows.to_pylist()) for rows in (engine.rows(topic).toArrow(), table.scan().to_arrow())]
    assert same(found[0]) == same(found[1])
    return found[0]


def _data(rows: list[Row]) -> list[Row]:
    by_offset = sorted(rows, key=lambda row: row["_kafka"]["offset"])
    return [{name: value for name, value in row.items() if name != "_kafka"} for row in by_offset]
