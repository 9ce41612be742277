"""The columnar engine as a round uses it: the same tables, ledgers and figures as by rows, in one task or in many."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from calve.config.publishing import Announce
from calve.errors import Retryable
from calve.schema.columns import Transform
from glue_jobs.engines.columnar import engine as columnar
from glue_jobs.engines.columnar.tasks import TaskResult, run_in_worker
from glue_jobs.kafka import source
from glue_jobs.process.workers import TaskError
from glue_jobs.table.open_table import Outcome, TableMemory
from tests.integration.support.crashing import KINDS, broken
from tests.integration.support.engine import Engine, at, everything, suspended, trades
from tests.integration.support.records.protobuf_topics import frame, protobuf_topic

LARGE = TableMemory(bytes_per_record=500_000)
"""Makes a round worth tasks of Spark's."""


def mixed(engine: Engine, partitions: int = 2) -> str:
    """A topic with good records, rejects of every kind, keys, headers, and records without a value."""
    topic = engine.topic(partitions=partitions)
    foreign = engine.register(f"{topic}-other", '{"type": "record", "name": "Other", "fields": []}')
    for number, row in enumerate(trades(8 * len(KINDS))):
        value = broken(KINDS[number % len(KINDS)], engine.encode(topic, row), foreign)
        engine.producer.produce(
            topic,
            value,
            key=None if number % 3 else f"k{number}".encode(),
            partition=number % partitions,
            headers=[("trace", b"\x00\x01"), ("trace", None)] if number % 5 == 0 else None,
            timestamp=1_700_000_000_000 + number * 977,
        )
    engine.flush()
    return topic


def drained(
    engine: Engine, topic: str, choice: str, memory: TableMemory, **settings: Any
) -> tuple[Outcome, Any]:
    """One round into a table of its own; its rows and dead letters in the order of their offsets."""
    table = f"{topic}_{choice}"
    target = engine.target(topic, table=table, engine=choice, flush_bytes=10**9, **settings)
    (outcome,) = engine.drain(target, memory=replace(memory))
    rows = engine.rows(table).orderBy("_kafka.partition", "_kafka.offset").toArrow()
    letters = engine.letters(table).drop("round", "rejected_at").orderBy("partition", "offset").toArrow()
    return outcome, (rows, letters)


@pytest.mark.parametrize(
    "memory",
    [pytest.param(TableMemory(), id="small"), pytest.param(LARGE, id="large", marks=pytest.mark.long)],
)
def test_both_engines_make_the_same_table_ledger_and_figures(engine: Engine, memory: TableMemory) -> None:
    topic, budget = mixed(engine), {"announce": Announce("side")}
    (rows, held), (columns, found) = (
        drained(engine, topic, each, memory, **budget) for each in ("rows", "columnar")
    )
    assert found == held
    assert columns.ledger == rows.ledger
    assert rows.ledger.dead_lettered
    same = ("bytes_in", "counts")
    assert [columns.metrics.get(each) for each in same] == [rows.metrics.get(each) for each in same]
    ages = ("freshness_s", "freshness_p50_s", "freshness_p95_s")
    assert [columns.metrics[each] for each in ages] == pytest.approx(
        [rows.metrics[each] for each in ages], abs=60
    )


def test_both_engines_make_the_same_table_and_dead_letters_of_messages(engine: Engine) -> None:
    text = """syntax = "proto3"; import "google/protobuf/timestamp.proto";
        message Top { int64 id = 1; repeated sint32 n = 2; map<string, Top2> m = 3; oneof o { string s = 4; Top2 t = 5; } }
        message Top2 { google.protobuf.Timestamp at = 1; repeated string tags = 2; }"""
    topic = protobuf_topic(engine, text)
    begin = frame(int(engine.registry.get_latest_version(f"{topic}-value").schema_id or 0))
    nanos, twice = b"\x0a\x02\x10\x01", b"\x1a\x05\x0a\x01k\x12\x00"
    payloads = [
        b"",
        b"\x08\x07\x12\x02\x01\x02\x10\x03",
        b"\x22\x01a\x2a\x03\x12\x01b",
        b"\x2a\x04" + nanos + b"\x22\x01a",
        b"\x2a\x04" + nanos,
        b"\x1a\x09\x0a\x01k\x12\x04" + nanos + twice,
        twice + b"\x1a\x09\x0a\x01k\x12\x04" + nanos,
        b"\x08",
        b"\x0d\x00\x00\x00\x00",
        b"\x22\x01\xff",
        b"\x0b\x0c",
        b"\x98\x06\x01",
    ]
    for number, payload in enumerate(payloads):
        engine.send(topic, begin + payload, key=f"k{number}".encode(), partition=0)
    for value in (
        None,
        b"",
        begin[:5],
        b"\x01" + begin[1:],
        begin[:-1] + b"\x02\x02",
        b"\x00\x7f\x00\x00\x00\x00",
    ):
        engine.send(topic, value, partition=0)
    engine.flush()
    (rows, held), (columns, found) = (
        drained(engine, topic, each, TableMemory()) for each in ("rows", "columnar")
    )
    assert found == held
    assert columns.ledger == rows.ledger
    assert columns.ledger.applied == 6


def test_records_that_cannot_be_looked_at_only_make_the_first_round_small(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = engine.topic(partitions=1)
    engine.produce(topic, 1_000)

    def failing(*_: Any) -> Any:
        raise Retryable("no answer")

    monkeypatch.setattr(source, "fetch", failing)
    first, second = engine.drain(engine.target(topic, engine="columnar"))
    assert first.ledger.applied < second.ledger.applied


def test_a_partitioned_and_sorted_table_is_laid_out_by_each_task(engine: Engine) -> None:
    topic = engine.topic(partitions=4)
    for partition in range(4):
        engine.produce(topic, 100, partition=partition)
    target = engine.target(
        topic,
        engine="columnar",
        flush_bytes=10**10,
        partition_by=(Transform("side"),),
        sort_by=(Transform("price", descending=True),),
    )
    (outcome,) = engine.drain(target, memory=replace(LARGE))
    files = engine.rows(topic).selectExpr("_file", "_pos", "side", "price").collect()
    assert outcome.metrics["files"] == len({row["_file"] for row in files}) == 2 * target.services.cores
    for name in {row["_file"] for row in files}:
        rows = sorted((row for row in files if row["_file"] == name), key=lambda row: row["_pos"])
        assert len({row["side"] for row in rows}) == 1
        assert [row["price"] for row in rows] == sorted((row["price"] for row in rows), reverse=True)
    assert engine.offsets(topic) == everything(100, 100, 100, 100)


@pytest.mark.long
def test_a_worker_that_is_killed_with_its_files_written_loses_and_doubles_nothing(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Locally Spark tries no task again: the round fails, and the next one does it."""
    topic = engine.topic(partitions=2)
    for partition in range(2):
        engine.produce(topic, 50, partition=partition)
    once = tmp_path / "died"

    def dying(work: Any, ranges: Any, number: int) -> TaskResult | TaskError:
        done = run_in_worker(work, ranges, number)
        if number == 1 and not once.exists():
            once.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return done

    monkeypatch.setattr(columnar, "run_in_worker", dying)
    target, memory = engine.target(topic, engine="columnar", flush_bytes=10**10), replace(LARGE)
    with pytest.raises(Retryable):
        engine.drain(target, memory=memory)
    (outcome,) = engine.drain(target, memory=replace(LARGE))
    assert once.exists()
    assert outcome.metrics["files"] == 2
    assert engine.offsets(topic) == everything(50, 50)


def test_an_error_in_a_task_leaves_no_file_and_quotes_no_record(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = engine.topic(partitions=2)
    for partition in range(2):
        engine.produce(topic, 50, partition=partition)

    def failing(work: Any, ranges: Any, number: int) -> TaskResult | TaskError:
        changed = replace(work, columns=4111_1111) if number == 1 else work
        return run_in_worker(changed, ranges, number)

    monkeypatch.setattr(columnar, "run_in_worker", failing)
    target = engine.target(topic, engine="columnar", flush_bytes=10**10)
    with pytest.raises(Exception, match=r"^TypeError at \w+\.py:\d+$") as caught:
        engine.drain(target, memory=replace(LARGE))
    assert "4111" not in str(caught.value)
    folder = target.opened.main.java.locationProvider().newDataLocation("")
    assert not target.opened.main.java.io().listPrefix(str(folder)).iterator().hasNext()


@pytest.mark.parametrize("choice", ["columnar", "rows"])
def test_what_expires_while_it_is_read_is_for_the_next_round_where_that_is_accepted(
    engine: Engine, choice: str
) -> None:
    topic = engine.topic(partitions=1)
    engine.produce(topic, 2)
    target = engine.target(topic, engine=choice, on_data_loss="continue")
    engine.drain(target)
    engine.produce(topic, 8)
    with at("stage.begin", lambda _: engine.expire(topic, 5)), pytest.raises(Retryable):
        engine.round(target)
    (outcome,) = engine.drain(target)
    assert outcome.ledger.lost == 3
    assert engine.offsets(topic) == everything(10)[:2] + everything(10)[5:]


def test_what_the_engine_cannot_make_is_made_by_rows_or_suspended(
    engine: Engine, capsys: pytest.CaptureFixture[str]
) -> None:
    topic = engine.topic()
    engine.produce(topic, 4, partition=0)
    target = engine.target(topic, engine="columnar")
    target.open()
    target.opened.main.set_properties({"write.format.default": "orc"})
    with suspended("engine_unsupported"):
        engine.round(target)
    engine.round(engine.target(topic, engine="auto"))
    assert engine.offsets(topic) == everything(4)
    assert '"engine": "rows", "reasons": ["its files are orc"]' in capsys.readouterr().out
