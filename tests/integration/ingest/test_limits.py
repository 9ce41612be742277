"""Sizes that docs/limits.md names: a table of them is made, goes on, and is proved."""

from __future__ import annotations

import json

import pytest

from cli.lake import open_catalog
from tests.integration.support.engine import DATABASE, Engine
from tests.integration.support.proofs import assert_proved, proof

PARTITIONS = 2_000
COLUMNS = 1_000


@pytest.mark.full
def test_a_topic_of_two_thousand_partitions_is_a_table(engine: Engine) -> None:
    topic = engine.topic(partitions=PARTITIONS)
    for first in (0, PARTITIONS):
        row = engine.encode(topic, {"id": first, "side": "BUY", "price": 1})
        for partition in range(PARTITIONS):
            engine.send(topic, row, partition=partition)
        engine.flush()
        engine.drain(engine.target(topic))
    assert len(engine.offsets(topic)) == 2 * PARTITIONS
    summary = next(engine.table(topic).ancestors()).summary
    assert len(json.dumps(dict(summary))) < 20_000
    assert_proved(proof(engine, topic))


@pytest.mark.full
def test_a_schema_of_a_thousand_fields_is_a_table(engine: Engine) -> None:
    fields = [{"name": f"f{n}", "type": ["null", "string"], "default": None} for n in range(COLUMNS)]
    topic = engine.topic(
        partitions=1, schema=json.dumps({"type": "record", "name": "Wide", "fields": fields})
    )
    engine.produce(topic, [{f"f{n}": f"{row}-{n}" for n in range(COLUMNS)} for row in range(50)])
    engine.drain(engine.target(topic))
    table = open_catalog(engine.job().lake).load_table((DATABASE, topic))
    assert len(table.schema().fields) == COLUMNS + 1
    assert_proved(proof(engine, topic))
