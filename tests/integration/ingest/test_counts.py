"""Rows by the values of a declared column, counted by real writes and noted in their commits."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest

from calve.config.publishing import Announce
from calve.modes.aggregate import Aggregate, Measure
from calve.modes.upsert import Deduplicate, Upsert
from glue_jobs.rounds.loop import TableLoop
from tests.integration.support.engine import TRADE, Engine
from tests.integration.support.running import run

COUNTED: dict[str, dict[str, Any]] = {
    "append": {},
    "upsert": {"upsert": Upsert(("id",))},
    "deduplicate": {"deduplicate": Deduplicate(("id",))},
    "aggregate": {"aggregate": Aggregate(("side", "id"), (Measure("n", "count(*)"),))},
}


@pytest.mark.parametrize("mode", COUNTED)
def test_rows_are_counted_by_the_values_of_a_column(engine: Engine, mode: str) -> None:
    schema = json.loads(TRADE)
    schema["fields"][1]["type"] = ["null", "string"]
    topic = engine.topic(schema=json.dumps(schema))
    sides = ["BUY"] * 5 + ["SELL"] * 3 + ["x" * 64, "x" * 65, None, ""]
    engine.produce(topic, [{"id": n, "side": side, "price": 1} for n, side in enumerate(sides)])
    target = engine.target(topic, announce=Announce("side"), **COUNTED[mode])
    engine.drain(target)
    metrics = json.loads(next(target.opened.main.ancestors()).summary["calve.metrics"])
    assert metrics["counts"] == {
        "column": "side",
        "values": {"": 1, "BUY": 5, "SELL": 3, "x" * 64: 1},
        "other": 1 if mode == "aggregate" else 2,  # there the record without a side is a dead letter
    }


def test_a_column_of_many_values_is_no_category(engine: Engine) -> None:
    topic = engine.topic()
    target = engine.target(topic, announce=Announce("id"))
    for count in (51, 50, 20_000):
        engine.produce(topic, count)
        engine.drain(target)
    rounds = [each.summary for each in target.opened.main.ancestors() if "calve.metrics" in each.summary]
    told = [(json.loads(each["calve.metrics"])["counts"], int(each["added-records"])) for each in rounds]
    assert {rows for _, rows in told} >= {50, 51}
    assert max(rows for _, rows in told) > 1_000
    for counts, rows in told:
        wanted = (rows, 0) if rows <= 50 else (0, rows)
        assert (len(counts["values"]), counts["other"]) == wanted


@pytest.mark.parametrize(
    ("column", "why"), [("colour", "make no column colour"), ("notes", "neither a text")]
)
def test_a_column_that_cannot_be_counted_by_suspends(engine: Engine, column: str, why: str) -> None:
    schema = json.loads(TRADE)
    schema["fields"].append({"name": "notes", "type": {"type": "array", "items": "string"}})
    topic = engine.topic(schema=json.dumps(schema))
    stop = threading.Event()
    loop = TableLoop(engine.target(topic, announce=Announce(column)), stop, drain=True)
    assert (run(loop), loop.code) == ("suspended", "count_unusable")
    assert why in engine.table(topic).properties["calve.state"]
