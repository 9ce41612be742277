"""The maintenance job as it runs: over all tables of a job, by what is due, as a process, and as it is deployed."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from calve.config.job import Entry, Table
from calve.names import TableName
from cli.console import Console
from cli.run.jobs import run_deployed
from glue_jobs.maintain import Maintaining
from glue_jobs.maintenance.table_stats import tables_of
from tests.integration.support.deployed import deployment, destroy
from tests.integration.support.engine import Engine
from tests.integration.support.events import assert_as_documented
from tests.integration.support.proofs import assert_proved, proof


def test_what_is_due_is_found_in_the_tables_and_done(
    engine: Engine, capsys: pytest.CaptureFixture[str]
) -> None:
    topic = engine.topic(partitions=1)
    engine.ingest(topic, 5, 1)
    table = Table(name=topic, topic=topic)
    job = engine.job(table, Table(name="absent", topic="absent"))
    assert [(each, str(main.name)) for each, main in tables_of(job, engine.lake)] == [
        (table, f"tests.{topic}")
    ]
    head = engine.table(topic).head
    assert Maintaining(engine.lake, threading.Event()).all(job) == []
    assert Maintaining(engine.lake, threading.Event(), dry=True, only="manifests").all(job) == []
    assert engine.table(topic).head == head
    assert Maintaining(engine.lake, threading.Event(), only="manifests").all(job) == []
    lines = (json.loads(line) for line in capsys.readouterr().out.splitlines() if line.startswith("{"))
    events = [each for each in lines if each["event"].startswith("maintenance.")]
    assert [each["event"] for each in events] == [*("maintenance.due", "maintenance.due", "maintenance.done")]
    assert_as_documented(events)
    engine.ingest(topic, 5)
    assert_proved(proof(engine, topic))


def test_tables_of_patterns_are_known_by_what_they_were_made_for(engine: Engine) -> None:
    topic = engine.topic(partitions=1)
    engine.ingest(topic, 1)
    pattern = Table(name="{topic}", topic=f"{topic[:-1]}.")
    job = engine.job()
    job = replace(job, patterns=(pattern,), entries=(Entry(pattern.name, pattern.topic, pattern=True),))
    [(found, main)] = tables_of(job, engine.lake)
    assert (found.topic, found.pattern, main.name) == (topic, "{topic}", TableName("tests", topic))


@pytest.mark.full
def test_the_deployed_job_does_it(engine: Engine, tmp_path: Path) -> None:
    kept = deployment(engine, tmp_path, "upkept")
    kept.deploy()
    for _ in range(2):
        engine.produce(kept.topic, 20)
        assert run_deployed(engine.stack, kept.job, Console(), drain=True, memory="1g", quick=True) == 0
    before = kept.rows()
    assert (
        run_deployed(engine.stack, f"{kept.job}-maintenance", Console(), drain=False, memory="1g", quick=True)
        == 0
    )
    assert kept.rows() == before
    destroy(kept.app, kept.progress)
