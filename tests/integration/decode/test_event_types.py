"""Several event types in one topic: one table for each by its subject, or one for all of a pattern."""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass, replace
from typing import Any

import pytest
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from pyspark.sql import functions as F

from calve.config.job import Source
from calve.config.spark_conf import CATALOG
from calve.decoding.decode_plan import MAX_OTHERS
from calve.table.position import Ledger
from glue_jobs.columns.expressions import OTHER, REJECT, SIZE
from glue_jobs.table.counts import counted_records, observe_records
from tests.integration.support.engine import DATABASE, Engine, everything
from tests.integration.support.proofs import assert_proved, proof
from tests.integration.support.records.protobuf_topics import protobuf_topic, register, send
from tests.protobuf_classes import message_class


@dataclass
class Events:
    """A topic with values of several records; subjects are named as a strategy of the serializer has it."""

    engine: Engine
    strategy: str
    topic: str
    space: str

    @classmethod
    def made(cls, engine: Engine, strategy: str = "RECORD") -> Events:
        name = f"t{uuid.uuid4().hex[:12]}"
        engine.create(name, partitions=1)
        return cls(engine, strategy, name, f"com.{name}")

    def encode(self, kind: str, **fields: Any) -> bytes:
        """A value as Confluent's serializer makes it; the schema is registered by the way."""
        types = {str: "string", int: "long"}
        made = [{"name": name, "type": types[type(value)]} for name, value in fields.items()]
        schema = {"type": "record", "namespace": self.space, "name": kind, "fields": made}
        serializer = AvroSerializer(
            self.engine.registry,
            json.dumps(schema),
            conf={"subject.name.strategy.type": self.strategy},
        )
        value = serializer(fields, SerializationContext(self.topic, MessageField.VALUE))
        assert value is not None
        return bytes(value)

    def send(self, *values: bytes | None) -> None:
        for value in values:
            self.engine.send(self.topic, value, partition=0)
        self.engine.flush()

    def rows(self, table: str, *columns: str) -> list[tuple[Any, ...]]:
        rows = self.engine.spark.table(f"{CATALOG}.{DATABASE}.{table}")
        return [tuple(row) for row in rows.orderBy("_kafka.offset").select(*columns).collect()]


def schema_id(value: bytes) -> str:
    return str(int.from_bytes(value[1:5], "big"))


@pytest.mark.long
def test_each_subject_of_a_topic_is_a_table_and_each_record_has_one_fate_in_each(engine: Engine) -> None:
    events = Events.made(engine)
    order, payment = events.encode("Order", id=1, item="a"), events.encode("Payment", id=7, amount=50)
    unknown = b"\x00\x77\x35\x94\x00" + order[5:]
    events.send(order, payment, payment[:-1], order[:-1], None, unknown, payment, order)
    orders, payments = (Source(f"{events.space}.{kind}") for kind in ("Order", "Payment"))
    found = {}
    for name, source in (("orders", orders), ("payments", payments)):
        table = f"{events.topic}_{name}"
        (outcome,) = engine.drain(engine.target(events.topic, table=table, value=source))
        found[name] = outcome.ledger
        assert_proved(proof(engine, table, value=source))
    rejected = {"malformed": 1, "null_value": 1, "unknown_schema_id": 1}
    common = Ledger(
        span=8, consumed=8, applied=2, dead_lettered=3, rows_appended=2, filtered=3, rejected=rejected
    )
    assert found == {
        "orders": replace(common, filtered_schemas={schema_id(payment): 3}),
        "payments": replace(common, filtered_schemas={schema_id(order): 3}),
    }
    assert events.rows(f"{events.topic}_orders", "id", "item", "_kafka.offset") == [(1, "a", 0), (1, "a", 7)]
    assert events.rows(f"{events.topic}_payments", "id", "amount", "_kafka.offset") == [
        (7, 50, 1),
        (7, 50, 6),
    ]
    assert engine.letter_offsets(f"{events.topic}_orders") == [(0, 3), (0, 4), (0, 5)]
    assert engine.letter_offsets(f"{events.topic}_payments") == [(0, 2), (0, 4), (0, 5)]
    figures = {
        check.name: check.figures for check in proof(engine, f"{events.topic}_orders", value=orders).checks
    }
    assert figures["filtered"] == {"records": 3, f"schema {schema_id(payment)}": 3}


@pytest.mark.full
def test_each_message_of_a_protobuf_file_is_a_table_also_one_that_a_later_version_brings(
    engine: Engine,
) -> None:
    order = "message Order { int32 id = 1; message Line { int32 no = 1; } }"
    texts = [
        f'syntax = "proto3"; package acme; {each}'
        for each in (order, order + "message Payment { int64 amount = 1; }")
    ]
    topic = protobuf_topic(engine)
    old, new = (register(engine, topic, each) for each in texts)
    orders, payments, lines = (
        message_class(texts[1], f"acme.{each}") for each in ("Order", "Payment", "Order.Line")
    )
    send(engine, topic, old, orders(id=1))
    send(engine, topic, new, orders(id=2))
    send(engine, topic, new, payments(amount=3), b"\x02\x02")
    send(engine, topic, new, lines(no=4), b"\x04\x00\x00")
    send(engine, topic, new, b"\xff", b"\x02\x02")
    send(engine, topic, new, b"", b"\x02\x08")
    engine.flush()
    found, rows = {}, {}
    for name in ("Order", "Payment", "acme.Order.Line"):
        table, source = f"{topic}_{name.lower().replace('.', '_')}", Source(message=name)
        (outcome,) = engine.drain(engine.target(topic, table=table, value=source))
        found[name] = (outcome.ledger.filtered_schemas, outcome.ledger.rejected)
        rows[name] = [tuple(row)[:-1] for row in engine.rows(table).orderBy("_kafka.offset").collect()]
        assert_proved(proof(engine, table, value=source))
    first, second = str(old), str(new)
    assert found == {
        "Order": ({second: 3}, {"malformed": 1}),
        "Payment": ({first: 1, second: 2}, {"malformed": 2}),
        "acme.Order.Line": ({first: 1, second: 3}, {"malformed": 1}),
    }
    assert rows == {"Order": [(1,), (2,)], "Payment": [(3,)], "acme.Order.Line": [(4,)]}


def test_the_key_of_another_tables_record_is_not_judged(engine: Engine) -> None:
    events = Events.made(engine)
    order, payment = events.encode("Order", id=1), events.encode("Payment", id=7)
    for value, key in ((order, b"\x02"), (payment, b"no long"), (order, b"no long"), (payment, None)):
        engine.send(events.topic, value, key=key, partition=0)
    engine.flush()
    source, longs = Source(f"{events.space}.Order"), Source(format="avro", prefix="none", schema='"long"')
    (outcome,) = engine.drain(engine.target(events.topic, value=source, key=longs))
    assert (outcome.ledger.applied, outcome.ledger.filtered) == (1, 2)
    assert outcome.ledger.rejected == {"key_malformed": 1}
    assert events.rows(events.topic, "key", "id") == [(1, 1)]
    assert_proved(proof(engine, events.topic, value=source, key=longs))


def test_a_pattern_takes_in_every_type_also_one_that_is_registered_later(engine: Engine) -> None:
    events = Events.made(engine, "TOPIC_RECORD")
    source = Source(f"{events.topic}-{events.space}.*")
    other = events.encode("Order", id=1, item="a")
    stranger = Events(engine, "RECORD", events.topic, f"org.{events.topic}")
    events.send(other, events.encode("Payment", id=7, amount=50), stranger.encode("Audit", id=3))
    target = engine.target(events.topic, value=source)
    (outcome,) = engine.drain(target)
    assert (outcome.ledger.applied, outcome.ledger.filtered) == (2, 1)
    events.send(events.encode("Refund", id=9, reason="late"), other)
    (outcome,) = engine.drain(target)
    assert (outcome.ledger.applied, outcome.ledger.filtered) == (2, 0)
    assert events.rows(events.topic, "id", "item", "amount", "reason") == [
        (1, "a", None, None),
        (7, None, 50, None),
        (9, None, None, "late"),
        (1, "a", None, None),
    ]
    assert_proved(proof(engine, events.topic, value=source))


def test_types_of_one_pattern_that_contradict_each_other_are_refused_by_the_law(engine: Engine) -> None:
    events = Events.made(engine)
    events.send(events.encode("Order", id=1), events.encode("Payment", id="seven"))
    source = Source(f"{events.space}.*")
    target = engine.target(events.topic, value=source)
    (outcome,) = engine.drain(target)
    assert outcome.ledger.rejected == {"incompatible_schema": 1}
    assert outcome.ledger.applied == 1
    second = engine.letters(events.topic).collect()[0]["schema_id"]
    misfit = target.schemas.misfit(target.opened.columns, str(second))
    assert "id: the table holds long, the schema wants string" in misfit
    assert_proved(proof(engine, events.topic, value=source))


def test_without_a_subject_of_its_own_a_table_leaves_nothing_to_others(engine: Engine) -> None:
    topic = engine.topic(partitions=1)
    engine.produce(topic, 2)
    stranger = Events(engine, "RECORD", topic, f"org.{topic}")
    stranger.send(stranger.encode("Audit", id=3, side="BUY", price=5))
    (outcome,) = engine.drain(engine.target(topic))
    assert outcome.ledger.rejected == {"incompatible_schema": 1}
    assert outcome.ledger.filtered == 0
    assert engine.offsets(topic) == everything(2)


def test_the_number_of_records_of_each_other_schema_is_exact_however_many_tasks_count(engine: Engine) -> None:
    """A histogram is: as long as it has more bins than there are values, also where partial ones are put together."""
    rows = engine.spark.range(0, 50_000, 1, 24)
    place = F.when(F.col("id") % 3 > 0, F.pmod(F.xxhash64("id"), F.lit(MAX_OTHERS + 1)).cast("int"))
    kafka = F.struct(F.col("id").alias("offset"), F.timestamp_seconds("id").alias("timestamp"))
    flat = rows.select(
        kafka.alias("_kafka"),
        F.lit(None).cast("string").alias(REJECT),
        F.lit(1).alias(SIZE),
        place.alias(OTHER),
    )
    observed, observation = observe_records(flat)
    observed.write.format("noop").mode("overwrite").save()
    expected = {
        row[0]: row[1] for row in flat.where(F.col(OTHER).isNotNull()).groupBy(OTHER).count().collect()
    }
    assert len(expected) == MAX_OTHERS + 1
    assert counted_records(observation).others == expected
