"""`calve query` answers as Spark does, for tables of every kind."""

from __future__ import annotations

import json
import random
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from calve.config.steps import Flatten
from calve.errors import ConfigError
from calve.modes.upsert import Deduplicate
from calve.schema.columns import Transform
from tests.integration.decode.test_evolution import any_schema
from tests.integration.decode.test_renames import FIRST, SECOND, first, in_turn, second
from tests.integration.modes.test_aggregate import Sales
from tests.integration.modes.test_deduplicate import BY_ID, Events
from tests.integration.steps.test_masked_tables import MASK, masking
from tests.integration.steps.test_steps import sale
from tests.integration.steps.test_steps import schema as sales_schema
from tests.integration.support.engine import Engine
from tests.integration.support.query_lake import assert_same, by_calve, by_spark
from tests.integration.support.records.keyed import Users
from tests.integration.tables.test_layout import SCHEMA as ORDER

__all__ = ["masking"]

EARLY = datetime(1969, 12, 31, 22, 45, tzinfo=UTC)
LAYOUT = (Transform("at", "day"), Transform("price", "truncate", 500), Transform("side"))


def order(number: int) -> dict[str, Any]:
    moment = EARLY + timedelta(minutes=20 * (number - 2))
    return {
        "id": number,
        "side": [None, "BUY", "SELL"][number % 3],
        "code": number - 6 if number % 4 else None,
        "blob": bytes([number]),
        "day": date(1969, 12, 30) + timedelta(days=number),
        "at": moment,
        "local": moment.replace(tzinfo=None),
        "price": Decimal(number * 75 - 400) / 100,
        "item": {"sku": f"ą{number}"},
    }


@pytest.fixture(scope="module")
def orders(engine: Engine) -> str:
    """A table in many small files: partitioned by days around 1970 and by parts of a decimal."""
    topic = engine.topic(partitions=2, schema=ORDER)
    target = engine.target(topic, partition_by=LAYOUT)
    for start in (0, 8):
        for partition in range(2):
            numbers = range(start + partition, start + 8, 2)
            engine.produce(topic, [order(number) for number in numbers], partition=partition)
        engine.drain(target)
    return topic


CONDITIONS = [
    "`at` >= timestamp '1969-12-31 22:45:00+00'",
    "`at` = timestamp '1969-12-31 22:45:00+00'",
    "`day` < date '1970-01-01'",
    "price = 0.5",
    "price > -2 and side = 'BUY'",
    "side is null",
    "side is not null and code is null",
    "id % 5 = 2",
    "item.sku in ('ą3', 'ą7')",
    "_kafka.partition = 1 and _kafka.offset between 1 and 5",
    "`at` in (select `at` from {t} where id in (0, 3))",
    "price in (select price from {t} where id in (2, 5, 9))",
]


@pytest.mark.parametrize("condition", CONDITIONS)
def test_a_filter_finds_the_rows_that_spark_finds(engine: Engine, orders: str, condition: str) -> None:
    expected = by_spark(
        engine, f"select id from {{t}} where {condition}".replace("{t}", f"lake.tests.{orders}")
    )
    sql = f"select id from {{t}} where {condition}".replace("{t}", orders).replace("`", '"')
    found = by_calve(engine, sql.replace("timestamp '", "timestamptz '"))
    assert found == expected
    assert 0 < len(found) < 16


def test_rows_of_every_snapshot_of_a_partitioned_table(engine: Engine, orders: str) -> None:
    assert_same(engine, orders)


@pytest.mark.full
@pytest.mark.parametrize("version", [2, 3])
def test_a_table_that_is_upserted(engine: Engine, version: int) -> None:
    users, dice = Users(engine), random.Random(version)
    target = users.target(format_version=version)
    for _ in range(2):
        users.scramble(dice, 40, keys=12)
        engine.drain(target)
    assert_same(engine, users.topic)
    [[counted]] = by_calve(engine, f"select count(*) from {users.topic}")
    assert counted == len(users.state)


@pytest.mark.full
def test_tables_of_first_records_and_of_totals(engine: Engine) -> None:
    events, sales = Events(engine), Sales(engine)
    dice = random.Random(7)
    first_records = engine.target(events.topic, deduplicate=BY_ID)
    totals = sales.target()
    for _ in range(2):
        events.scatter(dice, 20, events=12)
        sales.sell(20, dice)
        engine.drain(first_records)
        engine.drain(totals)
    assert isinstance(BY_ID, Deduplicate)
    assert_same(engine, events.topic)
    assert_same(engine, sales.topic)


@pytest.mark.full
def test_renamed_and_widened_columns_at_any_depth(engine: Engine) -> None:
    topic = engine.topic(partitions=1, schema=json.dumps(FIRST))
    engine.produce(topic, [first(0)])
    target = engine.target(topic, partition_by=(Transform("side"),))
    engine.drain(target)
    with any_schema(engine):
        in_turn(engine, topic, [SECOND, FIRST], [second(1), first(2), second(2**40)])
    engine.drain(target)
    assert_same(engine, topic)
    assert by_calve(engine, f"select article.code, lines[1].quantity from {topic} where order_id = 0") == [
        ["k0", 0]
    ]
    assert by_calve(engine, f"select order_id from {topic} where order_id > 2.5") == [[2**40]]


@pytest.mark.full
def test_masked_rows_and_dead_letters(engine: Engine, masking: str) -> None:
    topic = engine.topic(schema=sales_schema(), partitions=1)
    engine.produce(topic, [sale(1, "a", "b"), sale(2)])
    engine.send(topic, b"\x01no magic byte", key=b"1@example.com")
    engine.flush()
    engine.drain(engine.target(topic, steps=(MASK, Flatten()), masking=masking))
    assert_same(engine, topic)
    assert_same(engine, f"{topic}__dead_letters")
    assert "example.com" not in str(by_calve(engine, f"from {topic}"))
    assert by_calve(engine, f"select reason from {topic}__dead_letters") == [["bad_magic"]]


def test_a_column_that_is_not_there_is_named_with_those_that_are(engine: Engine, orders: str) -> None:
    with pytest.raises(ConfigError, match=r'"sid" not found(.|\n)*"side"'):
        by_calve(engine, f"select sid from {orders}")
