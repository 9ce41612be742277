"""The contract with Iceberg's catalog in memory that `glue_jobs.iceberg.position_deletes` stands on (ADR 16)."""

from __future__ import annotations

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from glue_jobs.iceberg.catalog import Table
from glue_jobs.iceberg.position_deletes import stage_deletes
from glue_jobs.iceberg.staging import Conflict, Staged, publish
from tests.integration.support.engine import Engine

both = pytest.mark.parametrize("version", [2, 3])


@pytest.fixture
def version() -> int:
    """Of Iceberg's format, where a test does not say."""
    return 2


@pytest.fixture
def table(engine: Engine, version: int) -> Table:
    """Ids 0 to 9 in one file."""
    topic = engine.topic(partitions=1)
    engine.produce(topic, 10)
    target = engine.target(topic, format_version=version)
    engine.drain(target)
    return target.opened.main


def keys(engine: Engine, *ids: int) -> DataFrame:
    return engine.spark.createDataFrame([(each,) for each in ids], "`calve:key0` bigint")


def ids(engine: Engine, table: Table) -> list[int]:
    return sorted(row[0] for row in engine.rows(table.name.table).select("id").collect())


def metadata_files(engine: Engine, table: Table) -> set[str]:
    s3 = engine.lake.jvm.java.util.ArrayList()
    listed = table.java.io().listPrefix(f"{table.java.location()}/metadata").iterator()
    while listed.hasNext():
        s3.add(listed.next().location())
    return {str(each) for each in s3}


@both
def test_deletes_are_exact_and_nobody_sees_them_before_they_are_published(
    engine: Engine, table: Table
) -> None:
    head, files = table.head, metadata_files(engine, table)
    deletes = stage_deletes(table, keys(engine, 3, 4, 99), ("id",), "first")
    assert deletes is not None
    table.refresh()
    assert (deletes.rows, deletes.base, len(deletes.touched), table.head) == (2, head, 1, head)
    assert ids(engine, table) == list(range(10))
    assert metadata_files(engine, table) == files
    publish(table, Staged((), 0, 0, deletes), {"calve.round": "r1"}, lambda _: True)
    assert ids(engine, table) == [0, 1, 2, 5, 6, 7, 8, 9]


@both
def test_later_deletes_of_a_file_take_the_place_of_earlier_ones(engine: Engine, table: Table) -> None:
    for number, chosen in enumerate(((1, 2), (2, 3), (4,))):
        deletes = stage_deletes(table, keys(engine, *chosen), ("id",), f"again{number}")
        assert deletes is not None
        assert deletes.rows == (2, 1, 1)[number]
        publish(table, Staged((), 0, 0, deletes), {"calve.round": f"r{number}"}, lambda _: True)
    assert ids(engine, table) == [0, 5, 6, 7, 8, 9]
    summary = table.snapshot(table.head or 0)
    assert summary is not None
    assert summary.summary["total-delete-files"] == "1"


def test_keys_that_are_not_there_make_no_deletes(engine: Engine, table: Table) -> None:
    assert stage_deletes(table, keys(engine, 77), ("id",), "none") is None


def test_deletes_of_files_that_are_written_anew_are_refused(engine: Engine, table: Table) -> None:
    deletes = stage_deletes(table, keys(engine, 5), ("id",), "late")
    engine.compact(table.name.table)
    with pytest.raises(Conflict):
        publish(table, Staged((), 0, 0, deletes), {"calve.round": "r1"}, lambda _: True)
    assert ids(engine, table) == list(range(10))


@both
def test_two_writers_cannot_delete_from_the_same_file(engine: Engine, table: Table) -> None:
    first, second = (stage_deletes(table, keys(engine, each), ("id",), f"rival{each}") for each in (5, 6))
    other = engine.table(table.name.table)
    publish(table, Staged((), 0, 0, first), {"calve.round": "r1"}, lambda _: True)
    with pytest.raises(Conflict):
        publish(other, Staged((), 0, 0, second), {"calve.round": "r2"}, lambda _: True)
    assert 6 in ids(engine, table)


def test_rows_of_any_file_and_partition_are_found_by_a_nested_key(engine: Engine, table: Table) -> None:
    offsets = engine.spark.range(2, 4).select(F.col("id").alias("calve:key0"))
    deletes = stage_deletes(table, offsets, ("_kafka.offset",), "nested")
    assert deletes is not None
    assert deletes.rows == 2
