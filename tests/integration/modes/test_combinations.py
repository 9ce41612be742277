"""Each cell of the table in docs/modes.md: every option and request in every mode works, or is refused with its reason."""

from __future__ import annotations

import json
import threading
import uuid
from dataclasses import replace
from typing import Any

import pytest

from calve.config.job import Budget, Start, Table
from calve.config.steps import Lookup
from calve.requests import forget, redrive, requests, time_travel
from calve.table.summary import BACKFILL, FORGET, REDRIVE, REDRIVE_RESULT, TRAVEL
from cli.lake import open_catalog
from cli.progress import LineProgress
from cli.verify.topic import Sources
from cli.verify.verification import verify
from glue_jobs.ingest import openers_of, run
from tests.combinations import MODES, OPTIONS, document, job_of, refusal, switched, table_of
from tests.debezium import around, event
from tests.integration.outputs.test_emit import records
from tests.integration.steps.test_masked_tables import masking
from tests.integration.support.engine import Engine, suspended
from tests.integration.support.proofs import assert_proved

__all__ = ["masking"]
pytestmark = pytest.mark.long


def in_modes(*usual: str) -> pytest.MarkDecorator:
    """A test of each mode; those that are not usual are run in `make test-full`."""
    full = {each: () if each in usual else (pytest.mark.full,) for each in MODES}
    return pytest.mark.parametrize("mode", [pytest.param(each, marks=marks) for each, marks in full.items()])


AT = "2026-01-01T00:00:00+00:00"
ROW: dict[str, Any] = {
    "type": "record",
    "name": "Row",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "size", "type": "long"},
        {"name": "name", "type": "string"},
        {"name": "made", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "of", "type": {"type": "record", "name": "Of", "fields": [{"name": "x", "type": "int"}]}},
    ],
}


def row(number: int, size: int) -> dict[str, Any]:
    made = 1_760_000_000_000_000 + size
    return {
        "id": number,
        "size": size,
        "name": f"n{size}",
        "made": made,
        "tags": ["a", "b"],
        "of": {"x": size},
    }


class Scene:
    """A topic of a mode, and its records: the second batch has the keys of the first, and some more."""

    def __init__(self, engine: Engine, mode: str) -> None:
        self.engine, self.changes, self.sent = engine, "change_data" in json.dumps(MODES[mode]), 0
        self.topic = engine.topic(schema=json.dumps(around(ROW) if self.changes else ROW), partitions=1)

    def produce(self, topic: str | None = None, *, bad: bool = True) -> None:
        """Produce five records and, if `bad`, one that nobody can decode."""
        for number in (1, 2, 3, 4, 2):
            self.sent += 1
            value: Any = row(number + self.sent // 20, self.sent)
            if self.changes:
                value = event("c" if self.sent < 5 else "u", after=value, lsn=self.sent)
            self.engine.send(topic or self.topic, self.engine.encode(self.topic, value), key=b"%d" % number)
        if bad:
            self.engine.send(topic or self.topic, b"\x01no magic byte", key=b"9")
        self.engine.flush()

    def table(self, mode: str, option: str, masking: str, lookup: str = "") -> Table:
        """That of the combination, reading the scene's topic."""
        table = job_of(document(MODES[mode], OPTIONS.get(option, {}), masking=masking)).tables[0]
        name = f"{self.topic}_{len(option)}_{uuid.uuid4().hex[:4]}"
        steps = tuple(
            replace(each, table=lookup) if isinstance(each, Lookup) else each for each in table.steps
        )
        emit = table.emit and replace(table.emit, topic=f"{name}_emitted")
        return replace(
            table,
            name=name,
            topic=self.topic,
            steps=steps,
            emit=emit,
            pattern=None,
            dead_letter_budget=Budget(records=10**6),
            freshness_s=1.0,
        )


@in_modes("`upsert`", "`change_data`")
def test_what_combines_with_a_mode_makes_a_table_that_is_proved(
    engine: Engine, masking: str, mode: str
) -> None:
    """`topics` gives its tables the same settings: tests/integration/ingest/test_topics.py."""
    others, scene = Scene(engine, "append"), Scene(engine, mode)
    for number in range(1, 5):
        engine.send(others.topic, engine.encode(others.topic, row(number, number)))
    engine.flush()
    engine.drain(engine.target(others.topic))
    allowed = [each for each in OPTIONS if refusal(MODES[mode], OPTIONS[each]) is None and each != "`topics`"]
    assert len(allowed) >= 5
    tables = {each: scene.table(mode, each, masking, others.topic) for each in allowed}
    job = engine.job(*tables.values(), masking=masking)
    for _ in range(2):
        scene.produce()
        states = dict(run(job, drain=True, stop=threading.Event()))
        assert set(states.values()) == {"running"}
    catalog = open_catalog(job.lake)
    for option, table in tables.items():
        found = verify(job.table_name(table), Sources.of(catalog, job, table), LineProgress(lambda _: None))
        assert found.ok, (option, found.findings)
        assert_proved(found)
        assert engine.rows(table.name).count() > 0, option
        if table.emit:
            assert records(engine, table.emit.topic)


def ask(engine: Engine, table: str, name: str, request: Any) -> Any:
    engine.table(table).set_properties({name: request.to_json()})
    return request


@in_modes("`upsert`", "`change_data`")
def test_what_is_asked_of_a_table_of_a_mode_is_done_or_refused_with_its_reason(
    engine: Engine, masking: str, mode: str
) -> None:
    scene = Scene(engine, mode)
    table = scene.table(mode, "", masking)
    job, kind = engine.job(table), table_of(mode).mode

    def work() -> Any:
        [target] = openers_of(job, engine.lake, engine.cluster)
        engine.drain(target)
        return engine.table(table.name).properties

    scene.produce()
    work()
    first = engine.table(table.name).head
    scene.produce()
    work()

    asked = ask(engine, table.name, REDRIVE, redrive.Request(uuid.uuid4().hex, AT))
    answer = redrive.Result.of(work(), asked.id)
    assert answer is not None
    assert (answer.problem, answer.refused) == (None, {"bad_magic": 2})

    ends = (Start("offsets", offsets={0: each}) for each in (0, 3))
    asked = ask(engine, table.name, BACKFILL, time_travel.BackfillRequest(uuid.uuid4().hex, AT, "ann", *ends))
    done = requests.Entry.of(work(), asked.id)
    assert done is not None
    assert done.problem == kind.cannot_backfill

    travel = time_travel.RollbackRequest(uuid.uuid4().hex, AT, "ann", "rollback", first or 0)
    asked = ask(engine, table.name, TRAVEL, travel)
    done = requests.Entry.of(work(), asked.id)
    assert done is not None
    assert done.problem is None
    work()

    where = (forget.Condition("id", "3"),)
    asked = ask(engine, table.name, FORGET, forget.Request(uuid.uuid4().hex, AT, where))
    gone = forget.Entry.of(work(), asked.id)
    assert gone is not None
    assert gone.problem == kind.cannot_forget
    assert (gone.rows > 0) == (kind.cannot_forget is None)
    assert {REDRIVE_RESULT} <= set(engine.table(table.name).properties)
    found = verify(
        job.table_name(table), Sources.of(open_catalog(job.lake), job, table), LineProgress(lambda _: None)
    )
    assert found.findings == ()


@pytest.mark.parametrize("to", ["append", "`upsert`", pytest.param("`history`", marks=pytest.mark.full)])
@in_modes("append", "`upsert`", "`change_data`")
def test_a_table_becomes_one_of_another_mode_or_is_suspended(
    engine: Engine, masking: str, mode: str, to: str
) -> None:
    scene = Scene(engine, mode)
    table = scene.table(mode, "", masking)
    scene.produce()

    def drain(taken: Table) -> None:
        [target] = openers_of(engine.job(taken), engine.lake, engine.cluster)
        engine.drain(target)

    drain(table)
    wanted = table_of(to)
    none: dict[str, Any] = dict.fromkeys(("change_data", "deduplicate", "aggregate"))
    other = replace(table, upsert=wanted.upsert, history=wanted.history, **none)
    if mode == to or switched(mode, to) is None:
        drain(other)
        return
    before = engine.table(table.name).schema
    with suspended("mode_changed"):
        drain(other)
    assert engine.table(table.name).schema == before
