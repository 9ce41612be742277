"""Where a table begins to read: at the start, at the end, at a time, at offsets, or as soon as there is something."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from calve.config.job import Start
from calve.errors import Retryable
from calve.table.position import Ledger
from tests.integration.support.engine import Engine, everything, suspended, trades, until

START: dict[str, tuple[Callable[[int], Start], list[tuple[int, int]]]] = {
    "earliest": (lambda _: Start("earliest"), everything(7, 7)),
    "latest": (lambda _: Start("latest"), [(0, 5), (0, 6), (1, 5), (1, 6)]),
    "timestamp": (
        lambda ms: Start("timestamp", timestamp_ms=ms),
        [(0, n) for n in range(3, 7)] + [(1, 5), (1, 6)],
    ),
    "offsets": (lambda _: Start("offsets", offsets={0: 4}), [(0, n) for n in range(4, 7)] + everything(0, 7)),
}


@pytest.mark.parametrize("at_", START)
def test_a_table_starts_where_it_is_told(engine: Engine, at_: str) -> None:
    start, expected = START[at_]
    topic = engine.topic(partitions=2)
    now = int(time.time() * 1000) - 1_000_000
    for partition in (0, 1):
        for number, row in enumerate(trades(5)):
            sent = now + 1000 * number - (10_000 if partition else 0)
            engine.producer.produce(topic, engine.encode(topic, row), partition=partition, timestamp=sent)
    engine.flush()
    engine.drain(engine.target(topic, start=start(now + 3000)))
    for partition in (0, 1):
        engine.produce(topic, 2, partition=partition)
    engine.drain(engine.target(topic, start=start(now + 3000)))
    assert engine.offsets(topic) == expected


def test_a_start_in_the_future_reads_only_what_comes_after_the_first_round(engine: Engine) -> None:
    topic = engine.topic(partitions=1)
    engine.produce(topic, 5)
    start = Start("timestamp", timestamp_ms=int(time.time() * 1000) + 3_600_000)
    assert engine.round(engine.target(topic, start=start)).ledger == Ledger()
    engine.produce(topic, 2)
    engine.drain(engine.target(topic, start=start))
    assert engine.offsets(topic) == [(0, 5), (0, 6)]


@pytest.mark.parametrize(
    "offsets", [{0: 6}, {3: 0}, {0: 1}], ids=["beyond the end", "no such partition", "expired"]
)
def test_a_start_at_offsets_that_do_not_exist_is_an_error(engine: Engine, offsets: dict[int, int]) -> None:
    topic = engine.topic(partitions=1)
    engine.produce(topic, 5)
    engine.expire(topic, 2)
    with suspended("start_invalid"):
        engine.round(engine.target(topic, start=Start("offsets", offsets=offsets)))
    assert engine.offsets(topic) == []


def test_an_unknown_topic_is_waited_for(engine: Engine) -> None:
    topic = engine.topic(partitions=1)
    engine.delete(topic)
    until(lambda: engine.key(topic) is None)
    with pytest.raises(Retryable, match=f"topic {topic} does not exist"):
        engine.round(engine.target(topic))
    engine.create(topic, partitions=1)
    engine.produce(topic, 3)
    engine.drain(engine.target(topic))
    assert engine.offsets(topic) == everything(3)


def test_a_subject_that_is_not_registered_is_waited_for(engine: Engine) -> None:
    topic = engine.topic(partitions=1)
    engine.produce(topic, 3)
    engine.registry.delete_subject(f"{topic}-value")
    target = engine.target(topic)
    with pytest.raises(Retryable, match=f"no subject {topic}-value"):
        engine.round(target)
    assert target.services.lake.load(target.name) is None
