"""Jobs as processes: one that has all tables of a pattern, and the two parts that take them over."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import takewhile
from operator import ne
from pathlib import Path
from typing import Any

import pytest

from calve.config.job import Entry, Job, Share, Table, part_name, part_of
from calve.names import TableName
from calve.table.summary import decode, has_position
from cli.embedded import aws
from cli.spark import spark_environment
from tests.integration.support.engine import DATABASE, TRADE, Engine, everything, until

PARTS = 2
LOST_RACE = "lost_race"
STEP = 5
"""Records of a topic that are produced at once."""


@dataclass
class Process:
    """A job in a process of its own."""

    job: Job
    out: Path
    process: subprocess.Popen[bytes]

    @property
    def events(self) -> list[dict[str, Any]]:
        return [
            json.loads(line) for line in self.out.read_text().splitlines(keepends=True) if line.endswith("\n")
        ]

    def committed(self) -> set[str]:
        return {each["table"] for each in self.events if each["event"] == "round.committed"}

    @property
    def writer(self) -> str:
        return next(str(each["writer"]) for each in self.events if each["event"] == "job.started")


@contextmanager
def process(engine: Engine, job: Job, folder: Path, control: str) -> Iterator[Process]:
    settings, out = folder / f"{job.job}.json", folder / f"{job.job}.out"
    settings.write_text(job.to_json())
    command = [sys.executable, "-m", "glue_jobs.ingest", "--settings-file", str(settings)]
    command += ["--control", control, "--generation", "g1"]
    environment = spark_environment(engine.stack, memory="1g", quick=True)
    with (
        out.open("wb") as events,
        out.with_suffix(".log").open("wb") as log,
        subprocess.Popen(
            command, cwd=engine.stack.root, env=environment, stdout=events, stderr=log
        ) as started,
    ):
        try:
            yield Process(job, out, started)
        finally:
            started.terminate()
            started.wait(60)


class Producer:
    """Produces to all topics until it is closed. produced: records by topic."""

    def __init__(self, engine: Engine) -> None:
        self.produced: Counter[str] = Counter()
        self._engine, self._end = engine, threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def add(self, topic: str) -> None:
        self._engine.create(topic, partitions=1)
        self._engine.register(topic, TRADE)
        self.produced[topic] = 0

    def close(self) -> None:
        self._end.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._end.wait(0.3):
            for topic in list(self.produced):
                self._engine.produce(topic, STEP)
                self.produced[topic] += STEP


def table_of(topic: str) -> str:
    return topic.replace(".", "_")


def commits(engine: Engine, topic: str) -> list[tuple[int, str]]:
    """The snapshots with a position of a topic's table, the newest first, each with its writer."""
    found = engine.lake.load(TableName(DATABASE, table_of(topic)))
    history = found.ancestors() if found else iter(())
    return [(each.id, decode(each.summary).writer) for each in history if has_position(each.summary)]


def complete(engine: Engine, topic: str, count: int) -> bool:
    return len(engine.offsets(table_of(topic))) >= count


@pytest.mark.long
def test_two_jobs_with_the_same_tables_lose_and_double_nothing_and_after_the_hand_over_each_table_has_one(
    engine: Engine, tmp_path: Path
) -> None:
    name = f"p{uuid.uuid4().hex[:8]}"
    pattern = Table(f"{name}_{{1}}", rf"{name}\.(.*)", freshness_s=1.0)
    entry = Entry(pattern.name, pattern.topic, pattern=True)
    whole = engine.job(patterns=(pattern,), entries=(entry,), job=name)
    shares = [Share(name, part, PARTS) for part in range(1, PARTS + 1)]
    topics = [next(topic for n in range(99) if each.has(topic := f"{name}.{n}")) for each in shares]
    late = next(topic for n in range(99) if shares[-1].has(topic := f"{name}.late{n}"))
    control, s3 = f"tests/_calve/jobs/{name}.json", aws.client("s3", engine.stack.aws_endpoint)

    def allow(generation: str | None) -> None:
        body = json.dumps({"generation": generation}).encode()
        s3.put_object(Bucket=engine.stack.bucket, Key=control, Body=body)

    allow("g1")
    with ExitStack() as opened:

        def start(job: Job, key: str = control) -> Process:
            return opened.enter_context(process(engine, job, tmp_path, f"s3://{engine.stack.bucket}/{key}"))

        producer = opened.enter_context(closing(Producer(engine)))
        for topic in topics:
            producer.add(topic)
        old = start(whole)
        until(lambda: len(old.committed()) == len(topics), seconds=150)
        new = [
            start(replace(whole, job=part_name(name, share.part), share=share), f"{control}.of-parts")
            for share in shares
        ]
        until(
            lambda: LOST_RACE in [each.get("code") for job in (old, *new) for each in job.events], seconds=200
        )
        assert old.process.poll() is None

        allow(None)
        assert old.process.wait(60) == 0
        heads = {topic: commits(engine, topic)[0][0] for topic in topics}
        producer.add(late)
        until(lambda: all(commits(engine, topic)[0][0] != head for topic, head in heads.items()), seconds=120)
        until(lambda: len(commits(engine, late)) > 1, seconds=120)
        producer.close()
        for topic, count in producer.produced.items():
            until(partial(complete, engine, topic, count), seconds=90)
            assert engine.offsets(table_of(topic)) == everything(count)
            since = takewhile(partial(ne, heads.get(topic)), (each for each, _ in commits(engine, topic)))
            writers = dict(commits(engine, topic))
            assert {writers[each] for each in since} == {new[part_of(topic, PARTS) - 1].writer}
