"""Adoption of tables that other writers filled: old rows stay, and each later record is a row once, wherever a job dies."""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
import pytest
import yaml
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import IntegerType, LongType, NestedField, StringType, StructType, TimestamptzType
from typer.testing import CliRunner, Result

from calve.config.job import Job, Kafka
from calve.config.maintenance import Maintenance
from calve.config.spark_conf import CATALOG
from calve.errors import CalveError, LostRace
from calve.modes.upsert import Upsert
from calve.names import TableName
from calve.requests.requests import Adopt, Entry, Release
from calve.table.protocol import TopicState
from calve.table.summary import ADOPT, ADOPTED, INITIALISED, RELEASE
from cli.config import load_jobs
from cli.embedded.aws import make_bucket
from cli.kafka import Cluster
from cli.lake import open_catalog
from cli.main import app
from cli.move.former import PENDING, kind_of_event, noted_offsets
from cli.verify.topic import Reader
from glue_jobs.iceberg.catalog import Lake
from glue_jobs.iceberg.catalog import Table as IcebergTable
from glue_jobs.ingest import openers_of
from glue_jobs.maintenance.between_rounds import expire
from glue_jobs.table.opening import Opener
from tests.integration.support.crashing import Died, dying
from tests.integration.support.engine import DATABASE, Engine, suspended, trades, until
from tests.integration.support.engine import TRADE as TRADE_SCHEMA
from tests.integration.support.proofs import assert_proved, proof
from tests.integration.support.running import answering, supplied
from tests.standins.connect import sink

TRADE = (
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "side", StringType()),
    NestedField(3, "price", IntegerType()),
)


@pytest.fixture(autouse=True)
def one_lake(monkeypatch: pytest.MonkeyPatch, engine: Engine) -> None:
    """The commands write to the bucket of the engine, which has the database."""
    supplied(monkeypatch, warehouse=engine.job().lake.warehouse)


def settings(folder: Path, topic: str, *, database: str = DATABASE, **more: Any) -> list[str]:
    file = folder / "calve.yaml"
    tables = {topic: {"topic": topic, **more}}
    file.write_text(yaml.safe_dump({"name": "tests", "lake": {"database": database}, "tables": tables}))
    return ["--config", str(file)]


def made(folder: Path, topic: str, *more: NestedField, bucket: str = "", **creation: Any) -> Table:
    """A table that PyIceberg makes, as any other writer does."""
    [job] = load_jobs(Path(settings(folder, topic)[1]))
    lake = job.lake
    assert lake.endpoint is not None
    if bucket:
        make_bucket(bucket, job.name, lake.endpoint)
    location = f"s3://{bucket}/{topic}" if bucket else f"{lake.warehouse}/{DATABASE}/{topic}"
    return open_catalog(lake).create_table((DATABASE, topic), Schema(*TRADE, *more), location, **creation)


def fill(table: Table, rows: list[dict[str, Any]]) -> None:
    table.append(pa.Table.from_pylist(rows, table.schema().as_arrow()))


def adopt(engine: Engine, folder: Path, topic: str, *options: str, **more: Any) -> Result:
    """The command, while a job runs."""
    with answering(engine.target(topic)):
        arguments = ["adopt", topic, *options, "--yes", *settings(folder, topic, **more)]
        return CliRunner().invoke(app, arguments)


def ids(engine: Engine, topic: str) -> list[int]:
    return sorted(row[0] for row in engine.rows(topic).select("id").collect())


REDPANDA = NestedField(
    10,
    "redpanda",
    StructType(
        NestedField(11, "partition", IntegerType()),
        NestedField(12, "offset", LongType()),
        NestedField(13, "timestamp", TimestamptzType()),
    ),
)
AUTOMQ = NestedField(
    10,
    "_kafka_metadata",
    StructType(NestedField(11, "partition", IntegerType()), NestedField(12, "offset", LongType())),
)
TABLEFLOW = (
    NestedField(10, "$$topic", StringType()),
    NestedField(11, "$$partition", IntegerType()),
    NestedField(12, "$$offset", LongType()),
)


def placed(shape: str, topic: str, partition: int, offset: int) -> dict[str, Any]:
    place = {"partition": partition, "offset": offset}
    if shape == "redpanda":
        return {"redpanda": place}
    if shape == "automq":
        return {"_kafka_metadata": place}
    return {"$$topic": topic, "$$partition": partition, "$$offset": offset}


SHAPES = {"redpanda": (REDPANDA,), "automq": (AUTOMQ,), "tableflow": TABLEFLOW}


@pytest.mark.parametrize("shape", SHAPES)
def test_a_table_with_places_goes_on_behind_its_last_row(engine: Engine, tmp_path: Path, shape: str) -> None:
    topic = engine.topic(partitions=2)
    engine.produce(topic, 20, partition=0)
    engine.produce(topic, trades(20, first=20), partition=1)
    table = made(tmp_path, topic, *SHAPES[shape])
    rows = [each | placed(shape, topic, 0, n) for n, each in enumerate(trades(12))]
    rows += [each | placed(shape, topic, 1, n) for n, each in enumerate(trades(7, first=20))]
    fill(table, rows)
    before = sorted(map(str, engine.rows(topic).drop("_kafka").collect()))
    done = adopt(engine, tmp_path, topic)
    assert done.exit_code == 0, done.output
    engine.drain(engine.target(topic))
    assert ids(engine, topic) == list(range(40))
    old = engine.rows(topic).where("_kafka is null").drop("_kafka").collect()
    assert sorted(map(str, old)) == before
    assert_proved(proof(engine, topic))


@pytest.mark.parametrize(
    ("options", "altered", "why"),
    [
        ((), {4: {"price": -1}}, "the row of offset 4 is not that of its record"),
        (("--offsets", "0:5,1:0"), {}, "the table has rows up to offset 11, behind 5"),
        (("--offsets", "0:13,1:0"), {}, "the table does not have the record of offset 12"),
        (("--since", "1h"), {}, "have their offsets: redpanda.offset"),
        (("--by", "price"), {4: {"id": -1}}, ""),
        ((), {4: None}, ""),
    ],
)
def test_places_count_only_with_the_contents_of_their_records(
    engine: Engine, tmp_path: Path, options: tuple[str, ...], altered: dict[int, Any], why: str
) -> None:
    topic = engine.topic(partitions=2)
    engine.produce(topic, 20, partition=0)
    rows = [each | placed("redpanda", topic, 0, n) for n, each in enumerate(trades(12))]
    kept = [each | altered.get(n, {}) for n, each in enumerate(rows) if altered.get(n, {}) is not None]
    fill(made(tmp_path, topic, REDPANDA), kept)
    with answering(engine.target(topic)):
        done = CliRunner().invoke(app, ["adopt", topic, *options, "--yes", *settings(tmp_path, topic)])
    assert why in str(done.exception)
    assert (done.exit_code == 0) is (why == ""), done.output
    if None in altered.values():
        assert "compared=11  missing=1" in done.output


@pytest.mark.parametrize("options", [("--offsets", "0:12,1:7"), ("--since", "1h")], ids=["given", "searched"])
def test_a_table_without_places_is_proved_by_its_contents(
    engine: Engine, tmp_path: Path, options: tuple[str, ...]
) -> None:
    topic = began(engine, tmp_path)
    done = adopt(engine, tmp_path, topic, *options)
    assert done.exit_code == 0, done.output
    engine.drain(engine.target(topic))
    assert ids(engine, topic) == list(range(40))
    assert engine.table(topic).properties[ADOPTED] == "19"
    assert_proved(proof(engine, topic))


def began(engine: Engine, folder: Path, **creation: Any) -> str:
    """A table that has 12 and 7 records of two partitions; each has 20."""
    topic = engine.topic(partitions=2)
    engine.produce(topic, 20, partition=0)
    engine.produce(topic, trades(20, first=20), partition=1)
    fill(made(folder, topic, **creation), [*trades(12), *trades(7, first=20)])
    return topic


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ((), "nothing in"),
        (("--offsets", "0:13,1:7"), "partition 0: the table does not have the record of offset 12"),
        (("--offsets", "0:11,1:7"), "partition 0: the table has the record of offset 11"),
        (("--offsets", "0:21,1:7"), "partition 0 has no offset 21 any more: it has [0, 20)"),
        (("--offsets", "0:12"), "has other partitions"),
        (("--offsets", "0:12,1:7", "--since", "1h"), "exclude each other"),
        (("--offsets", "0-12"), "is no list of offsets"),
        (("--offsets", "0:12,1:7", "--by", "side"), "which is not before 12, or one like it"),
        (("--offsets", "0:12,1:7", "--by", "sid"), "sid is not a column"),
    ],
)
def test_offsets_that_the_rows_do_not_prove_are_refused(
    engine: Engine, tmp_path: Path, options: tuple[str, ...], why: str
) -> None:
    topic = began(engine, tmp_path)
    done = CliRunner().invoke(app, ["adopt", topic, *options, "--yes", *settings(tmp_path, topic)])
    assert done.exit_code != 0
    assert why in str(done.exception or done.output), done.output
    assert ADOPT not in engine.table(topic).properties


def test_a_table_that_the_job_cannot_keep_is_refused(engine: Engine, tmp_path: Path) -> None:
    topic = began(engine, tmp_path)
    wanted = ["adopt", topic, "--offsets", "0:12,1:7", "--yes"]

    def refused(**entry: Any) -> str:
        return str(CliRunner().invoke(app, [*wanted, *settings(tmp_path, topic, **entry)]).exception)

    assert "is partitioned by nothing" in refused(partition_by=["bucket(4, id)"])
    assert "the mode upsert" in refused(upsert={"key": ["id"]})
    assert "cannot hold what its steps make" in refused(
        steps=[{"sql": "SELECT id, side, 'x' AS price FROM source"}]
    )
    elsewhere = engine.topic()
    engine.produce(elsewhere, 1, partition=0)
    fill(made(tmp_path, elsewhere, bucket=f"other-{uuid.uuid4().hex[:8]}"), trades(1))
    done = CliRunner().invoke(app, ["adopt", elsewhere, "--yes", *settings(tmp_path, elsewhere)])
    assert "the job writes to" in str(done.exception)


def test_a_table_that_cannot_hold_the_newest_schema_is_refused(engine: Engine, tmp_path: Path) -> None:
    """All its records would be dead letters."""
    topic = engine.topic(partitions=2, schema=TRADE_SCHEMA.replace('"int"', '"string"'))
    engine.produce(topic, [each | {"price": "x"} for each in trades(20)], partition=0)
    fill(made(tmp_path, topic), trades(12))
    done = CliRunner().invoke(
        app, ["adopt", topic, "--offsets", "0:12,1:0", "--yes", *settings(tmp_path, topic)]
    )
    why = "price: the table holds int, the schema wants string"
    assert why in str(done.exception)
    assert why in refusal(engine, topic, asked(engine, topic, offsets={0: 12, 1: 0}))


@pytest.mark.parametrize("point", ["prepare.begin", "table.adopted"])
def test_a_job_that_dies_has_adopted_the_table_or_does_it_afterwards(
    engine: Engine, tmp_path: Path, point: str
) -> None:
    topic = began(engine, tmp_path)
    request = asked(engine, topic)
    with dying(point), pytest.raises(Died):
        engine.drain(engine.target(topic))
    engine.drain(engine.target(topic))
    answer = Entry.of(engine.table(topic).properties, request.id)
    assert answer is not None
    assert answer.problem is None
    assert ids(engine, topic) == list(range(40))


def asked(engine: Engine, name: str, **changes: Any) -> Adopt:
    table = engine.table(name)
    assert table.head is not None
    key = str(engine.cluster.state(name).key)
    request = Adopt(uuid.uuid4().hex, "2026-01-01T00:00:00+00:00", "ann", table.head, key, {0: 12, 1: 7})
    request = replace(request, **changes)
    table.set_properties({ADOPT: request.to_json()})
    return request


def refusal(engine: Engine, topic: str, request: Adopt) -> str:
    with suspended("not_ours") as caught:
        engine.drain(engine.target(topic))
    answer = Entry.of(engine.table(topic).properties, request.id)
    assert answer is not None
    assert answer.problem is not None
    assert answer.problem in str(caught.value)
    assert not {ADOPT, INITIALISED} & engine.table(topic).properties.keys()
    return answer.problem


def test_the_job_refuses_offsets_that_no_longer_apply(engine: Engine, tmp_path: Path) -> None:
    topic = began(engine, tmp_path)
    assert "has no offset 21" in refusal(engine, topic, asked(engine, topic, offsets={0: 21, 1: 7}))
    assert "the offsets are of" in refusal(engine, topic, asked(engine, topic, topic="a/b"))
    request = asked(engine, topic)
    fill(foreign(engine, topic), trades(1, first=12))
    assert "has changed since" in refusal(engine, topic, request)
    assert ids(engine, topic) == sorted([*range(13), *range(20, 27)])


def foreign(engine: Engine, topic: str) -> Table:
    return open_catalog(engine.job().lake).load_table((DATABASE, topic))


def test_a_request_that_comes_late_or_is_unreadable_is_answered(engine: Engine, tmp_path: Path) -> None:
    topic = began(engine, tmp_path)
    engine.table(topic).set_properties({ADOPT: "{}"})
    with suspended("not_ours"):
        engine.drain(engine.target(topic))
    assert ADOPT not in engine.table(topic).properties
    asked(engine, topic)
    engine.drain(engine.target(topic))
    late = asked(engine, topic)
    engine.drain(engine.target(topic))
    answer = Entry.of(engine.table(topic).properties, late.id)
    assert answer is not None
    assert answer.problem == "calve keeps the table already"
    assert ADOPT not in engine.table(topic).properties
    assert ids(engine, topic) == list(range(40))


def test_a_writer_that_commits_meanwhile_ends_the_adoption(engine: Engine, tmp_path: Path) -> None:
    topic = began(engine, tmp_path)
    asked(engine, topic)
    loaded = Lake.load

    def late(lake: Lake, name: TableName) -> IcebergTable | None:
        found = loaded(lake, name)
        fill(foreign(engine, topic), trades(1, first=12))
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Lake, "load", late)
        with pytest.raises(LostRace):
            engine.round(engine.target(topic))
    assert INITIALISED not in engine.table(topic).properties


def test_a_former_writer_that_goes_on_is_found(engine: Engine, tmp_path: Path) -> None:
    topic = began(engine, tmp_path)
    asked(engine, topic)
    engine.drain(engine.target(topic))
    engine.compact(topic)
    assert_proved(proof(engine, topic))
    fill(foreign(engine, topic), trades(2, first=12))
    found = proof(engine, topic)
    assert [each.message for each in found.findings] == [
        "21 rows have no offset that the job read; the table had 19 when it was adopted"
    ]


def test_the_proof_survives_the_history_before_the_adoption(engine: Engine, tmp_path: Path) -> None:
    topic = began(engine, tmp_path)
    asked(engine, topic)
    engine.drain(engine.target(topic))
    for _ in range(2):
        engine.produce(topic, 1)
        engine.drain(engine.target(topic))
    kept = Maintenance(snapshots_at_least=1, snapshots_at_most=1, snapshots_s=0)
    target = engine.target(topic, maintenance=kept)
    assert expire(target.config, engine.table(topic), None, said=None) > 1
    assert_proved(proof(engine, topic))


def test_required_columns_become_optional_and_new_ones_come(engine: Engine, tmp_path: Path) -> None:
    topic = began(engine, tmp_path, properties={"format-version": "1"})
    engine.register(topic, RICHER)
    engine.produce(topic, [{"id": None, "side": "BUY", "price": 1 << 40, "venue": "X"}], partition=0)
    done = adopt(engine, tmp_path, topic, "--offsets", "0:12,1:7")
    assert done.exit_code == 0, done.output
    for words in ("venue", "optional", "this type"):
        assert words in done.output
    engine.drain(engine.target(topic))
    [row] = engine.rows(topic).where("id is null").collect()
    assert (row["price"], row["venue"]) == (1 << 40, "X")
    assert engine.table(topic).format_version == 2
    assert_proved(proof(engine, topic))


RICHER = json.dumps(
    {
        "type": "record",
        "name": "Trade",
        "fields": [
            {"name": "id", "type": ["null", "long"]},
            {"name": "side", "type": "string"},
            {"name": "price", "type": "long"},
            {"name": "venue", "type": ["null", "string"], "default": None},
        ],
    }
)


@dataclass
class Released:
    """A table that calve has given up, in a database of its own. Its last records are dead letters."""

    engine: Engine
    topic: str
    file: str

    @classmethod
    def of(cls, engine: Engine, folder: Path) -> Self:
        topic, database = engine.topic(partitions=1), f"released_{uuid.uuid4().hex[:8]}"
        found = cls(engine, topic, settings(folder, topic, database=database)[1])
        lake = found.job.lake
        open_catalog(lake).create_namespace(database, {"location": f"{lake.warehouse}/{database}"})
        engine.mixed(topic, 5, bad=2)
        engine.drain(found.target)
        table = engine.lake.load(found.name)
        assert table is not None
        table.set_properties({RELEASE: Release(uuid.uuid4().hex, "2026-01-01", "ann").to_json()})
        with suspended("not_ours"):
            engine.drain(found.target)
        return found

    @property
    def job(self) -> Job:
        return load_jobs(Path(self.file))[0]

    @property
    def name(self) -> TableName:
        return TableName(self.job.lake.database, self.topic)

    @property
    def target(self) -> Opener:
        return openers_of(self.job, self.engine.lake, self.engine.cluster)[0]

    def adopt(self, *options: str) -> Result:
        with answering(self.target):
            return CliRunner().invoke(app, ["adopt", self.topic, *options, "--yes", "--config", self.file])

    def assert_complete(self, rows: int) -> None:
        """Each record is a row once, or a dead letter once."""
        self.engine.drain(self.target)
        held = self.engine.spark.table(self.name.quoted(CATALOG)).select("id").collect()
        assert sorted(row[0] for row in held) == list(range(rows))
        assert self.engine.spark.table(self.name.dead_letters.quoted(CATALOG)).count() == 2
        checked = CliRunner().invoke(app, ["verify", self.topic, "--config", self.file])
        assert checked.exit_code == 0, checked.output


def test_a_released_table_comes_back(engine: Engine, tmp_path: Path) -> None:
    """At its last position, although the newest records made no row."""
    table = Released.of(engine, tmp_path)
    engine.produce(table.topic, trades(5, first=5))
    done = table.adopt()
    assert done.exit_code == 0, done.output
    table.assert_complete(10)


def test_rows_without_offset_in_a_released_table_are_compared(engine: Engine, tmp_path: Path) -> None:
    """Another writer appended them."""
    table = Released.of(engine, tmp_path)
    engine.produce(table.topic, trades(8, first=5))
    held = open_catalog(table.job.lake).load_table((table.name.database, table.name.table))
    kinds = pa.schema([each for each in held.schema().as_arrow() if each.name != "_kafka"])
    held.append(pa.Table.from_pylist(trades(5, first=5), kinds))
    assert "the table has the record of offset 7" in str(table.adopt().exception)
    done = table.adopt("--offsets", "0:12")
    assert done.exit_code == 0, done.output
    table.assert_complete(13)


def test_an_adopted_table_keeps_its_mode(engine: Engine, tmp_path: Path) -> None:
    topic = began(engine, tmp_path)
    asked(engine, topic)
    engine.drain(engine.target(topic))
    with suspended("mode_changed") as caught:
        engine.drain(engine.target(topic, upsert=Upsert(("id",))))
    assert "former writer" in str(caught.value)


@pytest.mark.long
@pytest.mark.xdist_group("connect")
@pytest.mark.parametrize("places", [False, True], ids=["contents", "places"])
def test_a_table_of_kafka_connect_goes_on(engine: Engine, tmp_path: Path, *, places: bool) -> None:
    """The real sink makes and fills the table; records arrive after its end."""
    topic = engine.topic(partitions=2)
    engine.produce(topic, trades(20), partition=0)
    engine.produce(topic, trades(20, first=20), partition=1)
    [job] = load_jobs(Path(settings(tmp_path, topic)[1]))
    adopting = ["adopt", topic, "--yes", *settings(tmp_path, topic)]
    with sink(engine.stack, job, topic, tmp_path, places=places):
        until(lambda: len(engine_ids(engine, topic)) == 40, seconds=90)
        early = CliRunner().invoke(app, adopting)
        assert "still writes to the table" in str(early.exception)
    engine.produce(topic, trades(20, first=40), partition=0)
    before = foreign(engine, topic)
    done = adopt(engine, tmp_path, topic)
    assert done.exit_code == 0, done.output
    engine.drain(engine.target(topic))
    assert ids(engine, topic) == list(range(60))
    assert_proved(proof(engine, topic))
    again = write_event_again(engine, f"{topic}-control")
    cluster = Cluster(job.kafka, job.lake.region)
    with pytest.raises(CalveError, match="has written files that the table does not have yet"):
        noted_offsets(before, cluster, job.kafka, job.lake.region, topic_of(engine, topic))
    assert again


def engine_ids(engine: Engine, topic: str) -> list[int]:
    return ids(engine, topic) if engine.lake.load(TableName(DATABASE, topic)) else []


def write_event_again(engine: Engine, control: str) -> bool:
    """The event of the first written file, as if the sink had written a file after its last commit."""
    state = topic_of(engine, control)
    for records in Reader(state, Kafka(engine.stack.bootstrap_servers), engine.stack.region).read(
        {0: (0, state.end[0])}
    ):
        found = [each for each in records.values if each and kind_of_event(each) == PENDING]
        engine.send(control, found[0], partition=0)
        engine.flush()
        return True
    return False


def topic_of(engine: Engine, name: str) -> TopicState:
    return Cluster(Kafka(engine.stack.bootstrap_servers), engine.stack.region).topics({name})[name]


def test_rows_are_compared_as_the_steps_make_them(engine: Engine, tmp_path: Path) -> None:
    """In a table with partitions; values that the former writer made differently are left out by `--by`."""
    topic = engine.topic(partitions=2)
    engine.produce(topic, 20, partition=0)
    parts = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "side"))
    fill(
        made(tmp_path, topic, partition_spec=parts), [each | {"price": -each["price"]} for each in trades(12)]
    )
    more: dict[str, Any] = {
        "steps": [{"sql": "SELECT id, side, price * 1 AS price, 'x' AS note FROM source"}],
        "partition_by": ["side"],
    }
    given = ("--offsets", "0:12,1:0")
    done = CliRunner().invoke(app, ["adopt", topic, *given, "--yes", *settings(tmp_path, topic, **more)])
    assert "the table does not have the record of offset 1," in str(done.exception)
    [job] = load_jobs(Path(settings(tmp_path, topic, **more)[1]))
    [target] = openers_of(job, engine.lake, engine.cluster)
    with answering(target):
        arguments = ["adopt", topic, *given, "--by", "id,side", "--yes", *settings(tmp_path, topic, **more)]
        done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    engine.drain(target)
    assert ids(engine, topic) == list(range(20))
    assert {row[0] for row in engine.rows(topic).where("_kafka is not null").select("note").collect()} == {
        "x"
    }
    [line] = engine.sql("SHOW CREATE TABLE {t}", topic).collect()
    assert "PARTITIONED BY (side)" in line[0]
