"""What others may do to a dead-letter table: drop it, roll it back, delete from it, compact and expire it."""

from __future__ import annotations

import pytest

from calve.names import DEAD_LETTERS_SUFFIX
from tests.integration.support.engine import DATABASE, Engine, everything, suspended


@pytest.mark.long
@pytest.mark.parametrize("job", ["the next job", pytest.param("the running job", marks=pytest.mark.full)])
def test_dropped_dead_letters_that_the_table_names_suspend_it(engine: Engine, job: str) -> None:
    topic = engine.topic(partitions=1)
    target = engine.target(topic)
    engine.mixed(topic, 5, 2)
    engine.drain(target)
    engine.spark.sql(f"DROP TABLE lake.{DATABASE}.{topic}{DEAD_LETTERS_SUFFIX} PURGE")
    engine.produce(topic, 3)
    with suspended("dead_letters_lost"):
        engine.round(target if job == "the running job" else engine.target(topic))
    assert engine.offsets(topic) == everything(5)


def test_dead_letters_that_a_user_rolled_back_by_a_round_come_back(engine: Engine) -> None:
    topic = engine.topic(partitions=1)
    engine.ingest(topic, 5, 2)
    head = engine.table(topic + DEAD_LETTERS_SUFFIX).head
    assert head is not None
    engine.ingest(topic, 5, 2)
    engine.rollback(topic + DEAD_LETTERS_SUFFIX, head)
    engine.round(engine.target(topic))
    assert engine.letter_offsets(topic) == [(0, 5), (0, 6), (0, 12), (0, 13)]


@pytest.mark.full
def test_dead_letters_that_a_user_rolled_back_further_suspend_the_table(engine: Engine) -> None:
    topic = engine.topic(partitions=1)
    engine.ingest(topic, 5, 2)
    engine.ingest(topic, 5, 2)
    birth = list(engine.table(topic + DEAD_LETTERS_SUFFIX).ancestors())[-1].id
    engine.rollback(topic + DEAD_LETTERS_SUFFIX, birth)
    with suspended("dead_letters_lost"):
        engine.round(engine.target(topic))
    assert engine.letter_offsets(topic) == []


@pytest.mark.full
def test_dead_letters_that_a_user_deleted_stay_deleted(engine: Engine) -> None:
    topic = engine.topic(partitions=1)
    engine.ingest(topic, 5, 2)
    engine.sql(f"DELETE FROM lake.{DATABASE}.{topic}{DEAD_LETTERS_SUFFIX} WHERE `offset` = 5", topic)
    engine.ingest(topic, 5, 1)
    assert engine.letter_offsets(topic) == [(0, 6), (0, 12)]


@pytest.mark.full
def test_dead_letters_whose_history_others_expired_are_not_doubled(engine: Engine) -> None:
    topic = engine.topic(partitions=1)
    engine.ingest(topic, 5, 2)
    letters = topic + DEAD_LETTERS_SUFFIX
    engine.compact(letters)
    engine.expire_history(letters)
    engine.ingest(topic, 5, 1)
    assert engine.letter_offsets(topic) == [(0, 5), (0, 6), (0, 12)]
