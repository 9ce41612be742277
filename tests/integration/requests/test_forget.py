"""A person is forgotten: no byte of theirs is left, everybody else's is there, whoever dies meanwhile; and `verify` agrees."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from calve.config.publishing import Emit
from calve.config.steps import Flatten
from calve.modes.history import History
from calve.modes.upsert import Deduplicate, Upsert
from calve.requests.forget import Condition, Entry, Request
from calve.table.summary import FORGET, FORGET_FOUND, FORGET_LEFT, FORGOTTEN
from cli.main import app
from glue_jobs.rounds.loop import TableLoop
from tests.integration.outputs.test_emit import output, places, records
from tests.integration.support.crashing import OF_FORGET, Died, dying
from tests.integration.support.engine import Engine, at
from tests.integration.support.proofs import assert_proved, proof
from tests.integration.support.records.database import BY_RECORD_KEY, KEPT, Database
from tests.integration.support.records.persons import MASK, Scene
from tests.integration.support.records.planted import Planted, Search
from tests.integration.support.running import run, running
from tests.integration.support.stored import catalogued, objects

UPSERTS = Upsert(("_kafka.key",), deletes=True, bucketed=True)
KINDS: dict[str, tuple[dict[str, Any], Callable[[Scene], dict[str, str]]]] = {
    "append": ({"steps": (Flatten(),)}, lambda scene: {"contact_phone": scene.persons[0].phone}),
    "masked": ({"steps": (MASK, Flatten())}, lambda scene: {"email": scene.persons[0].email}),
    "upsert": ({"upsert": UPSERTS}, lambda scene: {"_kafka.key": scene.persons[0].key}),
    "upsert of format 3": (
        {"upsert": UPSERTS, "format_version": 3},
        lambda scene: {"_kafka.key": scene.persons[0].key},
    ),
    "deduplicate": (
        {"deduplicate": Deduplicate(("email",))},
        lambda scene: {"email": scene.persons[0].email},
    ),
}
FULL = ("masked", "upsert", "upsert of format 3", "deduplicate")


def of_first(places: dict[str, set[str]]) -> dict[str, set[str]]:
    return {place: names for place, names in places.items() if place.startswith("0:")}


@pytest.mark.parametrize(
    "kind",
    [pytest.param(each, marks=pytest.mark.full if each in FULL else pytest.mark.long) for each in KINDS],
)
def test_no_byte_of_a_forgotten_person_is_left_and_every_other_is(
    engine: Engine, tmp_path: Path, capfd: pytest.CaptureFixture[str], kind: str
) -> None:
    settings, identified_by = KINDS[kind]
    scene = Scene(engine, tmp_path, settings)
    for _ in range(2):
        scene.round()
    if "upsert" in settings:
        scene.send(1, None)
        scene.send(0, None)
        scene.round(0)
    scene.export()
    engine.register(scene.topic, scene.later)
    before, rows, letters = scene.found(), scene.rows(), scene.letters()
    assert {"0: key", "0: token" if "masked" in kind else "0: email"} <= of_first(before).keys()
    assert scene.manifests() == ["2026-03-02_2026-03-03", "2026-03-03_2026-03-04"]
    own = [each for each in rows if scene.persons[0].key in each]

    request = scene.ask(**identified_by(scene))
    scene.work()

    entry = scene.answer(request)
    versions = 3 if "upsert" in settings else 2
    assert (entry.rows, entry.letters, entry.problem) == (len(own), 3 * versions, None)
    said = capfd.readouterr()
    after = scene.found(said.out, said.err)
    assert of_first(after) == {}
    assert {place for place in before if place not in of_first(before)} - after.keys() <= exported(
        scene, before
    )
    assert scene.rows() == [each for each in rows if each not in own]
    assert len(scene.letters()) == len(letters) - 3 * versions
    assert set(scene.letters()) <= set(letters)
    assert scene.manifests() == ([] if "upsert" in settings else ["2026-03-03_2026-03-04"])
    properties = engine.table(scene.topic).properties
    assert {FORGET, FORGET_FOUND, FORGET_LEFT}.isdisjoint(properties)
    assert FORGOTTEN in properties
    assert_proved(scene.proof())

    if "upsert" not in settings:
        back = scene.redrive()
        rows_now = 2 if "deduplicate" in settings else 4 * versions
        assert (back.redriven + back.present, len(scene.rows())) == (2 * versions, rows_now), back
    scene.round(1, 2)
    assert_proved(scene.proof())
    engine.sql(f"DELETE FROM {{t}} WHERE _kafka.key = CAST('{scene.persons[2].key}' AS BINARY)", scene.topic)
    assert scene.proof().findings


@pytest.mark.parametrize(
    "kind", [pytest.param("append", marks=pytest.mark.long), pytest.param("masked", marks=pytest.mark.full)]
)
def test_many_persons_are_forgotten_in_one_pass(engine: Engine, tmp_path: Path, kind: str) -> None:
    """One of them is in no row. Short values are compared with whole keys, each by itself."""
    settings, _ = KINDS[kind]
    scene = Scene(engine, tmp_path, settings, count=5)
    scene.round()
    before = scene.found()
    gone, left = scene.persons[:3], scene.persons[3:]
    request = scene.ask_for(Condition("email", gone[0].email, (gone[1].email, "a@b", gone[2].email)))
    scene.work()
    entry = scene.answer(request)
    assert (entry.persons, entry.rows, entry.letters, entry.problem) == (4, 3, 9, None)
    after, mine = scene.found(), ("0: ", "1: ", "2: ")
    assert not [place for place in after if place.startswith(mine)]
    assert {place for place in before if not place.startswith(mine)} <= after.keys()
    assert len(scene.rows()) == len(left)
    assert len(scene.letters()) == 3 * len(left)
    assert_proved(scene.proof())


OF_CHANGES: dict[str, dict[str, Any]] = {
    "change_data": {"change_data": BY_RECORD_KEY},
    "deleted rows kept": {"change_data": KEPT},
    "history": {"history": History(("_kafka.key",), changes=True, bucketed=True)},
}


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(each, marks=pytest.mark.long if each == "history" else pytest.mark.full)
        for each in OF_CHANGES
    ],
)
def test_no_byte_of_a_row_of_a_database_is_left(engine: Engine, kind: str) -> None:
    """Of rows that changed, that updates left values out of, and that were deleted; every other row is as it was."""
    database, planted = Database(engine, full=True), Planted()

    def search() -> set[str]:
        found = Search(planted)
        kept = (
            *objects(engine, lambda each: database.topic in each["Key"]),
            *catalogued(engine, database.topic),
        )
        return {place for name, data in kept for place in found.found(name, data)}

    def rows() -> list[str]:
        return sorted(str(each) for each in engine.rows(database.topic).where("id <> 0").collect())

    target = engine.target(database.topic, **OF_CHANGES[kind])
    for key in range(4):
        texts = {each: planted.text(f"{key}: {each}") for each in ("name", "note")}
        database.insert(key, **texts, tags=[planted.text(f"{key}: tags")])
    engine.flush()
    engine.drain(target)
    for key in (0, 1):
        database.update(key, name=planted.text(f"{key}: name now"))
    engine.flush()
    engine.drain(target)
    for key in (0, 2):
        database.delete(key)
    database.insert(0, name=planted.text("0: name again"), note=None)
    engine.flush()
    engine.drain(target)
    before, others = search(), rows()
    assert {"0: name", "0: note", "0: tags", "0: name now", "0: name again", "1: note"} <= before

    request = Request(uuid.uuid4().hex, "2026-05-01T00:00:00+00:00", (Condition("id", "0"),))
    engine.table(database.topic).set_properties({FORGET: request.to_json()})
    engine.drain(target)

    entry = Entry.of(engine.table(database.topic).properties, request.id)
    assert entry is not None
    assert (entry.problem, entry.rows > 0) == (None, True)
    after = search()
    assert not [place for place in after if place.startswith("0: ")]
    assert {"1: name now", "1: note", "1: tags", "3: name", "3: note", "3: tags"} <= after
    assert rows() == others
    assert_proved(proof(engine, database.topic))


def exported(scene: Scene, places: dict[str, set[str]]) -> set[str]:
    """Values that were in exports alone."""
    return {place for place, names in places.items() if all("/exports/" in each for each in names)}


ONCE = ("forget.noted", "forget.exported", "forget.completed", "forget.cleared")
CRITICAL = (("forget.committed", 1), ("forget.fenced", 2))
EVERY = tuple((point, nth) for point in OF_FORGET for nth in (1, 2) if nth == 1 or point not in ONCE)
"""Those of the table come first, those of its dead letters second."""


@pytest.mark.parametrize(
    "deaths",
    [
        pytest.param(CRITICAL, id="critical", marks=pytest.mark.long),
        pytest.param(EVERY, id="all", marks=pytest.mark.full),
    ],
)
def test_a_job_that_died_forgetting_is_finished_by_the_next(
    engine: Engine, tmp_path: Path, deaths: tuple[tuple[str, int], ...]
) -> None:
    scene = Scene(engine, tmp_path, {}, count=len(deaths) + 1)
    scene.round()
    scene.produce()
    with dying("reject.end"), pytest.raises(Died):  # what it staged and held is left behind
        scene.work()
    scene.work()
    scene.export()
    for number, (point, nth) in enumerate(deaths):
        request = scene.ask(email=scene.persons[number].email)
        with dying(point, nth), pytest.raises(Died):
            scene.work()
        scene.work()
        entry = scene.answer(request)
        assert (entry.rows, entry.letters, entry.exports) == (2, 6, number in (0, 2)), (point, nth)
        gone = tuple(f"{each}:" for each in range(number + 1))
        assert [each for each in scene.found() if each.startswith(gone)] == [], (point, nth)
    assert len(scene.rows()) == 2
    assert_proved(scene.proof())


@pytest.mark.long
def test_what_cannot_be_done_is_answered_and_leaves_nothing_of_the_request(
    engine: Engine, tmp_path: Path
) -> None:
    scene = Scene(engine, tmp_path, {})
    scene.round()
    wanted = {"email": scene.planted.email("asked: email")}
    for column, value, why in (
        ("nobody", wanted["email"], "the table has no column nobody"),
        ("contact", wanted["email"], "contact is a struct"),
    ):
        assert why in str(scene.answer(scene.asked(column, value)).problem)
    engine.sql("ALTER TABLE {t} CREATE TAG audit", scene.topic)
    assert "branches or tags keep snapshots" in str(
        scene.answer(scene.asked("email", wanted["email"])).problem
    )
    assert "asked: email" not in scene.found()
    engine.sql("ALTER TABLE {t} DROP TAG audit", scene.topic)
    entry = scene.answer(scene.asked("email", wanted["email"]))
    assert (entry.rows, entry.letters, entry.problem) == (0, 0, None)
    assert "asked: email" not in scene.found()
    assert len(scene.rows()) == 3
    engine.compact(scene.topic)
    assert "has compacted" in str(scene.answer(scene.asked("email", wanted["email"])).problem)
    assert "asked: email" not in scene.found()
    assert_proved(scene.proof())


@pytest.mark.full
def test_the_command_is_answered_by_the_running_job(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene(engine, tmp_path, {"steps": (MASK, Flatten())})
    scene.round()
    jobs = (engine.job(scene.table, masking=scene.masking),)
    monkeypatch.setattr("cli.act.requests.load_jobs", lambda *_, **__: jobs)
    with running(scene.target(), monkeypatch) as job:
        email = f"email={scene.persons[0].email}"
        done = CliRunner().invoke(app, ["forget", scene.topic, "--key", email, "--yes"])
    assert done.exit_code == 0, (done.output, done.exception)
    for figure in ("rows: 1", "dead letters: 3", "exports deleted: 0"):
        assert figure in done.output
    assert of_first(scene.found(done.output)) == {}
    assert (job.state, len(scene.rows())) == ("running", 2)
    assert_proved(scene.proof())


RIVALS = ("stage.begin", "stage.end", "reject.staged", "reject.end", "publish.begin")


@pytest.mark.full
@pytest.mark.parametrize(
    "point", [pytest.param(each, marks=[] if each == "reject.end" else pytest.mark.full) for each in RIVALS]
)
def test_a_rival_that_stood_still_meanwhile_has_lost_and_does_no_harm(
    engine: Engine, tmp_path: Path, point: str
) -> None:
    scene = Scene(engine, tmp_path, {})
    scene.round()
    scene.produce(1)

    def other(_: str) -> None:
        """Forgets, and publishes nothing else that the rival could lose against."""
        scene.ask(email=scene.persons[0].email)
        with dying("requests.end"), pytest.raises(Died):
            scene.work()

    with at(point, other):
        run(TableLoop(scene.target(), threading.Event(), drain=True))
    scene.work()
    assert of_first(scene.found()) == {}
    assert len(scene.rows()) == 3
    assert_proved(scene.proof())


@pytest.mark.full
def test_rows_that_stay_are_not_emitted_a_second_time(engine: Engine, tmp_path: Path) -> None:
    topic = output()
    scene = Scene(engine, tmp_path, {"emit": Emit(topic)})
    scene.round()
    scene.ask(email=scene.persons[0].email)
    with dying("forget.committed"), pytest.raises(Died):
        scene.work()
    scene.work()
    scene.round(1)
    assert places(records(engine, topic)) == [(0, 0), (0, 4), (0, 8), (0, 12)]
    assert len(scene.rows()) == 3
