"""Idle tables of a job are looked at together: their number adds no request, and they have no thread."""

from __future__ import annotations

import threading
import time
from collections import Counter
from typing import Any

import pytest

from glue_jobs.iceberg.catalog import Lake
from glue_jobs.iceberg.glue import LISTED_FROM, Glue
from glue_jobs.kafka.client import Client
from glue_jobs.rounds import waiting
from glue_jobs.rounds.loop import TableLoop
from glue_jobs.rounds.loops import Loops
from tests.integration.support.engine import Engine, everything, trades, until

FRESHNESS_S = 4.0
IDLE_S = 6.0
TABLES = LISTED_FROM


@pytest.mark.long
def test_the_requests_of_idle_tables_do_not_grow_with_their_number(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "CATALOG_EVERY_S", 1.0)
    topics = [engine.topic(partitions=1) for _ in range(TABLES)]
    for topic in topics:
        engine.produce(topic, 1)
    stop, asked = threading.Event(), Counter[str]()
    for owner, name in ((Client, "send"), (Lake, "load"), (Glue, "_listed"), (Glue, "_single")):
        monkeypatch.setattr(owner, name, counted(getattr(owner, name), name, asked))
    loops = Loops(stop)
    tables = [TableLoop(engine.target(each, freshness_s=FRESHNESS_S), stop, drain=False) for each in topics]
    for each in tables:
        each.opener.services = tables[0].opener.services
        loops.start(each)
    job = threading.Thread(target=loops.wait)
    job.start()
    try:
        until(lambda: all(rests(each) for each in tables), seconds=180)
        before = [each.worked_at for each in tables]
        asked.clear()
        time.sleep(IDLE_S)
        found = Counter(asked)
        assert [each.worked_at for each in tables] == before
        assert found["load"] == found["_single"] == 0, found
        assert 0 < found["_listed"] <= IDLE_S + 1, found
        assert 0 < found["send"] <= 2 * IDLE_S / waiting.TICK_S, found
        assert loops._waiting.working == 0
        engine.produce(topics[0], 3)
        until(lambda: engine.offsets(topics[0]) == everything(4), seconds=30)
        with engine.transaction(topics[1], [engine.encode(topics[1], row) for row in trades(1)]):
            until(lambda: tables[1].worked_at > before[1] and tables[1].idle is None, seconds=30)
    finally:
        stop.set()
        job.join(60)


def rests(table: TableLoop) -> bool:
    """Whether it has been idle for longer than it takes to notice its own last commits."""
    return table.idle is not None and time.monotonic() - table.worked_at > 2 * FRESHNESS_S


def counted(work: Any, name: str, asked: Counter[str]) -> Any:
    def counting(*arguments: Any, **named: Any) -> Any:
        asked[name] += 1
        return work(*arguments, **named)

    return counting
