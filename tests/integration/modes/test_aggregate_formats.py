"""Totals of records that are no Avro, and tables of totals that are laid out."""

from __future__ import annotations

import json
import random
from decimal import Decimal
from typing import Any

import pytest

from calve.config.job import Source
from calve.modes.aggregate import Aggregate, Measure
from calve.schema.columns import Transform
from tests.integration.modes.test_aggregate import HOURLY, Sales
from tests.integration.support.engine import Engine, suspended
from tests.integration.support.proofs import assert_proved, proof
from tests.integration.support.records.json_topics import json_topic, register, send

QUOTE = {
    "type": "object",
    "title": "Quote",
    "properties": {
        "venue": {"type": "object", "properties": {"id": {"type": "string"}}},
        "bid": {"type": "number"},
        "size": {"type": "integer"},
    },
}
QUOTES = Aggregate(
    ("venue.id",),
    (
        Measure("value", "sum(cast(bid as decimal(18, 4)) * size)"),
        Measure("lowest", "min(bid)"),
        Measure("quotes", "count(bid)"),
    ),
)


@pytest.mark.full
def test_totals_of_json_with_floats_that_are_cast(engine: Engine) -> None:
    topic = json_topic(engine, QUOTE)
    schema_id = register(engine, topic, QUOTE)
    quotes: list[dict[str, Any]] = [
        {"venue": {"id": "x"}, "bid": 19.99, "size": 3},
        {"venue": {"id": "x"}, "bid": 0.00005, "size": 2},
        {"venue": {"id": "x"}, "size": 2},
        {"venue": {"id": "y"}, "bid": -1e9, "size": 1},
        {"venue": {}, "bid": 1.0, "size": 1},
    ]
    for each in quotes:
        send(engine, topic, schema_id, each)
    (outcome,) = engine.drain(engine.target(topic, aggregate=QUOTES))
    assert outcome.ledger.rejected == {"null_key": 1}
    found = engine.rows(topic).select("venue_id", "value", "lowest", "quotes").collect()
    assert sorted(map(tuple, found)) == [
        ("x", Decimal("59.9702"), 0.00005, 2),
        ("y", Decimal(-(10**9)), -1e9, 1),
    ]
    assert_proved(proof(engine, topic))


@pytest.mark.full
def test_totals_of_bare_json_by_one_schema(engine: Engine) -> None:
    topic = engine.topic(partitions=1)
    source = Source(format="json", prefix="none", schema=json.dumps(QUOTE))
    for size in (1, 2):
        engine.send(topic, json.dumps({"venue": {"id": "x"}, "bid": 1.5, "size": size}).encode(), partition=0)
        engine.flush()
        engine.drain(engine.target(topic, aggregate=QUOTES, value=source))
    assert engine.rows(topic).select("value", "quotes").collect() == [(Decimal("4.5"), 2)]
    assert_proved(proof(engine, topic, value=source))


@pytest.mark.full
def test_a_table_of_totals_is_laid_out_by_its_own_columns(engine: Engine) -> None:
    sales, dice = Sales(engine, HOURLY), random.Random(1)
    with suspended("layout_unknown_column"):
        engine.drain(sales.target(partition_by=(Transform("at", "day"),)))
    layout = (Transform("window_start", "day"), Transform("shop_id", "bucket", 4))
    for _ in range(2):
        sales.sell(40, dice)
        engine.drain(sales.target(partition_by=layout, sort_by=(Transform("side"),)))
        assert sales.held() == sales.expected()
    assert_proved(proof(engine, sales.topic))
