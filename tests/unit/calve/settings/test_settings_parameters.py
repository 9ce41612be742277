"""Parameters of a table's queries: literals of Spark SQL where the query marks them, and nowhere else."""

from __future__ import annotations

from pathlib import Path

import pytest

from calve.config.steps import Filter, Sql, Step
from calve.settings.entries.steps import filled
from tests.unit.calve.calve_yaml import jobs, refused

TRADES = """
  flagged:
    topic: trades
    parameters: {large: 4000, least: -1.5, venue: "d'Or"}
    steps:
      - sql: select *, quantity > :large as large from source where price > :least
      - filter: venue = :venue
"""


def steps(folder: Path, overlay: str | None = None) -> tuple[Step, ...]:
    [job] = jobs(folder, TRADES, overlay=overlay)
    return job.tables[0].steps


def test_marks_become_literals(tmp_path: Path) -> None:
    assert steps(tmp_path) == (
        Sql("select *, quantity > 4000 as large from source where price > (-1.5)"),
        Filter(r"venue = 'd\'Or'"),
    )


def test_an_environment_has_values_of_its_own(tmp_path: Path) -> None:
    overlay = "tables: {flagged: {parameters: {large: 9}}}"
    (query, _) = steps(tmp_path, overlay)
    assert query == Sql("select *, quantity > 9 as large from source where price > (-1.5)")


@pytest.mark.parametrize(
    "query",
    [
        "select ':large' as a, \":large\" as b, `:large` as c from source",
        r"select 'it\'s :large' as a from source",
        "select a -- :large\n from source",
        "select a /* :large\n */ from source",
        "select a::int, b ::int from source",
    ],
)
def test_what_only_looks_like_a_mark_stays(query: str) -> None:
    assert filled(query, {"large": 1, "int": 2}) == query


@pytest.mark.parametrize(
    ("value", "literal"),
    [
        (7, "7"),
        (-7, "(-7)"),
        (0.25, "0.25"),
        (1e-07, "1e-07"),
        (True, "true"),
        ("a\\b'c", r"'a\\b\'c'"),
        ("", "''"),
    ],
)
def test_a_value_is_the_literal_of_its_kind(value: object, literal: str) -> None:
    assert filled("x=:p", {"p": value}) == f"x={literal}"  # type: ignore[dict-item]


def test_a_mark_beside_a_sign_is_no_comment() -> None:
    assert filled("select 1-:p from source", {"p": -1}) == "select 1-(-1) from source"


def test_marks_without_a_parameter_and_parameters_without_a_mark_are_told_together(tmp_path: Path) -> None:
    wrong = TRADES.replace("{large: 4000", "{larg: 4000").replace("venue = :venue", "venue = 'x'")
    found = "\n".join(refused(tmp_path, wrong))
    assert "tables.flagged.steps[0].sql names :large, which is not a parameter of the table" in found
    assert 'Did you mean "larg"?' in found
    assert "tables.flagged.parameters.larg is named by no step" in found
    assert "tables.flagged.parameters.venue is named by no step" in found


@pytest.mark.parametrize(
    ("parameters", "told"),
    [
        ("{Large: 1}", "small letters"),
        ("{large: [1]}", "must be a text, a number, true or false"),
    ],
)
def test_names_and_values_that_are_none(tmp_path: Path, parameters: str, told: str) -> None:
    table = f"  a: {{topic: a, parameters: {parameters}, steps: [{{filter: 'x > :large'}}]}}\n"
    assert told in "\n".join(refused(tmp_path, table))
