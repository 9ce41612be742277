"""Deletes by position, found by the key index and written without Spark (ADR 45)."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from glue_jobs.iceberg.catalog import Table
from glue_jobs.iceberg.staging import Conflict, Deletes, Staged, publish
from glue_jobs.index.table_index import TableIndex
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


@pytest.fixture
def index() -> TableIndex:
    return TableIndex()


def keys(engine: Engine, *ids: int) -> DataFrame:
    return engine.spark.createDataFrame([(each,) for each in ids], "`calve:key0` bigint")


def staged(engine: Engine, table: Table, ids: Sequence[int], name: str, index: TableIndex) -> Deletes | None:
    return index.stage_deletes(table, keys(engine, *ids), ("id",), name)


def publish_deletes(table: Table, deletes: Deletes | None, name: str) -> None:
    publish(table, Staged((), 0, 0, deletes), {"calve.round": name}, lambda _: True)


def ids(engine: Engine, table: Table) -> list[int]:
    return sorted(row[0] for row in engine.rows(table.name.table).select("id").collect())


@both
def test_deletes_are_exact_and_nobody_sees_them_before_they_are_published(
    engine: Engine, table: Table, index: TableIndex
) -> None:
    head = table.head
    deletes = staged(engine, table, [3, 4, 99], "first", index)
    assert deletes is not None
    table.refresh()
    assert (deletes.rows, deletes.base, len(deletes.touched), table.head) == (2, head, 1, head)
    assert ids(engine, table) == list(range(10))
    publish_deletes(table, deletes, "r1")
    assert ids(engine, table) == [0, 1, 2, 5, 6, 7, 8, 9]


@both
def test_later_deletes_of_a_file_take_the_place_of_earlier_ones(
    engine: Engine, table: Table, index: TableIndex
) -> None:
    for number, chosen in enumerate(((1, 2), (2, 3), (4,))):
        deletes = staged(engine, table, chosen, f"again{number}", index)
        assert deletes is not None
        assert deletes.rows == (2, 1, 1)[number]
        publish_deletes(table, deletes, f"r{number}")
    assert ids(engine, table) == [0, 5, 6, 7, 8, 9]
    assert table.total("delete-files") == 1


def test_a_table_is_read_once_as_long_as_only_its_own_rounds_change_it(
    engine: Engine, table: Table, index: TableIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish_deletes(table, staged(engine, table, [1], "first", index), "r1")
    monkeypatch.setattr(TableIndex, "_keys", lambda *_: pytest.fail("the table was read again"))
    publish_deletes(table, staged(engine, table, [1, 2], "second", index), "r2")
    assert staged(engine, table, [1, 2], "third", index) is None
    assert ids(engine, table) == [0, 3, 4, 5, 6, 7, 8, 9]


def test_deletes_that_were_not_published_count_for_nothing(
    engine: Engine, table: Table, index: TableIndex
) -> None:
    staged(engine, table, [1, 2], "lost", index)
    publish_deletes(table, staged(engine, table, [2, 3], "kept", index), "r1")
    assert ids(engine, table) == [0, 1, 4, 5, 6, 7, 8, 9]


@both
def test_rows_are_found_after_others_have_changed_the_table(
    engine: Engine, table: Table, index: TableIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TableIndex, "_keys_by_spark", lambda *_: pytest.fail("Spark read the table"))
    name, first = f"lake.{table.name.database}.{table.name.table}", table.head
    publish_deletes(table, staged(engine, table, [0], "first", index), "r1")
    changes = (
        f"alter table {name} set tblproperties ('write.delete.mode' = 'merge-on-read')",
        f"delete from {name} where id = 1",
        f"insert into {name} select * from {name} where id = 2",
        f"call lake.system.rewrite_data_files(table => '{table.name}', options => map('rewrite-all', 'true'))",
        f"call lake.system.rollback_to_snapshot('{table.name}', {first})",
    )
    left = [*range(1, 10)], [*range(2, 10)], [2, *range(2, 10)], [2, *range(2, 10)], [*range(10)]
    for number, (statement, expected) in enumerate(zip(changes, left, strict=True)):
        engine.spark.sql(statement)
        table.refresh()
        assert ids(engine, table) == expected
        deletes = staged(engine, table, [0, 1, 2, 3], f"look{number}", index)
        assert deletes is not None
        assert deletes.rows == sum(each < 4 for each in expected)
    publish_deletes(table, deletes, "r2")
    assert ids(engine, table) == [4, 5, 6, 7, 8, 9]


@both
def test_rows_in_files_of_other_formats_are_found(engine: Engine, table: Table, index: TableIndex) -> None:
    publish_deletes(table, staged(engine, table, [0], "first", index), "r1")
    name = f"lake.{table.name.database}.{table.name.table}"
    engine.spark.sql(f"alter table {name} set tblproperties ('write.format.default' = 'orc')")
    engine.spark.sql(f"insert into {name} select * from {name} where id in (1, 2)")
    table.refresh()
    deletes = staged(engine, table, [0, 1], "second", index)
    assert deletes is not None
    assert deletes.rows == 2
    publish_deletes(table, deletes, "r2")
    assert ids(engine, table) == [2, *range(2, 10)]


def test_keys_that_are_not_there_make_no_deletes(engine: Engine, table: Table, index: TableIndex) -> None:
    assert staged(engine, table, [77], "none", index) is None


def test_deletes_of_files_that_are_written_anew_are_refused(
    engine: Engine, table: Table, index: TableIndex
) -> None:
    deletes = staged(engine, table, [5], "late", index)
    engine.compact(table.name.table)
    with pytest.raises(Conflict):
        publish_deletes(table, deletes, "r1")
    assert ids(engine, table) == list(range(10))


@both
def test_deletes_by_others_are_kept(engine: Engine, table: Table, index: TableIndex, version: int) -> None:
    """A file has one deletion vector in format 3, so two writers of one cannot both be right. Elsewhere they can."""
    name = f"lake.{table.name.database}.{table.name.table}"
    engine.spark.sql(f"insert into {name} select id + 10 as id, * except (id) from {name} where id < 3")
    table.refresh()
    elsewhere, same = (staged(engine, table, [each], f"ours{each}", index) for each in (10, 6))
    engine.spark.sql(f"alter table {name} set tblproperties ('write.delete.mode' = 'merge-on-read')")
    engine.spark.sql(f"delete from {name} where id = 5")
    publish_deletes(table, elsewhere, "r1")
    assert ids(engine, table) == [0, 1, 2, 3, 4, 6, 7, 8, 9, 11, 12]
    if version == 2:
        publish_deletes(table, same, "r2")
        assert ids(engine, table) == [0, 1, 2, 3, 4, 7, 8, 9, 11, 12]
        return
    with pytest.raises(Conflict):
        publish_deletes(table, same, "r2")
    assert 6 in ids(engine, table)


def test_rows_of_any_file_and_partition_are_found_by_a_nested_key(
    engine: Engine, table: Table, index: TableIndex
) -> None:
    offsets = engine.spark.range(2, 4).select(F.col("id").alias("calve:key0"))
    deletes = index.stage_deletes(table, offsets, ("_kafka.offset",), "nested")
    assert deletes is not None
    assert deletes.rows == 2
