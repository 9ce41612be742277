"""Counts by rule, and whether enough records of the last hour met an expectation."""

from __future__ import annotations

import json
from typing import Any

import pytest

from calve.config.steps import Expect, Filter, Flatten, Route, Sql, Step, noted, place
from calve.errors import Suspended
from calve.rounds.expectations import Missed, Rules, check_rules, missed, require_expected
from calve.schema.columns import struct
from calve.settings.notation import share
from calve.table.position import Ledger
from calve.table.protocol import Commit
from calve.table.summary import LEDGER, METRICS, ROUND

STEPS: tuple[Step, ...] = (
    Route("side", ("BUY",), (), "leave_out"),
    Flatten(),
    Filter("id > 0"),
    Sql("SELECT * FROM source WHERE id < 9"),
    Expect("price > 0", at_least=0.9),
    Expect("side = 'BUY'", drop=True, at_least=0.9),
    Expect("size > 0"),
)
NOW = 10_000.0


def commit(age_s: float, ledger: Ledger, unmet: int = 0, *, name: str = "") -> Commit:
    metrics = json.dumps({"unmet": {"price > 0": unmet}})
    summary = {ROUND: name or str(age_s), LEDGER: ledger.to_json(), METRICS: metrics}
    return Commit(id=1, parent=None, committed_at=NOW - age_s, summary=summary)


def of(past: list[Commit], ledger: Ledger, **rules: dict[str, int]) -> list[tuple[str, float]]:
    return [
        (each.condition, round(each.met, 3)) for each in missed(STEPS, past, ledger, Rules(**rules), now=NOW)
    ]


def test_rules_are_named_by_their_places_and_expectations_by_their_conditions() -> None:
    assert [place(STEPS, n) for n in range(len(STEPS))] == [
        "route",
        "steps[0].flatten",
        "steps[1].filter",
        "steps[2].sql",
        "expect[0]",
        "expect[1]",
        "expect[2]",
    ]
    rules = Rules.of(STEPS, {0: 3, 2: 1, 3: 0, 5: 2}, {4: 7})
    assert rules.left_out == {"route": 3, "steps[1].filter": 1, "side = 'BUY'": 2}
    assert rules.unmet == {"price > 0": 7}


@pytest.mark.parametrize(
    "ledger",
    [
        Ledger(filtered_by_steps=4, rejected={"expectation_unmet": 2}),
        Ledger(filtered_by_steps=3, rows_filtered=1, skipped={"expectation_unmet": 2}),
    ],
)
def test_counts_by_rule_are_those_of_the_ledger(ledger: Ledger) -> None:
    check_rules(Rules({"route": 3, "steps[1].filter": 1}, {"price > 0": 2}), ledger)
    for wrong in (Rules({"route": 3}, {"price > 0": 2}), Rules({"route": 4}, {"price > 0": 3})):
        with pytest.raises(Suspended, match="ledger has"):
            check_rules(wrong, ledger)


def test_the_share_is_that_of_the_records_that_came_to_the_expectations() -> None:
    ledger = Ledger(applied=90, deduplicated=5, filtered_by_steps=50, rejected={"expectation_unmet": 5})
    assert of([], ledger, unmet={"price > 0": 5}) == []
    worse = Ledger(applied=80, rejected={"expectation_unmet": 20, "malformed": 900})
    assert of([], worse, unmet={"price > 0": 15, "size > 0": 5}) == [("price > 0", 0.85)]
    dropped = Ledger(applied=80, filtered_by_steps=70)
    assert of([], dropped, left_out={"side = 'BUY'": 20, "route": 50}) == [("side = 'BUY'", 0.8)]
    assert of([], Ledger(), unmet={}) == []


def test_rounds_of_the_last_hour_count_each_once() -> None:
    fine, bad = Ledger(applied=10), Ledger(applied=80, rejected={"expectation_unmet": 20})
    assert of([commit(60, bad, 20)], fine) == [("price > 0", 0.818)]
    assert of([commit(3_601, bad, 20)], fine) == []
    repeated = [commit(60, bad, 20, name="r"), commit(70, bad, 20, name="r")]
    assert of(repeated, Ledger(applied=110)) == []
    assert of([commit(60, Ledger(applied=900)), commit(70, bad, 20)], fine) == []


def test_a_share_as_it_is_written_may_be_met_exactly() -> None:
    ledger = Ledger(applied=999, rejected={"expectation_unmet": 1})
    written = share("99.9%")
    expected = (Expect("price > 0", at_least=written),)
    assert written > 0.999
    assert missed(expected, [], ledger, Rules(unmet={"price > 0": 1}), now=NOW) == ()
    assert missed(expected, [], ledger, Rules(unmet={"price > 0": 2}), now=NOW) != ()


def test_only_an_expectation_that_suspends_stops_a_table() -> None:
    found = [Missed("a > 0", 0.99996, 1.0), Missed("b > 0", 0.5, 0.9)]
    require_expected("t", (Expect("a > 0"), Expect("b > 0", at_least=0.9)), found)
    with pytest.raises(Suspended, match=r"`a > 0` holds for 99\.99 % of .* at least 100 % are expected\n"):
        require_expected("t", (Expect("a > 0", at_least=1.0, suspends=True),), found)


def test_a_share_changes_nothing_that_a_round_notes_of_its_steps() -> None:
    def note(step: Expect) -> Any:
        return noted((step,), struct(), {})

    assert note(Expect("a > 0")) == note(Expect("a > 0", at_least=1.0, suspends=True))
    assert note(Expect("a > 0")) != note(Expect("a > 0", drop=True)) != note(Expect("a > 1", drop=True))
