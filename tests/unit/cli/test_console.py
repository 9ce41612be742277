"""What is printed is one line for each thing, whatever is in its name."""

from __future__ import annotations

import pytest

from cli.console import Branch, Console

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
