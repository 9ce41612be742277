"""Topics of JSON Schema, and the proof that their tables are what they say."""

from __future__ import annotations

import json
import uuid
from typing import Any

from confluent_kafka.schema_registry import Schema, SchemaReference

from calve.names import TableName
from cli.lake import open_catalog
from cli.progress import LineProgress
from cli.verify.topic import Sources
from cli.verify.verification import verify
from tests.integration.support.engine import DATABASE, Engine


def json_topic(engine: Engine, schema: Any, *, references: list[SchemaReference] | None = None) -> str:
    """A new topic with one partition; its schema's id is in front of what `send` is given."""
    topic = f"t{uuid.uuid4().hex[:12]}"
    engine.create(topic, partitions=1)
    register(engine, topic, schema, references=references)
    return topic


def register(
    engine: Engine, topic: str, schema: Any, *, references: list[SchemaReference] | None = None
) -> int:
    registered = Schema(json.dumps(schema), "JSON", references or [])
    return int(engine.registry.register_schema(f"{topic}-value", registered))


def send(engine: Engine, topic: str, schema_id: int, payload: Any) -> None:
    data = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    engine.send(topic, b"\x00" + schema_id.to_bytes(4, "big") + data, partition=0)
    engine.flush()


def proved(engine: Engine, topic: str) -> None:
    """Verification agrees with every row and every dead letter."""
    job = engine.job()
    sources = Sources(open_catalog(job.lake), job.kafka, job.registry, job.lake.region)
    found = verify(TableName(DATABASE, topic), sources, LineProgress(lambda _: None))
    assert found.findings == (), found.findings
    assert found.ok
