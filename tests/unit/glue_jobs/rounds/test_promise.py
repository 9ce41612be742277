"""The word that a promise was not kept: at once, when the cause is another, and seldom while it lasts."""

from __future__ import annotations

import json

import pytest

from calve.rounds.scheduling import MISSED, Schedule
from calve.table.position import Ledger, Position
from glue_jobs.rounds.loop import FIGURES, REPORT_EVERY_S, FreshnessTarget
from glue_jobs.table.open_table import Outcome
from tests.integration.support.events import assert_as_documented

WHO = {"table": "db.t", "topic": "t"}
LOOKED_AT = 1_000.0


def outcome(cause: str | None, *, records: int = 10, more: bool = False, round_ms: int = 3_000) -> Outcome:
    metrics = dict.fromkeys(FIGURES, 0) | {"round_ms": round_ms, MISSED: cause}
    ledger = Ledger(span=records, consumed=records, applied=records)
    base = Position({}, "r", "w", "t")
    return Outcome(base, {}, more=more, snapshot=1, ledger=ledger, metrics=metrics, commit_ms=1_000)


def test_a_miss_is_told_once_again_when_its_cause_changes_and_while_it_lasts(
    capsys: pytest.CaptureFixture[str],
) -> None:
    promise, pace = FreshnessTarget(), Schedule(4.0).level(LOOKED_AT - 8, 0)

    def told(cause: str | None) -> list[str]:
        promise.after(pace, outcome(cause), LOOKED_AT, WHO)
        events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert_as_documented(events)
        assert all(each["busy"] == 0.5 for each in events)
        return [each["cause"] for each in events]

    assert [told(each) for each in (None, "capacity", "capacity")] == [[], ["capacity"], []]
    assert told("catalog") == ["catalog"]
    promise.reported_at -= REPORT_EVERY_S
    assert told("catalog") == ["catalog"]
    assert [told(each) for each in (None, "catalog")] == [[], ["catalog"]]


def test_a_round_teaches_what_it_took_and_whether_the_table_is_level() -> None:
    promise = FreshnessTarget()
    level = promise.after(Schedule(4.0), outcome(None), LOOKED_AT, WHO)
    assert (level.level_at, level.rounds[-1].seconds, level.commit_s) == (LOOKED_AT, 4.0, 1.0)
    behind = promise.after(level, outcome(None, more=True), LOOKED_AT + 5, WHO)
    assert (behind.level_at, len(behind.rounds)) == (LOOKED_AT, 2)
    assert promise.after(level, outcome(None, records=0), LOOKED_AT + 5, WHO).rounds == level.rounds
