"""Produce the trades of `trades.jsonl`: `python examples/anomalies/generate.py`, with the embedded stack up (`calve up`)."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.schema_registry import SchemaRegistryClient

from cli.config import load_jobs
from cli.run.datagen.produce import create_topic, register, schema_text

HERE = Path(__file__).parent
DAY = datetime(2026, 11, 16, tzinfo=UTC)


def generate(topic: str, servers: str, registry: str) -> None:
    """Produce all trades to one partition, so that they are read in their order; each at its hour of the same day."""
    create_topic(topic, 1, {"bootstrap.servers": servers})
    trades = [json.loads(line) for line in (HERE / "trades.jsonl").read_text().splitlines()]
    hours = [DAY + timedelta(hours=trade.pop("hour")) for trade in trades]
    schema = schema_text("stock_trades")
    encoder = register(SchemaRegistryClient({"url": registry}), topic, schema, trades[0])
    producer = Producer({"bootstrap.servers": servers, "log_level": 3})
    for hour, trade in zip(hours, trades, strict=True):
        key, at_ms = trade["userid"].encode(), int(hour.timestamp() * 1000)
        producer.produce(topic, encoder.encode(trade), key=key, timestamp=at_ms)
    producer.flush()


if __name__ == "__main__":
    [job] = load_jobs(HERE / "calve.yaml")
    generate("stock_trades", job.kafka.bootstrap_servers, job.registry.url)  # type: ignore[union-attr]
