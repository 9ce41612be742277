"""Rows of a table as records of an output topic: which, with what around them, and that none is missing whatever dies."""

from __future__ import annotations

import json
import signal
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext

from calve.config.job import Registry, Source, Table
from calve.config.publishing import Emit
from calve.config.steps import Flatten
from calve.errors import Retryable
from calve.modes.aggregate import Aggregate, Measure
from calve.modes.upsert import Deduplicate
from calve.requests.redrive import Request
from calve.table.summary import REDRIVE
from tests.integration.steps.test_steps import ROWS, ledger, sale, schema
from tests.integration.support.crashing import run_job
from tests.integration.support.engine import Engine, at, suspended
from tests.integration.support.servers.guid_registry import GuidRegistry

Record = tuple[Any, dict[str, Any], dict[str, bytes]]
"""Key, decoded value, headers."""


def records(engine: Engine, topic: str, *, kind: str = "avro") -> list[Record]:
    """Everything that a topic holds."""
    servers = {"bootstrap.servers": engine.stack.bootstrap_servers, "group.id": uuid.uuid4().hex}
    consumer = Consumer(servers | {"auto.offset.reset": "earliest", "isolation.level": "read_committed"})
    try:
        partitions = consumer.list_topics(topic, 10).topics[topic].partitions
        ends = {p: consumer.get_watermark_offsets(TopicPartition(topic, p), 10)[1] for p in partitions}
        consumer.assign([TopicPartition(topic, p, 0) for p in partitions])
        read = (
            AvroDeserializer(engine.registry)
            if kind == "avro"
            else JSONDeserializer(None, schema_registry_client=engine.registry)
        )
        found: list[Record] = []
        while len(found) < sum(ends.values()):
            message = consumer.poll(10)
            assert message is not None
            assert message.error() is None
            headers = cast("list[tuple[str, bytes]]", message.headers())
            value = read(message.value(), SerializationContext(topic, MessageField.VALUE, [*headers]))
            found.append((message.key(), value, dict(headers)))
        return found
    finally:
        consumer.close()


def places(found: list[Record]) -> list[tuple[int, int]]:
    return sorted(
        (int(headers["calve-source-partition"]), int(headers["calve-source-offset"]))
        for _, _, headers in found
    )


def output() -> str:
    return f"out{uuid.uuid4().hex[:12]}"


@pytest.mark.long
def test_rows_are_records_with_the_place_that_they_come_from(engine: Engine) -> None:
    topic, out = engine.topic(schema=schema(), partitions=1), output()
    engine.send(topic, engine.encode(topic, sale(1, "a")), key=b"one")
    engine.send(topic, b"\x01no magic byte")
    engine.flush()
    emit = Emit(out, partitions=3, retention_ms=86_400_000)
    engine.drain(engine.target(topic, steps=(Flatten(),), emit=emit))
    [(key, value, headers)] = records(engine, out)
    assert key == b"one"
    assert value == {
        "id": 1,
        "customer_id": 1,
        "customer_email": "1@example.com",
        "items": [{"sku": "a", "price": 0.0}],
    }
    assert (headers["calve-source-topic"], headers["calve-source-offset"]) == (topic.encode(), b"0")
    assert len(engine.cluster.state(out).end) == 3
    assert engine.config_of(out, "retention.ms") == "86400000"


def test_a_topic_that_exists_is_left_as_it_is(engine: Engine) -> None:
    topic, out = engine.topic(schema=schema()), output()
    engine.create(out, partitions=1)
    engine.produce(topic, [sale(1)])
    engine.drain(engine.target(topic, emit=Emit(out, partitions=5)))
    assert len(engine.cluster.state(out).end) == 1
    assert len(records(engine, out)) == 1


def test_json_with_a_key_of_columns(engine: Engine) -> None:
    topic, out = engine.topic(schema=schema(), partitions=1), output()
    engine.produce(topic, [sale(7, "a", "b")])
    emit = Emit(out, format="json", key=("id", "items_sku"))
    engine.drain(engine.target(topic, steps=ROWS, emit=emit))
    found = records(engine, out, kind="json")
    assert sorted(value["items_sku"] for _, value, _ in found) == ["a", "b"]
    assert sorted(json.loads(key[5:])["items_sku"] for key, _, _ in found) == ["a", "b"]


@pytest.mark.long
@pytest.mark.parametrize("kind", ["avro", "json"])
def test_a_header_may_name_the_schema(engine: Engine, kind: Any) -> None:
    topic, out = engine.topic(schema=schema(), partitions=1), output()
    engine.produce(topic, [sale(7, "a")])
    emit = Emit(out, format=kind, key=("customer_email",), schema_id="header")
    steps = (Flatten(),)
    with suspended("emit_unusable") as caught:
        engine.drain(
            engine.target(topic, table=f"{topic}_p", steps=steps, emit=replace(emit, topic=output()))
        )
    assert "states no GUIDs" in str(caught.value)
    with GuidRegistry(engine.stack.registry_url) as registry:
        engine.drain(engine.target(topic, registry=Registry(registry.url), steps=steps, emit=emit))
        made = replace(engine, registry=SchemaRegistryClient({"url": registry.url}))
        [(key, value, headers)] = records(made, out, kind=kind)
        assert value["customer_email"] == "7@example.com"
        assert key[:1] != b"\0"
        named = SerializationContext(out, MessageField.KEY, [*headers.items()])
        read = AvroDeserializer(made.registry) if kind == "avro" else None
        assert (read(key, named) if read else json.loads(key)) == {"customer_email": "7@example.com"}
        # Its topic is a topic as any other.
        engine.drain(engine.target(out, registry=Registry(registry.url), key=Source(column="k")))
        assert [tuple(each) for each in engine.rows(out).select("k.*", "customer_id").collect()] == [
            ("7@example.com", 7)
        ]


def test_a_later_version_is_a_version_of_the_output(engine: Engine) -> None:
    topic, out = engine.topic(schema=schema(), partitions=1), output()
    target = engine.target(topic, emit=Emit(out))
    engine.produce(topic, [sale(1)])
    engine.drain(target)
    engine.register(topic, schema({"name": "note", "type": ["null", "string"], "default": None}))
    engine.produce(topic, [sale(2) | {"note": "n"}])
    engine.drain(target)
    assert sorted((value["id"], value.get("note")) for _, value, _ in records(engine, out)) == [
        (1, None),
        (2, "n"),
    ]
    assert engine.registry.get_versions(f"{out}-value") == [1, 2]


@pytest.mark.long
def test_totals_are_emitted_by_group_whenever_they_change(engine: Engine) -> None:
    topic, out = engine.topic(schema=schema(), partitions=1), output()
    totals = Aggregate(("customer.id",), (Measure("sales", "count(*)"),))
    target = engine.target(topic, aggregate=totals, emit=Emit(out, format="json", key=("customer_id",)))
    engine.produce(topic, [sale(1), sale(1), sale(2)])
    engine.drain(target)
    engine.produce(topic, [sale(2)])
    engine.drain(target)
    found = records(engine, out, kind="json")
    assert sorted((v["customer_id"], v["sales"]) for _, v, _ in found) == [(1, 2), (2, 1), (2, 2)]


@pytest.mark.full
def test_duplicates_are_not_emitted_and_letters_are_when_they_come_back(engine: Engine) -> None:
    topic, out = engine.topic(schema=schema(), partitions=1), output()
    note = schema({"name": "note", "type": ["null", "string"], "default": None})
    other = engine.topic(schema=note)
    target = engine.target(topic, deduplicate=Deduplicate(("id",)), emit=Emit(out))
    engine.produce(topic, [sale(1), sale(1)])
    engine.send(topic, engine.encode(other, sale(2) | {"note": "n"}))
    engine.flush()
    engine.drain(target)
    assert places(records(engine, out)) == [(0, 0)]
    engine.register(topic, note)
    engine.table(topic).set_properties({REDRIVE: Request("r1", "now").to_json()})
    engine.drain(target)
    engine.drain(target)
    assert ledger(engine, topic).redriven == 1
    assert places(records(engine, out)) == [(0, 0), (0, 2)]


def test_a_table_that_is_there_begins_with_what_comes_next(engine: Engine) -> None:
    topic, out = engine.topic(schema=schema(), partitions=1), output()
    engine.produce(topic, [sale(1)])
    engine.drain(engine.target(topic))
    engine.produce(topic, [sale(2)])
    engine.drain(engine.target(topic, emit=Emit(out)))
    assert places(records(engine, out)) == [(0, 1)]


def assert_emitted(engine: Engine, topic: str, out: str) -> int:
    """Every row of the table is in the output topic; returns how many are there again, each the same as the first time."""
    found = records(engine, out)
    rows = {(*places([each])[0], each[1]["items_sku"]): each[1] for each in found}
    assert all(each[1] == rows[(*places([each])[0], each[1]["items_sku"])] for each in found)
    table = engine.rows(topic).select("_kafka.partition", "_kafka.offset", "items_sku").collect()
    assert rows.keys() == {tuple(row) for row in table}
    return len(found) - len(rows)


DEATHS = ("publish.committed", "release.end", "emit.begin", "emit.written", "emit.noted", "recover.end")


@pytest.mark.parametrize("point", DEATHS)
def test_no_row_is_missing_whatever_dies(engine: Engine, point: str) -> None:
    topic, out = engine.topic(schema=schema(), partitions=1), output()
    settings: dict[str, Any] = {"steps": ROWS, "emit": Emit(out)}
    engine.produce(topic, [sale(1, "a", "b")])
    engine.drain(engine.target(topic, **settings))
    engine.produce(topic, [sale(2, "c"), sale(3, "d", "e")])

    def die(_table: str) -> None:
        raise Retryable("dead")

    with at(point, die), pytest.raises(Retryable, match="dead"):
        engine.drain(engine.target(topic, **settings))
    engine.produce(topic, [sale(4, "f")])
    engine.drain(engine.target(topic, **settings))
    assert assert_emitted(engine, topic, out) == (2 + 1 if point == "emit.written" else 0)


@pytest.mark.full
def test_no_row_is_missing_whatever_process_is_killed(engine: Engine, tmp_path: Path) -> None:
    outputs = {point: output() for point in DEATHS}
    topics = {point: engine.topic(schema=schema(), partitions=1) for point in DEATHS}
    tables = [
        Table(topic, topic, steps=ROWS, emit=Emit(outputs[point]), flush_bytes=2**30)
        for point, topic in topics.items()
    ]
    for topic in topics.values():
        engine.produce(topic, [sale(1, "a", "b"), sale(2, "c")])
    assert run_job(engine, tables, tmp_path / "first.log") == 0
    for topic in topics.values():
        engine.produce(topic, [sale(3, "d"), sale(4, "e", "f")])
    fault = ",".join(f"{point}:1@{topic}" for point, topic in topics.items())
    assert run_job(engine, tables, tmp_path / "killed.log", fault=fault) == -signal.SIGKILL
    assert run_job(engine, tables, tmp_path / "last.log") == 0
    again = {point: assert_emitted(engine, topics[point], outputs[point]) for point in DEATHS}
    assert again == {point: 3 if point == "emit.written" else 0 for point in DEATHS}


@pytest.mark.full
def test_no_row_is_missing_of_a_process_that_is_killed_while_it_writes(
    engine: Engine, tmp_path: Path
) -> None:
    topic, out = engine.topic(schema=schema(), partitions=1), output()
    table = Table(topic, topic, steps=ROWS, emit=Emit(out), flush_bytes=2**30)
    engine.produce(topic, [sale(1, "a")])
    assert run_job(engine, [table], tmp_path / "first.log") == 0
    count = 60_000
    engine.produce(topic, [sale(n, f"sku{n}") for n in range(count)])
    before = sum(engine.cluster.state(out).end.values())

    def is_writing() -> bool:
        return sum(engine.cluster.state(out).end.values()) > before

    killed = run_job(engine, [table], tmp_path / "killed.log", until=is_writing)
    assert killed == -signal.SIGKILL
    part = sum(engine.cluster.state(out).end.values()) - before
    assert 0 < part < count, "it was not killed in the middle"
    assert run_job(engine, [table], tmp_path / "last.log") == 0
    assert assert_emitted(engine, topic, out) == part


def test_a_key_that_the_table_has_not_suspends(engine: Engine) -> None:
    topic = engine.topic(schema=schema())
    engine.produce(topic, [sale(1)])
    with suspended("emit_unusable"):
        engine.drain(engine.target(topic, emit=Emit(output(), key=("ids",))))
