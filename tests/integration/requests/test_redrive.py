"""Dead letters that come back: once, whatever happens in between, and `calve verify` says so."""

from __future__ import annotations

import json
import threading
import uuid
from dataclasses import dataclass, field
from typing import Any

import pytest
from typer.testing import CliRunner

from calve.config.job import Budget, Source, Table
from calve.names import DEAD_LETTERS_SUFFIX
from calve.requests.redrive import Request, Result
from calve.table.summary import REDRIVE
from cli.main import app
from glue_jobs.rounds.loop import TableLoop
from glue_jobs.table.opening import Opener
from tests.integration.support.crashing import Died, dying
from tests.integration.support.engine import Engine, at, suspended, trades
from tests.integration.support.proofs import assert_proved, proof
from tests.integration.support.records.versions import versioned
from tests.integration.support.running import run, running

BAD = b"\x01no magic byte"
POINTS = (
    *("redrive.staged", "redrive.marked", "redrive.held", "redrive.committed", "dead_letters.rewritten"),
    *("release.appended", "branch.dropped", "redrive.completed", "requests.end"),
)
CRITICAL = ("redrive.committed",)
COMMITTED = POINTS[POINTS.index("redrive.committed") :]


@dataclass
class Scene:
    """A topic of one partition, with records framed with ids that nobody has registered yet, and records that are nothing.

    `missing` are the ids of the next schemas that will be registered.
    """

    engine: Engine
    schemas: int = 1
    key: bytes | None = b"k"
    topic: str = ""
    missing: list[int] = field(default_factory=list)
    later: list[str] = field(default_factory=list)
    sent: int = 0
    dead: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.topic = self.engine.topic(partitions=1)
        self.later = [versioned() for _ in range(self.schemas)]
        first = 1 + self.engine.register(f"{self.topic}-probe", versioned("Probe"))
        self.missing = [first + n for n in range(self.schemas)]

    def produce(self, early: int = 0, *, good: int = 0, bad: int = 0) -> None:
        """Records of each missing schema, good ones, and bad ones."""
        row = self.engine.encode(self.topic, trades(1)[0])
        unknown = [b"\0" + each.to_bytes(4, "big") + row[5:] for each in self.missing for _ in range(early)]
        for value in unknown + [row] * good + [BAD] * bad:
            self.engine.send(self.topic, value, key=self.key, partition=0)
        self.engine.flush()
        first = self.sent
        self.sent += len(unknown) + good + bad
        self.dead |= {*range(first, first + len(unknown)), *range(self.sent - bad, self.sent)}

    def fix(self, number: int = 0) -> int:
        """Register a schema that was missing; its id."""
        schema_id = self.engine.register(self.topic, self.later[number])
        assert schema_id == self.missing[number]
        return schema_id

    def ask(self, **selection: Any) -> str:
        request = Request(uuid.uuid4().hex, "2026-01-01T00:00:00+00:00", **selection)
        self.engine.table(self.topic).set_properties({REDRIVE: request.to_json()})
        return request.id

    def answer(self, request: str) -> Result:
        properties = self.engine.table(self.topic).properties
        found = Result.of(properties, request)
        assert found is not None
        assert REDRIVE not in properties
        assert found.problem is None
        return found

    def target(self, **settings: Any) -> Opener:
        return self.engine.target(self.topic, **{"dead_letter_budget": Budget(records=5_000)} | settings)

    def work(self) -> None:
        self.engine.drain(self.target())

    def redrive(self, **selection: Any) -> Result:
        request = self.ask(**selection)
        self.work()
        return self.answer(request)

    def open(self) -> set[int]:
        found = self.engine.letters(self.topic).where("redriven IS NULL").select("offset").collect()
        return {row[0] for row in found}

    def assert_exact(self, *, dead: set[int]) -> None:
        """Every record is in the table once or an open letter, nothing is left over, and `verify` agrees."""
        assert self.engine.offsets(self.topic) == [(0, n) for n in range(self.sent) if n not in dead]
        assert self.open() == dead
        letters = self.engine.table(self.topic + DEAD_LETTERS_SUFFIX)
        assert set(letters.refs()) == {"main"}
        assert_proved(proof(self.engine, self.topic))


def bare(*before: str) -> str:
    """A schema of text columns, and `a`, a number, after them."""
    texts = [{"name": name, "type": "string", "default": ""} for name in before]
    return json.dumps({"type": "record", "name": "R", "fields": [*texts, {"name": "a", "type": "int"}]})


def test_letters_of_a_version_that_was_deleted_softly_come_back(engine: Engine) -> None:
    """The subject does not list their schema: the redrive looks its id up."""
    scene = Scene(engine)
    scene.produce(3, good=2)
    scene.work()
    scene.fix()
    engine.registry.delete_version(f"{scene.topic}-value", 2)
    found = scene.redrive()
    assert (found.selected, found.redriven, found.refused) == (3, 3, {})
    scene.assert_exact(dead=set())


@pytest.mark.full
def test_a_thousand_letters_come_back_once_when_their_schema_is_registered(engine: Engine) -> None:
    scene = Scene(engine)
    scene.produce(1_000, good=5, bad=2)
    scene.work()
    scene.fix()
    found = scene.redrive()
    assert (found.selected, found.redriven, found.refused) == (1_002, 1_000, {"bad_magic": 2})
    bad = {1_005, 1_006}
    scene.assert_exact(dead=bad)
    main = engine.table(scene.topic).head
    told = json.loads(next(engine.table(scene.topic).ancestors()).summary["calve.metrics"])
    assert min(told[name] for name in ("cpu_s", "bytes_written", "s3_puts", "s3_gets", "catalog_calls")) > 0
    again = scene.redrive()
    assert (again.selected, again.redriven, again.refused) == (2, 0, {"bad_magic": 2})
    assert engine.table(scene.topic).head == main
    scene.produce(good=3)
    scene.work()
    scene.assert_exact(dead=bad)


@pytest.mark.full
def test_verify_finds_redriven_rows_that_are_lost_or_doubled_or_forged(engine: Engine) -> None:
    scene = Scene(engine)
    scene.produce(6, bad=1)
    scene.work()
    scene.fix()
    scene.redrive()
    head = engine.table(scene.topic).head
    assert head is not None
    letters = f"lake.tests.{scene.topic}{DEAD_LETTERS_SUFFIX}"
    damage = {
        "DELETE FROM {t} WHERE _kafka.offset = 2": "that came back, and whose records are not in the table",
        "INSERT INTO {t} SELECT * FROM {t} WHERE _kafka.offset = 2": "records more than once in the table",
        f"UPDATE {letters} SET redriven = null WHERE offset = 3": "both in the table and among the dead letters",
    }
    for sql, message in damage.items():
        engine.sql(sql, scene.topic)
        messages = [each.message for each in proof(engine, scene.topic).findings]
        assert any(message in each for each in messages), messages
        if engine.table(scene.topic).head != head:
            engine.rollback(scene.topic, head)
    # The mark is gone, but the record is there: it is marked again, and not added.
    scene.work()
    found = scene.redrive()
    assert (found.redriven, found.present, found.refused) == (0, 1, {"bad_magic": 1})
    scene.assert_exact(dead={6})


@pytest.mark.parametrize(
    "points",
    [
        pytest.param(CRITICAL, id="critical", marks=pytest.mark.long),
        pytest.param(POINTS, id="all", marks=pytest.mark.full),
    ],
)
def test_a_redrive_that_died_is_finished_once_by_the_next_job(
    engine: Engine, points: tuple[str, ...]
) -> None:
    scene = Scene(engine, schemas=len(points))
    scene.produce(2, good=1, bad=1)
    scene.work()
    dead = set(scene.dead)
    for number, point in enumerate(points):
        request = scene.ask(schema_id=scene.fix(number))
        with dying(point), pytest.raises(Died):
            scene.work()
        dead -= {2 * number, 2 * number + 1}
        if point in COMMITTED:
            assert_proved(proof(engine, scene.topic))
        scene.work()
        assert scene.answer(request).redriven == 2, point
    scene.assert_exact(dead=dead)


@pytest.mark.full
@pytest.mark.parametrize("point", POINTS)
def test_a_job_that_was_overtaken_in_a_redrive_brings_nothing_back_twice(engine: Engine, point: str) -> None:
    scene = Scene(engine)
    scene.produce(3, bad=1)
    scene.work()
    scene.fix()
    request = scene.ask()
    with at(point, lambda _: scene.work()):
        run(TableLoop(scene.target(), threading.Event(), drain=True))
    scene.work()
    scene.answer(request)
    scene.assert_exact(dead={3})


@pytest.mark.long
def test_a_letter_that_is_another_tables_by_now_stays_a_letter(engine: Engine) -> None:
    scene = Scene(engine)
    scene.produce(2, good=1)
    source = Source(f"{scene.topic}-value")
    engine.drain(scene.target(value=source))
    assert engine.register(f"{scene.topic}-other", scene.later[0]) == scene.missing[0]
    request = scene.ask()
    engine.drain(scene.target(value=source))
    found = scene.answer(request)
    assert (found.selected, found.redriven, found.refused) == (2, 0, {"incompatible_schema": 2})
    assert engine.offsets(scene.topic) == [(0, 2)]
    assert scene.open() == {0, 1}
    assert_proved(proof(engine, scene.topic, value=source))


@pytest.mark.full
def test_a_rollback_of_the_table_opens_the_letters_again(engine: Engine) -> None:
    scene = Scene(engine)
    scene.produce(3, good=1)
    scene.work()
    before = engine.table(scene.topic).head
    assert before is not None
    scene.fix()
    assert scene.redrive().redriven == 3
    engine.rollback(scene.topic, before)
    scene.work()
    assert scene.open() == {0, 1, 2}
    assert scene.redrive().redriven == 3
    scene.assert_exact(dead=set())


@pytest.mark.full
def test_a_rollback_that_nothing_but_the_rows_tells_of_opens_the_letters_again(engine: Engine) -> None:
    scene = Scene(engine)
    scene.produce(3, good=1)
    scene.work()
    before = engine.table(scene.topic).head
    assert before is not None
    scene.fix()
    scene.redrive()
    engine.rollback(scene.topic, before)
    engine.compact(scene.topic + DEAD_LETTERS_SUFFIX)
    engine.expire_history(scene.topic + DEAD_LETTERS_SUFFIX)
    scene.work()
    assert scene.open() == {0, 1, 2}
    assert scene.redrive().redriven == 3
    scene.assert_exact(dead=set())


@pytest.mark.full
@pytest.mark.parametrize("key", [b"k", None])
def test_a_rollback_of_a_later_round_leaves_letters_whose_rows_are_there(
    engine: Engine, key: bytes | None
) -> None:
    scene = Scene(engine, key=key)
    scene.produce(3)
    scene.work()
    scene.fix()
    scene.redrive()
    before = engine.table(scene.topic).head
    assert before is not None
    scene.produce(bad=1)
    scene.work()
    engine.rollback(scene.topic, before)
    engine.compact(scene.topic + DEAD_LETTERS_SUFFIX)
    engine.expire_history(scene.topic + DEAD_LETTERS_SUFFIX)
    scene.work()
    assert scene.open() == {3}
    scene.assert_exact(dead={3})


@pytest.mark.full
def test_a_suspended_table_is_redriven_all_the_same(engine: Engine) -> None:
    scene = Scene(engine)
    scene.produce(3)
    scene.work()
    scene.fix()
    request = scene.ask()
    scene.produce(bad=2)
    with suspended("record_rejected"):
        engine.drain(scene.target(on_error="suspend"))
    assert scene.answer(request).redriven == 3
    assert engine.offsets(scene.topic) == [(0, 0), (0, 1), (0, 2)]


def test_what_cannot_be_done_is_answered_and_does_not_hold_up_the_topic(engine: Engine) -> None:
    scene = Scene(engine)
    scene.produce(2)
    scene.work()
    request = scene.ask(since="no moment at all")
    scene.produce(good=2)
    scene.work()
    found = Result.of(engine.table(scene.topic).properties, request)
    assert found is not None
    assert found.problem == "ValueError"
    assert engine.offsets(scene.topic) == [(0, 2), (0, 3)]


@pytest.mark.full
def test_the_command_is_answered_by_the_running_job_when_a_schema_was_made_to_fit(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene(engine)
    schema = versioned()
    foreign = engine.register(f"{scene.topic}-other", schema)
    row = engine.encode(scene.topic, trades(1)[0])
    for value in (b"\0" + foreign.to_bytes(4, "big") + row[5:], row, BAD):
        engine.send(scene.topic, value, partition=0)
    engine.flush()
    with running(scene.target(), monkeypatch) as job:
        assert engine.register(scene.topic, schema) == foreign
        settings = Table(scene.topic, scene.topic)
        monkeypatch.setattr("cli.act.requests.load_jobs", lambda *_, **__: (engine.job(settings),))
        asked = ["dead-letters", "redrive", scene.topic, "--yes", "--reason", "incompatible_schema"]
        done = CliRunner().invoke(app, asked)
        assert done.exit_code == 0, (done.output, done.exception)
        assert "in the table now: 1" in done.output
        asked = ["dead-letters", "list", scene.topic, "--output", "json"]
        shown = CliRunner().invoke(app, asked).stdout
        assert (json.loads(shown)["dead_letters"], json.loads(shown)["redriven"]) == (1, 1)
    assert job.state == "running"
    scene.sent = 3
    scene.assert_exact(dead={2})


@pytest.mark.full
def test_a_value_that_names_no_schema_comes_back_by_the_newest_and_is_proved_by_it(engine: Engine) -> None:
    source, topic = Source(prefix="none"), engine.topic(partitions=1, schema=bare())
    engine.send(topic, b"\x02x\x0a", partition=0)
    request = Request(uuid.uuid4().hex, "2026-01-01T00:00:00+00:00")
    for texts, value in (("", b"\x02"), ("b", b"\x02y\x06"), ("bc", b"\x02z\x02w\x08")):
        engine.register(topic, bare(*texts))
        engine.send(topic, value, partition=0)
        engine.flush()
        if texts == "b":
            engine.table(topic).set_properties({REDRIVE: request.to_json()})
        engine.drain(engine.target(topic, value=source))
    found = Result.of(engine.table(topic).properties, request.id)
    assert found is not None
    assert (found.redriven, found.refused) == (1, {})
    rows = engine.rows(topic).orderBy("_kafka.offset").select("a", "b", "c").collect()
    assert [tuple(each) for each in rows] == [(5, "x", None), (1, None, None), (3, "y", None), (4, "z", "w")]
    assert_proved(proof(engine, topic, value=source))


@pytest.mark.full
def test_letters_of_a_topic_that_was_made_again_keep_their_own_identity(engine: Engine) -> None:
    scene = Scene(engine)
    scene.produce(2)
    scene.work()
    engine.recreate(scene.topic)
    scene.produce(2, bad=1)
    engine.drain(scene.target(on_data_loss="continue"))
    scene.fix()
    request = scene.ask()
    engine.drain(scene.target(on_data_loss="continue"))
    found = scene.answer(request)
    assert (found.redriven, found.refused) == (4, {"bad_magic": 1})
    assert engine.offsets(scene.topic) == [(0, 0), (0, 0), (0, 1), (0, 1)]
    checked = proof(engine, scene.topic)
    assert checked.findings == ()
    assert [each.figures["rows"] for each in checked.checks if each.name == "earlier topic"] == [2]
