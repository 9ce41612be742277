"""A table that lacks a record, has one twice, or holds another value is not measured."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bench.checking import Table, problem
from bench.topics import Topic
from bench.workloads.trades import TRADES

TOPIC = Topic("trades_1", TRADES, 1_000, 55_000)
GOOD = Table(1_000, 1_000, {"price": 7, "_kafka.offset": 9, "_kafka.key": 3}, files=2, bytes=9_000, commits=1)


def test_a_table_with_every_record_once_and_the_same_values_is_right() -> None:
    assert problem(GOOD, TOPIC, None) is None
    without_key = replace(GOOD, sums={"price": 7, "_kafka.offset": 9}, files=9, bytes=1)
    assert problem(without_key, TOPIC, GOOD) is None


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (replace(GOOD, rows=999, places=999), "999 rows of 999 records, the topic 1,000"),
        (replace(GOOD, rows=1_001), "1,001 rows of 1,000 records, the topic 1,000"),
        (replace(GOOD, places=999), "1,000 rows of 999 records, the topic 1,000"),
        (replace(GOOD, sums={"price": 8, "_kafka.offset": 9}), "its columns price hold other values"),
    ],
)
def test_what_is_wrong_with_a_table_is_told(found: Table, why: str) -> None:
    told = problem(found, TOPIC, GOOD)
    assert told is not None
    assert why in told
