"""A Delta log beside Iceberg's: other readers see the rows of each snapshot, from the same files."""

from __future__ import annotations

import json
import random
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from deltalake.exceptions import DeltaError

from calve.config.maintenance import Maintenance
from calve.config.spark_conf import CATALOG
from calve.errors import Fatal
from calve.names import TableName
from calve.table.summary import RENAMED
from cli.embedded import aws
from glue_jobs.maintenance.tasks import Work
from lambdas.delta import log
from lambdas.delta.log import DeltaLog
from lambdas.delta.sync import READ_ONLY
from tests.integration.support.engine import DATABASE, TRADE, Engine, at
from tests.integration.support.readers import OF_DELTA, Rows, by_spark, catch_up, delta_table, rows_of
from tests.integration.support.records.keyed import Users

COLUMNS = (
    "id int, name string, price decimal(9, 2), ratio float, made timestamp, local timestamp_ntz, day date, raw binary,"
    " flag boolean, of struct<x: int, more: struct<y: string>>, tags array<struct<key: string, value: binary>>,"
    " counts map<string, int>"
)


@dataclass
class Table:
    """An Iceberg table that anybody writes by SQL, and its Delta log."""

    engine: Engine
    name: str = field(default_factory=lambda: f"d{uuid.uuid4().hex[:10]}")
    rows: int = 0

    def make(self, version: int, columns: str = COLUMNS, more: str = "") -> None:
        modes = ", ".join(f"'write.{each}.mode'='merge-on-read'" for each in ("delete", "update", "merge"))
        self.sql(
            f"CREATE TABLE {{t}} ({columns}) USING iceberg {more} TBLPROPERTIES ('format-version'='{version}', {modes})"
        )

    def sql(self, text: str) -> None:
        self.engine.sql(text, self.name)

    def insert(self, rows: int) -> None:
        """Rows with all kinds of values; columns that evolved keep their names' defaults."""
        first, self.rows = self.rows, self.rows + rows
        made = {
            "id": "cast(id as int)",
            "name": "if(id % 7 = 0, null, concat('näme-', id, repeat('x', cast(id % 30 as int))))",
            "price": "cast(id * 1.25 as decimal(9, 2))",
            "ratio": "if(id % 11 = 0, float('NaN'), cast(id / 3 as float))",
            "made": "timestamp_micros(1760000000000000 + id * 1234567)",
            "local": "cast(timestamp_micros(id * 7654321) as timestamp_ntz)",
            "day": "date_add(date '1969-12-01', cast(id as int))",
            "raw": "cast(concat('b', id) as binary)",
            "flag": "id % 3 = 0",
            "of": "named_struct('x', cast(id as int), 'more', named_struct('y', string(id)))",
            "tags": "if(id % 5 = 0, null, array(named_struct('key', 'k', 'value', cast('v' as binary))))",
            "counts": "map('a', cast(id as int), 'b', null)",
        }
        there = {each.name: each.dataType.simpleString() for each in self.engine.rows(self.name).schema}
        chosen = ", ".join(
            f"cast({made.get(name, 'null')} as {kind}) as `{name}`" for name, kind in there.items()
        )
        self.sql(f"INSERT INTO {{t}} SELECT {chosen} FROM range({first}, {first + rows})")

    def call(self, procedure: str, arguments: str = "") -> None:
        self.engine.spark.sql(
            f"CALL {CATALOG}.system.{procedure}(table => '{DATABASE}.{self.name}'{arguments})"
        )

    @property
    def location(self) -> str:
        return str(self.engine.table(self.name).java.location())

    @property
    def log(self) -> DeltaLog:
        return DeltaLog(aws.client("s3", self.engine.stack.aws_endpoint), self.location)

    def catch_up(self, s3: Any = None) -> int:
        engine, name = self.engine, TableName(DATABASE, self.name)
        return catch_up(engine.stack, engine.job().lake, name, s3)

    def truth(self) -> Rows:
        """The rows as Spark reads them from Iceberg."""
        return rows_of(self.engine.rows(self.name).toArrow())

    def by(self, reader: str) -> Rows:
        return OF_DELTA[reader](self.engine.job().lake, self.location)


def assert_equal(table: Table) -> None:
    truth = table.truth()
    for reader in OF_DELTA:
        assert table.by(reader) == truth, reader


@pytest.mark.parametrize("version", [2, 3])
def test_inserts_deletes_updates_and_compactions_are_versions_with_the_same_rows(
    engine: Engine, version: int
) -> None:
    table = Table(engine)
    table.make(version)
    assert table.catch_up() == 1
    assert_equal(table)
    table.insert(50)
    assert table.catch_up() == 1
    assert_equal(table)
    table.sql("DELETE FROM {t} WHERE id % 4 = 0")
    table.sql("UPDATE {t} SET name = 'changed' WHERE id % 5 = 0")
    assert table.catch_up() == 2
    assert_equal(table)
    table.sql("ALTER TABLE {t} ALTER COLUMN id TYPE bigint")
    table.sql("ALTER TABLE {t} ADD COLUMN more string")
    table.insert(10)
    assert table.catch_up() == 1
    assert_equal(table)
    table.engine.compact(table.name)
    before = table.log.read()
    assert table.catch_up() == 1
    assert_equal(table)
    after = table.log.read()
    assert not after.files.keys() & before.files.keys()
    assert [each["dataChange"] for each in after.files.values()] == [False] * len(after.files)
    assert after.protocol == before.protocol  # earlier versions have vectors
    assert table.catch_up() == 0
    table.sql("ALTER TABLE {t} ADD COLUMN again string")  # no new snapshot
    assert table.catch_up() == 1
    assert_equal(table)
    assert table.catch_up() == 0


@pytest.mark.long
def test_a_rollback_and_an_expired_snapshot_are_one_version_with_the_difference(engine: Engine) -> None:
    table = Table(engine)
    table.make(2)
    table.insert(20)
    table.sql("DELETE FROM {t} WHERE id < 5")
    before = engine.table(table.name).head
    table.sql("DELETE FROM {t} WHERE id < 9")
    table.insert(5)
    assert table.catch_up() == 1
    assert_equal(table)
    assert before is not None
    engine.rollback(table.name, before)
    assert table.catch_up() == 1
    assert_equal(table)
    table.sql("DELETE FROM {t} WHERE id > 15")
    table.insert(3)
    engine.expire_history(table.name)
    assert table.catch_up() == 1
    assert_equal(table)


def test_a_renamed_column_waits_until_no_file_has_its_earlier_name(engine: Engine) -> None:
    """DuckDB and deltalake would read null, without a word."""
    table = Table(engine)
    table.make(2)
    table.insert(20)
    table.catch_up()
    held = table.truth()
    table.sql("ALTER TABLE {t} RENAME COLUMN name TO label")
    table.sql("ALTER TABLE {t} RENAME COLUMN of.more TO rest")
    for _ in range(2):
        with pytest.raises(Fatal, match="renamed"):
            table.catch_up()
        for reader in OF_DELTA:
            assert table.by(reader) == held
        table.insert(5)
    engine.compact(table.name)
    assert table.catch_up() == 1
    assert_equal(table)
    table.insert(5)
    assert table.catch_up() == 1
    assert_equal(table)


def test_long_vectors_are_objects_and_their_readers_find_them(engine: Engine) -> None:
    table = Table(engine)
    table.make(2)
    table.insert(9_000)
    table.sql("DELETE FROM {t} WHERE id % 3 = 0")
    table.catch_up()
    assert {each["deletionVector"]["storageType"] for each in table.log.read().files.values()} == {"p"}
    assert_equal(table)


@pytest.mark.parametrize("version", [2, 3])
def test_rounds_by_key_and_calves_own_compaction(engine: Engine, version: int) -> None:
    users, dice = Users(engine), random.Random(version)
    table = Table(engine, users.topic)
    for _ in range(3):
        users.scramble(dice, 60, keys=25)
        engine.drain(users.target(format_version=version))
        table.catch_up()
        assert_equal(table)
    table.engine.compact(users.topic)
    assert table.catch_up()
    assert_equal(table)


def test_the_maintenance_job_rewrites_files_with_an_earlier_name(engine: Engine) -> None:
    topic = engine.topic(partitions=1)
    table = Table(engine, topic)
    engine.ingest(topic, 20)
    table.catch_up()
    renamed = json.loads(TRADE)
    renamed["fields"][1] = {"name": "direction", "aliases": ["side"], "type": "string"}
    engine.register(topic, json.dumps(renamed))
    engine.produce(topic, [{"id": n, "direction": "BUY", "price": n} for n in range(5)])
    engine.drain(engine.target(topic))
    with pytest.raises(Fatal, match="renamed"):
        table.catch_up()
    assert compacted(engine, topic)["files"] == 0
    with at("compact.staged", lambda _: table.sql("ALTER TABLE {t} ADD COLUMN other string")):
        found = compacted(engine, topic, one_name=True)
    assert (found["conflicts"], found["files"]) == (1, 1)  # written again, by the newest schema
    assert table.catch_up() == 1
    assert_equal(table)
    assert compacted(engine, topic, one_name=True)["files"] == 0
    assert RENAMED not in engine.table(topic).properties


def compacted(engine: Engine, topic: str, *, one_name: bool = False) -> dict[str, int]:
    settings = engine.target(topic, maintenance=Maintenance(one_name=one_name)).config
    return Work(settings, engine.table(topic), None).run("compact", lambda: False)


class Died(BaseException):
    """The function's end in the middle of its work."""


@dataclass
class Dying:
    """An S3 client that dies at its `at`th write, before or after S3 has it."""

    client: Any
    at: int
    after: bool
    writes: int = 0

    def __getattr__(self, name: str) -> Any:
        call = getattr(self.client, name)
        if name not in ("put_object", "delete_object"):
            return call

        def counted(**arguments: Any) -> Any:
            self.writes += 1
            if self.writes == self.at and not self.after:
                raise Died
            answer = call(**arguments)
            if self.writes == self.at:
                raise Died
            return answer

        return counted


@pytest.mark.long
@pytest.mark.parametrize("after", [False, True])
def test_a_death_at_any_write_is_caught_up(
    engine: Engine, after: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Vectors, version, checkpoint, pointer to it: nothing is doubled or lost, and no version is missing."""
    monkeypatch.setattr(log, "EACH", 2)
    monkeypatch.setattr(log, "INLINE", 0)
    table = Table(engine)
    table.make(2)
    table.insert(50)
    table.catch_up()
    table.sql("DELETE FROM {t} WHERE id = 1")
    table.catch_up()
    before, died = table.log.read().version, 0
    for number in range(1, 7):
        table.sql(f"DELETE FROM {{t}} WHERE id % 10 = {number}")
        table.insert(10)
        s3 = Dying(table.log.s3, number, after)
        try:
            table.catch_up(s3)
        except Died:
            died += 1
            table.catch_up()
        assert_equal(table)
    assert died == 5  # vectors, version, version, checkpoint, pointer
    assert table.log.read().version == before + 2 * 6
    assert table.catch_up() == 0


def test_a_writer_of_delta_refuses_the_table(engine: Engine) -> None:
    table = Table(engine)
    table.make(2, "id bigint")
    table.insert(5)
    table.catch_up()
    there = delta_table(engine.job().lake, table.location)
    with pytest.raises(DeltaError, match="feature"):
        write_deltalake(there, pa.table({"id": [1]}), mode="append")
    table.sql("DELETE FROM {t} WHERE id = 1")
    table.catch_up()
    assert_equal(table)
    assert READ_ONLY in (table.log.read().protocol or {})["writerFeatures"]


@dataclass
class Dice:
    """Random commits."""

    table: Table
    dice: random.Random
    columns: int = 0
    partitions: list[str] = field(default_factory=lambda: ["days(made)", "bucket(4, id)", "day"])

    def one(self) -> str:
        """Do one of them; returns what it was."""
        number = self.dice.randint
        acts: dict[str, tuple[int, Callable[[], object]]] = {
            "insert": (6, lambda: self.table.insert(number(1, 40))),
            "delete": (
                4,
                lambda: self.table.sql(f"DELETE FROM {{t}} WHERE id % {number(3, 9)} = {number(0, 8)}"),
            ),
            "update": (
                3,
                lambda: self.table.sql(f"UPDATE {{t}} SET flag = NOT flag WHERE id % {number(3, 20)} = 1"),
            ),
            "merge small files": (2, lambda: self.rewrite("data_files", "min-input-files", "2")),
            "merge all files": (1, lambda: self.table.engine.compact(self.table.name)),
            "merge deletes": (1, lambda: self.rewrite("position_delete_files", "rewrite-all", "true")),
            "merge manifests": (1, lambda: self.table.call("rewrite_manifests")),
            "roll back": (1, self.rollback),
            "add a column": (1, self.add),
            "rename a column": (1, self.rename),
            "partition": (1, self.partition),
        }
        (chosen,) = self.dice.choices([*acts], [weight for weight, _ in acts.values()])
        acts[chosen][1]()
        return chosen

    def rewrite(self, what: str, option: str, value: str) -> None:
        self.table.call(f"rewrite_{what}", f", options => map('{option}', '{value}')")

    def rollback(self) -> None:
        found = [each.id for each in self.table.engine.table(self.table.name).ancestors()]
        self.table.engine.rollback(self.table.name, found[min(len(found) - 1, self.dice.randint(1, 3))])

    def add(self) -> None:
        self.columns += 1
        self.table.sql(f"ALTER TABLE {{t}} ADD COLUMN c{self.columns} string")

    def rename(self) -> None:
        self.columns += 1
        [name] = (each for each in self.table.engine.rows(self.table.name).columns if each.startswith("name"))
        self.table.sql(f"ALTER TABLE {{t}} RENAME COLUMN {name} TO name{self.columns}")

    def partition(self) -> None:
        if self.partitions:
            self.table.sql(f"ALTER TABLE {{t}} ADD PARTITION FIELD {self.partitions.pop()}")


@pytest.mark.long
@pytest.mark.parametrize(
    ("version", "commits"),
    [(2, 15), *(pytest.param(version, 100, marks=pytest.mark.full) for version in (2, 3))],
)
def test_random_commits_are_the_same_rows_for_each_reader(
    engine: Engine, version: int, commits: int, tmp_path: Path
) -> None:
    table = Table(engine)
    table.make(version)
    table.insert(30)
    table.catch_up()
    dice, truths = Dice(table, random.Random(100 * commits + version)), [table.truth()]
    for _ in range(commits):
        done = dice.one()
        try:
            made = table.catch_up()
        except Fatal:  # files have an earlier name of a column
            engine.compact(table.name)
            made = table.catch_up()
        truths += [table.truth()] * made
        for reader in OF_DELTA:
            assert table.by(reader) == truths[-1], (reader, done)
    assert by_spark(engine.stack, table.location, tmp_path) == truths
