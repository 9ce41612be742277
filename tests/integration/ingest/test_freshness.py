"""The promise of freshness on real systems: the ages of a round's records, and a load that grows tenfold and falls again."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from glue_jobs.rounds.loop import TableLoop
from glue_jobs.rounds.round import Round
from glue_jobs.table.open_table import TableMemory
from tests.integration.support.engine import Engine, trades
from tests.integration.support.events import assert_as_documented
from tests.integration.support.running import run


def test_half_of_the_records_and_95_of_100_are_as_old_as_the_round_says(engine: Engine) -> None:
    topic = engine.topic(partitions=2)
    now = int(time.time() * 1000)
    for number, row in enumerate(trades(200)):
        engine.send(topic, engine.encode(topic, row), at_ms=now - 1_000 * (number + 1))
    engine.flush()
    target = engine.target(topic)
    outcome = Round(target, TableMemory()).run()
    passed = time.time() - now / 1000
    told = outcome.metrics
    assert told["freshness_s"] == pytest.approx(200 + passed, abs=1)
    assert told["freshness_p95_s"] == pytest.approx(190 + passed, abs=3)
    assert told["freshness_p50_s"] == pytest.approx(100 + passed, abs=3)
    commit = target.opened.main.snapshot(outcome.snapshot or 0)
    assert commit is not None
    written = json.loads(commit.summary["calve.metrics"])
    assert written["freshness_p95_s"] == pytest.approx(
        told["freshness_p95_s"], abs=outcome.commit_ms / 1000 + 0.01
    )


class Load:
    """Records produced at a rate that can be changed, until the block is over."""

    def __init__(self, engine: Engine, topic: str) -> None:
        self.rate = 0.0
        self._engine, self._topic = engine, topic
        self._stop = threading.Event()

    @contextmanager
    def running(self) -> Iterator[None]:
        thread = threading.Thread(target=self._produce)
        thread.start()
        try:
            yield
        finally:
            self._stop.set()
            thread.join()

    def _produce(self) -> None:
        value = self._engine.encode(self._topic, trades(1)[0])
        while not self._stop.wait(0.1):
            for _ in range(int(self.rate / 10)):
                self._engine.send(self._topic, value)
            self._engine.flush()


@pytest.mark.parametrize(
    ("rate", "target_s", "seconds"),
    [pytest.param(100, 4.0, 5, marks=pytest.mark.long), pytest.param(300, 6.0, 60, marks=pytest.mark.full)],
)
def test_a_load_step_keeps_the_promise_or_says_why_not(
    engine: Engine, capsys: pytest.CaptureFixture[str], rate: float, target_s: float, seconds: float
) -> None:
    topic = engine.topic(partitions=2)
    engine.produce(topic, 10)
    stop = threading.Event()
    loop = TableLoop(engine.target(topic, freshness_s=target_s), stop, drain=False)
    thread, load = threading.Thread(target=run, args=(loop,)), Load(engine, topic)
    thread.start()
    while not loop.read_to:
        assert not stop.wait(0.1)
    with load.running():
        for times in (1, 10, 1):
            load.rate = rate * times
            time.sleep(seconds)
    stop.set()
    thread.join(60)
    events: list[dict[str, Any]] = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert_as_documented(events)
    rounds = [each for each in events if each["event"] == "round.committed"]
    told = {each["cause"] for each in events if each["event"] == "freshness.missed"}
    for each in rounds:
        assert (each["freshness_p95_s"] > target_s) == (each["missed"] is not None)
    assert {each["missed"] for each in rounds} - {None} == told
    assert len(rounds) <= 3 * (3 * seconds / (target_s / 2)) + 3
