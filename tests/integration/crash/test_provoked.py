"""Each alarm on the log of a job goes off at what the job really writes in that trouble, and not before."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import cast

import pytest

from calve.config.job import Budget, Entry, Job, Kafka, Table
from calve.config.maintenance import Maintenance, RowRetention
from calve.config.publishing import Announce
from calve.outputs.announcement import COMMITTED, SUSPENDED, pattern
from calve.requests.requests import Pause
from calve.table.summary import PAUSED
from glue_jobs.ingest import main
from glue_jobs.maintain import Maintaining
from glue_jobs.rounds.loop import SILENT_S, TableLoop
from glue_jobs.rounds.reporting import LakeObject, Reporter
from tests.alarms import Point, goes_off, lines, mailed
from tests.integration.outputs.test_announcements import NOWHERE, Heard, hearing
from tests.integration.support.engine import Engine, at, until
from tests.integration.support.running import run

__all__ = ["hearing"]
HOUR_MS = 3_600_000
BACKLOG = 1_001
"""More records than `alerts.lag` of the deployment whose alarms these are."""


@pytest.fixture
def signals() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def drained(capsys: pytest.CaptureFixture[str], signals: None) -> Callable[..., str]:
    """Run the job as a program, in this process; its log."""

    def drain(job: Job, *options: str) -> str:
        capsys.readouterr()
        main(["--settings", job.to_json(), "--drain", *options])
        return capsys.readouterr().out

    return drain


def test_a_table_that_runs_well_sets_nothing_off(engine: Engine, drained: Callable[..., str]) -> None:
    topic = engine.topic(partitions=1)
    engine.produce(topic, 5)
    points = list(lines(drained(engine.job(Table(topic, topic)))))
    of_tables = ("state", "freshness", "lag", "lost", "paused", "silent")
    for each in ("failed", "dead-letters", "announcements", "topics-not-kept", "silent"):
        assert not goes_off(f"job-{each}", points), each
    for each in of_tables:
        assert not goes_off(f"table-{each}", points), each


def test_records_that_are_old_when_they_become_visible(engine: Engine, drained: Callable[..., str]) -> None:
    topic = engine.topic(partitions=1)
    value = engine.encode(topic, {"id": 1, "side": "BUY", "price": 1})
    engine.send(topic, value, at_ms=int(time.time() * 1000) - HOUR_MS)
    engine.flush()
    points = lines(drained(engine.job(Table(topic, topic))))
    assert goes_off("table-freshness", points)


def test_offsets_that_were_gone_before_they_were_read(engine: Engine, drained: Callable[..., str]) -> None:
    topic = engine.topic(partitions=1)
    table = Table(topic, topic, on_data_loss="continue")
    engine.produce(topic, 1)
    drained(engine.job(table))
    engine.produce(topic, 5)
    engine.expire(topic, 4)
    assert goes_off("table-lost", lines(drained(engine.job(table))))


def test_a_table_over_its_budget_and_one_with_dead_letters(
    engine: Engine, drained: Callable[..., str], hearing: Callable[..., Heard]
) -> None:
    strict, patient = engine.topic(partitions=1), engine.topic(partitions=1)
    for each in (strict, patient):
        engine.mixed(each, 3, bad=2)
    heard = hearing(pattern("tests", SUSPENDED))
    budget = Budget(share=0.0, records=1)
    tables = Table(strict, strict, dead_letter_budget=budget), Table(patient, patient)
    log = drained(engine.job(*tables), "--announce", "true")
    assert '"rejects_over_budget"' in log
    points = list(lines(log))
    assert goes_off("table-state", points)
    assert goes_off("job-dead-letters", points)
    (event,) = heard.look()
    as_deployed = event["detail"] | {"deployment": "trading"}
    assert as_deployed["table"] == strict
    assert mailed("table-stopped", event | {"detail": as_deployed})
    unanswered = as_deployed | {"code": "retries_exhausted"}
    assert not mailed("table-stopped", event | {"detail": unanswered})


def test_a_job_whose_secret_is_not_there(engine: Engine, drained: Callable[..., str]) -> None:
    topic = engine.topic(partitions=1)
    locked = Kafka("127.0.0.1:1", auth="sasl_plain", secret="env:ABSENT")
    assert goes_off("job-failed", lines(drained(engine.job(Table(topic, topic), kafka=locked))))


@pytest.mark.long
def test_a_bus_that_takes_no_announcement(
    engine: Engine, drained: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = engine.topic(partitions=1)
    engine.produce(topic, 3)
    monkeypatch.setenv("AWS_ENDPOINT_URL_EVENTBRIDGE", NOWHERE)
    log = drained(engine.job(Table(topic, topic)), "--announce", "true")
    assert goes_off("job-announcements", lines(log))


def test_a_topic_that_no_table_can_be_named_after(engine: Engine, drained: Callable[..., str]) -> None:
    prefix = engine.topic(partitions=1)
    for each in ("a-b", "a_b"):
        engine.create(f"{prefix}.{each}", partitions=1)
    found = Table(f"{prefix}_{{1}}", rf"{prefix}\.(.*)")
    job = engine.job(patterns=(found,), entries=(Entry(found.name, found.topic, pattern=True),))
    assert goes_off("job-topics-not-kept", lines(drained(job)))


def test_a_job_that_reads_more_slowly_than_others_write(engine: Engine, drained: Callable[..., str]) -> None:
    topic = engine.topic(partitions=1)
    engine.produce(topic, 3)

    def more(_: str) -> None:
        engine.produce(topic, BACKLOG)

    with at("stage.begin", more):
        log = drained(engine.job(Table(topic, topic)))
    assert goes_off("table-lag", lines(log))


@pytest.mark.long
def test_a_table_of_which_nothing_is_heard(engine: Engine, capsys: pytest.CaptureFixture[str]) -> None:
    """An idle one says that it is; one that waits for an open transaction cannot."""
    idle, held = engine.topic(partitions=1), engine.topic(partitions=1)
    stop = threading.Event()
    loops = [TableLoop(engine.target(each, freshness_s=1.0), stop, drain=False) for each in (idle, held)]
    job = engine.job(Table(idle, idle))
    reporter = Reporter(job, cast("LakeObject", None))

    def points() -> list[Point]:
        capsys.readouterr()
        reporter._log(loops)
        return list(lines(capsys.readouterr().out))

    with engine.transaction(held, [engine.encode(held, {"id": 1, "side": "BUY", "price": 1})]):
        threads = [threading.Thread(target=run, args=(each,)) for each in loops]
        for thread in threads:
            thread.start()
        try:
            until(lambda: all(each.state == "running" for each in loops))
            assert not goes_off("table-silent", points())
            for each in loops:  # a quarter of an hour is over, and what a loop may be quiet
                each.complete_until, each.heard_at = 0.0, each.heard_at - SILENT_S - 60
            until(lambda: not loops[0].silent)
            assert goes_off("table-silent", points())
        finally:
            stop.set()
            for thread in threads:
                thread.join(30)
    assert [each.silent for each in loops] == [False, False], "what is over owes nothing"


def test_a_job_whose_log_nobody_gets() -> None:
    assert goes_off("job-silent", lines(""))


def test_a_table_that_somebody_has_paused(engine: Engine, drained: Callable[..., str]) -> None:
    topic = engine.topic(partitions=1)
    engine.produce(topic, 3)
    table = Table(topic, topic)
    drained(engine.job(table))
    pause = Pause("p1", "2026-01-01T00:00:00+00:00", "ann")
    engine.table(topic).set_properties({PAUSED: pause.to_json()})
    points = list(lines(drained(engine.job(table))))
    assert goes_off("table-paused", points)
    assert not goes_off("table-silent", points)


def test_maintenance_that_cannot_be_done(engine: Engine, capsys: pytest.CaptureFixture[str]) -> None:
    topic = engine.topic(partitions=1)
    engine.ingest(topic, 3)
    kept = Maintenance(rows=RowRetention("no_such_column", 1.0))
    capsys.readouterr()
    Maintaining(engine.lake, threading.Event(), only="rows").all(
        engine.job(Table(topic, topic, maintenance=kept))
    )
    assert goes_off("job-maintenance-failed", lines(capsys.readouterr().out))


def test_a_row_that_somebody_must_hear_of(
    engine: Engine, drained: Callable[..., str], hearing: Callable[..., Heard]
) -> None:
    topic = engine.topic(partitions=1)
    engine.produce(topic, [{"id": 1, "side": "LOST", "price": 1}])
    heard = hearing(pattern("tests", COMMITTED))
    job = engine.job(Table(topic, topic, announce=Announce("side", ("LOST", "STOLEN"))))
    drained(job, "--announce", "true")
    (event,) = [
        each for each in heard.look() if each["detail"]["table"] == topic and each["detail"]["counts"]
    ]
    as_deployed = event["detail"] | {"deployment": "trading"}
    assert mailed("table-value", event | {"detail": as_deployed})
