"""Release of a table: one commit leaves nothing of calve but rows and history, and no writer of calve commits after it."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from calve.errors import LostRace, Retryable, Suspended
from calve.modes.upsert import Upsert
from calve.names import TableName
from calve.requests.requests import Entry, Pause, Release
from calve.table.summary import PAUSED, POSITION_TAG, PREFIX, RELEASE, STATE, TURN
from cli.lake import open_catalog
from cli.main import app
from glue_jobs.rounds.round import Round
from glue_jobs.table.open_table import TableMemory
from tests.integration.support.crashing import Died, dying
from tests.integration.support.engine import DATABASE, Engine, at, everything, suspended
from tests.integration.support.running import running


def asked(engine: Engine, topic: str) -> Release:
    request = Release(uuid.uuid4().hex, "2026-01-01T00:00:00+00:00", "ann")
    engine.table(topic).set_properties({RELEASE: request.to_json()})
    return request


def document(output: str) -> dict[str, Any]:
    """The JSON document of a command beside the log of a job in this process, whose lines are JSON, too."""
    found: dict[str, Any] = json.JSONDecoder().raw_decode(output[output.index("{\n") :])[0]
    return found


def assert_clean(engine: Engine, topic: str) -> None:
    table = engine.table(topic)
    assert [each for each in table.properties if each.startswith(PREFIX)] == []
    assert set(table.refs()) == {"main"}


@pytest.mark.parametrize(
    "settings",
    [{}, pytest.param({"upsert": Upsert(("id",))}, marks=pytest.mark.long)],
    ids=["append", "upsert"],
)
def test_a_released_table_has_its_rows_and_another_writer_goes_on(
    engine: Engine, settings: dict[str, Any]
) -> None:
    topic = engine.topic(partitions=2)
    engine.produce(topic, 10)
    engine.drain(engine.target(topic, **settings))
    engine.table(topic).set_tag(POSITION_TAG, engine.table(topic).head or 0)
    before = sorted(map(str, engine.rows(topic).collect()))
    asked(engine, topic)
    engine.produce(topic, 10)
    target = engine.target(topic, **settings)
    with suspended("not_ours") as caught:
        engine.drain(target)
    assert "released by ann" in str(caught.value)
    assert_clean(engine, topic)
    assert sorted(map(str, engine.rows(topic).collect())) == before
    for again in (target, engine.target(topic, **settings)):  # the job that did it, and another one
        with suspended("not_ours"):
            engine.drain(again)
    assert_clean(engine, topic)
    catalog = open_catalog(engine.job().lake)
    foreign = catalog.load_table((DATABASE, topic))
    kinds = pa.schema([foreign.schema().as_arrow().field("id")])
    foreign.append(pa.Table.from_pylist([{"id": 77}], kinds))
    assert engine.rows(topic).count() == len(before) + 1


@pytest.mark.parametrize("point", ["requests.begin", "table.released"])
def test_a_job_that_dies_has_released_the_table_or_does_it_afterwards(engine: Engine, point: str) -> None:
    topic = engine.topic(partitions=1)
    engine.produce(topic, 5)
    engine.drain(engine.target(topic))
    asked(engine, topic)
    engine.produce(topic, 5)
    with dying(point), pytest.raises(Died):
        engine.drain(engine.target(topic))
    for _ in range(2):
        with suspended("not_ours"):
            engine.drain(engine.target(topic))
    assert_clean(engine, topic)
    assert engine.offsets(topic) == everything(5)


@pytest.mark.parametrize("point", ["stage.end", "publish.begin"])
def test_a_round_of_another_job_that_is_under_way_is_not_published(engine: Engine, point: str) -> None:
    topic = engine.topic(partitions=1)
    engine.produce(topic, 5)
    engine.drain(engine.target(topic))
    engine.produce(topic, 5)
    rival = engine.target(topic)

    def give_up(_table: str) -> None:
        asked(engine, topic)
        with suspended("not_ours"):
            Round(engine.target(topic), TableMemory()).run()

    with at(point, give_up), pytest.raises((LostRace, Suspended)):
        engine.drain(rival)
    with suspended("not_ours"):
        engine.drain(rival)
    assert_clean(engine, topic)
    assert engine.offsets(topic) == everything(5)


def test_a_round_that_was_faster_is_not_lost(engine: Engine) -> None:
    topic = engine.topic(partitions=1)
    engine.produce(topic, 5)
    engine.drain(engine.target(topic))
    asked(engine, topic)

    def publish(_table: str) -> None:
        engine.table(topic).set_properties({}, remove=[RELEASE])
        engine.produce(topic, 5)
        engine.drain(engine.target(topic))

    with at("recover.end", publish), pytest.raises((LostRace, Retryable)):
        Round(engine.target(topic), TableMemory()).run()
    assert engine.offsets(topic) == everything(10)
    assert engine.table(topic).properties["calve.initialised"] == "true"


def test_a_table_is_not_released_while_its_maintenance_is_at_work(engine: Engine) -> None:
    topic = engine.topic(partitions=1)
    engine.produce(topic, 5)
    engine.drain(engine.target(topic))
    engine.table(topic).set_properties({TURN: "compact"})
    request = asked(engine, topic)
    engine.produce(topic, 5)
    engine.drain(engine.target(topic))
    properties = engine.table(topic).properties
    answer = Entry.of(properties, request.id)
    assert answer is not None
    assert TURN in str(answer.problem)
    assert RELEASE not in properties
    assert engine.offsets(topic) == everything(10)


@pytest.mark.long
def test_the_command_says_where_another_writer_goes_on(
    engine: Engine, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = engine.topic(partitions=2)
    engine.produce(topic, 7)
    file = tmp_path / "calve.yaml"
    file.write_text(f"name: tests\nlake: {{database: {DATABASE}}}\ntables: {{{topic}: {{topic: {topic}}}}}\n")
    pause = Pause("p", "2026-01-01T00:00:00+00:00", "ann")
    monkeypatch.setenv("CALVE_CONFIG", str(file))
    with running(engine.target(topic), monkeypatch) as job:
        engine.table(topic).set_properties({PAUSED: pause.to_json()})
        arguments = ["release", topic, "--config", str(file), "-o", "json"]
        refused = CliRunner().invoke(app, arguments)
        assert refused.exit_code != 0
        assert "consent" in str(refused.exception)
        done = CliRunner().invoke(app, [*arguments, "--yes"])
        assert done.exit_code == 0, done.output
        found = document(done.stdout)
        assert job.opener.name == TableName(DATABASE, topic)
    assert found["offsets"] == {str(p): end for p, end in engine.cluster.state(topic).end.items()}
    assert sum(found["offsets"].values()) == 7
    assert (found["topic"], found["table"]) == (topic, f"{DATABASE}.{topic}")
    assert found["snapshot"] == str(engine.table(topic).head)
    assert_clean(engine, topic)
    assert STATE not in engine.table(topic).properties
