"""What becomes of records that cannot be rows: `on_error` and the budget, on a real table."""

from __future__ import annotations

import json
from typing import Any

import pytest

from calve.config.job import Budget, Lake
from calve.errors import Suspended
from calve.names import TableName
from calve.table.position import Ledger
from cli.lake import open_catalog
from cli.progress import LineProgress
from cli.verify.findings import Verification
from cli.verify.topic import Sources
from cli.verify.verification import verify
from glue_jobs.process.java import elements
from tests.integration.support.engine import DATABASE, TRADE, Engine, trades

BAD = b"\x01no magic byte, but a secret"


def send(engine: Engine, topic: str, *values: bytes | None) -> None:
    for value in values:
        engine.send(topic, value, partition=0)
    engine.flush()


def good(engine: Engine, topic: str, count: int = 1) -> list[bytes]:
    return [engine.encode(topic, row) for row in trades(count)]


def refusal(engine: Engine, topic: str, **settings: Any) -> Suspended:
    with pytest.raises(Suspended) as caught:
        engine.drain(engine.target(topic, **settings))
    return caught.value


def proof(engine: Engine, topic: str) -> Verification:
    job = engine.job()
    lake = Lake(DATABASE, job.lake.warehouse, endpoint=engine.stack.aws_endpoint, region=engine.stack.region)
    sources = Sources(open_catalog(lake), job.kafka, job.registry, engine.stack.region)
    return verify(TableName(DATABASE, topic), sources, LineProgress(lambda _: None))


def data_files(engine: Engine, topic: str) -> int:
    """Files of the table in the object store, committed or not."""
    table = engine.table(topic).java
    return len(list(elements(table.io().listPrefix(f"{table.location()}/data/"))))


def test_suspend_publishes_nothing_and_names_the_place_but_not_the_value(engine: Engine) -> None:
    topic = engine.topic(partitions=1)
    send(engine, topic, *good(engine, topic, 3))
    engine.drain(engine.target(topic))
    send(engine, topic, *good(engine, topic), BAD, *good(engine, topic))
    error = refusal(engine, topic, on_error="suspend")
    assert error.code == "record_rejected"
    assert f"topic {topic} partition 0 offset 4 (bad_magic)" in error.message
    assert "secret" not in str(error)
    assert engine.offsets(topic) == [(0, 0), (0, 1), (0, 2)]
    assert engine.lake.load(TableName(DATABASE, topic).dead_letters) is None
    assert engine.table(topic).java.currentSnapshot().summary()["total-data-files"] == "1"
    (outcome,) = engine.drain(engine.target(topic, on_error="dead_letter"))
    assert outcome.ledger.dead_lettered == 1
    assert engine.letter_offsets(topic) == [(0, 4)]
    assert len(engine.offsets(topic)) == 5


def test_skipped_records_are_counted_and_in_no_table(engine: Engine) -> None:
    topic = engine.topic(partitions=1)
    first = good(engine, topic)[0]
    foreign = engine.register(f"{topic}-other", json.dumps(json.loads(TRADE) | {"doc": topic}))
    other = b"\x00" + foreign.to_bytes(4, "big") + first[5:]
    unknown = b"\x00" + (foreign + 1).to_bytes(4, "big") + first[5:]
    send(engine, topic, first, None, BAD, BAD, first[:-1], other, unknown, unknown, first)
    (outcome,) = engine.drain(engine.target(topic, on_error="skip"))
    skipped = {"null_value": 1, "bad_magic": 2, "malformed": 1, "incompatible_schema": 1}
    skipped["unknown_schema_id"] = 2
    assert outcome.ledger == Ledger(
        span=9,
        consumed=9,
        applied=2,
        rows_appended=2,
        skipped=skipped,
        skipped_schemas={str(foreign): 1, str(foreign + 1): 2},
    )
    assert engine.offsets(topic) == [(0, 0), (0, 8)]
    assert engine.lake.load(TableName(DATABASE, topic).dead_letters) is None
    # The unknown id is registered now, as a version of the subject: what was skipped for it stays skipped.
    assert engine.register(topic, json.dumps(json.loads(TRADE) | {"doc": f"{topic} later"})) == foreign + 1
    send(engine, topic, unknown, BAD)
    engine.drain(engine.target(topic))
    assert engine.offsets(topic) == [(0, 0), (0, 8), (0, 9)]
    assert engine.letter_offsets(topic) == [(0, 10)]
    found = proof(engine, topic)
    assert found.findings == ()
    assert found.complete
    figures = {check.name: check.figures for check in found.checks}
    assert figures["skipped"] == {"records": 7} | skipped
    assert figures["coverage"] == {
        "offsets": 11,
        "records": 11,
        "rows": 3,
        "dead_letters": 1,
        "skipped": 7,
        "gaps": 0,
    }


def test_a_row_that_is_gone_is_not_taken_for_a_skipped_record(engine: Engine) -> None:
    topic = engine.topic(partitions=1)
    send(engine, topic, *good(engine, topic, 5), BAD, BAD)
    engine.drain(engine.target(topic, on_error="skip"))
    assert proof(engine, topic).ok
    engine.sql("DELETE FROM {t} WHERE id = 2", topic)
    messages = [each.message for each in proof(engine, topic).findings]
    assert any("neither the table nor the dead letters" in each for each in messages), messages


@pytest.mark.long
def test_beyond_the_budget_nothing_is_published_until_a_person_has_raised_it(engine: Engine) -> None:
    topic = engine.topic(partitions=1)
    strict = Budget(share=0.0, records=3)
    rows = good(engine, topic, 2)
    send(engine, topic, *rows, BAD, BAD)
    engine.drain(engine.target(topic, dead_letter_budget=strict))
    narrow = json.loads(TRADE)
    narrow["fields"][2]["type"] = "string"
    engine.registry.set_compatibility(level="NONE")
    try:
        incompatible = engine.register(topic, json.dumps(narrow))
    finally:
        engine.registry.set_compatibility(level="BACKWARD")
    value = engine.encode(topic, {"id": 1, "side": "BUY", "price": "12"})
    send(engine, topic, value, value, *rows)
    files = data_files(engine, topic)
    for _ in range(2):
        error = refusal(engine, topic, dead_letter_budget=strict)
        assert error.code == "rejects_over_budget"
        assert error.message.startswith(
            "4 of 8 records of the last 1h cannot be rows, 2 of them in earlier rounds"
        )
        assert (
            f"partition 0 offset 4 (incompatible_schema, schema id {incompatible}: subject {topic}-value"
            in (error.message)
        )
        assert "price" in error.message
    assert engine.letter_offsets(topic) == [(0, 2), (0, 3)]
    assert data_files(engine, topic) == files
    engine.drain(engine.target(topic, dead_letter_budget=Budget(share=0.0, records=4)))
    assert engine.letter_offsets(topic) == [(0, 2), (0, 3), (0, 4), (0, 5)]
    send(engine, topic, BAD)
    engine.drain(engine.target(topic, dead_letter_budget=strict))
    assert len(engine.letter_offsets(topic)) == 5
