"""What tables have cost, out of receipts and runs that are known."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from calve.table.position import Ledger
from cli.lake import Snapshot
from cli.look.cost.measured import CommitCosts, Run, commit_costs, measured, run_of
from cli.look.cost.model import rates

RATES = rates()
NOW = datetime(2026, 1, 2, tzinfo=UTC)
HOUR = timedelta(hours=1)


def snapshot(hours_ago: float, records: int, **metrics: float) -> Snapshot:
    ledger = Ledger(span=records, consumed=records, applied=records)
    summary = {"calve.ledger": ledger.to_json(), "calve.metrics": json.dumps(metrics)}
    return Snapshot(1, None, summary, (NOW - hours_ago * HOUR).timestamp(), operation="append")


def taken(cpu_s: float, *, table: str = "a", hours_ago: float = 10) -> CommitCosts:
    return CommitCosts(table, NOW - hours_ago * HOUR, 4, 2_000_000, 1_000, 10_000, 50, 1_000_000, cpu_s)


def test_receipts_are_summed_and_commits_without_one_are_left_out() -> None:
    figures = {"s3_puts": 4, "s3_gets": 6, "catalog_calls": 9, "bytes_written": 100, "cpu_s": 1.5}
    history = [snapshot(1, 10, **figures), snapshot(3, 20, **figures), snapshot(5, 40, bytes_in=1)]
    assert commit_costs("a", history) == CommitCosts("a", NOW - 3 * HOUR, 2, 30, 8, 12, 18, 200, 3.0)
    assert commit_costs("a", history[2:]) is None


def test_a_job_without_runs_costs_its_cpu_seconds() -> None:
    (found,) = measured([taken(7200)], [], RATES, NOW)
    assert (found.by, found.dpu_hours) == ("cpu", 0.5)
    requests = 1_000 * RATES["s3_put"] + 10_000 * RATES["s3_get"]
    assert found.usd == pytest.approx(0.5 * RATES["glue_dpu_hour"] + requests, abs=1e-6)
    assert found.usd_per_million == pytest.approx(found.usd / 2, abs=1e-6)


def test_the_tables_of_a_job_share_its_runs_by_the_cpu_that_they_take() -> None:
    runs = [Run(NOW - 20 * HOUR, NOW, 40.0, memory=False)]
    tables = [taken(300), taken(100, table="b"), taken(50, table="new", hours_ago=1)]
    found = measured(tables, runs, RATES, NOW)
    # 30, 10 and 50 seconds an hour, of 2 DPUs.
    assert [each.dpu_hours for each in found] == [
        pytest.approx(20 * 30 / 90, abs=1e-3),
        pytest.approx(20 * 10 / 90, abs=1e-3),
        pytest.approx(2 * 50 / 90, abs=1e-3),
    ]
    assert {each.by for each in found} == {"runs"}


@pytest.mark.parametrize(
    ("glue", "hours"),
    [
        ({"CompletedOn": NOW - HOUR, "ExecutionTime": 3600, "WorkerType": "G.1X", "NumberOfWorkers": 4}, 4.0),
        ({"CompletedOn": NOW - HOUR, "ExecutionTime": 3600, "DPUSeconds": 5400.0, "WorkerType": "G.1X"}, 1.5),
        ({"WorkerType": "G.025X", "NumberOfWorkers": 2}, 1.0),
    ],
    ids=["workers", "auto scaling", "still running"],
)
def test_a_run_of_glue_has_dpu_hours(glue: dict[str, Any], hours: float) -> None:
    run = run_of({"StartedOn": NOW - 2 * HOUR} | glue, NOW)
    assert run.dpu_hours == pytest.approx(hours)
    assert not run.memory


def test_of_a_run_that_began_before_the_history_only_the_rest_counts() -> None:
    run = Run(NOW - 4 * HOUR, NOW, 8.0, memory=True)
    assert run.share_since(NOW - HOUR) == pytest.approx(2.0)
    assert run.share_since(NOW) == 0
    assert run.share_since(NOW - 9 * HOUR) == 8.0
