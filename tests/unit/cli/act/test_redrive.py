"""`calve dead-letters redrive`: what it asks the job for, and what it says where nobody answers."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from typer.testing import CliRunner

from calve.errors import CalveError, Retryable
from calve.requests.redrive import Request, Result
from calve.schema.columns import DEAD_LETTERS, REDRIVEN, with_ids
from calve.table.summary import REDRIVE, REDRIVE_RESULT
from cli.act import requests
from cli.main import app
from tests.unit.cli.act.test_dead_letters import JOB, NAME, SCHEMA, catalog, keep, rejected  # noqa: F401 a fixture

if TYPE_CHECKING:
    from tests.unit.cli.folder_catalog import FolderCatalog


@pytest.fixture
def main(catalog: FolderCatalog, monkeypatch: pytest.MonkeyPatch) -> Table:  # noqa: F811 the fixture
    """The table, beside three open letters and one that came back; nobody waits longer than a moment."""
    keep(
        catalog,
        rejected(0, 3),
        rejected(0, 4, "unknown_schema_id", schema_id=9),
        rejected(0, 5, "unknown_schema_id", schema_id=9),
        rejected(0, 6, "unknown_schema_id", schema_id=9, redriven="x1"),
    )
    monkeypatch.setattr(requests, "ASK_S", 0.0)
    monkeypatch.setattr(requests, "PATIENCE_S", 0.0)
    fresh = replace(JOB, tables=tuple(replace(each, freshness_s=0.0) for each in JOB.tables))
    monkeypatch.setattr("cli.act.requests.load_jobs", lambda *_, **__: (fresh,))
    table: Table = catalog.load_table((NAME.database, NAME.table))
    return table


def run(*arguments: str) -> tuple[int, str, BaseException | None]:
    result = CliRunner().invoke(app, ["dead-letters", *arguments])
    return result.exit_code, result.stdout, result.exception


def answering(monkeypatch: pytest.MonkeyPatch, **figures: Any) -> list[Request]:
    """A job that answers whenever the table is looked at again; the requests that it saw."""
    seen: list[Request] = []

    def refresh(table: Table) -> Table:
        request = Request.pending(table.properties)
        assert request is not None
        seen.append(request)
        result = Result(request.id, "now", **figures)
        with table.transaction() as change:
            change.set_properties({REDRIVE_RESULT: result.to_json()})
            change.remove_properties(REDRIVE)
        return table

    monkeypatch.setattr(Table, "refresh", refresh)
    monkeypatch.setattr(requests, "PATIENCE_S", 60.0)
    return seen


def test_the_request_holds_the_selection_and_the_answer_is_shown(
    main: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = answering(monkeypatch, selected=2, redriven=2)
    arguments = ["redrive", "trades", "--yes", "--reason", "unknown_schema_id", "--schema-id", "9"]
    code, text, error = run(*arguments, "--since", "2020-01-01T00:00:00Z")
    assert code == 0, error
    assert "reason=unknown_schema_id  schema_id=9  dead_letters=2" in text
    assert "in the table now: 2\nstill dead: none" in text
    [request] = seen
    assert (request.reason, request.schema_id, request.until) == ("unknown_schema_id", 9, None)
    assert datetime.fromisoformat(request.since or "") == datetime(2020, 1, 1, tzinfo=UTC)


def test_the_answer_is_one_document(main: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    answering(monkeypatch, selected=3, redriven=1, present=1, refused={"malformed": 1})
    code, text, error = run("redrive", "trades", "--yes", "--output", "json")
    assert code == 0, error
    found = json.loads(text)
    assert (found["table"], found["redriven"], found["present"]) == ("trading.trades", 1, 1)
    assert found["refused"] == {"malformed": 1}


def test_what_the_job_could_not_do_is_an_error(main: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    answering(monkeypatch, problem="the registry does not answer")
    code, _, error = run("redrive", "trades", "--yes")
    assert code == 1
    assert "nothing was redriven in trading.trades: the registry does not answer" in str(error)


def test_without_a_job_the_request_stays_and_a_second_one_is_refused(main: Table) -> None:
    code, _, error = run("redrive", "trades", "--yes")
    assert isinstance(error, CalveError)
    assert code == 1
    assert "no job has answered" in str(error)
    assert "calve ingest trades" in str(error)
    first = Request.pending(main.properties)
    assert first is not None
    _, _, error = run("redrive", "trades", "--yes")
    assert "waits already, since" in str(error)
    assert Request.pending(main.properties) == first


def test_a_request_whose_place_another_one_takes_is_given_up(
    main: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refresh(table: Table) -> Table:
        with table.transaction() as change:
            change.set_properties({REDRIVE: Request("another", "now").to_json()})
        return table

    monkeypatch.setattr(Table, "refresh", refresh)
    monkeypatch.setattr(requests, "PATIENCE_S", 60.0)
    _, _, error = run("redrive", "trades", "--yes")
    assert "a redrive of trading.trades: another request has taken the place of this one" in str(error)


def test_a_lake_that_does_not_answer_ends_the_waiting(main: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    def refresh(_: Table) -> Table:
        raise OSError("connection refused")

    monkeypatch.setattr(Table, "refresh", refresh)
    monkeypatch.setattr(requests, "PATIENCE_S", 60.0)
    _, _, error = run("redrive", "trades", "--yes")
    assert isinstance(error, Retryable)
    assert Request.pending(main.properties) is not None


def test_where_nobody_can_be_asked_nothing_is_written(main: Table) -> None:
    for options in ([], ["--output", "json"]):
        _, text, error = run("redrive", "trades", *options)
        assert "add --yes" in str(error)
        assert REDRIVE not in main.properties
        assert ("dead_letters=2" in text) == (not options)


def test_where_nothing_is_open_nothing_is_asked_for(main: Table) -> None:
    code, text, error = run("redrive", "trades", "--reason", "bad_magic")
    assert code == 0, error
    assert "nothing to redrive" in text
    assert REDRIVE not in main.properties


def test_the_list_counts_those_that_are_open_and_can_show_the_others(main: Table) -> None:
    found = json.loads(run("trades", "--output", "json")[1])
    assert (found["dead_letters"], found["redriven"]) == (3, 1)
    back = json.loads(run("trades", "--redriven", "--output", "json")[1])
    assert (back["dead_letters"], back["redriven"]) == (3, 1)
    assert [each["dead_letters"] for each in back["groups"]] == [1]
    assert "1 were redriven: --redriven lists them." in run("trades")[1]
    assert "redriven: x1" in run("show", "trades", "0:6")[1]


def test_a_table_that_knows_no_redrives_has_open_letters_only(
    catalog: FolderCatalog,  # noqa: F811 the fixture
) -> None:
    older = {"type": "struct", "fields": [f for f in DEAD_LETTERS["fields"] if f["name"] != REDRIVEN]}
    schema = Schema.model_validate(with_ids(older) | {"schema-id": 0})
    table = catalog.make((NAME.database, NAME.dead_letters.table), schema)
    row = {name: value for name, value in rejected(0, 3).items() if name != REDRIVEN}
    table.append(pa.Table.from_pylist([row], schema_to_pyarrow(schema, include_field_ids=False)))
    assert json.loads(run("trades", "--output", "json")[1])["dead_letters"] == 1
    assert "no redriven dead letters" in run("trades", "--redriven")[1]
    with table.update_schema() as change:
        change.add_column(REDRIVEN, SCHEMA.find_type(REDRIVEN))
    found = json.loads(run("trades", "--output", "json")[1])
    assert (found["dead_letters"], found["redriven"]) == (1, 0)
