"""Trades in a topic, and what their summaries must be: computed from the topic, by none of the code under test."""

from __future__ import annotations

import io
import uuid
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from itertools import islice
from typing import Any

import fastavro
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.schema_registry import SchemaRegistryClient

from cli.embedded.stack import Stack
from cli.run.datagen.plan import Plan, blocks
from cli.run.datagen.produce import FRAME_BYTES, Encoder, register, rows, schema_text
from tests.integration.support.records.producing import Raw, create_topic, produce

PARTITIONS = 2
CANARY = {
    "side": "CANARY-SIDE",
    "quantity": 918273645,
    "symbol": "CANARY-SYMBOL",
    "price": 897867564,
    "account": "CANARY-ACCOUNT",
    "userid": "CANARY-USER",
}
"""A trade whose values nothing else holds."""


@dataclass
class Trades:
    """A topic of trades."""

    stack: Stack
    topic: str

    @cached_property
    def encoder(self) -> Encoder:
        registry = SchemaRegistryClient({"url": self.stack.registry_url})
        plan = Plan(self.topic, 1)
        first = next(rows(plan, next(iter(blocks(plan)))))
        return register(registry, self.topic, schema_text("stock_trades"), first)

    def create(self) -> None:
        create_topic(self.stack.bootstrap_servers, self.topic, partitions=PARTITIONS)

    def produce(self, first: datetime, last: datetime, count: int, *, seed: int = 0) -> None:
        """Trades with the timestamps of producers, evenly from `first` to before `last`."""
        plan = Plan(self.topic, count, seed=seed)
        step = (last - first) / count
        trades = (row for block in blocks(plan) for row in rows(plan, block))
        records = (
            Raw(
                self.encoder.encode(row),
                row["userid"].encode(),
                n % PARTITIONS,
                timestamp_ms=int((first + n * step).timestamp() * 1000),
            )
            for n, row in enumerate(trades)
        )
        while batch := list(islice(records, 1000)):
            produce(self.stack.bootstrap_servers, self.topic, batch)

    def produce_canary(self, at: datetime) -> None:
        record = Raw(self.encoder.encode(CANARY), b"canary", 0, timestamp_ms=int(at.timestamp() * 1000))
        produce(self.stack.bootstrap_servers, self.topic, [record])

    def summary(self, start: datetime, end: datetime) -> list[list[str]]:
        """Trades and quantity by symbol and side, from the topic itself."""
        trades: Counter[tuple[str, str]] = Counter()
        quantity: Counter[tuple[str, str]] = Counter()
        for at, trade in self._records():
            if start <= at < end:
                group = (trade["symbol"], trade["side"])
                trades[group] += 1
                quantity[group] += trade["quantity"]
        return [
            ["symbol", "side", "trades", "quantity"],
            *([*group, str(trades[group]), str(quantity[group])] for group in sorted(trades)),
        ]

    def _records(self) -> Iterable[tuple[datetime, dict[str, Any]]]:
        consumer = Consumer(
            {
                "bootstrap.servers": self.stack.bootstrap_servers,
                "group.id": uuid.uuid4().hex,
                "enable.auto.commit": False,
            }
        )
        partitions = [TopicPartition(self.topic, number, 0) for number in range(PARTITIONS)]
        left = sum(consumer.get_watermark_offsets(each, timeout=10)[1] for each in partitions)
        consumer.assign(partitions)
        while left:
            for message in consumer.consume(1000, timeout=10):
                assert not message.error(), message.error()
                value = io.BytesIO((message.value() or b"")[FRAME_BYTES:])
                trade: Any = fastavro.schemaless_reader(value, self.encoder.schema, None)
                yield datetime.fromtimestamp(message.timestamp()[1] / 1000, UTC), trade
                left -= 1
        consumer.close()
