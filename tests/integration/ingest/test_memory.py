"""A backlog of large records: it drains in rounds of a bounded size, in a small heap."""

from __future__ import annotations

import json
from typing import Any

import pytest

from calve.config.job import Table
from cli.console import Console
from cli.run import jobs as command
from tests.integration.support.engine import Engine, everything

DOCUMENT = json.dumps(
    {
        "type": "record",
        "name": "Document",
        "fields": [{"name": "id", "type": "long"}, {"name": "text", "type": "string"}],
    }
)
SIZE = 900_000
OVERSHOOT = 1.3


def backlog(engine: Engine, counts: list[int]) -> str:
    """A topic with so many records in each partition; they differ, but compress well: the emulator keeps objects in memory."""
    topic = engine.topic(partitions=len(counts), schema=DOCUMENT)
    text = "the quick brown fox " * (SIZE // 20)
    for partition, count in enumerate(counts):
        for number in range(count):
            value = engine.encode(topic, {"id": partition * 1_000 + number, "text": f"{number} {text}"})
            engine.send(topic, value, partition=partition)
            if number % 50 == 49:
                engine.flush()
    engine.flush()
    return topic


def drain_in_child(engine: Engine, topic: str, *, memory: str, **settings: Any) -> list[dict[str, Any]]:
    """Drain in a process with that heap; returns the figures of every round, oldest first."""
    job = engine.job(Table(name=topic, topic=topic, **settings))
    assert command.run("ingest", job, ["--drain"], Console(), memory=memory, conf={}) == 0
    table = engine.lake.load(engine.target(topic).name)
    assert table is not None
    commits = [each.summary for each in table.ancestors() if "calve.metrics" in each.summary]
    return [json.loads(each["calve.metrics"]) for each in reversed(commits)]


@pytest.mark.parametrize(
    ("partitions", "each", "memory", "flush"),
    [
        pytest.param(2, 36, "512m", 20_000_000, id="65 MB", marks=pytest.mark.full),
        pytest.param(6, 250, "1g", 50_000_000, id="more than the heap", marks=pytest.mark.full),
    ],
)
def test_records_of_a_megabyte_drain_in_rounds_of_the_flush_size(
    engine: Engine, partitions: int, each: int, memory: str, flush: int
) -> None:
    topic = backlog(engine, [each] * partitions)
    rounds = drain_in_child(engine, topic, memory=memory, flush_bytes=flush)
    sizes = [figures["bytes_in"] for figures in rounds]
    assert sum(sizes) > partitions * each * SIZE
    assert max(sizes) <= OVERSHOOT * flush
    found = engine.rows(topic).selectExpr("count(*)", "count(distinct id)", "min(length(text))").collect()[0]
    assert (found[0], found[1]) == (partitions * each, partitions * each)
    assert found[2] >= SIZE


@pytest.mark.full
def test_a_partition_gives_at_most_its_own_flush_size(engine: Engine) -> None:
    """One long partition beside a short one must not fill the round alone."""
    topic = backlog(engine, [40, 4])
    target = engine.target(topic, flush_bytes=60_000_000, partition_flush_bytes=10_000_000)
    rounds = [outcome.metrics["bytes_in"] for outcome in engine.drain(target) if outcome.snapshot]
    assert max(rounds) <= OVERSHOOT * (10_000_000 + 4 * SIZE)
    assert engine.offsets(topic) == everything(40, 4)
