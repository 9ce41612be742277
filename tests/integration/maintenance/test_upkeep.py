"""A job keeps its tables small between its rounds: nothing moves, nothing is lost, and readers notice nothing."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from calve.config.maintenance import Maintenance
from calve.config.publishing import Emit
from calve.config.steps import Flatten
from calve.modes.upsert import Upsert
from calve.names import DEAD_LETTERS_SUFFIX
from calve.schema.columns import Transform
from calve.table.summary import POSITION_TAG, SETTINGS
from glue_jobs.iceberg.catalog import Table as IcebergTable
from glue_jobs.maintenance import between_rounds
from glue_jobs.maintenance.between_rounds import LoopMaintenance
from glue_jobs.process.java import elements
from glue_jobs.rounds.round import Round
from glue_jobs.table.open_table import Outcome, TableMemory
from glue_jobs.table.opening import Opener
from tests.integration.support.crashing import OF_UPKEEP, Died, dying, open_catalog
from tests.integration.support.engine import DATABASE, Engine, at, everything, position_of_open, trades
from tests.integration.support.proofs import assert_proved, proof

MERGED = 4
"""So many files are merged at once here, to be done in a few rounds."""
FEW = Maintenance(snapshots_at_least=2, snapshots_at_most=4)
SPARE_S = 60.0
slow = pytest.mark.full


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(between_rounds, "MERGED_AT_ONCE", MERGED)


def rounds(engine: Engine, target: Opener, count: int, *, bad: int = 0) -> Outcome:
    """So many rounds of three good records each, in one partition; the last one's outcome."""
    memory = TableMemory()
    for _ in range(count):
        engine.mixed(target.config.topic, 3, bad)
        outcome = Round(target, memory).run()
        assert outcome.snapshot is not None
    return outcome


def kept(target: Opener, outcome: Outcome, **settings: Any) -> None:
    """One turn of a job that has just begun."""
    LoopMaintenance(target, **settings).between(outcome, SPARE_S)


def sizes(table: IcebergTable) -> list[int]:
    return sorted(each.file().fileSizeInBytes() for each in files(table))


def files(table: IcebergTable) -> list[Any]:
    table.refresh()
    return list(elements(table.java.newScan().planFiles()))


@pytest.mark.parametrize(
    "settings",
    [
        {},
        pytest.param({"format_version": 3, "sort_by": (Transform("price", descending=True),)}, marks=slow),
        pytest.param({"partition_by": (Transform("side"),)}, marks=slow),
    ],
    ids=["plain", "format 3, sorted", "partitioned"],
)
def test_small_files_become_one_and_nothing_moves(engine: Engine, settings: dict[str, Any]) -> None:
    topic = engine.topic(partitions=1)
    target = engine.target(topic, **settings)
    outcome = rounds(engine, target, MERGED + 1)
    columns = "*, _row_id, _last_updated_sequence_number" if "format_version" in settings else "*"
    before = sorted(map(str, engine.sql(f"SELECT {columns} FROM {{t}}", topic).collect()))
    head, position = engine.table(topic).head, position_of_open(target.opened)
    kept(target, outcome)
    table = engine.table(topic)
    commit = next(table.ancestors())
    assert (commit.operation, commit.parent) == ("replace", head)
    assert "calve.from" not in commit.summary
    assert "calve.ledger" not in commit.summary
    assert len(files(table)) == (2 if "partition_by" in settings else 1)
    assert sorted(map(str, engine.sql(f"SELECT {columns} FROM {{t}}", topic).collect())) == before
    now = position_of_open(target.opened)
    assert (now.offsets, now.round, now.writer) == (position.offsets, position.round, position.writer)
    rounds(engine, target, 1)
    assert engine.offsets(topic) == everything(3 * (MERGED + 2))


@pytest.mark.parametrize("version", [2, pytest.param(3, marks=slow)])
def test_small_files_of_a_table_by_key_become_one_without_their_deleted_rows(
    engine: Engine, version: int
) -> None:
    topic = engine.topic(partitions=1)
    target = engine.target(topic, upsert=Upsert(("id",)), format_version=version)
    memory = TableMemory()
    for n in range(MERGED + 3):
        engine.produce(topic, trades(3, first=2 * n), partition=0)
        outcome = Round(target, memory).run()
    before = sorted(map(str, engine.rows(topic).collect()))
    table = engine.table(topic)
    assert table.total("position-deletes") == MERGED + 2
    kept(target, outcome)
    assert next(engine.table(topic).ancestors()).operation == "replace"
    assert sorted(map(str, engine.rows(topic).collect())) == before
    table.refresh()
    assert (len(files(table)), table.total("position-deletes"), table.total("delete-files")) == (1, 0, 0)
    engine.produce(topic, trades(6), partition=0)
    assert Round(target, memory).run().snapshot is not None
    assert engine.rows(topic).count() == 2 * (MERGED + 2) + 3


def test_a_file_is_written_again_when_many_of_its_rows_are_deleted(engine: Engine) -> None:
    topic = engine.topic(partitions=1)
    target = engine.target(topic, upsert=Upsert(("id",)))
    memory, upkeep = TableMemory(), LoopMaintenance(target, unmerged=-100)
    operations = []
    for changed in (20, 2, 1, 2, 1):
        engine.produce(topic, trades(changed, first=20 - changed), partition=0)
        upkeep.between(Round(target, memory).run(), SPARE_S)
        operations.append(next(engine.table(topic).ancestors()).operation)
    assert operations == ["append", "overwrite", "overwrite", "overwrite", "replace"]
    assert sorted(row.id for row in engine.rows(topic).collect()) == list(range(20))


@pytest.mark.long
def test_old_snapshots_expire_and_the_others_can_be_gone_back_to(engine: Engine) -> None:
    topic = engine.topic(partitions=1)
    target = engine.target(topic, maintenance=FEW)
    rounds(engine, target, 2, bad=1)
    kept(target, rounds(engine, target, 5, bad=1))
    table, letters = engine.table(topic), engine.table(topic + DEAD_LETTERS_SUFFIX)
    for each in (table, letters):
        line = list(each.ancestors())
        assert FEW.snapshots_at_least <= len(line) <= FEW.snapshots_at_most
        assert each.java.snapshots().size() == count(each, "snap-") <= FEW.snapshots_at_most
    assert table.java.snapshots().size() == len(list(table.ancestors()))
    assert table.refs()[POSITION_TAG] in [each.id for each in table.ancestors()]
    bad = [(0, offset) for offset in range(28) if offset % 4 == 3]
    assert engine.offsets(topic) == [each for each in everything(28) if each not in bad]
    rounds_left = [each.id for each in table.ancestors() if "calve.ledger" in each.summary]
    engine.rollback(topic, rounds_left[-1])
    engine.drain(engine.target(topic))
    engine.ingest(topic, 2)
    assert engine.offsets(topic) == [each for each in everything(30) if each not in bad]
    assert engine.letter_offsets(topic) == bad


def count(table: IcebergTable, prefix: str) -> int:
    """Metadata files of a kind that are in the bucket."""
    found = table.java.io().listPrefix(f"{table.java.location()}/metadata/{prefix}")
    return len(list(elements(found)))


@slow
def test_an_expired_table_is_still_proved(engine: Engine) -> None:
    """From its first record on, although nothing but the sums of its ledgers says what was skipped, and how it was read."""
    topic, steps = engine.topic(partitions=1), (Flatten(),)
    target = engine.target(topic, maintenance=FEW, on_error="skip", steps=steps)
    upkeep_ = LoopMaintenance(target, unmerged=0)
    for _ in range(2):
        outcome = rounds(engine, target, 4, bad=1)
        upkeep_.looked_at = None
        upkeep_.between(outcome, SPARE_S)
    assert engine.table(topic).java.snapshots().size() <= FEW.snapshots_at_most
    found = proof(engine, topic, steps=steps)
    assert_proved(found)
    assert [(each.start, each.to) for each in found.digests] == [(0, 32)]
    engine.expire_history(topic)
    assert not proof(engine, topic, steps=steps).complete


@slow
def test_a_table_of_a_topic_that_was_made_again_is_still_proved(engine: Engine) -> None:
    """The rows of both are told apart by their files, although no snapshot says any more which round added which."""
    topic = engine.topic(partitions=1)
    target = engine.target(topic, maintenance=FEW, on_data_loss="continue")
    kept(target, rounds(engine, target, MERGED + 1))
    engine.recreate(topic)
    again = engine.target(topic, maintenance=FEW, on_data_loss="continue")
    kept(again, rounds(engine, again, MERGED + 1))
    table = engine.table(topic)
    assert len(files(table)) == 1 + MERGED + 1
    assert table.java.snapshots().size() <= FEW.snapshots_at_most
    found = proof(engine, topic)
    assert found.ok
    assert [check.figures["rows"] for check in found.checks if check.state == "not verifiable"] == [15]


@pytest.mark.parametrize(
    "point",
    [pytest.param(each, marks=pytest.mark.long if each == "merge.committed" else slow) for each in OF_UPKEEP],
)
def test_a_job_that_dies_during_upkeep_is_mended_by_the_next(engine: Engine, point: str) -> None:
    topic = engine.topic(partitions=1)
    target = engine.target(topic, maintenance=FEW)
    outcome = rounds(engine, target, MERGED + 1, bad=1)
    if point == "maintenance.settled":
        engine.table(topic).set_properties({}, remove=[SETTINGS])
        target.opened.main.refresh()
    with dying(point), pytest.raises(Died):
        kept(target, outcome)
    again = engine.target(topic, maintenance=FEW)
    kept(again, rounds(engine, again, 1, bad=1))
    table = engine.table(topic)
    assert SETTINGS in table.properties
    assert len(files(table)) < MERGED
    assert table.java.snapshots().size() <= FEW.snapshots_at_most
    bad = [(0, offset) for offset in range(4 * (MERGED + 2)) if offset % 4 == 3]
    assert engine.offsets(topic) == [each for each in everything(4 * (MERGED + 2)) if each not in bad]
    assert engine.letter_offsets(topic) == bad


@pytest.mark.parametrize(
    "others", ["a round", *(pytest.param(each, marks=slow) for each in ("a rollback", "a compaction"))]
)
def test_upkeep_that_was_overtaken_changes_nothing(
    engine: Engine, capfd: pytest.CaptureFixture[str], others: str
) -> None:
    topic = engine.topic(partitions=1)
    target = engine.target(topic)
    first = rounds(engine, target, 1).snapshot
    assert first is not None
    outcome = rounds(engine, target, MERGED)
    heads: list[int | None] = []

    def other(_: str) -> None:
        match others:
            case "a round":
                engine.ingest(topic, 3)
            case "a rollback":
                engine.rollback(topic, first)
            case "a compaction":
                engine.compact(topic)
        heads.append(engine.table(topic).head)

    with at("merge.staged", other):
        kept(target, outcome)
    assert engine.table(topic).head == heads[0]
    assert '"event": "maintenance.postponed"' in capfd.readouterr().out
    engine.drain(engine.target(topic))
    rest = 3 * (MERGED + 1) + (3 if others == "a round" else 0)
    assert engine.offsets(topic) == everything(rest)


@slow
def test_a_round_is_published_over_a_merge(engine: Engine) -> None:
    """That of an older generation of the job, which has not heard yet that it is to end."""
    topic = engine.topic(partitions=1)
    target = engine.target(topic)
    outcome = rounds(engine, target, MERGED)
    engine.mixed(topic, 3)
    with at("publish.begin", lambda _: kept(target, outcome)):
        engine.drain(engine.target(topic))
    operations = [each.operation for each in engine.table(topic).ancestors()]
    assert operations[:2] == ["append", "replace"]
    assert engine.offsets(topic) == everything(3 * (MERGED + 1))


def test_a_table_of_an_earlier_release_is_given_the_settings_once(engine: Engine) -> None:
    topic = engine.topic(partitions=1)
    target = engine.target(topic)
    outcome = rounds(engine, target, 1)
    table = engine.table(topic)
    name = "write.metadata.previous-versions-max"
    wanted = table.properties[name]
    table.set_properties({name: "10"}, remove=[SETTINGS])
    target.opened.main.refresh()
    kept(target, outcome)
    table.refresh()
    assert table.properties[name] == wanted
    table.set_properties({name: "7"})
    target.opened.main.refresh()
    kept(target, outcome)
    table.refresh()
    assert table.properties[name] == "7"
    larger = engine.target(topic, maintenance=Maintenance(file_bytes=256_000_000))
    kept(larger, engine.round(larger))
    table.refresh()
    assert table.properties["write.target-file-size-bytes"] == "256000000"


@slow
def test_what_has_not_been_emitted_does_not_expire(engine: Engine) -> None:
    topic, output = engine.topic(partitions=1), f"{engine.topic()}-out"
    quiet = engine.target(topic, maintenance=FEW)
    emitting = engine.target(topic, maintenance=FEW, emit=Emit(output))
    engine.drain(emitting)
    outcome = rounds(engine, quiet, 6)
    first = list(engine.table(topic).ancestors())[5]
    emitting.open()
    kept(emitting, outcome)
    table = engine.table(topic)
    assert table.snapshot(first.id) is not None
    kept(emitting, engine.round(emitting))
    table.refresh()
    assert table.snapshot(first.id) is None
    assert (
        engine.spark.read.format("kafka")
        .options(**{"kafka.bootstrap.servers": engine.stack.bootstrap_servers, "subscribe": output})
        .load()
        .count()
        == 18
    )


@slow
def test_readers_see_no_count_go_back(engine: Engine) -> None:
    topic = engine.topic(partitions=1)
    target = engine.target(topic, maintenance=FEW)
    rounds(engine, target, 1)
    counts: list[int] = []
    over = threading.Event()

    def read() -> None:
        catalog = open_catalog(engine)
        while not over.is_set():
            counts.append(catalog.load_table((DATABASE, topic)).scan().to_arrow().num_rows)

    reader = threading.Thread(target=read)
    reader.start()
    done = LoopMaintenance(target)
    try:
        for _ in range(2 * MERGED):
            done.between(rounds(engine, target, 1), SPARE_S)
    finally:
        over.set()
        reader.join(60)
    assert counts == sorted(counts)
    assert len(counts) > MERGED
    assert engine.offsets(topic) == everything(3 * (2 * MERGED + 1))
