"""The maintenance of a table beside its rounds: nothing is lost or doubled, no round is failed, whoever dies meanwhile."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from calve.config.maintenance import Kind, Maintenance, RowRetention
from calve.errors import Retryable
from calve.names import DEAD_LETTERS_SUFFIX
from calve.schema.columns import Transform
from calve.table.summary import HOLD, MAINTENANCE, REDRIVE
from glue_jobs.iceberg.purge import sweep
from glue_jobs.iceberg.rewriting import CarriedCommit
from glue_jobs.maintain import Maintaining
from glue_jobs.maintenance import tasks
from glue_jobs.maintenance.retention import retain
from glue_jobs.maintenance.tasks import Work
from tests.integration.support.crashing import OF_MAINTENANCE, Died, dying
from tests.integration.support.engine import Engine, at, each_time, everything
from tests.integration.support.proofs import assert_proved, proof, proof_of_digests
from tests.integration.support.records.keyed import Users
from tests.integration.support.records.persons import Scene
from tests.integration.support.running import running


def work(engine: Engine, topic: str, *, age_s: float = 0.0, **maintenance: Any) -> Work:
    """Maintenance of the topic's table, as a job of its own would begin it."""
    target = engine.target(topic, maintenance=Maintenance(**maintenance))
    letters = engine.lake.load(target.name.dead_letters)
    return Work(target.config, engine.table(topic), letters, age_s)


def do(engine: Engine, topic: str, kind: Kind, *, age_s: float = 0.0, **maintenance: Any) -> dict[str, int]:
    return work(engine, topic, age_s=age_s, **maintenance).run(kind, lambda: False)


def small_files(engine: Engine, topic: str, rounds: int, rows: int = 10, **settings: Any) -> None:
    for _ in range(rounds):
        engine.produce(topic, rows)
        engine.drain(engine.target(topic, **settings))


def sizes(engine: Engine, topic: str) -> list[int]:
    files = engine.spark.sql(f"SELECT file_size_in_bytes FROM lake.tests.{topic}.data_files").collect()
    return sorted(row[0] for row in files)


@contextmanager
def counting(engine: Engine, topic: str) -> Iterator[list[int]]:
    """What a reader counts who looks all the time."""
    counts, over = [engine.rows(topic).count()], threading.Event()

    def look() -> None:
        while not over.is_set():
            counts.append(engine.rows(topic).count())

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield counts
    finally:
        over.set()
        thread.join(60)


LAID_OUT = {"partition_by": (Transform("side"),), "sort_by": (Transform("price", descending=True),)}


@pytest.mark.parametrize(
    ("settings", "left"),
    [
        ({}, 1),
        pytest.param({"format_version": 3}, 1, marks=pytest.mark.full),
        pytest.param(LAID_OUT, 2, marks=pytest.mark.full),
    ],
)
def test_files_converge_while_rounds_go_on_and_a_reader_never_counts_less(
    engine: Engine, settings: dict[str, Any], left: int
) -> None:
    topic = engine.topic(partitions=1)
    small_files(engine, topic, 6, **settings)
    before = sizes(engine, topic)
    target = engine.target(topic, **settings)

    def a_round(_: str) -> None:
        engine.produce(topic, 10)
        (outcome,) = engine.drain(target)
        assert outcome.snapshot is not None

    with counting(engine, topic) as counts, at("compact.staged", a_round):
        done = do(engine, topic, "compact")
    assert (done["files"], done["into"], done["conflicts"]) == (len(before), left, 0)
    assert counts == sorted(counts)
    assert len(sizes(engine, topic)) == 2 * left
    assert engine.offsets(topic) == everything(70)
    a_round("")
    heads = [each.summary.get(MAINTENANCE) for each in engine.table(topic).ancestors()]
    assert heads[: left + 1] == [None, *["compact"] * left]
    assert_proved(proof(engine, topic))


@pytest.mark.full
def test_a_second_run_finds_nothing_to_do(engine: Engine) -> None:
    topic = engine.topic(partitions=1)
    small_files(engine, topic, 5)
    do(engine, topic, "compact")
    head = engine.table(topic).head
    for kind in ("compact", "deletes", "rows", "dead_letters"):
        assert set(do(engine, topic, kind).values()) == {0}
    assert engine.table(topic).head == head


@pytest.mark.full
def test_deleted_rows_are_not_written_anew(engine: Engine) -> None:
    users, dice = Users(engine), random.Random(9)
    target = users.target()
    for _ in range(4):
        users.scramble(dice, 60, keys=20)
        engine.drain(target)
    assert engine.spark.sql(f"SELECT 1 FROM lake.tests.{users.topic}.delete_files").count() > 0
    done = do(engine, users.topic, "deletes")
    assert done["into"] < done["files"]
    assert engine.spark.sql(f"SELECT 1 FROM lake.tests.{users.topic}.delete_files").count() == 0
    assert users.held() == users.state
    users.scramble(dice, 60, keys=20)
    engine.drain(target)
    assert users.held() == users.state
    assert_proved(proof(engine, users.topic))


@pytest.mark.full
def test_a_job_gives_its_table_a_turn_between_two_rounds(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    users, dice = Users(engine), random.Random(10)
    for _ in range(6):
        users.scramble(dice, 40, keys=20)
        engine.drain(users.target())
    users.scramble(dice, 40, keys=20)
    with running(users.target(freshness_s=5.0), monkeypatch) as job:
        maintenance = work(engine, users.topic)
        waited = threading.Event()
        assert maintenance.has_left()
        for _ in range(3):
            assert tasks.asked(maintenance.main, "compact", waited.wait)
            users.scramble(dice, 20, keys=20)
        assert job.state == "running"
    assert [each.summary.get(MAINTENANCE) for each in engine.table(users.topic).ancestors()].count(
        "compact"
    ) > 1
    engine.drain(users.target())
    assert users.held() == users.state
    assert "round.retried" not in capfd.readouterr().out
    assert_proved(proof(engine, users.topic))


@pytest.mark.full
def test_a_round_that_loses_against_a_rewriting_writes_its_deletes_again(engine: Engine) -> None:
    users, dice = Users(engine), random.Random(11)
    target = users.target()
    for _ in range(3):
        users.scramble(dice, 40, keys=20)
        engine.drain(target)
    users.scramble(dice, 40, keys=20)
    redone: list[str] = []
    with (
        at("publish.begin", lambda _: do(engine, users.topic, "deletes")),
        each_time("publish.redone", redone.append),
    ):
        (outcome,) = engine.drain(target)
    assert (outcome.snapshot is not None, len(redone)) == (True, 1)
    assert users.held() == users.state

    def a_round(_: str) -> None:
        users.scramble(dice, 40, keys=20)
        engine.drain(target)

    with at("compact.staged", a_round):
        assert do(engine, users.topic, "deletes")["conflicts"] > 0
    assert users.held() == users.state
    assert_proved(proof(engine, users.topic))


@pytest.mark.full
def test_rows_deleted_since_the_plan_do_not_come_back(engine: Engine) -> None:
    users, dice = Users(engine), random.Random(12)
    target = users.target()
    for _ in range(5):
        users.scramble(dice, 60, keys=24)
        engine.drain(target)

    def a_round(_: str) -> None:
        users.scramble(dice, 60, keys=24)
        engine.drain(target)

    with at("compact.staged", a_round):
        done = do(engine, users.topic, "compact")
    assert done["conflicts"] > 0
    assert users.held() == users.state
    assert_proved(proof(engine, users.topic))


NOW = datetime.now(UTC)
DAY = timedelta(days=1)
TIMED = json.dumps(
    {
        "type": "record",
        "name": "Timed",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}]},
        ],
    }
)


def ids(engine: Engine, topic: str) -> list[int]:
    return sorted(row[0] for row in engine.rows(topic).select("id").collect())


def test_rows_leave_at_the_moment_that_they_are_old_enough(engine: Engine) -> None:
    topic = engine.topic(partitions=1, schema=TIMED)
    before = NOW - 90 * DAY
    tick = timedelta(microseconds=1)
    moments = (before - DAY, before - tick, before, before + tick, NOW)
    rows = [{"id": n, "at": each} for n, each in enumerate(moments)]
    engine.produce(topic, [*rows, {"id": 5, "at": None}])
    engine.drain(engine.target(topic))
    engine.produce(topic, [{"id": 6, "at": before - 3 * DAY}])
    engine.drain(engine.target(topic))
    table = engine.table(topic)
    gone = retain(CarriedCommit(table, table), "rows", "at", before, budget_bytes=10**9)
    assert (gone["rows"], gone["files"]) == (3, 2)
    assert ids(engine, topic) == [2, 3, 4, 5]
    engine.produce(topic, [{"id": 7, "at": before - DAY}])
    engine.drain(engine.target(topic))
    assert_proved(proof(engine, topic))
    gone = retain(CarriedCommit(table, table), "rows", "at", before + DAY, budget_bytes=10**9)
    assert (gone["rows"], ids(engine, topic)) == (3, [4, 5])
    gone = retain(CarriedCommit(table, table), "rows", "at", before + DAY, budget_bytes=10**9)
    assert gone["rows"] == 0
    assert_proved(proof(engine, topic))
    checks = proof_of_digests(engine, topic).checks
    assert [(each.name, each.state) for each in checks] == [
        ("digests", "proved"),
        ("beyond retention", "not verifiable"),
    ]
    engine.sql("DELETE FROM {t} WHERE id = 4", topic)
    assert proof(engine, topic).findings


def test_dead_letters_leave_for_their_age_unless_somebody_wants_them_back(engine: Engine) -> None:
    topic = engine.topic(partitions=1)
    engine.ingest(topic, 5, 2)
    assert do(engine, topic, "dead_letters", dead_letters_s=3600.0)["rows"] == 0
    engine.table(topic).set_properties({REDRIVE: "waits"})
    assert do(engine, topic, "dead_letters", dead_letters_s=0.0)["rows"] == 0
    engine.table(topic).set_properties({}, remove=[REDRIVE])
    assert do(engine, topic, "dead_letters", dead_letters_s=0.0)["rows"] == 2
    assert engine.letter_offsets(topic) == []
    engine.ingest(topic, 5, 1)
    assert engine.letter_offsets(topic) == [(0, 12)]
    assert_proved(proof(engine, topic))


@pytest.mark.long
def test_position_deletes_of_another_engine_are_merged_and_a_round_goes_on(engine: Engine) -> None:
    topic = engine.topic(partitions=1)
    engine.ingest(topic, 100)
    engine.ingest(topic, 100)
    properties = "'write.delete.mode' = 'merge-on-read', 'write.delete.granularity' = 'partition'"
    engine.sql(f"ALTER TABLE {{t}} SET TBLPROPERTIES ({properties})", topic)
    gone = [*range(4), *range(100, 104)]
    for offset in gone:
        engine.sql(f"DELETE FROM {{t}} WHERE _kafka.offset = {offset}", topic)
    table = engine.table(topic)
    assert table.total("delete-files") == 8
    done = do(engine, topic, "deletes")
    assert (done["files"], done["delete_files"]) == (0, 8)
    table.refresh()
    assert (table.total("delete-files"), HOLD in table.properties) == (1, False)
    engine.ingest(topic, 3)
    assert engine.offsets(topic) == [each for each in everything(203) if each[1] not in gone]


@pytest.mark.long
def test_what_nothing_names_goes_with_the_second_run_that_finds_it(engine: Engine) -> None:
    topic = engine.topic(partitions=1)
    engine.ingest(topic, 5, 2)
    table = engine.table(topic)
    warehouse = str(table.java.location()).rpartition("/")[0]
    own = f"{table.java.location()}/data/left.parquet"
    others = [
        f"{warehouse}/{topic}{DEAD_LETTERS_SUFFIX}/data/left.parquet",
        f"{warehouse}/{topic}_2/left.csv",
    ]
    for each in (own, *others):
        write(table, each)
    upkept = CarriedCommit(table, table)
    assert sweep(upkept, age_s=3600.0) == {"found": 0, "deleted": 0}
    assert sweep(upkept, age_s=0.0) == {"found": 1, "deleted": 0}

    def sweep_now(_: str) -> None:
        """What the round has staged is found for the first time."""
        swept = sweep(upkept, age_s=0.0)
        assert (swept["found"] > 0, swept["deleted"]) == (True, 1)

    engine.mixed(topic, 5, 1)
    with at("publish.begin", sweep_now):
        engine.drain(engine.target(topic))
    assert sweep(upkept, age_s=0.0) == {"found": 0, "deleted": 0}
    assert [exists(table, each) for each in (own, *others)] == [False, True, True]
    assert engine.letter_offsets(topic) == [(0, 5), (0, 6), (0, 12)]
    assert_proved(proof(engine, topic))


def exists(table: Any, path: str) -> bool:
    return bool(table.java.io().newInputFile(path).exists())


def write(table: Any, path: str) -> None:
    stream = table.java.io().newOutputFile(path).create()
    stream.write(b"left")
    stream.close()


@pytest.mark.full
def test_what_was_written_before_a_person_was_forgotten_is_not_committed(
    engine: Engine, tmp_path: Path
) -> None:
    scene = Scene(engine, tmp_path, {})
    for _ in range(6):
        scene.round()

    def forget(_: str) -> None:
        scene.ask(email=scene.persons[0].email)
        scene.work()

    rows = len(scene.rows())
    with at("compact.staged", forget), pytest.raises(Retryable):
        do(engine, scene.topic, "compact")
    assert len(scene.rows()) == rows * 2 // 3
    assert scene.found().keys().isdisjoint({"0: key", "0: email"})
    assert_proved(scene.proof())
    scene.ask(email=scene.persons[1].email)
    head = engine.table(scene.topic).head
    Maintaining(engine.lake, threading.Event(), only="compact").one(scene.table, engine.table(scene.topic))
    assert engine.table(scene.topic).head == head


OF_KIND: dict[str, Kind] = {
    "compact": "compact",
    "retention": "rows",
    "metadata": "manifests",
    "orphans": "orphans",
    "expiry": "snapshots",
    "snapshots": "snapshots",
}
CRITICAL = ("compact.staged", "compact.committed", "retention.committed")


@pytest.mark.parametrize(
    "points",
    [
        pytest.param(CRITICAL, id="critical", marks=pytest.mark.long),
        pytest.param(OF_MAINTENANCE, id="all", marks=pytest.mark.full),
    ],
)
def test_whoever_dies_leaves_a_whole_table_and_no_file_behind(
    engine: Engine, points: tuple[str, ...]
) -> None:
    topic, kept = engine.topic(partitions=1, schema=TIMED), []
    rows = RowRetention("at", 80 * DAY.total_seconds())
    for number, point in enumerate(points):
        for n in range(6):
            kept.append(10 * number + n)
            old = {"id": -1, "at": NOW - 90 * DAY}
            engine.produce(topic, [old, {"id": kept[-1], "at": NOW}])
            engine.drain(engine.target(topic))
        kind = OF_KIND[point.partition(".")[0]]
        with dying(point), pytest.raises(Died):
            do(engine, topic, kind, rows=rows, snapshots_at_most=4, snapshots_at_least=1)
        do(engine, topic, kind, rows=rows, snapshots_at_most=4, snapshots_at_least=1)
        assert {-1, *ids(engine, topic)} == {-1, *kept}
    do(engine, topic, "rows", rows=rows)
    assert ids(engine, topic) == kept
    assert_proved(proof(engine, topic))
    found = do(engine, topic, "orphans")["found"]
    assert do(engine, topic, "orphans") == {"found": 0, "deleted": found}
    assert ids(engine, topic) == kept
