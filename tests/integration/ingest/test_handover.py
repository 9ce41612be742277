"""A deploy names another generation: the running job finishes its rounds and ends, whatever else is out of order."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest

from calve import log
from calve.config.job import Job, Table
from cli.conditions import reported_by
from cli.embedded import aws
from glue_jobs import ingest
from glue_jobs.iceberg import storage
from glue_jobs.ingest import main
from glue_jobs.rounds import loop, reporting
from glue_jobs.rounds.reporting import LakeObject
from tests.integration.ingest.test_ingest_job import signals  # noqa: F401 a fixture
from tests.integration.support import rights
from tests.integration.support.engine import DATABASE, Engine, at, everything, until
from tests.integration.support.events import Event, assert_as_documented
from tests.integration.support.servers import outages

pytestmark = pytest.mark.usefixtures("signals")

Say = Callable[[str], None]


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reporting, "POLL_S", 0.2)


@pytest.fixture
def control(engine: Engine, request: pytest.FixtureRequest) -> tuple[str, Say]:
    """A control object of the test's own: its URI, and a way to write it."""
    key = f"tests/_calve/jobs/{request.node.name}.json"
    s3 = aws.client("s3", engine.stack.aws_endpoint)

    def say(body: str) -> None:
        s3.put_object(Bucket=engine.stack.bucket, Key=key, Body=body.encode())

    return f"s3://{engine.stack.bucket}/{key}", say


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of hand-over's events, as they are written."""
    names: list[str] = []
    write = log.event

    def noted(name: str, **facts: object) -> None:
        write(name, **facts)
        names.append(name)

    monkeypatch.setattr(reporting, "event", noted)
    return names


def run(job: Job, uri: str, capsys: pytest.CaptureFixture[str], *more: str) -> tuple[int, list[Event]]:
    """Run the program as generation g1; its exit code and its events."""
    capsys.readouterr()
    code = main(["--settings", job.to_json(), "--control", uri, "--generation", "g1", *more])
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert_as_documented(events)
    return code, events


def handed_over(events: list[Event]) -> list[str | None]:
    return [each["to"] for each in events if each["event"] == "job.handed_over"]


@pytest.mark.parametrize("named", ["g2", None])
def test_the_round_under_way_is_finished_first(
    named: str | None,
    engine: Engine,
    control: tuple[str, Say],
    seen: list[str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    uri, say = control
    say('{"generation": "g1"}')
    topic = engine.topic(partitions=1)
    engine.produce(topic, 20)

    def deploy(_: str) -> None:
        say(json.dumps({"generation": named}))
        until(lambda: seen)

    with at("stage.begin", deploy):
        code, events = run(engine.job(Table(name=topic, topic=topic)), uri, capsys)
    assert code == 0
    assert handed_over(events) == [named]
    assert events[-1]["states"] == {f"{DATABASE}.{topic}": "running"}
    assert engine.offsets(topic) == everything(20)


def test_a_suspended_table_does_not_make_the_old_run_a_failed_one(
    engine: Engine,
    control: tuple[str, Say],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    uri, say = control
    say('{"generation": "g1"}')
    unsupported = engine.topic(schema='"string"')
    with on_suspension(monkeypatch, lambda: say('{"generation": "g2"}')):
        code, events = run(engine.job(Table(name=unsupported, topic=unsupported)), uri, capsys)
    assert events[-1]["states"] == {f"{DATABASE}.{unsupported}": "suspended"}
    assert handed_over(events) == ["g2"]
    assert code == 0
    assert said(engine, unsupported) == ("g1", False)


def said(engine: Engine, topic: str) -> tuple[str | None, bool]:
    """The generation of the run that kept this topic's table, and whether it said that its tables are open."""
    status = reported_by(engine.job())
    run = status.runs[status.tables[topic].run]
    return run.generation, run.opened is not None


@contextmanager
def on_suspension(monkeypatch: pytest.MonkeyPatch, action: Callable[[], None]) -> Iterator[None]:
    write = log.event

    def noted(name: str, **facts: object) -> None:
        write(name, **facts)
        if facts.get("state") == "suspended":
            action()

    with monkeypatch.context() as patch:
        patch.setattr(loop, "event", noted)
        yield


def test_a_run_goes_on_while_its_own_generation_is_named(
    engine: Engine, control: tuple[str, Say], capsys: pytest.CaptureFixture[str]
) -> None:
    uri, say = control
    say('{"generation": "g1"}')
    topic = engine.topic(partitions=1)
    engine.produce(topic, 20)
    code, events = run(engine.job(Table(name=topic, topic=topic)), uri, capsys, "--drain", "true")
    assert code == 0
    assert handed_over(events) == []
    assert engine.offsets(topic) == everything(20)
    assert said(engine, topic) == ("g1", True)


def test_what_is_no_order_is_none(engine: Engine, control: tuple[str, Say]) -> None:
    uri, say = control
    object_ = LakeObject(engine.spark, uri)
    assert object_.read() is None
    for said in ("no JSON", "[]", ""):
        say(said)
        assert object_.read() is None
    say('{"generation": null}')
    assert object_.read() == {"generation": None}


def test_a_store_that_does_not_answer_is_asked_again(
    engine: Engine, control: tuple[str, Say], seen: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    uri, say = control
    say('{"generation": "g2"}')
    stop = threading.Event()
    reads: list[object] = []
    read = LakeObject.read

    def counted(self: LakeObject) -> object:
        reads.append(read(self))
        return reads[-1]

    monkeypatch.setattr(LakeObject, "read", counted)
    outages.pause(engine.stack, "aws")
    try:
        with monkeypatch.context() as patch:
            patch.setattr(reporting, "READ_TIMEOUT_MS", 500)
            reporting.watch(engine.spark, "main", uri, "g1", stop)
        until(lambda: len(reads) >= 2)
        assert not stop.is_set()
    finally:
        outages.resume(engine.stack, "aws")
    assert stop.wait(30)
    assert seen == ["job.handed_over"]


def test_a_run_that_may_not_write_data_files_ends_with_that_reason_before_its_tables(
    engine: Engine,
    control: tuple[str, Say],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    uri, say = control
    say('{"generation": "g1"}')
    topic = engine.topic(partitions=1)
    reader = rights.role(engine.stack, rights.allow("s3:GetObject", "*"))
    for name, value in aws.acting_as(reader, "lambda.amazonaws.com", engine.stack.aws_endpoint).items():
        monkeypatch.setenv(name, value)
    storage._credentials.cache_clear()
    try:
        code, events = run(engine.job(Table(name=topic, topic=topic)), uri, capsys)
    finally:
        storage._credentials.cache_clear()
    assert code == 1
    why = f"the driver of the job cannot write data files below {engine.job().lake.warehouse}: ACCESS_DENIED"
    assert events[-1]["reason"] == why
    assert "job.started" not in [each["event"] for each in events]
    assert why in [each.reason for each in reported_by(engine.job()).runs.values()]


def test_a_run_whose_topic_does_not_exist_says_that_it_is_ready(
    engine: Engine, control: tuple[str, Say], capsys: pytest.CaptureFixture[str]
) -> None:
    uri, say = control
    say('{"generation": "g1"}')
    name = f"later{uuid.uuid4().hex[:8]}"

    def deploy_when_ready() -> None:
        try:
            until(lambda: name in reported_by(engine.job()).tables and said(engine, name)[1], seconds=60)
        finally:
            say('{"generation": "g2"}')

    table = Table(name=name, topic=name)
    watcher = threading.Thread(target=deploy_when_ready)
    watcher.start()
    code, events = run(engine.job(table), uri, capsys)
    watcher.join()
    assert handed_over(events) == ["g2"]
    assert code == 0
    assert said(engine, name) == ("g1", True)


def test_a_run_ends_at_its_hour_of_the_week_for_another_to_begin(
    engine: Engine,
    control: tuple[str, Say],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    uri, say = control
    say('{"generation": "g1"}')
    topic = engine.topic(partitions=1)
    engine.produce(topic, 5)
    monkeypatch.setattr(ingest, "until", lambda *_: timedelta(seconds=8))
    rescue = threading.Timer(60, say, ['{"generation": "g2"}'])
    rescue.start()
    code, events = run(engine.job(Table(name=topic, topic=topic)), uri, capsys, "--restart-at", "Sun:3")
    rescue.cancel()
    assert code == 0
    assert handed_over(events) == []
    assert engine.offsets(topic) == everything(5)
