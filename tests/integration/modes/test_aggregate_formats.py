"""Totals of records that are no Avro, and tables of totals that are laid out."""

from __future__ import annotations

import json
import random
from datetime import UTC, date, datetime
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


TYPES: dict[str, Any] = {
    "local": {"type": "long", "logicalType": "local-timestamp-micros"},
    "moment": {"type": "long", "logicalType": "timestamp-micros"},
    "day": {"type": "int", "logicalType": "date"},
    "price": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
    "open": "boolean",
    "code": {"type": "fixed", "name": "Code", "size": 3},
    "raw": "bytes",
    "number": "int",
    "name": "string",
}


@pytest.mark.parametrize("version", [2, 3])
def test_groups_and_measures_of_every_type_are_found_again(engine: Engine, version: int) -> None:
    """The second round reads the rows of the first by Arrow, and adds to them."""
    schema = {
        "type": "record",
        "name": "Kinds",
        "fields": [{"name": name, "type": kind} for name, kind in TYPES.items()],
    }
    topic = engine.topic(partitions=1, schema=json.dumps(schema))
    greatest = tuple(Measure(f"most_{name}", f"max({name})") for name in TYPES if name != "open")
    mode = Aggregate(tuple(TYPES), (Measure("n", "count(*)"), *greatest))
    moment = datetime(2026, 11, 26, 12, 30, 0, 5, UTC)
    row = {
        "local": moment.replace(tzinfo=None),
        "moment": moment,
        "day": date(2026, 11, 26),
        "price": Decimal("12.34"),
        "open": True,
        "code": b"abc",
        "raw": b"\x00\xff",
        "number": 7,
        "name": "é",
    }
    target = engine.target(topic, aggregate=mode, format_version=version)
    for expected in (1, 2):
        for each in (row, row | {"number": 8}):
            engine.send(topic, engine.encode(topic, each), partition=0)
        engine.flush()
        engine.drain(target)
        found = engine.rows(topic).orderBy("number").collect()
        assert [(each["n"], each["number"], each["most_name"]) for each in found] == [
            (expected, 7, "é"),
            (expected, 8, "é"),
        ]
        assert {bytes(each["most_code"]) for each in found} == {b"abc"}
        assert {(each["local"], each["most_local"]) for each in found} == {(row["local"], row["local"])}
