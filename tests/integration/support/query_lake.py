"""Tables as `calve query` reads them and as Spark does, for tests that compare the two."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from calve.config.spark_conf import CATALOG
from calve.names import TableName
from cli.lake import open_catalog
from cli.look.query.answer import Lookup, Statement, When, answered
from tests.integration.support.engine import DATABASE, Engine

Rows = list[Any]


def by_calve(engine: Engine, sql: str, at: When | None = None) -> Rows:
    lake = engine.job().lake
    statement = Statement(sql)
    tables = Lookup(open_catalog(lake), DATABASE, ()).opened(statement, at)
    with answered(statement, tables, lake, DATABASE) as answer:
        return sorted((list(row) for row in answer.rows()), key=repr)


def by_spark(engine: Engine, sql: str) -> Rows:
    """SQL in which every table is written `lake.tests.TABLE`."""
    found = engine.spark.sql(sql).toArrow().to_pylist()
    return sorted(([plain(value) for value in row.values()] for row in found), key=repr)


def plain(value: Any) -> Any:
    """A value as `calve query` shows it."""
    match value:
        case datetime():
            fraction = f".{value.microsecond:06d}".rstrip("0").rstrip(".")
            zone = "" if value.tzinfo is None else "+00"
            moment = value if value.tzinfo is None else value.astimezone(UTC)
            return moment.replace(tzinfo=None).isoformat(sep=" ", timespec="seconds") + fraction + zone
        case date():
            return value.isoformat()
        case Decimal():
            return f"{value:f}"
        case bytes():
            return "".join(
                chr(each) if 32 <= each < 127 and each not in b"\\'\"" else f"\\x{each:02X}" for each in value
            )
        case dict():
            return {name: plain(each) for name, each in value.items()}
        case list():
            return [plain(each) for each in value]
        case _:
            return value


def assert_same(engine: Engine, table: str) -> None:
    """All columns of all rows are the same to both, now and as of each snapshot, with its schema."""
    name = TableName(DATABASE, table).quoted(CATALOG)
    assert by_calve(engine, f"from {table}") == by_spark(engine, f"select * from {name}")
    loaded = open_catalog(engine.job().lake).load_table((DATABASE, table))
    for entry in loaded.history():
        old = by_calve(engine, f"from {table} at (version => {entry.snapshot_id})")
        assert old == by_spark(engine, f"select * from {name} version as of {entry.snapshot_id}")
