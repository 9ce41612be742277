"""What a round does when nothing goes wrong."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from py4j.clientserver import ClientServerConnection

from calve.config.job import Table
from calve.config.spark_conf import CATALOG
from calve.modes.upsert import Upsert
from glue_jobs.ingest import openers_of
from glue_jobs.table.open_table import TableMemory
from tests.integration.support.engine import TRADE, Engine, everything
from tests.integration.support.stored import export

_TRADE = json.loads(TRADE)
NOTE = {"name": "note", "type": ["null", "string"], "default": None}
TRADE_WITH_NOTE = json.dumps(_TRADE | {"fields": [*_TRADE["fields"], NOTE]})


def test_every_record_becomes_one_row(engine: Engine) -> None:
    topic = engine.topic(partitions=2)
    for partition in (0, 1):
        engine.produce(topic, 300, partition=partition)
    outcomes = engine.drain(engine.target(topic))
    assert sum(outcome.ledger.applied for outcome in outcomes) == 600
    assert engine.offsets(topic) == everything(300, 300)


def test_an_idle_topic_commits_nothing(engine: Engine) -> None:
    topic = engine.topic()
    engine.produce(topic, 10)
    target = engine.target(topic)
    engine.drain(target)
    before = target.opened.main.head
    assert engine.round(target).snapshot is None
    target.opened.main.refresh()
    assert target.opened.main.head == before


def test_the_next_job_continues_from_the_table_alone(engine: Engine) -> None:
    topic = engine.topic(partitions=1)
    engine.produce(topic, 100)
    engine.drain(engine.target(topic))
    engine.produce(topic, 50)
    engine.drain(engine.target(topic))
    assert engine.offsets(topic) == everything(150)


@pytest.mark.parametrize(
    ("mode", "most"), [({}, 100), ({"upsert": Upsert(("id",))}, 155)], ids=["append", "upsert"]
)
def test_a_round_of_few_records_sends_the_jvm_few_requests(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, mode: dict[str, Any], most: int
) -> None:
    """Each one costs both sides, whatever the number of records. py4j's own ones about garbage are not counted."""
    topic, memory, requests = engine.topic(partitions=1), TableMemory(), list[str]()
    target = engine.target(topic, engine="columnar", **mode)
    for _ in range(3):
        engine.produce(topic, 10)
        engine.drain(target, memory=memory)
    send = ClientServerConnection.send_command

    def listen(connection: Any, command: str) -> Any:
        requests.append(command)
        return send(connection, command)

    monkeypatch.setattr(ClientServerConnection, "send_command", listen)
    engine.produce(topic, 10)
    (outcome,) = engine.drain(target, memory=memory)
    sent = [each for each in requests if not each.startswith("m\n")]
    assert outcome.ledger.applied == 10
    assert most / 2 < len(sent) <= most


@pytest.mark.parametrize("choice", ["rows", "columnar"])
def test_a_round_is_as_large_as_records_allow(engine: Engine, choice: str) -> None:
    """The first one looks how large they are; the next job reads it in the table."""
    topic = engine.topic(partitions=1)
    engine.produce(topic, 1_000)
    (first,) = engine.drain(engine.target(topic, engine=choice))
    assert first.ledger.applied == 1_000
    engine.produce(topic, 1_000)
    (outcome,) = engine.drain(engine.target(topic, engine=choice))
    assert outcome.ledger.applied == 1_000


def test_a_new_optional_field_is_added_in_place(engine: Engine) -> None:
    topic = engine.topic(partitions=1)
    engine.produce(topic, 5)
    engine.drain(engine.target(topic))
    engine.produce(topic, 5)
    engine.register(topic, TRADE_WITH_NOTE)
    engine.produce(topic, [{"id": 9, "side": "BUY", "price": 1, "note": "late"}])
    engine.drain(engine.target(topic))
    notes = [row["note"] for row in engine.rows(topic).orderBy("_kafka.offset").select("note").collect()]
    assert notes == [None] * 10 + ["late"]


def test_tables_may_lie_in_a_database_named_after_the_cluster(engine: Engine) -> None:
    topic = engine.topic(partitions=1)
    engine.produce(topic, 3)
    job = engine.job(Table(name=topic, topic=topic))
    lake = replace(job.lake, namespace="cluster_id")
    [target] = openers_of(replace(job, lake=lake), engine.lake, engine.cluster)
    engine.drain(target)
    database = engine.cluster.id.lower()
    assert target.opened.main.java.location() == f"{lake.warehouse}/{database}/{topic}"
    assert engine.spark.table(f"{CATALOG}.`{database}`.`{topic}`").count() == 3
    now, week = datetime.now(UTC).replace(microsecond=0), timedelta(days=7)
    exported = export(engine, "of_the_cluster", topic, now - week, now + week, database="")
    assert (exported.status, exported.rows) == ("written", 3)
