"""A table says until when it is complete, in its commits or in a note, and never says more than what is in it."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from calve.config.spark_conf import CATALOG
from calve.table.protocol import complete_until
from calve.table.summary import COMPLETE_ROUND, COMPLETE_UNTIL
from glue_jobs.process import faults
from glue_jobs.rounds.loop import NOTE_EVERY_S, TableLoop
from glue_jobs.rounds.round import Round
from glue_jobs.table.open_table import TableMemory
from glue_jobs.table.opening import Opener
from tests.integration.support.engine import DATABASE, Engine, at, everything, position_of_open, trades
from tests.integration.support.running import run


def claim(target: Opener) -> float | None:
    """What the newest commit of main says."""
    target.opened.main.refresh()
    summary = next(iter(target.opened.main.ancestors())).summary
    found: float | None = json.loads(summary["calve.metrics"]).get("complete_until")
    return found


def known(engine: Engine, topic: str) -> float | None:
    """What a reader of the table knows."""
    target = engine.target(topic)
    target.open()
    return complete_until(target.opened.main.ancestors(), target.opened.main.properties)


@contextmanager
def noted() -> Iterator[list[str]]:
    """The tables that were given a note."""
    seen: list[str] = []
    faults.handlers["idle.noted"] = seen.append
    try:
        yield seen
    finally:
        del faults.handlers["idle.noted"]


def loop_of(target: Opener, *, drain: bool = False) -> TableLoop:
    return TableLoop(target, threading.Event(), drain=drain)


def encoded(engine: Engine, topic: str, count: int) -> list[bytes]:
    return [engine.encode(topic, row) for row in trades(count)]


def test_a_round_that_reads_everything_claims_the_moment_before_it_asked(engine: Engine) -> None:
    topic = engine.topic()
    engine.produce(topic, 10)
    target = engine.target(topic)
    asked: list[float] = []

    def late(_: str) -> None:
        asked.append(time.time())
        engine.produce(topic, 5)

    before = time.time()
    with at("plan.end", late):
        engine.round(target)
    first = claim(target)
    assert first is not None
    assert before - 0.001 <= first < asked[0]
    engine.round(target)
    second = claim(target)
    assert second is not None
    assert second > asked[0]
    assert known(engine, topic) == second


def test_a_round_that_its_budget_cut_claims_nothing(engine: Engine) -> None:
    topic = engine.topic(partitions=1)
    engine.produce(topic, 100)
    target, memory = engine.target(topic, flush_bytes=50), TableMemory(bytes_per_record=1.0)
    outcome = Round(target, memory).run()
    assert (outcome.more, outcome.complete_until, claim(target)) == (True, None, None)
    engine.drain(engine.target(topic))
    assert claim(target) is not None


def test_nothing_is_claimed_while_a_transaction_is_open(engine: Engine) -> None:
    topic = engine.topic(partitions=2)
    engine.produce(topic, 10)
    target = engine.target(topic)
    memory = TableMemory()
    with engine.transaction(topic, encoded(engine, topic, 3), partition=1) as producer:
        (outcome,) = engine.drain(target, memory=memory)
        assert (outcome.complete_until, claim(target)) == (None, None)
        idle = Round(target, memory).run()
        assert (idle.snapshot, idle.more, idle.complete_until) == (None, False, None)
        loop = loop_of(target, drain=True)
        with noted() as tables:
            loop._work()
        assert (tables, known(engine, topic)) == ([], None)
        producer.commit_transaction(30)
        committed = time.time()
    engine.drain(target, memory=memory)
    assert (claim(target) or 0) > committed
    assert len(engine.offsets(topic)) == 13


@pytest.mark.full
def test_an_aborted_transaction_is_no_obstacle(engine: Engine) -> None:
    topic = engine.topic(partitions=1)
    target, memory = engine.target(topic), TableMemory()
    engine.produce(topic, 3)
    engine.drain(target, memory=memory)
    with engine.transaction(topic, encoded(engine, topic, 3)):
        pass
    ended = time.time()
    outcome = engine.drain(target, memory=memory)[-1]
    assert outcome.snapshot is None
    assert (outcome.complete_until or 0) > ended


def test_an_idle_table_is_noted_every_five_minutes_and_not_right_after_a_commit(engine: Engine) -> None:
    topic = engine.topic()
    engine.produce(topic, 10)
    target = engine.target(topic)
    loop = loop_of(target)
    with noted() as tables:
        for _ in range(3):
            loop._work()
        assert tables == []
        loop.complete_until -= NOTE_EVERY_S
        began = time.time()
        for _ in range(3):
            loop._work()
        assert tables == [topic]
    assert (known(engine, topic) or 0) >= began - 0.001
    target.opened.main.refresh()
    assert target.opened.main.properties[COMPLETE_ROUND] == position_of_open(target.opened).round
    assert float(target.opened.main.properties[COMPLETE_UNTIL]) == known(engine, topic)


@pytest.mark.full
def test_an_idle_table_is_noted_at_once_by_a_job_that_starts(engine: Engine) -> None:
    topic = engine.topic()
    engine.produce(topic, 10)
    engine.drain(engine.target(topic))
    with noted() as tables:
        loop_of(engine.target(topic))._work()
    assert tables == [topic]


def test_a_drain_ends_with_a_note(engine: Engine) -> None:
    topic = engine.topic()
    engine.produce(topic, 10)
    for _ in range(2):
        began = time.time()
        assert run(loop_of(engine.target(topic), drain=True)) == "running"
        assert (known(engine, topic) or 0) >= began - 0.001


@pytest.mark.full
def test_a_drain_of_a_busy_topic_is_complete_until_its_begin(engine: Engine) -> None:
    """Its last round reads what the topic held at the begin, and leaves what has come since."""
    topic = engine.topic(partitions=1)
    engine.produce(topic, 10)
    loop = loop_of(engine.target(topic, flush_bytes=10), drain=True)
    loop.memory.bytes_per_record = 1.0
    began = time.time()
    with at("plan.begin", lambda _: engine.produce(topic, 10)):
        assert run(loop) == "running"
    ended = time.time()
    assert engine.offsets(topic) == everything(10)
    until = known(engine, topic)
    assert until is not None
    assert began - 0.001 <= until < ended
    assert until == loop.drain_until


def test_a_rollback_takes_the_note_back(engine: Engine) -> None:
    topic = engine.topic(partitions=1)
    first = engine.ingest(topic, 5)
    before = known(engine, topic)
    engine.produce(topic, 5)
    run(loop_of(engine.target(topic), drain=True))
    after = known(engine, topic)
    assert before is not None
    assert after is not None
    assert before < after
    where = f"table => '{DATABASE}.{topic}', snapshot_id => {first}"
    engine.spark.sql(f"CALL {CATALOG}.system.rollback_to_snapshot({where})")
    assert known(engine, topic) == before


@pytest.mark.full
def test_a_compaction_leaves_what_is_known(engine: Engine) -> None:
    topic = engine.topic(partitions=1)
    engine.ingest(topic, 5)
    run(loop_of(engine.target(topic), drain=True))
    before = known(engine, topic)
    engine.compact(topic)
    assert known(engine, topic) == before is not None
