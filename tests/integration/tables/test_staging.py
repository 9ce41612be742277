"""The contract with Iceberg's internal classes that `glue_jobs.iceberg.staging` stands on (ADR 2)."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from calve.config.spark_conf import CATALOG
from calve.errors import LostRace
from calve.schema.evolution import Change
from calve.table.protocol import Commit, contains_round
from glue_jobs.iceberg.catalog import Lake, Table
from glue_jobs.iceberg.staging import discard, publish, stage
from tests.integration.support.engine import Engine


@pytest.fixture
def table(engine: Engine) -> Table:
    """An empty table of trades."""
    target = engine.target(engine.topic())
    target.open()
    return target.opened.main


def trades(engine: Engine, count: int) -> DataFrame:
    columns = F.col("id"), F.lit("BUY").alias("side"), F.lit(7).alias("price")
    kafka = F.lit(None).cast(engine.spark.table("_shape").schema["_kafka"].dataType).alias("_kafka")
    return engine.spark.range(count).select(*columns, kafka)


@pytest.fixture(autouse=True)
def shape(engine: Engine, table: Table) -> None:
    engine.rows(table.name.table).createOrReplaceTempView("_shape")


def count(engine: Engine, table: Table) -> int:
    return engine.rows(table.name.table).count()


def test_staged_files_are_exact_and_no_snapshot_holds_them(engine: Engine, table: Table) -> None:
    before = table.head
    staged = stage(table, trades(engine, 1_000).repartition(3), "contract-1")
    table.refresh()
    assert (staged.rows, len(staged.files), table.head) == (1_000, 3, before)
    assert count(engine, table) == 0


def test_one_append_publishes_all_files_with_its_summary(engine: Engine, table: Table) -> None:
    staged = stage(table, trades(engine, 10), "contract-2")
    snapshot = publish(table, staged, {"calve.round": "r1"}, lambda _: True)
    found = table.snapshot(snapshot)
    assert found is not None
    assert found.summary["calve.round"] == "r1"
    assert (table.head, count(engine, table)) == (snapshot, 10)


def test_a_validator_sees_the_head_that_it_is_tried_on_and_refuses(engine: Engine, table: Table) -> None:
    first = stage(table, trades(engine, 10), "contract-3")
    second = stage(table, trades(engine, 10), "contract-4")
    stale = engine.lake.load(table.name)
    assert stale is not None
    publish(table, first, {"calve.round": "r1"}, lambda _: True)
    with pytest.raises(LostRace):
        publish(stale, second, {"calve.round": "r2"}, lambda ancestors: not contains_round(ancestors, "r1"))
    assert count(engine, table) == 10


def test_a_validator_sees_the_properties_and_columns_of_other_writers(engine: Engine, table: Table) -> None:
    """Otherwise a compaction would bring back a person who is being forgotten: it looks at the request there."""
    staged = stage(table, trades(engine, 10), "contract-5")
    other, seen = engine.table(table.name.table), list[object]()
    assert ("asked" in table.properties, "more" in table.columns) == (False, False)
    other.set_properties({"asked": "now"})
    other.evolve([Change("add", (), "more", "string", None)])

    def accept(_: Iterator[Commit]) -> bool:
        seen.append(("asked" in table.properties, "more" in table.columns))
        return True

    publish(table, staged, {"calve.round": "r1"}, accept)
    other.refresh()
    other.set_properties({}, remove=["asked"])
    table.refresh()
    assert (seen, "asked" in table.properties) == ([(True, True)], False)


def test_a_commit_holds_no_table_in_memory(engine: Engine) -> None:
    """py4j holds a validator until the JVM collects its side of it. With the table, it held all metadata of each round."""
    table = engine.target(engine.topic()).open().main
    publish(table, stage(table, trades(engine, 1), "contract-8"), {}, lambda _: True)
    held = weakref.ref(table)
    del table
    gc.collect()
    assert held() is None


def test_a_table_is_reloaded_as_it_is_now(engine: Engine, table: Table) -> None:
    """Also if somebody has dropped it, or made another one of its name."""
    lake, other = table.lake, engine.table(table.name.table)
    other.set_properties({"seen": "yes"})
    again = lake.reload(table)
    assert again is not None
    assert again.properties["seen"] == "yes"
    catalog, identifier = lake._catalog, lake._identifier(table.name)
    catalog.dropTable(identifier, False)
    made = catalog.createTable(identifier, table.java.schema())
    replaced = lake.reload(again)
    assert replaced is not None
    assert replaced.found["table_uuid"] == str(made.uuid())
    catalog.dropTable(identifier, False)
    assert lake.reload(replaced) is None


def test_an_error_in_a_validator_is_raised_as_itself_and_commits_nothing(
    engine: Engine, table: Table
) -> None:
    def broken(_: object) -> bool:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        publish(table, stage(table, trades(engine, 1), "contract-5"), {}, broken)
    assert count(engine, table) == 0


def test_a_staged_branch_is_out_of_sight(engine: Engine, table: Table) -> None:
    staged = stage(table, trades(engine, 5), "contract-6")
    publish(table, staged, {"calve.round": "b"}, lambda _: True, branch="calve_round_b")
    assert "calve_round_b" in table.refs()
    assert count(engine, table) == 0


def test_discarded_files_are_gone(engine: Engine, table: Table) -> None:
    staged = stage(table, trades(engine, 1), "contract-7")
    path = staged.files[0].location()
    discard(table, staged)
    with pytest.raises(Py4JJavaError, match="NoSuchKeyException"):
        table.java.io().newInputFile(path).getLength()


def test_a_lake_finds_its_catalog_whatever_session_is_active(engine: Engine, table: Table) -> None:
    own, other = engine.spark.newSession(), engine.spark.newSession()
    for name, value in engine.spark.conf.getAll.items():
        if name.startswith(f"spark.sql.catalog.{CATALOG}"):
            own.conf.set(name, value)
            other.conf.unset(name)
    sessions = engine.lake.jvm.org.apache.spark.sql.classic.SparkSession
    sessions.setActiveSession(other._jsparkSession)
    try:
        assert Lake(own, "tests").has(table.name)
    finally:
        sessions.setActiveSession(engine.spark._jsparkSession)
