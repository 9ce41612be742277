"""What happens to a topic under a table: re-created, expired, truncated, grown, compacted, written in transactions."""

from __future__ import annotations

import json
import shutil
import threading
import uuid
from contextlib import suppress

import pytest

from calve.config.job import Start
from calve.errors import Retryable
from calve.table.position import Ledger
from glue_jobs.rounds.loop import TableLoop
from glue_jobs.rounds.round import PERSIST_AFTER_S
from glue_jobs.table.open_table import TableMemory
from tests.integration.support.engine import Engine, at, everything, suspended, trades, until
from tests.integration.support.running import run
from tests.integration.support.servers import outages


def encoded(engine: Engine, topic: str, count: int) -> list[bytes]:
    return [engine.encode(topic, row) for row in trades(count)]


def test_a_recreated_topic_suspends_its_table(engine: Engine) -> None:
    topic = engine.topic(partitions=1)
    engine.produce(topic, 10)
    engine.drain(engine.target(topic))
    engine.recreate(topic)
    engine.produce(topic, 25)
    with suspended("topic_recreated"):
        engine.round(engine.target(topic))
    assert engine.offsets(topic) == everything(10)


def test_a_topic_recreated_before_the_first_commit_suspends_its_table(engine: Engine) -> None:
    topic = engine.topic(partitions=1)
    engine.produce(topic, 10)
    with at("audit.begin", lambda _: engine.recreate(topic)), suspended("topic_recreated"):
        engine.round(engine.target(topic))
    engine.produce(topic, 4)
    with suspended("topic_recreated"):
        engine.round(engine.target(topic))
    assert engine.offsets(topic) == []
    engine.drain(engine.target(topic, on_data_loss="continue"))
    assert engine.offsets(topic) == everything(4)


def test_a_recreated_topic_is_read_from_its_beginning_where_loss_is_accepted(engine: Engine) -> None:
    topic = engine.topic(partitions=1)
    engine.produce(topic, 10)
    engine.drain(engine.target(topic))
    before = engine.cluster.state(topic).key
    engine.recreate(topic)
    engine.produce(topic, 5)
    after = engine.cluster.state(topic).key
    engine.drain(engine.target(topic, on_data_loss="continue"))
    assert engine.offsets(topic) == sorted(everything(10) + everything(5))
    assert engine.position(topic).offsets == {before: {0: 10}, after: {0: 5}}


def test_what_a_recreated_topic_lost_before_it_was_read_is_in_the_ledger(engine: Engine) -> None:
    topic = engine.topic(partitions=1)
    engine.produce(topic, 10)
    engine.drain(engine.target(topic))
    engine.recreate(topic)
    engine.produce(topic, 8)
    engine.expire(topic, 3)
    (outcome,) = engine.drain(engine.target(topic, on_data_loss="continue"))
    assert (outcome.ledger.span, outcome.ledger.lost, outcome.ledger.applied) == (8, 3, 5)
    assert engine.offsets(topic) == sorted(everything(10) + [(0, offset) for offset in range(3, 8)])


def test_offsets_without_records_are_not_remembered_for_another_incarnation(engine: Engine) -> None:
    topic = engine.topic(partitions=1)
    engine.produce(topic, 3)
    target, memory = engine.target(topic, on_data_loss="continue"), TableMemory()
    engine.drain(target, memory=memory)
    with engine.transaction(topic, encoded(engine, topic, 20)):
        pass
    (read,) = engine.drain(target, memory=memory)
    assert (read.snapshot, read.to) == (None, {0: 24})
    engine.recreate(topic)
    engine.produce(topic, 30)
    engine.drain(target, memory=memory)
    assert engine.offsets(topic) == sorted(everything(3) + everything(30))


@pytest.mark.parametrize("point", ["stage.begin", "audit.begin"])
def test_a_topic_recreated_during_a_read_publishes_nothing(engine: Engine, point: str) -> None:
    topic = engine.topic(partitions=1)
    engine.produce(topic, 10)
    target = engine.target(topic)
    engine.drain(target)
    engine.produce(topic, 10)

    def recreate(_: str) -> None:
        engine.recreate(topic)
        engine.produce(topic, 30)

    with at(point, recreate), suspended("topic_recreated"):
        engine.round(target)
    assert engine.offsets(topic) == everything(10)
    with suspended("topic_recreated"):
        engine.round(target)


def test_retention_that_passes_the_position_suspends_the_table(engine: Engine) -> None:
    topic = engine.topic(partitions=1)
    engine.produce(topic, 10)
    engine.drain(engine.target(topic))
    engine.produce(topic, 20)
    engine.expire(topic, 16)
    with suspended("offsets_expired"):
        engine.round(engine.target(topic))
    assert engine.offsets(topic) == everything(10)


def test_a_lost_range_is_recorded_where_loss_is_accepted(engine: Engine) -> None:
    topic = engine.topic(partitions=2)
    for partition in (0, 1):
        engine.produce(topic, 10, partition=partition)
    engine.drain(engine.target(topic))
    for partition in (0, 1):
        engine.produce(topic, 20, partition=partition)
    engine.expire(topic, 16, partition=1)
    (outcome,) = engine.drain(engine.target(topic, on_data_loss="continue"))
    assert outcome.ledger == Ledger(span=40, consumed=34, lost=6, applied=34, rows_appended=34)
    assert engine.offsets(topic) == sorted(everything(30, 10) + [(1, offset) for offset in range(16, 30)])


def test_a_range_lost_at_the_end_of_a_topic_is_recorded_too(engine: Engine) -> None:
    topic = engine.topic(partitions=1)
    engine.produce(topic, 10)
    engine.drain(engine.target(topic))
    engine.produce(topic, 5)
    engine.expire(topic, 15)
    target = engine.target(topic, on_data_loss="continue")
    assert engine.round(target).ledger == Ledger(span=5, lost=5)
    assert engine.round(target).snapshot is None
    engine.produce(topic, 2)
    engine.drain(target)
    assert engine.offsets(topic) == [*everything(10), (0, 15), (0, 16)]


def test_retention_that_passes_a_running_read_publishes_nothing(engine: Engine) -> None:
    topic = engine.topic(partitions=1)
    engine.produce(topic, 10)
    target = engine.target(topic, on_data_loss="continue")
    with at("audit.begin", lambda _: engine.expire(topic, 4)), pytest.raises(Retryable, match="retention"):
        engine.round(target)
    assert engine.offsets(topic) == []
    engine.drain(target)
    assert engine.offsets(topic) == everything(10)[4:]


def test_a_log_that_lost_its_end_suspends_the_table(engine: Engine) -> None:
    topic = engine.topic(partitions=1)
    engine.produce(topic, 10)
    engine.drain(engine.target(topic))
    log = engine.stack.root / ".calve/run/kafka/log" / f"{topic}-0"
    outages.stop(engine.stack, "kafka")
    shutil.rmtree(log)
    outages.start(engine.stack, "kafka")
    with suspended("log_truncated"):
        engine.round(engine.target(topic))
    assert engine.offsets(topic) == everything(10)


def test_added_partitions_are_read_from_their_beginning(engine: Engine) -> None:
    topic = engine.topic(partitions=1)
    engine.produce(topic, 10)
    target = engine.target(topic)
    engine.drain(target)
    engine.add_partitions(topic, 3)
    engine.produce(topic, 5, partition=0)
    engine.produce(topic, 7, partition=2)
    engine.drain(target)
    assert engine.offsets(topic) == everything(15, 0, 7)


def test_a_partition_added_after_a_start_at_the_end_is_read_from_its_beginning(engine: Engine) -> None:
    topic = engine.topic(partitions=1)
    engine.produce(topic, 10)
    engine.round(engine.target(topic, start=Start("latest")))
    engine.add_partitions(topic, 2)
    engine.produce(topic, 4, partition=1)
    engine.drain(engine.target(topic, start=Start("latest")))
    assert engine.offsets(topic) == [(1, offset) for offset in range(4)]


COMPACTED = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "segment.bytes": "1048576"}


def keyed(engine: Engine, *, rejects: int = 0) -> str:
    """A topic of 40 records with 4 keys, which compaction may thin out but has not yet; the first `rejects` cannot be read."""
    topic = engine.topic(partitions=1, config=COMPACTED | {"min.compaction.lag.ms": "0"})
    for number, row in enumerate(trades(40)):
        value = b"\x01no magic byte" if number < rejects else engine.encode(topic, row)
        engine.send(topic, value, key=b"%d" % (number % 4))
    engine.flush()
    return topic


def compact(engine: Engine, topic: str) -> None:
    """Returns once the broker has compacted the topic: what is left are the newest record of each key and the active segment."""
    segment = engine.stack.root / ".calve/run/kafka/log" / f"{topic}-0" / f"{0:020}.log"
    size = segment.stat().st_size
    engine.configure(topic, **COMPACTED, **{"segment.ms": "100"})

    def cleaned() -> bool:
        engine.send(topic, engine.encode(topic, trades(1)[0]), key=b"last")
        engine.flush()
        with suppress(FileNotFoundError):  # the cleaner puts another file in its place
            return segment.stat().st_size < size / 2
        return False

    until(cleaned)


def test_gaps_are_explained_by_compaction_and_by_nothing_else(engine: Engine) -> None:
    topic = keyed(engine)
    compact(engine, topic)
    other, allowed = f"{topic}_again", f"{topic}_allowed"
    end = engine.cluster.state(topic).end[0]
    (outcome,) = engine.drain(engine.target(topic))
    assert outcome.to[0] >= end
    assert outcome.ledger.gaps == outcome.ledger.span - outcome.ledger.consumed >= 36
    engine.configure(topic, **{"cleanup.policy": "delete"})
    with suspended("offset_gap"):
        engine.round(engine.target(topic, table=other))
    assert engine.offsets(other) == []
    (outcome,) = engine.drain(engine.target(topic, table=allowed, gaps="allow"))
    assert outcome.ledger.gaps >= 36
    # The log cleaner goes on until it has heard of its new policy.
    assert set(engine.offsets(allowed)) <= set(engine.offsets(topic))


def test_compaction_between_the_reads_of_a_round_changes_no_figure(engine: Engine) -> None:
    topic = keyed(engine)
    with at("audit.begin", lambda _: compact(engine, topic)):
        outcome = engine.round(engine.target(topic))
    assert outcome.ledger == Ledger(span=40, consumed=40, applied=40, rows_appended=40)


def test_rejects_that_compaction_removed_before_they_were_kept_are_gaps(engine: Engine) -> None:
    topic = keyed(engine, rejects=3)
    with at("reject.begin", lambda _: compact(engine, topic)), pytest.raises(Retryable, match="compacted"):
        engine.round(engine.target(topic))
    assert engine.offsets(topic) == []
    (outcome,) = engine.drain(engine.target(topic))
    assert (outcome.ledger.dead_lettered, outcome.ledger.gaps >= 36) == (0, True)


def test_aborted_transactions_leave_no_rows_and_exact_gaps(engine: Engine) -> None:
    topic = engine.topic(partitions=1)
    with engine.transaction(topic, encoded(engine, topic, 10)) as producer:
        producer.commit_transaction(30)
    with engine.transaction(topic, encoded(engine, topic, 7)):
        pass
    engine.produce(topic, 3)
    (outcome,) = engine.drain(engine.target(topic))
    assert outcome.ledger == Ledger(span=22, consumed=13, gaps=9, applied=13, rows_appended=13)
    rows = engine.offsets(topic)
    assert rows[:10] == everything(10)
    # the abort's marker may come after records that were sent later
    after_abort = {(0, offset) for offset in range(18, 22)}
    assert set(rows[10:]) < after_abort


def test_an_open_transaction_is_read_up_to_the_last_stable_offset(engine: Engine) -> None:
    topic = engine.topic(partitions=1)
    engine.produce(topic, 5)
    target = engine.target(topic)
    with engine.transaction(topic, encoded(engine, topic, 6)) as producer:
        engine.produce(topic, 4)
        (outcome,) = engine.drain(target)
        assert (outcome.to, outcome.more) == ({0: 5}, False)
        assert engine.offsets(topic) == everything(5)
        producer.commit_transaction(30)
    (outcome,) = engine.drain(target)
    assert outcome.ledger == Ledger(span=11, consumed=10, gaps=1, applied=10, rows_appended=10)
    assert engine.offsets(topic) == everything(15)


def test_offsets_without_records_move_the_position_in_memory_only(engine: Engine) -> None:
    topic = engine.topic(partitions=1)
    engine.produce(topic, 5)
    target, memory = engine.target(topic), TableMemory()
    engine.drain(target, memory=memory)
    head = target.opened.main.head
    with engine.transaction(topic, encoded(engine, topic, 6)):
        pass
    (outcome,) = engine.drain(target, memory=memory)
    assert (outcome.snapshot, outcome.to, outcome.more) == (None, {0: 12}, False)
    target.opened.main.refresh()
    assert target.opened.main.head == head
    assert engine.position(topic).offsets[engine.cluster.state(topic).key] == {0: 5}
    engine.produce(topic, 2)
    (outcome,) = engine.drain(target, memory=memory)
    assert outcome.ledger == Ledger(span=9, consumed=2, gaps=7, applied=2, rows_appended=2)


def test_offsets_without_records_are_not_lost_to_retention(engine: Engine) -> None:
    topic = engine.topic(partitions=1)
    engine.produce(topic, 5)
    target, memory = engine.target(topic), TableMemory()
    engine.drain(target, memory=memory)
    with engine.transaction(topic, encoded(engine, topic, 6)):
        pass
    engine.drain(target, memory=memory)
    engine.expire(topic, 12)
    (outcome,) = engine.drain(target, memory=memory)
    assert outcome.ledger == Ledger(span=7, gaps=7)
    assert engine.round(engine.target(topic)).snapshot is None


def test_offsets_without_records_are_persisted_every_hour(engine: Engine) -> None:
    topic = engine.topic(partitions=1)
    engine.produce(topic, 5)
    target, memory = engine.target(topic), TableMemory()
    engine.drain(target, memory=memory)
    with engine.transaction(topic, encoded(engine, topic, 6)):
        pass
    (outcome,) = engine.drain(target, memory=memory)
    assert outcome.snapshot is None
    memory.committed_at -= PERSIST_AFTER_S
    (outcome,) = engine.drain(target, memory=memory)
    assert outcome.ledger == Ledger(span=7, gaps=7)


def test_a_topic_that_begins_without_records_has_an_exact_ledger(engine: Engine) -> None:
    topic = engine.topic(partitions=1)
    with engine.transaction(topic, encoded(engine, topic, 6)):
        pass
    target, memory = engine.target(topic), TableMemory()
    (first,) = engine.drain(target, memory=memory)
    engine.produce(topic, 2)
    (second,) = engine.drain(target, memory=memory)
    assert first.ledger.span + second.ledger.span == 9
    assert first.ledger.gaps + second.ledger.gaps == 7
    assert engine.offsets(topic) == [(0, 7), (0, 8)]


def test_a_drain_without_its_topic_ends_where_its_retries_do(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("glue_jobs.rounds.loop.FAILED_AFTER", 2)
    loop = TableLoop(engine.target(f"absent{uuid.uuid4().hex[:8]}"), threading.Event(), drain=True)
    assert run(loop) == "failed"
    said = [json.loads(line) for line in capfd.readouterr().out.splitlines() if line.startswith("{")]
    retried = [each for each in said if each["event"] == "round.retried"]
    assert [(each["failures"], each["wait_s"]) for each in retried] == [(1, 1.0), (2, 0.0)]
    assert [each["code"] for each in said if each["event"] == "table.state"] == ["retries_exhausted"]
