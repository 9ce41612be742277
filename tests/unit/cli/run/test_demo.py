"""What the demo counts, and that the commands it recommends find its tables."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from calve.errors import CalveError
from cli.embedded import elsewhere
from cli.embedded.stack import Stack
from cli.run.datagen.plan import Fates
from cli.run.demo.checks import Count, Found, counts_of, proof, unproved
from cli.run.demo.demo import demo
from cli.run.demo.trading import PLANS, job_on
from cli.verify.findings import Check, Finding, State, Verification

ROOT = Path(__file__).parents[4]
FATES = Fates(applied=7, dead_lettered={"truncated": 2}, duplicates=1)
RIGHT = Found(total=9, rows=7, repeated=1, dead_letters={"truncated": 2})


def differing(found: Found, *, verified: int = 9) -> list[str]:
    counts = counts_of("trades", FATES, {"Other": found}, total={"Iceberg": 9, "verify": verified})
    return [each.differs for each in counts if each.differs]


def test_right_counts_do_not_differ():
    assert differing(RIGHT) == []


def test_every_figure_that_differs_is_named():
    wrong = Found(total=8, rows=6, repeated=0, dead_letters={"truncated": 1})
    assert differing(wrong) == [
        "trades, applied: expected 7, Other finds 6",
        "trades, duplicates: expected 1, Other finds 0",
        "trades, truncated: expected 2, Other finds 1",
        "trades, rows in all: expected 9, Other finds 8",
    ]
    assert differing(RIGHT, verified=10) == ["trades, rows in all: expected 9, verify finds 10"]


def test_dead_letters_that_are_missing_and_those_that_nobody_expected_differ():
    strange = Found(total=9, rows=7, repeated=1, dead_letters={"bad_magic": 2})
    assert differing(strange) == [
        "trades, bad_magic: expected 0, Other finds 2",
        "trades, truncated: expected 2, Other finds 0",
    ]


def test_a_table_that_is_wrong_and_one_that_is_not_all_proved_are_named():
    def said(state: State, *findings: Finding) -> Verification:
        return Verification("t.t", "t", (Check("contents", state),), findings)

    lost = Finding("contents", "records are not in the table")
    found = {"right": said("proved"), "wrong": said("failed", lost), "old": said("not verifiable")}
    assert unproved(found) == [
        "wrong: verify found faults",
        "old: not all of it is proved",
    ]


def test_a_line_of_the_proof_says_which_reader_differs():
    counts = counts_of(
        "trades", FATES, {"PyIceberg": RIGHT, "DuckDB": replace(RIGHT, rows=6)}, total={"verify": 9}
    )
    counts += [Count("trades", "rows", 9, {"Snowflake": 8}), Count("others", "rows", 9, {"PyIceberg": 8})]
    line = proof("trades", 9, 7, 2, Verification("t.t", "t", (Check("contents", "proved"),), ()), counts)
    assert line == {
        "table": "trades", "records": 9, "rows": 7, "letters": 2,
        "verify": "proved", "PyIceberg": "exact", "DuckDB": "differs", "published": "differs",
    }  # fmt: skip
    assert proof("none", 9, 7, 2, Verification("t.t", "t", (), ()), counts)["PyIceberg"] is None


STACK = Stack(
    root=ROOT,
    bootstrap_servers="127.0.0.1:1",
    ssl_bootstrap_servers="",
    sasl_bootstrap_servers="",
    ca_file=ROOT,
    sasl_user="",
    sasl_password="",
    registry_url="http://127.0.0.1:2",
    aws_endpoint="http://127.0.0.1:3",
    bucket="lake",
    region="us-east-1",
    logs=ROOT,
)


def test_the_demo_counts_the_tables_of_the_calve_yaml_that_ships():
    assert [table.topic for table in job_on(STACK).tables] == [plan.topic for plan in PLANS]


def test_a_checkout_without_the_stand_ins_is_named_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(elsewhere, "STAND_INS", tmp_path / "standins")
    with pytest.raises(CalveError, match=f"part of a checkout of calve: {tmp_path}/standins is missing"):
        demo()
    assert list(tmp_path.iterdir()) == []
