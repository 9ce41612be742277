"""Expectations of a table: the fate of records that do not meet them, by both engines, and what becomes of the table."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from calve.config.steps import Expect, Filter, Flatten, Route, Sql, Step
from calve.modes.upsert import Upsert
from calve.outputs.metrics import EXPECTATIONS_MISSED
from calve.requests.redrive import Request
from calve.table.position import Ledger
from calve.table.summary import REDRIVE, metrics_of
from tests.alarms import goes_off, lines
from tests.integration.steps.test_steps import ROWS, sale, schema
from tests.integration.support.engine import Engine, suspended, trades
from tests.integration.support.events import assert_as_documented
from tests.integration.support.proofs import assert_proved, proof

KEEPS = Expect("price IS NULL OR price >= 3")
DROPS = Expect("side = 'BUY'", drop=True)
engines = pytest.mark.parametrize("chosen", ["columnar", pytest.param("rows", marks=pytest.mark.long)])
mostly = pytest.mark.parametrize("chosen", ["columnar", pytest.param("rows", marks=pytest.mark.full)])


def told(engine: Engine, table: str) -> tuple[Ledger, dict[str, Any]]:
    """The ledger of the newest commit, and its metrics."""
    head = next(iter(engine.table(table).ancestors()))
    return Ledger.from_json(head.summary["calve.ledger"]), metrics_of(head.summary)


def messages(engine: Engine, table: str) -> list[tuple[str, str]]:
    found = engine.letters(table).select("offset", "reason", "message").collect()
    return [(row["reason"], row["message"]) for row in sorted(found)]


@engines
def test_records_that_do_not_meet_one_are_dead_letters_or_dropped_and_counted_by_rule(
    engine: Engine, chosen: str
) -> None:
    topic = engine.topic(partitions=1)
    engine.produce(topic, 10)  # prices 0 to 9, each second one a SELL
    steps: tuple[Step, ...] = (
        Filter("id <> 9"),
        Sql("SELECT *, price * 2 AS twice FROM source WHERE id <> 8"),
        KEEPS,
        DROPS,
    )
    engine.drain(engine.target(topic, steps=steps, engine=chosen))
    rows = {row["id"]: row["side"] for row in engine.rows(topic).collect()}
    sides = {each["id"]: each["side"] for each in trades(10)}
    low = [each["id"] for each in trades(10) if each["price"] < 3]
    others = [number for number in range(8) if number not in low]
    assert rows == {number: "BUY" for number in others if sides[number] == "BUY"}
    ledger, metrics = told(engine, topic)
    dropped = sum(sides[number] != "BUY" for number in others)
    assert metrics["left_out"] == {"steps[0].filter": 1, "steps[1].sql": 1, DROPS.condition: dropped}
    assert (
        metrics["unmet"]
        == {KEEPS.condition: len(low)}
        == {KEEPS.condition: ledger.rejected["expectation_unmet"]}
    )
    assert ledger.filtered_by_steps == dropped + 2
    text = f"expect[0] is not met: {KEEPS.condition}"
    assert messages(engine, topic) == [("expectation_unmet", text)] * len(low)
    assert_proved(proof(engine, topic, steps=steps))


@mostly
def test_too_few_records_are_reported_until_enough_others_came(
    engine: Engine, capsys: pytest.CaptureFixture[str], chosen: str
) -> None:
    topic = engine.topic(partitions=1)
    engine.produce(topic, 10)
    expected = replace(KEEPS, at_least=0.9)
    target = engine.target(topic, steps=(expected,), engine=chosen)
    capsys.readouterr()
    engine.drain(target)
    log = capsys.readouterr().out
    [missed] = [each for each in map(json.loads, log.splitlines()) if each["event"] == "expectation.missed"]
    assert_as_documented([missed])
    assert (missed["condition"], missed["met"], missed["at_least"]) == (expected.condition, 0.7, 0.9)
    assert goes_off("table-expectations", lines(log))
    assert told(engine, topic)[1]["expected"] == [
        {"condition": expected.condition, "met": 0.7, "at_least": 0.9}
    ]
    engine.produce(topic, [each | {"price": 9} for each in trades(40, first=10)])
    engine.drain(target)
    log = capsys.readouterr().out
    assert "expectation.missed" not in log
    assert not goes_off("table-expectations", lines(log))
    assert EXPECTATIONS_MISSED.source.event == "expectation.missed"  # type: ignore[union-attr]


@mostly
def test_a_table_suspends_without_a_trace_until_the_expectation_is_corrected(
    engine: Engine, chosen: str
) -> None:
    topic = engine.topic(partitions=1)
    engine.produce(topic, 10)
    strict = replace(KEEPS, at_least=0.8, suspends=True)
    target = engine.target(topic, steps=(strict,), engine=chosen)
    for _ in range(2):
        with suspended("expectation_missed") as caught:
            engine.drain(target)
        assert (
            "holds for 70 % of the records of the last hour; at least 80 % are expected"
            in caught.value.message
        )
        assert engine.rows(topic).count() == 0
        assert engine.letters(topic).count() == 0
    engine.drain(engine.target(topic, steps=(replace(strict, at_least=0.5),), engine=chosen))
    assert engine.rows(topic).count() == 7
    assert engine.letters(topic).count() == 3
    assert_proved(proof(engine, topic, steps=(strict,)))


@pytest.mark.long
def test_a_dead_letter_comes_back_when_the_expectation_is_corrected(engine: Engine) -> None:
    topic = engine.topic(partitions=1)
    engine.produce(topic, 10)
    engine.drain(engine.target(topic, steps=(KEEPS,)))
    wider = Expect("price >= 1")
    engine.table(topic).set_properties({REDRIVE: Request("r1", "now").to_json()})
    engine.drain(engine.target(topic, steps=(wider,)))
    ledger, _ = told(engine, topic)
    assert (ledger.redriven, ledger.refused) == (2, {"expectation_unmet": 1})
    assert engine.rows(topic).count() == 9


@engines
def test_behind_an_exploded_list_rows_are_judged(engine: Engine, chosen: str) -> None:
    """A row that is refused takes its record with it; a row that is dropped goes alone."""
    topic = engine.topic(schema=schema(), partitions=1)
    engine.produce(topic, [sale(1, "a", "b"), sale(2, "a"), sale(3, "a", "b", "c")])
    steps = (*ROWS, Expect("items_sku <> 'b'", drop=True), Expect("items_price < 2"))
    engine.drain(engine.target(topic, steps=steps, engine=chosen))
    found = engine.rows(topic).select("id", "items_sku").collect()
    assert sorted(map(tuple, found)) == [(1, "a"), (2, "a")]
    ledger, metrics = told(engine, topic)
    assert metrics["left_out"] == {"items_sku <> 'b'": 2 - ledger.rejected["expectation_unmet"]}
    assert metrics["unmet"] == {"items_price < 2": 1}
    assert messages(engine, topic) == [("expectation_unmet", "expect[1] is not met: items_price < 2")]
    assert_proved(proof(engine, topic, steps=steps))


@mostly
def test_in_a_table_of_upserts_a_dropped_record_deletes_its_row_and_a_refused_one_does_not(
    engine: Engine, chosen: str
) -> None:
    topic = engine.topic(partitions=1)
    rows = trades(4)
    later = [rows[0] | {"side": "OTHER"}, rows[1] | {"price": -1}]
    engine.produce(topic, [*(each | {"side": "BUY", "price": 5} for each in rows)])
    steps = (Flatten(), Expect("price >= 0"), Expect("side = 'BUY'", drop=True))
    target = engine.target(topic, upsert=Upsert(("id",)), steps=steps, engine=chosen)
    engine.drain(target)
    engine.produce(topic, [later[0] | {"price": 5}, later[1] | {"side": "BUY"}])
    engine.drain(target)
    assert sorted(row["id"] for row in engine.rows(topic).collect()) == [
        rows[each]["id"] for each in (1, 2, 3)
    ]
    assert_proved(proof(engine, topic, steps=steps))


@pytest.mark.long
def test_a_route_is_a_rule_that_is_counted(engine: Engine) -> None:
    topic = engine.topic(partitions=1)
    engine.produce(topic, 10)
    sides = [each["side"] for each in trades(10)]
    route = Route("side", (sides[0],), (), "leave_out")
    engine.drain(engine.target(topic, steps=(route, Expect("id >= 0"))))
    ledger, metrics = told(engine, topic)
    assert metrics["left_out"] == {"route": ledger.filtered_by_steps} == {"route": 10 - sides.count(sides[0])}
