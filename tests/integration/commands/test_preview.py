"""What `calve preview` shows of the newest records, without writing anything."""

from __future__ import annotations

from calve.config.job import Table
from calve.config.steps import Filter, Flatten, Sql
from calve.modes.upsert import Upsert
from calve.names import TableName
from cli.project.preview import Refused, look, summary
from tests.integration.steps.test_steps import ROWS, sale, schema
from tests.integration.support.engine import DATABASE, Engine


def test_the_newest_records_as_rows_and_nothing_is_written(engine: Engine) -> None:
    topic = engine.topic(schema=schema(), partitions=1)
    engine.produce(topic, [sale(1, "old"), sale(2, "a", "b")])
    engine.send(topic, b"\x01no magic byte")
    engine.flush()
    table = Table("preview", topic, steps=ROWS)
    found = look(engine.spark, engine.job(table), table, 2).preview
    assert [(row["offset"], row["items_sku"]) for row in found.shown] == [(1, "a"), (1, "b")]
    assert found.refused == (Refused("bad_magic", 1, 0, 2),)
    assert summary(found) == "2 records: 2 rows, 1 dead-lettered"
    assert engine.lake.load(TableName(DATABASE, "preview")) is None


def test_records_of_all_partitions_are_shown_and_none_where_there_are_none(engine: Engine) -> None:
    topic = engine.topic(schema=schema(), partitions=3)
    table = Table("preview", topic, steps=(Flatten(),), upsert=Upsert(("customer_id",)))
    assert summary(look(engine.spark, engine.job(table), table, 5).preview) == "0 records: 0 rows"
    for partition in range(2):
        engine.produce(topic, [sale(n) for n in range(4)], partition=partition)
    found = look(engine.spark, engine.job(table), table, 5).preview
    assert found.records == 5
    assert {row["partition"] for row in found.shown} == {0, 1}


def test_what_steps_leave_out_and_cannot_compute_is_told(engine: Engine) -> None:
    topic = engine.topic(schema=schema(), partitions=1)
    engine.produce(topic, [sale(1, "1", "2"), sale(2, "x"), sale(3, "3"), sale(4, "4")])
    number = Sql("select id, cast(items_sku as int) as sku from source where items_sku <> '2'")
    table = Table("preview", topic, steps=(Filter("id < 4"), *ROWS, number))
    found = look(engine.spark, engine.job(table), table, 4).preview
    assert [(row["id"], row["sku"]) for row in found.shown] == [(1, 1), (3, 3)]
    assert found.refused == (Refused("step_failed", 1, 0, 1),)
    assert summary(found) == (
        "4 records: 2 rows, 1 left out by a step, 1 rows left out behind an explosion, 1 dead-lettered"
    )
