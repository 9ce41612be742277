"""docs/query.md: what it says was parsed is parsed here, what it says runs is run by
tests/integration/commands/test_query_page.py.
"""

from __future__ import annotations

import shlex

import duckdb
import pytest
import sqlglot
from sqlglot import exp

from tests.query_page import PAGE, Snippet, snippets

RUN = {"console", "properties", "python", "python spark", "sql spark", "sql trino"}
DIALECTS = ("athena", "snowflake")
PARSED = {f"sql {dialect}" for dialect in (*DIALECTS, "duckdb")}


def parsed(kind: str) -> list[Snippet]:
    found = [each for each in snippets() if (each.known, each.kind) == ("Parsed", kind)]
    assert found
    return found


def test_every_snippet_says_what_is_known_of_it() -> None:
    assert PAGE.read_text().count("\n```") == 2 * len(snippets())
    for each in snippets():
        if each.known:
            assert each.kind in {"Run": RUN, "Parsed": PARSED}[each.known], each
        else:
            assert each.text.startswith("$ aws "), each
    assert {each.kind for each in snippets()} == RUN | PARSED


@pytest.mark.parametrize("dialect", DIALECTS)
def test_sql_is_that_of_its_reader(dialect: str) -> None:
    for snippet in parsed(f"sql {dialect}"):
        for statement in snippet.statements:
            found = sqlglot.parse_one(statement, dialect=dialect)
            assert not isinstance(found, exp.Command), statement
            assert found.sql(dialect)


def test_what_duckdb_attaches_is_sql_of_duckdb() -> None:
    with duckdb.connect() as connection:
        for snippet in parsed("sql duckdb"):
            assert len(connection.extract_statements(snippet.text)) == len(snippet.statements)


def test_a_shell_can_read_the_commands() -> None:
    for snippet in snippets():
        if snippet.kind == "console":
            assert all(shlex.split(line)[0] == "$" for line in snippet.text.splitlines())
