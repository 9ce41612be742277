"""Many tables in one job, three of them poisoned: each has a loop, a state and a freshness of its own."""

from __future__ import annotations

import gc
import json
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import astuple, dataclass, field
from resource import RUSAGE_SELF, getrusage

import pytest

from calve.config.job import Table
from calve.table.summary import STATE
from glue_jobs.ingest import openers_of
from glue_jobs.rounds.loop import TableLoop
from glue_jobs.rounds.loops import Loops
from tests.integration.support.engine import Engine, trades, until
from tests.integration.support.events import Event, assert_as_documented

MARGIN_S = 8.0
"""What a commit may be late on a machine of two cores that does other work as well."""
TICK_S = 0.2
RECORDS = 2
SAMPLE_EVERY = 8
THREADS_MAY_VARY = 12
ROUNDS = 3
HEAP_MAY_VARY = 96_000_000
PYTHON_MAY_VARY = 16_000_000


@dataclass
class Job:
    """A job in threads of this process, and what it has said so far."""

    engine: Engine
    topics: list[str]
    freshness_s: float
    capsys: pytest.CaptureFixture[str]
    stop: threading.Event = field(default_factory=threading.Event)
    events: list[Event] = field(default_factory=list)
    ticks: int = 0

    @contextmanager
    def running(self) -> Iterator[None]:
        tables = (
            Table(name=topic.replace("-", "_"), topic=topic, freshness_s=self.freshness_s)
            for topic in self.topics
        )
        job = self.engine.job(*tables)
        targets = openers_of(job, self.engine.lake, self.engine.cluster)
        loops = Loops(self.stop)
        for target in targets:
            loops.start(TableLoop(target, self.stop, drain=False))
        thread = threading.Thread(target=loops.wait)
        thread.start()
        try:
            yield
        finally:
            self.stop.set()
            thread.join(60)
            assert not thread.is_alive(), "the loops did not end"

    def said(self, name: str, topic: str | None = None) -> list[Event]:
        self.events += [json.loads(line) for line in self.capsys.readouterr().out.splitlines()]
        return [each for each in self.events if each["event"] == name and topic in (None, each["topic"])]

    def state(self, topic: str) -> Event:
        """The state that was logged last."""
        told = self.said("table.state", topic)
        return told[-1] if told else {"state": "pending", "code": None}


@dataclass(frozen=True, slots=True)
class Use:
    """What the job holds now; memory in bytes, the heap after a collection.

    Spark's pools named `block-manager-...` are left out: they start a thread per task, up to 128, before they reuse one.
    """

    threads: int
    heap: int
    python: int

    @classmethod
    def now(cls, engine: Engine) -> Use:
        gc.collect()  # Java objects live as long as their proxies
        jvm = engine.lake.jvm
        jvm.java.lang.System.gc()
        names = [str(thread.getName()) for thread in jvm.java.lang.Thread.getAllStackTraces().keySet()]
        memory = jvm.java.lang.management.ManagementFactory.getMemoryMXBean()
        return cls(
            threads=sum(not name.startswith("block-manager-") for name in names),
            heap=memory.getHeapMemoryUsage().getUsed(),
            python=getrusage(RUSAGE_SELF).ru_maxrss * (1024 if sys.platform == "linux" else 1),
        )


@dataclass
class Poisoned:
    """Tables that can go on, and three that cannot: their topic is made again, has a schema of no use, has none."""

    engine: Engine
    fine: list[str]
    recreated: str
    text: str
    unregistered: str

    @classmethod
    def beside(cls, engine: Engine, good: int) -> Poisoned:
        fine = [engine.topic(partitions=2) for _ in range(good)]
        recreated, text = engine.topic(partitions=1), engine.topic(partitions=1, schema='"string"')
        unregistered = f"{text}-new"
        engine.create(unregistered)
        engine.produce(recreated, 5)
        return cls(engine, fine, recreated, text, unregistered)

    @property
    def topics(self) -> list[str]:
        return [*self.fine, self.recreated, self.text, self.unregistered]

    def strike(self, job: Job) -> None:
        until(
            lambda: all(job.state(each)["state"] == "running" for each in (*self.fine, self.recreated)),
            seconds=90,
        )
        self.engine.recreate(self.recreated)

    def assert_told_apart(self, job: Job) -> None:
        assert job.state(self.text)["code"] == "schema_unsupported"
        assert all("no subject" in each["why"] for each in job.said("round.retried", self.unregistered))
        assert job.said("round.retried", self.unregistered)
        assert_as_documented(job.events)
        assert all(job.state(topic)["state"] == "running" for topic in self.fine)
        assert job.state(self.recreated)["code"] == "topic_recreated"
        main = self.engine.lake.load(self.engine.target(self.recreated).name)
        assert main is not None
        written = json.loads(main.properties[STATE])
        assert (written["state"], written["code"]) == ("suspended", "topic_recreated")


def test_poisoned_tables_are_suspended_and_the_others_go_on(
    engine: Engine, capsys: pytest.CaptureFixture[str]
) -> None:
    tables = Poisoned.beside(engine, good=2)
    job = Job(engine, tables.topics, 2.0, capsys)
    with job.running():
        tables.strike(job)
        until(lambda: job.state(tables.recreated)["state"] == "suspended", seconds=90)
        for topic in tables.fine:
            engine.produce(topic, 10)
        until(lambda: all(consumed(job, topic) == 10 for topic in tables.fine), seconds=90)
    tables.assert_told_apart(job)


@pytest.mark.full
@pytest.mark.parametrize(("good", "freshness_s"), [(5, 20.0), (12, 40.0)])
def test_beside_poisoned_tables_the_others_stay_fresh_and_nothing_grows(
    engine: Engine, capsys: pytest.CaptureFixture[str], good: int, freshness_s: float
) -> None:
    tables = Poisoned.beside(engine, good)
    job = Job(engine, tables.topics, freshness_s, capsys)
    with job.running():
        tables.strike(job)
        first, *_, last = [observed(job, tables.fine, seconds=freshness_s) for _ in range(ROUNDS)]
        produced = RECORDS * job.ticks
        until(
            lambda: all(consumed(job, topic) == produced for topic in tables.fine),
            seconds=freshness_s + MARGIN_S,
        )
    late = {
        each["table"]: each["freshness_s"]
        for each in job.said("round.committed")
        if each["freshness_s"] > freshness_s + MARGIN_S
    }
    assert not late
    commits = Counter(each["topic"] for each in job.said("round.committed"))
    assert all(commits[topic] >= ROUNDS for topic in tables.fine), commits
    assert last.threads <= first.threads + THREADS_MAY_VARY, (first, last)
    assert last.heap <= first.heap + HEAP_MAY_VARY, (first, last)
    assert last.python <= first.python + PYTHON_MAY_VARY, (first, last)
    tables.assert_told_apart(job)


def observed(job: Job, topics: list[str], *, seconds: float) -> Use:
    """Produce to all topics for a while; returns the least that was in use meanwhile: what no round under way explains."""
    uses = []
    until_then = time.monotonic() + seconds
    while time.monotonic() < until_then:
        for topic in topics:
            for row in trades(RECORDS, first=RECORDS * job.ticks):
                job.engine.send(topic, job.engine.encode(topic, row))
        job.engine.flush()
        job.ticks += 1
        if job.ticks % SAMPLE_EVERY == 1:
            uses.append(Use.now(job.engine))
        job.stop.wait(TICK_S)
    return Use(*(min(each) for each in zip(*map(astuple, uses), strict=True)))


def consumed(job: Job, topic: str) -> int:
    return sum(each["records"] for each in job.said("round.committed", topic))
