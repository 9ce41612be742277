"""How a run of a job is summed up: by its events, and by what the job says of its tables at its end."""

from __future__ import annotations

import io
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from rich.console import Console as Rich

from calve.outputs.job_status import JobStatus, ReportedTable, Run, TableState
from cli.console import Console
from cli.progress import BarProgress, LineProgress
from cli.run.job_process import RunSummary

BEGAN = datetime(2026, 1, 2, tzinfo=UTC)
NOW = BEGAN.isoformat()
GOOD = ReportedTable("r", TableState("running", since=NOW), made=True)
BAD = ReportedTable(
    "r", TableState("suspended", "schema_unsupported", "a string has no columns", NOW, "leave it out")
)


def committed(table: str, rows: int, **rejects: int) -> dict[str, Any]:
    time = (BEGAN + timedelta(seconds=7)).isoformat()
    return {
        "event": "round.committed",
        "time": time,
        "table": table,
        "topic": "t",
        "rows": rows,
        "dead_letters": rejects,
        "lost": 0,
    }


def summary(*events: dict[str, Any], **states: str) -> RunSummary:
    found = RunSummary(began=BEGAN)
    for each in events:
        found.hear(each)
    found.hear({"event": "job.ended", "states": {f"shop.{name}": state for name, state in states.items()}})
    return found


def said(**tables: ReportedTable) -> JobStatus:
    return JobStatus({"r": Run(NOW, NOW, NOW)}, tables)


def test_a_run_is_summed_up_by_table_with_its_dead_letters_by_reason(
    capsys: pytest.CaptureFixture[str],
) -> None:
    events = [
        committed("shop.t_1", 4000),
        committed("shop.t_1", 2, malformed=3),
        committed("shop.t_1", 0, malformed=1, truncated=1),
    ]
    run = summary(*events, t_1="running", users="suspended")
    over = run.ended(said(t_1=GOOD, users=BAD))
    assert over.how == ("fail", "1 of 2 tables stopped")
    over.show(Console())
    users, t_1, stopped, letters, sums = capsys.readouterr().out.splitlines()
    assert users == "ingested table=shop.users  state=refused  rows=0  dead_letters=-  time=-"
    assert (
        t_1
        == "ingested table=shop.t_1  state=ended  rows=4,002  dead_letters=4 malformed, 1 truncated  time=7s"
    )
    assert "what=refused" in stopped
    assert "schema_unsupported: a string has no columns  fix=leave it out; then start the job" in stopped
    assert "where=t_1  what=5 dead letters: 4 malformed, 1 truncated  fix=calve dead-letters list" in letters
    assert sums.startswith("2 tables, 4,002 rows, 5 dead letters in ")


def test_a_run_without_trouble_and_one_whose_status_cannot_be_read() -> None:
    run = summary(committed("shop.t_1", 5), t_1="running")
    assert run.ended(said(t_1=GOOD)).how == ("done", "")
    assert [each.state for each in run.ended(None).tables] == ["running"]
    assert summary(users="suspended").ended(None).how == ("fail", "1 of 1 table stopped")
    letters = summary(committed("shop.t_1", 5, malformed=1), t_1="running").ended(said(t_1=GOOD))
    assert letters.how == ("warn", "see 1 table below")


def test_no_tick_stands_beside_a_problem_nor_before_the_end() -> None:
    drawn = io.StringIO()
    with BarProgress(Rich(file=drawn, force_terminal=True, width=120)).task("ingesting", total=3) as task:
        task.update(3)  # all that was known: a table may still be retried
        assert "✓" not in drawn.getvalue()
        task.end("fail", "1 of 2 tables stopped")
    assert "✓" not in drawn.getvalue()
    assert "✗" in drawn.getvalue()
    assert "1 of 2 tables stopped" in drawn.getvalue()
    lines: list[str] = []
    with LineProgress(lines.append).task("ingesting") as line:
        line.end("fail", "1 of 2 tables stopped")
    assert lines[-1].startswith("ingesting: ended, 1 of 2 tables stopped, in 0.0 s")
