"""Both engines make the same table by key. The row engine folds the batch by Spark: it is the oracle of the decision."""

from __future__ import annotations

import random
import time
from typing import Any

import pytest

from calve.modes.deduplicate import Deduplicate
from calve.modes.upsert import Upsert
from tests.integration.support.engine import Engine, trades

BY_RECORD_KEY = ("_kafka.key",)
ROUNDS, RECORDS, KEYS, PARTITIONS = 4, 80, 12, 3


@pytest.mark.parametrize(
    ("mode", "version"),
    [
        ({"upsert": Upsert(BY_RECORD_KEY, deletes=True)}, 2),
        ({"upsert": Upsert(BY_RECORD_KEY, order_by="price", deletes=True)}, 3),
        ({"deduplicate": Deduplicate(("id", "side"))}, 2),
    ],
    ids=["upsert", "upsert by order", "deduplicate"],
)
def test_both_engines_make_the_same_table(engine: Engine, mode: dict[str, Any], version: int) -> None:
    """Keys are in any partition, with any timestamp, and one in five records deletes."""
    dice = random.Random(28)
    topic = engine.topic(partitions=PARTITIONS)
    tables = {each: f"{topic}_{each}" for each in ("rows", "columnar")}
    settings = {"format_version": version, **mode}
    targets = [engine.target(topic, table=name, engine=each, **settings) for each, name in tables.items()]
    began_ms = time.time_ns() // 1_000_000
    for _ in range(ROUNDS):
        for _ in range(RECORDS):
            row = trades(1, first=dice.randrange(KEYS))[0] | {"price": dice.randrange(5)}
            value = None if dice.random() < 0.2 else engine.encode(topic, row)
            key, partition = f"user {dice.randrange(KEYS)}".encode(), dice.randrange(PARTITIONS)
            at_ms = began_ms + dice.randrange(3)
            engine.send(topic, value, key=key, partition=partition, at_ms=at_ms)
        engine.flush()
        ledgers = [[each.ledger for each in engine.drain(target)] for target in targets]
        assert ledgers[0] == ledgers[1]
        by_rows, by_columns = (content(engine, each) for each in tables.values())
        assert by_rows == by_columns
    assert by_rows


def content(engine: Engine, table: str) -> list[str]:
    return sorted(map(str, engine.rows(table).collect()))
