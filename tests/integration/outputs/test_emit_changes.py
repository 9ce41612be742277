"""Tables that replace rows, as compacted topics: the newest record of each key is its row, or a tombstone if there is none."""

from __future__ import annotations

import io
import json
import random
import signal
from pathlib import Path
from typing import Any

import pytest
from fastavro import parse_schema, schemaless_reader

from calve.config.job import Source, Table
from calve.config.publishing import Emit
from calve.config.steps import Filter, Mask, Rule
from calve.errors import Retryable
from calve.modes.upsert import ChangeData, Upsert
from calve.names import as_table_name
from tests.integration.outputs.test_emit import DEATHS, output, records
from tests.integration.steps.test_masked_tables import masking
from tests.integration.support.crashing import run_job
from tests.integration.support.engine import Engine, at, trades
from tests.integration.support.events import assert_as_documented
from tests.integration.support.records.database import BY_ID, BY_RECORD_KEY, KEPT, Database

__all__ = ["masking"]
BY_PK = ChangeData(("pk.id",), deletes=True, bucketed=True)
BY_KEY = Upsert(("_kafka.key",), deletes=True, bucketed=True)


def compacted(engine: Engine, out: str) -> dict[bytes, Any]:
    """What compaction would keep of a topic, tombstones as None."""
    return {key: value for key, value, _ in records(engine, out)}


def decoded(engine: Engine, key: bytes) -> Any:
    """The columns of a framed key."""
    schema = engine.registry.get_schema(int.from_bytes(key[1:5], "big")).schema_str
    return schemaless_reader(io.BytesIO(key[5:]), parse_schema(json.loads(schema or "")), None)


def rows_of(engine: Engine, table: str) -> dict[int, Any]:
    found = engine.rows(table)
    found = found.where("not _change.deleted") if "_change" in found.columns else found
    return {row["id"]: row["name"] for row in found.select("id", "name").collect()}


def emitted(engine: Engine, out: str) -> dict[int, Any]:
    return {row["id"]: row["name"] for row in compacted(engine, out).values() if row is not None}


@pytest.mark.parametrize(
    ("mode", "settings"),
    [
        pytest.param(BY_RECORD_KEY, {}, id="record key"),
        pytest.param(BY_RECORD_KEY, {"format_version": 3}, id="format 3", marks=pytest.mark.long),
        pytest.param(BY_ID, {"emit": ("id",)}, id="column", marks=pytest.mark.full),
        pytest.param(BY_PK, {"key": Source(column="pk"), "emit": ("pk",)}, id="struct"),
        pytest.param(KEPT, {}, id="kept", marks=pytest.mark.full),
    ],
)
def test_the_topic_of_a_database_is_its_table_compacted(
    engine: Engine, masking: str, mode: ChangeData, settings: dict[str, Any]
) -> None:
    """Masked and filtered: rows come and go by changes, deletions, changed keys, and by what the filter leaves out."""
    database, dice, out = Database(engine, full=mode.keep_deleted), random.Random(31), output()
    steps = (Mask(fields={"note": Rule("hash")}, key="keep"), Filter("name NOT LIKE '%3'"))
    emit = Emit(out, key=settings.pop("emit", ()), partitions=2, cleanup_policy="compact")
    target = database.target(mode, steps=steps, masking=masking, emit=emit, **settings)
    for _ in range(4):
        database.churn(dice, 50)
        engine.drain(target)
        assert emitted(engine, out) == rows_of(engine, database.topic)
    assert any(value is None for value in compacted(engine, out).values())
    if mode.keep_deleted:
        assert engine.rows(database.topic).where("_change.deleted").count() > 0
    assert not any(row and str(row["note"]).startswith("note ") for row in compacted(engine, out).values())
    if emit.key == ("pk",):
        assert {decoded(engine, key)["pk"]["id"] for key in compacted(engine, out)} >= set(
            emitted(engine, out)
        )


def test_tombstones_of_a_topic_are_those_of_its_output(
    engine: Engine, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also of keys that come again, and of keys that never had a row."""
    topic, out = engine.topic(partitions=2), output()
    target = engine.target(topic, upsert=BY_KEY, emit=Emit(out, cleanup_policy="compact"))

    def send(number: int, price: int | None) -> None:
        value = None if price is None else engine.encode(topic, trades(1)[0] | {"id": number, "price": price})
        engine.send(topic, value, key=b"%d" % number, partition=number % 2)

    batches: list[list[tuple[int, int | None]]] = [
        [(1, 1), (2, 1), (3, 1)],
        [(1, None), (9, None), (2, 2)],
        [(3, None), (2, None), (2, 4)],
        [(1, 3)],
    ]
    for batch in batches:
        for number, price in batch:
            send(number, price)
        engine.flush()
        engine.drain(target)
    events = [
        each
        for each in map(json.loads, capsys.readouterr().out.splitlines())
        if each["event"] == "tombstones.emitted"
    ]
    assert_as_documented(events)
    assert [each["tombstones"] for each in events] == [1, 1]
    prices = {key: value and value["price"] for key, value in compacted(engine, out).items()}
    assert prices == {b"1": 3, b"2": 4, b"3": None}
    assert sorted(key for key, value, _ in records(engine, out) if value is None) == [b"1", b"3"]
    assert sorted(row["price"] for row in engine.rows(topic).collect()) == [3, 4]


@pytest.mark.parametrize(
    "point", ["publish.committed", "emit.written", pytest.param("emit.noted", marks=pytest.mark.long)]
)
def test_nothing_is_missing_whatever_dies(engine: Engine, point: str) -> None:
    """The commits that wait are emitted by what the table is now: a key that came back has no tombstone behind its row."""
    database, dice, out = Database(engine), random.Random(32), output()
    emit = Emit(out, cleanup_policy="compact")
    target = database.target(emit=emit)
    database.churn(dice, 40)
    engine.drain(target)

    def die(_table: str) -> None:
        raise Retryable("dead")

    for _ in range(2):
        database.churn(dice, 40)
        with at(point, die), pytest.raises(Retryable, match="dead"):
            engine.drain(database.target(emit=emit))
    database.churn(dice, 40)
    engine.drain(database.target(emit=emit))
    assert emitted(engine, out) == rows_of(engine, database.topic)


@pytest.mark.full
def test_nothing_is_missing_whatever_process_is_killed(engine: Engine, tmp_path: Path) -> None:
    outputs = {point: output() for point in DEATHS}
    databases = {point: Database(engine) for point in DEATHS}
    dice = random.Random(33)
    tables = [
        Table(
            as_table_name(database.topic),
            database.topic,
            change_data=BY_RECORD_KEY,
            emit=Emit(outputs[point], cleanup_policy="compact"),
            flush_bytes=2**30,
        )
        for point, database in databases.items()
    ]

    def churn() -> None:
        for database in databases.values():
            database.churn(dice, 60)

    churn()
    assert run_job(engine, tables, tmp_path / "first.log") == 0
    churn()
    fault = ",".join(f"{point}:1@{database.topic}" for point, database in databases.items())
    assert run_job(engine, tables, tmp_path / "killed.log", fault=fault) == -signal.SIGKILL
    churn()
    assert run_job(engine, tables, tmp_path / "last.log") == 0
    for point, database in databases.items():
        assert emitted(engine, outputs[point]) == rows_of(engine, database.topic), point
