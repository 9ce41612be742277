"""Pause, rollback, rewind and another layout of a table that is kept: each happens once, and `calve verify` agrees afterwards."""

from __future__ import annotations

import json
import threading
import uuid
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from typer.testing import CliRunner

from calve.config.job import Budget, Start, Table
from calve.config.steps import Sql
from calve.errors import Retryable
from calve.modes.upsert import Upsert
from calve.names import DEAD_LETTERS_SUFFIX
from calve.requests.requests import Entry, Pause
from calve.requests.time_travel import BackfillRequest, RollbackRequest
from calve.schema.columns import Transform
from calve.table.summary import BACKFILL, PAUSED, STATE, TRAVEL
from cli.main import app
from glue_jobs.operations.relayout import layout_of
from glue_jobs.rounds import loop
from glue_jobs.rounds.loop import TableLoop
from glue_jobs.table.opening import Opener
from tests.integration.support.crashing import Died, dying
from tests.integration.support.engine import Engine, trades
from tests.integration.support.proofs import assert_proved, proof
from tests.integration.support.running import run, running

BAD = b"\x01no magic byte"
POINTS = ("requests.begin", "rewind.completed", "dead_letters.withdrawn", "requests.end", "publish.committed")
BEFORE = ("requests.begin",)
"""Points at which a request has not been answered yet."""


@dataclass
class Scene:
    """A topic of one partition, whose every batch is three good records and a bad one, and a snapshot for each batch."""

    engine: Engine
    settings: dict[str, Any] = field(default_factory=dict)
    topic: str = ""
    sent: int = 0
    snapshots: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.topic = self.engine.topic(partitions=1)

    def target(self) -> Opener:
        return self.engine.target(self.topic, dead_letter_budget=Budget(records=1_000), **self.settings)

    def produce(self) -> None:
        for row in trades(3, first=self.sent):
            value = self.engine.encode(self.topic, row)
            self.engine.send(self.topic, value, key=b"k%d" % (row["id"] % 2), partition=0)
        self.engine.send(self.topic, BAD, partition=0)
        self.engine.flush()
        self.sent += 4

    def work(self) -> None:
        self.engine.drain(self.target())

    def batches(self, count: int) -> None:
        for _ in range(count):
            self.produce()
            self.work()
            self.snapshots.append(self.head)

    @property
    def head(self) -> int:
        head = self.engine.table(self.topic).head
        assert head is not None
        return head

    def ask(self, snapshot: int) -> RollbackRequest:
        request = RollbackRequest(uuid.uuid4().hex, "2026-01-01T00:00:00+00:00", "ann", "rollback", snapshot)
        self.engine.table(self.topic).set_properties({TRAVEL: request.to_json()})
        return request

    def answer(self, request: RollbackRequest) -> Entry:
        properties = self.engine.table(self.topic).properties
        found = Entry.of(properties, request.id)
        assert found is not None
        assert TRAVEL not in properties
        return found

    def line(self) -> list[int]:
        return [each.id for each in self.engine.table(self.topic).ancestors()]

    def assert_exact(self) -> None:
        """Every record is in the table once, or a dead letter once, nothing is left over, and `verify` agrees."""
        good = [(0, n) for n in range(self.sent) if n % 4 != 3]
        if "upsert" not in self.settings:
            assert self.engine.offsets(self.topic) == good
        assert self.engine.letter_offsets(self.topic) == [(0, n) for n in range(3, self.sent, 4)]
        letters = self.engine.table(self.topic + DEAD_LETTERS_SUFFIX)
        assert set(letters.refs()) == {"main"}
        assert_proved(proof(self.engine, self.topic))


@pytest.mark.long
def test_a_rollback_is_answered_by_the_commit_that_does_it_and_everything_since_is_read_again(
    engine: Engine,
) -> None:
    scene = Scene(engine)
    scene.batches(3)
    request = scene.ask(scene.snapshots[0])
    scene.produce()
    with dying("plan.begin"), pytest.raises(Died):
        scene.work()
    assert scene.head == scene.snapshots[0]
    assert engine.offsets(scene.topic) == [(0, 0), (0, 1), (0, 2)]
    assert engine.letter_offsets(scene.topic) == [(0, 3)]
    answer = scene.answer(request)
    assert answer.problem is None
    assert "8 offsets are read again" in answer.told
    scene.work()
    assert scene.snapshots[0] in scene.line()
    assert not {*scene.snapshots[1:]} & {*scene.line()}
    scene.assert_exact()


@pytest.mark.full
def test_a_table_of_upserts_goes_back_to_the_rows_that_it_had(engine: Engine) -> None:
    scene = Scene(engine, {"upsert": Upsert(("_kafka.key",), bucketed=True)})
    scene.batches(1)
    before = sorted(map(str, engine.rows(scene.topic).collect()))
    scene.batches(1)
    request = scene.ask(scene.snapshots[0])
    with dying("plan.begin"), pytest.raises(Died):
        scene.work()
    assert sorted(map(str, engine.rows(scene.topic).collect())) == before
    assert scene.answer(request).problem is None
    scene.work()
    scene.assert_exact()


@pytest.mark.full
@pytest.mark.parametrize("point", POINTS)
def test_a_job_that_dies_anywhere_leaves_a_rollback_to_the_next_or_has_done_it(
    engine: Engine, point: str
) -> None:
    scene = Scene(engine)
    scene.batches(2)
    request = scene.ask(scene.snapshots[0])
    with dying(point), pytest.raises(Died):
        scene.work()
    found = Entry.of(engine.table(scene.topic).properties, request.id)
    assert (found is None) == (point in BEFORE)
    done = scene.line()
    scene.work()
    if found is not None:
        assert {*done} <= {*scene.line()}, "it was rolled back a second time"
    assert scene.answer(request).problem is None
    assert scene.snapshots[1] not in scene.line()
    scene.assert_exact()


@pytest.mark.full
def test_what_cannot_be_gone_back_to_is_answered_with_the_reason_and_the_topic_is_read_on(
    engine: Engine,
) -> None:
    scene = Scene(engine)
    scene.batches(2)
    request = scene.ask(12345678)
    scene.produce()
    scene.work()
    assert "is not in the history" in (scene.answer(request).problem or "")
    engine.expire(scene.topic, 6)
    request = scene.ask(scene.snapshots[0])
    scene.work()
    assert "no longer holds offsets" in (scene.answer(request).problem or "")
    first = scene.line()[-1]
    request = scene.ask(first)
    scene.work()
    assert "partition 0 [0, 6)" in (scene.answer(request).problem or "")
    assert {*scene.snapshots} <= {*scene.line()}
    assert len(engine.offsets(scene.topic)) == 9


@pytest.mark.full
def test_a_rollback_holds_only_for_the_table_as_the_job_knows_it(engine: Engine) -> None:
    scene = Scene(engine)
    scene.batches(2)
    known = engine.table(scene.topic)
    engine.table(scene.topic).set_properties({"note": "of another"})
    with pytest.raises(Retryable):
        known.roll_back(scene.snapshots[0], {"a": "b"}, remove=[])
    assert scene.head == scene.snapshots[1]
    assert "a" not in engine.table(scene.topic).properties


@pytest.mark.full
def test_a_paused_table_is_left_alone_by_a_drain_which_ends_well_and_goes_back_all_the_same(
    engine: Engine,
) -> None:
    scene = Scene(engine)
    scene.batches(2)
    pause = Pause("p1", "2026-01-01T00:00:00+00:00", "ann", "a wrong schema")
    request = scene.ask(scene.snapshots[0])
    engine.table(scene.topic).set_properties({PAUSED: pause.to_json()})
    scene.produce()
    assert run(TableLoop(scene.target(), threading.Event(), drain=True)) == "paused"
    main = engine.table(scene.topic)
    assert json.loads(main.properties[STATE])["reason"] == "by ann: a wrong schema"
    assert scene.head == scene.snapshots[0]
    assert scene.answer(request).problem is None
    assert engine.letter_offsets(scene.topic) == [(0, 3)]
    over = Pause("p2", pause.at, "ann", until=(datetime.now(UTC) - timedelta(seconds=1)).isoformat())
    main.set_properties({PAUSED: over.to_json()})
    scene.work()
    scene.assert_exact()


@pytest.mark.long
def test_the_commands_are_heeded_by_the_running_job(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(engine)
    scene.batches(2)
    settings = Table(scene.topic, scene.topic)
    monkeypatch.setattr("cli.act.requests.load_jobs", lambda *_, **__: (engine.job(settings),))
    monkeypatch.setattr(loop, "LONGEST_BACKOFF_S", 5.0)
    with running(scene.target(), monkeypatch):
        assert "is paused by" in said("pause", scene.topic, "--reason", "to look")
        assert state_of(engine, scene) == "paused"
        scene.produce()
        listed = json.loads(said("rollback", scene.topic, "--output", "json"))["snapshots"]
        assert [int(each["snapshot"]) for each in listed[:2]] == scene.snapshots[::-1]
        told = said("rewind", scene.topic, "--to", "0:5", "--yes")
        assert f"rewind to snapshot {scene.snapshots[0]}: 4 offsets are read again" in told
        assert "1 dead letters go" in told
        assert scene.head == scene.snapshots[0]
        assert "is read again" in said("resume", scene.topic)
        assert state_of(engine, scene) == "running"
    scene.work()
    scene.assert_exact()
    entries = Entry.all(engine.table(scene.topic).properties)
    assert [each.what for each in entries] == ["pause", "rewind", "resume"]
    into = said("rewind", scene.topic, "--to", "0:5", "--into", "again")
    assert f"  again:\n    topic: {scene.topic}\n    start: {{offsets: {{0: 5}}}}" in into


def state_of(engine: Engine, scene: Scene) -> str:
    found: str = json.loads(engine.table(scene.topic).properties[STATE])["state"]
    return found


def said(*arguments: str) -> str:
    done = CliRunner().invoke(app, list(arguments))
    assert done.exit_code == 0, (done.output, done.exception)
    return done.stdout


@pytest.mark.full
@pytest.mark.parametrize("mode", [None, Upsert(("_kafka.key",))], ids=["append", "upsert"])
def test_a_live_table_is_laid_out_anew_and_its_old_files_stay(engine: Engine, mode: Upsert | None) -> None:
    scene = Scene(engine, {"upsert": mode} if mode else {})
    scene.batches(1)
    old = files(engine, scene.topic)
    by_side = (Transform("side"),), (Transform("price", descending=True),)
    scene.settings |= {"partition_by": by_side[0], "sort_by": by_side[1]}
    scene.produce()
    with dying("layout.changed"), pytest.raises(Died):
        scene.work()
    scene.batches(2)
    assert layout_of(engine.table(scene.topic)) == by_side
    new = files(engine, scene.topic)
    assert {*old} <= {*new}
    assert len({*new.values()}) == 2
    scene.settings |= {"partition_by": (Transform("id", "bucket", 4),), "sort_by": ()}
    scene.batches(1)
    assert layout_of(engine.table(scene.topic)) == ((Transform("id", "bucket", 4),), ())
    told = [each.told for each in Entry.all(engine.table(scene.topic).properties)]
    assert told == [
        "partition by side, sort by price desc",
        "partition by bucket(4, id), sort by nothing",
    ]
    scene.assert_exact()


def test_a_layout_by_a_column_that_the_table_lacks_is_refused_and_the_topic_is_read_on(
    engine: Engine, capsys: pytest.CaptureFixture[str]
) -> None:
    scene = Scene(engine)
    scene.batches(1)
    scene.settings |= {"partition_by": (Transform("nothing"),)}
    scene.batches(1)
    assert "make no column nothing" in capsys.readouterr().out
    assert layout_of(engine.table(scene.topic)) == ((), ())
    scene.assert_exact()


BEFORE_FIX = (Sql("select id, side, price from source"),)
FIXED = (Sql("select id, side, price * 10 as price from source"),)
LEAVING_OUT = (Sql("select id, side, price from source where id <> 4"),)


def ask_backfill(scene: Scene, first: int, to: int) -> BackfillRequest:
    ends = (Start("offsets", offsets={0: each}) for each in (first, to))
    request = BackfillRequest(uuid.uuid4().hex, "2026-01-01T00:00:00+00:00", "ann", *ends)
    scene.engine.table(scene.topic).set_properties({BACKFILL: request.to_json()})
    return request


def backfilled(scene: Scene, request: BackfillRequest) -> Entry:
    properties = scene.engine.table(scene.topic).properties
    found = Entry.of(properties, request.id)
    assert found is not None
    assert BACKFILL not in properties
    return found


def prices(engine: Engine, topic: str) -> dict[int, int]:
    found = engine.rows(topic).select("_kafka.offset", "price").collect()
    assert len(found) == len({row[0] for row in found})
    return {row[0]: row[1] for row in found}


def corrected(engine: Engine) -> tuple[Scene, dict[int, int]]:
    """A table of three batches, whose steps are corrected; with the prices that it has."""
    scene = Scene(engine, {"steps": BEFORE_FIX})
    scene.batches(3)
    scene.settings["steps"] = FIXED
    return scene, prices(engine, scene.topic)


@pytest.mark.full
def test_rows_of_a_range_are_replaced_by_what_their_records_make_now(engine: Engine) -> None:
    scene, wrong = corrected(engine)
    request = ask_backfill(scene, 3, 8)
    scene.work()
    assert backfilled(scene, request).told == "3 rows replaced by 3"
    right = {offset: price * 10 if 4 <= offset < 8 else price for offset, price in wrong.items()}
    assert prices(engine, scene.topic) == right
    assert not proof(engine, scene.topic, steps=FIXED).findings
    for first, to, steps, why in (
        (90, 95, FIXED, "the table has read no records of this range"),
        (4, 8, LEAVING_OUT, "1 rows of the range could not be made again"),
    ):
        scene.settings["steps"] = steps
        request = ask_backfill(scene, first, to)
        scene.work()
        assert why in (backfilled(scene, request).problem or "")
    assert prices(engine, scene.topic) == right
    scene.settings["steps"] = FIXED
    request = ask_backfill(scene, 0, 99)
    scene.work()
    assert backfilled(scene, request).told == "9 rows replaced by 9"
    assert_proved(proof(engine, scene.topic, steps=FIXED))


@pytest.mark.full
@pytest.mark.parametrize("point", ["backfill.staged", "backfill.committed", "backfill.completed"])
def test_a_job_that_dies_in_a_backfill_leaves_it_to_the_next_or_has_done_it(
    engine: Engine, point: str
) -> None:
    scene, wrong = corrected(engine)
    request = ask_backfill(scene, 0, 99)
    with dying(point), pytest.raises(Died):
        scene.work()
    scene.work()
    assert backfilled(scene, request).told == "9 rows replaced by 9"
    assert prices(engine, scene.topic) == {offset: price * 10 for offset, price in wrong.items()}
    assert_proved(proof(engine, scene.topic, steps=FIXED))


def files(engine: Engine, topic: str) -> dict[str, int]:
    """The data files of a table and the partition specs that they have."""
    found = engine.spark.sql(f"SELECT file_path, spec_id FROM lake.tests.{topic}.data_files").collect()
    return {row[0]: row[1] for row in found}
