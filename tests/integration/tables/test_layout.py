"""How rows lie in files: `partition_by` and `sort_by` with every transform, in one read of the topic."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from pyiceberg import transforms, types

from calve.schema.columns import Transform
from calve.table.position import Ledger
from glue_jobs.operations.relayout import layout_of
from glue_jobs.table.open_table import TableMemory
from tests.integration.support.engine import Engine

Row = dict[str, Any]

FIELDS: dict[str, Any] = {
    "id": "long",
    "side": ["null", "string"],
    "code": ["null", "int"],
    "blob": "bytes",
    "day": {"type": "int", "logicalType": "date"},
    "at": {"type": "long", "logicalType": "timestamp-micros"},
    "local": {"type": "long", "logicalType": "local-timestamp-millis"},
    "price": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
    "item": {"type": "record", "name": "Item", "fields": [{"name": "sku", "type": "string"}]},
}
SCHEMA = json.dumps(
    {"type": "record", "name": "Order", "fields": [{"name": n, "type": t} for n, t in FIELDS.items()]}
)


TYPES: dict[str, types.IcebergType] = {
    "id": types.LongType(),
    "side": types.StringType(),
    "code": types.IntegerType(),
    "blob": types.BinaryType(),
    "day": types.DateType(),
    "at": types.TimestamptzType(),
    "local": types.TimestampType(),
    "price": types.DecimalType(9, 2),
    "item.sku": types.StringType(),
    "_kafka.partition": types.IntegerType(),
    "_kafka.offset": types.LongType(),
    "_kafka.timestamp": types.TimestamptzType(),
}
PYICEBERG: dict[str, Callable[..., Any]] = {
    "identity": transforms.IdentityTransform,
    "year": transforms.YearTransform,
    "month": transforms.MonthTransform,
    "day": transforms.DayTransform,
    "hour": transforms.HourTransform,
    "bucket": transforms.BucketTransform,
    "truncate": transforms.TruncateTransform,
}


def order(number: int) -> Row:
    """Values that fall on both sides of every boundary: before 1970, negative, null."""
    moment = datetime(1969, 12, 31, 22, tzinfo=UTC) + timedelta(minutes=45 * number)
    return {
        "id": number * 7 - 40,
        "side": None if number % 5 == 4 else ("BUY" if number % 2 else "SELL"),
        "code": None if number % 7 == 6 else number - 10,
        "blob": bytes([number % 3]),
        "day": date(1969, 12, 30) + timedelta(days=number // 8),
        "at": moment,
        "local": moment.replace(tzinfo=None) + timedelta(days=200 * (number % 3)),
        "price": Decimal(number - 10) / 4,
        "item": {"sku": "žąsis"[: 1 + number % 2] + str(number % 2)},
    }


def produce(engine: Engine, topic: str, count: int) -> None:
    """Records in turn to all four partitions of the topic."""
    for number in range(count):
        engine.send(topic, engine.encode(topic, order(number)), partition=number % 4)
    engine.flush()


def ingest(engine: Engine, count: int, **settings: Any) -> list[list[Row]]:
    """Drain the records in one round worth several tasks; the rows of every data file, in the order in which they lie there."""
    topic = engine.topic(partitions=4, schema=SCHEMA)
    produce(engine, topic, count)
    target = engine.target(topic, flush_bytes=1_000_000_000, **settings)
    (outcome,) = engine.drain(target, memory=TableMemory(bytes_per_record=10_000_000))
    assert outcome.ledger == Ledger(span=count, consumed=count, applied=count, rows_appended=count)
    rows = engine.rows(topic).selectExpr("_file", "_pos", "_partition", "*").toArrow().to_pylist()
    by_file: dict[str, list[Row]] = {}
    for row in sorted(rows, key=lambda each: (each["_file"], each["_pos"])):
        by_file.setdefault(row["_file"], []).append(row)
    return list(by_file.values())


def wanted(transform: Transform, row: Row) -> Any:
    """The value of a partition or sort field, by PyIceberg."""
    value: Any = row
    for part in transform.column.split("."):
        value = value[part]
    argument = () if transform.argument is None else (transform.argument,)
    function = PYICEBERG[transform.name](*argument).transform(TYPES[transform.column])
    return function(_internal(value))


def _internal(value: Any) -> Any:
    """A date as days, a time as microseconds since 1970, as Iceberg keeps them."""
    if isinstance(value, datetime):
        return (value.replace(tzinfo=None) - datetime(1970, 1, 1)) // timedelta(microseconds=1)  # noqa: DTZ001 as UTC
    return (value - date(1970, 1, 1)).days if isinstance(value, date) else value


def in_partitions(rows: list[list[Row]], fields: Sequence[Transform]) -> set[tuple[Any, ...]]:
    """Check the partition values of every row; returns the partitions, each of which must be one file."""
    found = []
    for file in rows:
        held = {tuple(_internal(value) for value in row["_partition"].values()) for row in file}
        assert held == {tuple(_internal(wanted(each, row)) for each in fields) for row in file}
        found += list(held)
    assert len(found) == len(set(found)) == len(rows)
    return set(found)


def sort_key(fields: Sequence[Transform], row: Row) -> list[tuple[int, Any]]:
    """Ascending with nulls first, or descending (numbers only) with nulls last, as Iceberg's orders are by default."""
    key = []
    for each in fields:
        value = wanted(each, row)
        if each.descending:
            key.append((1, 0) if value is None else (0, -value))
        else:
            key.append((0, 0) if value is None else (1, value))
    return key


def test_rows_lie_in_their_partitions_by_every_transform(engine: Engine) -> None:
    fields = (
        Transform("side"),
        Transform("local", "year"),
        Transform("day", "month"),
        Transform("at", "day"),
        Transform("_kafka.timestamp", "hour"),
        Transform("id", "bucket", 2),
        Transform("code", "truncate", 20),
        Transform("item.sku", "truncate", 1),
        Transform("_kafka.partition"),
    )
    rows = ingest(engine, 40, partition_by=fields, sort_by=(Transform("_kafka.offset", descending=True),))
    assert len(in_partitions(rows, fields)) > 20
    for file in rows:
        offsets = [row["_kafka"]["offset"] for row in file]
        assert offsets == sorted(offsets, reverse=True)


def test_every_type_falls_into_its_bucket(engine: Engine) -> None:
    types_ = (name for name in TYPES if not name.startswith("_kafka"))
    fields = tuple(Transform(name, "bucket", 2) for name in types_)
    assert len(in_partitions(ingest(engine, 24, partition_by=fields), fields)) > 10


def test_dates_and_times_before_1970_fall_into_their_partitions(engine: Engine) -> None:
    fields = (
        Transform("day", "year"),
        Transform("at", "hour"),
        Transform("local", "month"),
        Transform("price", "truncate", 500),
        Transform("blob", "truncate", 1),
    )
    partitions = in_partitions(ingest(engine, 24, partition_by=fields), fields)
    assert {partition[1] for partition in partitions} >= {-2, -1, 0, 1}


SORTED = {
    "values": (Transform("side"), Transform("code", descending=True), Transform("item.sku")),
    "times": (
        Transform("at", "day", descending=True),
        Transform("day", "month"),
        Transform("local", "year"),
        Transform("_kafka.timestamp", "hour"),
        Transform("at", "hour", descending=True),
        Transform("price", descending=True),
    ),
    "buckets": (
        Transform("id", "bucket", 3),
        Transform("item.sku", "truncate", 1),
        Transform("id", descending=True),
    ),
}


@pytest.mark.parametrize("order", SORTED.values(), ids=SORTED)
def test_rows_are_sorted_in_every_file(engine: Engine, order: tuple[Transform, ...]) -> None:
    rows = ingest(engine, 48, sort_by=order)
    assert len(rows) > 1
    for file in rows:
        keys = [sort_key(order, row) for row in file]
        assert keys == sorted(keys)
        offsets = [row["_kafka"]["offset"] for row in file]
        assert offsets != sorted(offsets)


def test_a_layout_that_a_user_changed_is_that_of_calve_yaml_again_with_an_exact_ledger(
    engine: Engine,
) -> None:
    topic = engine.topic(partitions=4, schema=SCHEMA)
    target = engine.target(topic, partition_by=(Transform("side"),))
    produce(engine, topic, 16)
    engine.drain(target)
    engine.sql("ALTER TABLE {t} DROP PARTITION FIELD side", topic)
    engine.sql("ALTER TABLE {t} ADD PARTITION FIELD bucket(2, id)", topic)
    engine.sql("ALTER TABLE {t} WRITE ORDERED BY price DESC", topic)
    engine.sql("ALTER TABLE {t} ADD COLUMN mine struct<note: string>", topic)
    produce(engine, topic, 16)
    (outcome,) = engine.drain(target)
    assert outcome.ledger == Ledger(span=16, consumed=16, applied=16, rows_appended=16)
    newer = engine.rows(topic).where("_kafka.offset >= 4").select("_file", "side", "mine").collect()
    by_file: dict[str, set[str]] = {}
    for row in newer:
        by_file.setdefault(row["_file"], set()).add(row["side"])
        assert row["mine"] is None
    assert {len(sides) for sides in by_file.values()} == {1}
    assert layout_of(engine.table(topic)) == ((Transform("side"),), ())
