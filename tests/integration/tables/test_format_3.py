"""A table of Iceberg's format 3 is kept, changed, brought back and proved like one of format 2."""

from __future__ import annotations

import json
import uuid

import pytest

from calve.requests.redrive import Request, Result
from calve.schema.columns import Transform
from calve.table.summary import REDRIVE
from tests.integration.support.engine import TRADE, Engine, everything, trades
from tests.integration.support.proofs import assert_proved, proof


def version(*fields: dict[str, object]) -> str:
    trade = json.loads(TRADE)
    return json.dumps(trade | {"doc": uuid.uuid4().hex, "fields": [*trade["fields"], *fields]})


@pytest.mark.full
def test_rounds_rejects_evolution_compaction_and_a_redrive(engine: Engine) -> None:
    topic = engine.topic(partitions=1)
    engine.produce(topic, 4)
    value = engine.encode(topic, trades(1)[0])
    next_id = 1 + engine.register(f"{topic}-probe", version())
    for each in (b"\0" + next_id.to_bytes(4, "big") + value[5:] + b"\0", b"\1no magic"):
        engine.send(topic, each, partition=0)
    engine.flush()
    by_side = (Transform("side", "identity"),)
    target = engine.target(
        topic, format_version=3, partition_by=by_side, sort_by=(Transform("id", "identity"),)
    )
    (outcome,) = engine.drain(target)
    assert (outcome.ledger.applied, outcome.ledger.dead_lettered) == (4, 2)
    engine.compact(topic)
    note: dict[str, object] = {"name": "note", "type": ["null", "string"], "default": None}
    assert engine.register(topic, version(note)) == next_id
    request = Request(uuid.uuid4().hex, "2026-01-01T00:00:00+00:00", reason="unknown_schema_id")
    engine.table(topic).set_properties({REDRIVE: request.to_json()})
    engine.produce(topic, [trades(1)[0] | {"note": "x"}])
    engine.drain(target)
    table = engine.table(topic)
    assert table.java.operations().current().formatVersion() == 3
    result = Result.of(table.properties, request.id)
    assert result is not None
    assert result.redriven == 1
    engine.expire_history(topic)
    assert engine.offsets(topic) == [place for place in everything(7) if place != (0, 5)]
    assert [row[0] for row in engine.rows(topic).orderBy("_kafka.offset").select("note").collect()] == [
        *[None] * 5,
        "x",
    ]
    assert_proved(proof(engine, topic))
