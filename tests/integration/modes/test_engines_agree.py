"""Both engines make a table by key as the rules of docs/modes.md say, followed record by record."""

from __future__ import annotations

import json
import random
import time
import uuid
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from calve.modes.upsert import Deduplicate, Upsert
from calve.schema.columns import Transform
from calve.schema.wire import CONFLUENT
from tests.integration.modes.test_aggregate import HOURLY, Sales
from tests.integration.support.engine import Engine, trades
from tests.integration.support.records.json_topics import register
from tests.integration.support.records.protobuf_topics import frame, protobuf_topic
from tests.keyed import Keyed, Record
from tests.protobuf_classes import message_class

pytestmark = pytest.mark.long

BY_RECORD_KEY = ("_kafka.key",)
ORC, JSON, PROTOBUF = "files in ORC", "values in JSON", "values in Protobuf"
TRADE = 'syntax = "proto3"; message Trade { int64 id = 1; string side = 2; int32 price = 3; }'
SCHEMA = {
    "type": "object",
    "properties": {"id": {"type": "integer"}, "side": {"type": "string"}, "price": {"type": "integer"}},
}
ROUNDS, RECORDS, KEYS, PARTITIONS = 4, 80, 12, 3


@pytest.mark.parametrize(
    ("mode", "version", "expected"),
    [
        ({"upsert": Upsert(BY_RECORD_KEY, deletes=True)}, 2, Keyed(newest=True)),
        ({"upsert": Upsert(BY_RECORD_KEY, order_by="price", deletes=True)}, 3, Keyed(newest=True)),
        ({"upsert": Upsert(BY_RECORD_KEY, order_by="_kafka.timestamp")}, 2, Keyed(newest=True)),
        ({"upsert": Upsert(BY_RECORD_KEY, order_by="side", deletes=True)}, 2, Keyed(newest=True)),
        pytest.param(
            {"upsert": Upsert(BY_RECORD_KEY, order_by="side", deletes=True), ORC: True},
            2,
            Keyed(newest=True),
            marks=pytest.mark.long,
        ),
        (
            {"upsert": Upsert(BY_RECORD_KEY, order_by="price", deletes=True), JSON: True},
            3,
            Keyed(newest=True),
        ),
        ({"deduplicate": Deduplicate(BY_RECORD_KEY)}, 2, Keyed(newest=False)),
        ({"deduplicate": Deduplicate(BY_RECORD_KEY), JSON: True}, 2, Keyed(newest=False)),
        ({"deduplicate": Deduplicate(BY_RECORD_KEY, 40)}, 3, Keyed(newest=False, window=40)),
        (
            {"upsert": Upsert(BY_RECORD_KEY, order_by="price", deletes=True), PROTOBUF: True},
            2,
            Keyed(newest=True),
        ),
        ({"deduplicate": Deduplicate(BY_RECORD_KEY), PROTOBUF: True}, 3, Keyed(newest=False)),
    ],
    ids=[
        "upsert",
        "by number",
        "by time",
        "by text",
        "by text in ORC",
        "JSON",
        "deduplicate",
        "deduplicate JSON",
        "window",
        "upsert of Protobuf",
        "deduplicate of Protobuf",
    ],
)
def test_both_engines_make_the_same_table(
    engine: Engine, mode: dict[str, Any], version: int, expected: Keyed
) -> None:
    """Keys are in any partition, with any timestamp. One in five records deletes, where they do. Arrow cannot read ORC."""
    dice = random.Random(28)
    topic, encode = topic_of(engine, mode)
    upsert = mode.get("upsert", Upsert(BY_RECORD_KEY))
    by_columns = "auto" if ORC in mode else "columnar"
    tables = {each: f"{topic}_{each}" for each in ("rows", by_columns)}
    settings = {"format_version": version} | {
        name: each for name, each in mode.items() if name not in (ORC, JSON, PROTOBUF)
    }
    targets = [engine.target(topic, table=name, engine=each, **settings) for each, name in tables.items()]
    began_ms, ends = time.time_ns() // 1_000_000, [0] * PARTITIONS
    for _ in range(ROUNDS):
        batch = []
        for _ in range(RECORDS):
            key, partition, rank = dice.randrange(KEYS), dice.randrange(PARTITIONS), dice.randrange(5)
            row = trades(1)[0] | {"price": rank, "side": "abcde"[rank]}
            value = None if upsert.deletes and dice.random() < 0.2 else encode(row)
            at_ms = began_ms + dice.randrange(200)
            engine.send(topic, value, key=f"user {key}".encode(), partition=partition, at_ms=at_ms)
            order = {None: None, "_kafka.timestamp": at_ms}.get(
                upsert.order_by, None if value is None else rank
            )
            batch.append(Record(key, partition, ends[partition], at_ms, order, value is None))
            ends[partition] += 1
        engine.flush()
        expected.read(batch)
        ledgers = [[each.ledger for each in engine.drain(target)] for target in targets]
        for target in targets if ORC in mode else ():
            target.opened.main.set_properties({"write.format.default": "orc"})
        assert ledgers[0] == ledgers[1]
        for each in tables.values():
            assert content(engine, each) == {
                (record.partition, record.offset, record.timestamp) for record in expected.kept
            }
    assert expected.kept


def topic_of(engine: Engine, mode: dict[str, Any]) -> tuple[str, Callable[[Any], bytes]]:
    """A topic, and the writer of its rows."""
    if JSON in mode:
        topic = f"t{uuid.uuid4().hex[:12]}"
        engine.create(topic, partitions=PARTITIONS)
        begin = CONFLUENT.frame(register(engine, topic, SCHEMA))
        return topic, lambda row: begin + json.dumps(row).encode()
    if PROTOBUF in mode:
        topic = protobuf_topic(engine, TRADE, partitions=PARTITIONS)
        found, kind = engine.registry.get_latest_version(f"{topic}-value"), message_class(TRADE, "Trade")
        first = frame(int(found.schema_id or 0))
        return topic, lambda row: first + kind(**row).SerializeToString()
    topic = engine.topic(partitions=PARTITIONS)
    return topic, partial(engine.encode, topic)


def content(engine: Engine, table: str) -> set[tuple[int, int, int]]:
    rows = engine.rows(table).selectExpr(
        "_kafka.partition", "_kafka.offset", "unix_millis(_kafka.timestamp) as at"
    )
    found = [tuple(each) for each in rows.collect()]
    assert len(found) == len(set(found))
    return set(found)


@pytest.mark.parametrize(
    ("version", "settings"),
    [
        (2, {}),
        (3, {"partition_by": (Transform("shop_id", "bucket", 4),), "sort_by": (Transform("side"),)}),
        pytest.param(2, {ORC: True}, marks=pytest.mark.long),
    ],
    ids=["plain", "laid out", "in ORC"],
)
def test_both_engines_keep_the_same_totals(engine: Engine, version: int, settings: dict[str, Any]) -> None:
    """Some records have no group. Neither engine can read or write ORC by Arrow."""
    sales, dice = Sales(engine, HOURLY), random.Random(version)
    tables = {each: f"{sales.topic}_{each}" for each in ("rows", "auto")}
    laid_out = {"format_version": version} | {name: each for name, each in settings.items() if name != ORC}
    targets = [sales.target(table=name, engine=each, **laid_out) for each, name in tables.items()]
    for count in (40, 1, 60):
        sales.sell(count, dice)
        sales.sell(2, dice, side=None)
        outcomes = [[each.ledger for each in engine.drain(target)] for target in targets]
        for target in targets if ORC in settings else ():
            target.opened.main.set_properties({"write.format.default": "orc"})
        assert outcomes[0] == outcomes[1]
        by_rows, by_columns = (sorted(map(repr, engine.rows(each).collect())) for each in tables.values())
        assert by_rows == by_columns
        assert len(by_rows) == len(sales.expected())
