"""What is printed is one line for each thing, whatever is in its name."""

from __future__ import annotations

import io

import pytest
from rich.console import Console as Rich

from cli.console import Branch, Console
from cli.progress import BarProgress

NAME = "a\nb\x1b[2J"
SHOWN = "a\\nb\\x1b[2J"


def test_a_name_with_a_newline_stays_on_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    console = Console()
    console.event("round.retried", why=NAME, failures=1)
    assert capsys.readouterr().err == f"round.retried  why={SHOWN}  failures=1\n"
    console.table("row", [{"name": NAME, "rows": 3}])
    assert capsys.readouterr().out == f"row name={SHOWN}  rows=3\n"
    console.tree("plan", Branch(NAME, "+", NAME))
    assert capsys.readouterr().out == f"plan + {SHOWN}  {SHOWN}\n"
    console.problems("problem", [("calve.yaml:1", NAME, NAME)])
    assert capsys.readouterr().out == f"problem  calve.yaml:1  {SHOWN}  {SHOWN}\n"


def test_reasons_are_sentences(capsys: pytest.CaptureFixture[str]) -> None:
    Console().event("table.engine", engine="rows", reasons=["its mode is deduplicate", "it has steps"])
    assert (
        capsys.readouterr().err
        == "table.engine  engine=rows  reasons=its mode is deduplicate; it has steps\n"
    )


def test_what_goes_into_a_file_goes_there_whole_and_nowhere_else(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TTY_COMPATIBLE", "1")  # rich takes any stream for a terminal
    file = io.StringIO()
    console = Console(file=file)
    console.heading("1  Begin")
    console.event("table.created", table="shop.orders")
    console.table("row", [{"name": "a", "rows": 3}])
    console.say("done")
    assert file.getvalue() == "== 1  Begin\ntable.created  table=shop.orders\nrow name=a  rows=3\ndone\n"
    assert capsys.readouterr() == ("", "")


def test_tasks_at_the_same_time_have_a_bar_each() -> None:
    file = io.StringIO()
    progress = BarProgress(Rich(file=file, force_terminal=True, width=100))
    with (
        progress.task("deploying", total=3) as one,
        progress.task("producing", total=2_000_000, unit="bytes") as two,
    ):
        one.update(1, note="stack")
        two.update(1_000_000)
    with progress.task("after"):
        pass
    last = file.getvalue().rsplit("deploying", 1)[1]
    assert "3 of 3" in last
    assert "2.0 MB of 2.0 MB" in last
    assert "after" in last
