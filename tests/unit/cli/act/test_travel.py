"""`calve pause`, `resume`, `rollback` and `rewind`: what they say and ask for, and what they do where no job answers."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyiceberg.table import Table
from typer.testing import CliRunner

from calve.outputs.job_status import TableState
from calve.requests.requests import Entry, Pause
from calve.requests.time_travel import BackfillRequest, RollbackRequest
from calve.table.position import Ledger, Offsets
from calve.table.summary import PAUSED, encode
from cli.act import requests
from cli.main import app
from tests.unit.calve.protocol_model.says import TOPIC, position
from tests.unit.cli.act.test_dead_letters import JOB, NAME, catalog  # noqa: F401 a fixture

if TYPE_CHECKING:
    from tests.unit.cli.folder_catalog import FolderCatalog


@pytest.fixture
def main(catalog: FolderCatalog, monkeypatch: pytest.MonkeyPatch) -> Table:  # noqa: F811 the fixture
    """The table behind two rounds of three offsets each; nobody waits longer than a moment."""
    monkeypatch.setattr(requests, "LONG_PATIENCE_S", 0.0)
    monkeypatch.setattr(requests, "PATIENCE_S", 0.0)
    monkeypatch.setattr(requests, "ASK_S", 0.0)
    impatient = replace(JOB, tables=tuple(replace(each, freshness_s=0.0) for each in JOB.tables))
    monkeypatch.setattr("cli.act.requests.load_jobs", lambda *_, **__: (impatient,))
    table: Table = catalog.load_table((NAME.database, NAME.table))
    for number in (1, 2):
        commit(table, f"r{number}", {0: 3 * number - 3}, {0: 3 * number})
    return table


def commit(table: Table, round_id: str, start: Offsets, to: Offsets) -> None:
    ledger = Ledger(
        span=3, consumed=3, applied=2, dead_lettered=1, rows_appended=2, rejected={"malformed": 1}
    )
    says = encode(
        position=position(round_id, to), topic=TOPIC, start={TOPIC: start}, ledger=ledger, metrics={}
    )
    table.append(pa.Table.from_batches([], table.schema().as_arrow()), snapshot_properties=says)


def run(*arguments: str) -> tuple[int, str, str]:
    found = CliRunner().invoke(app, list(arguments))
    return found.exit_code, found.stdout, str(found.exception)


def snapshots(table: Table) -> list[int]:
    table.refresh()
    return [each.snapshot_id for each in table.history()]


def test_without_a_destination_the_snapshots_are_listed(main: Table) -> None:
    _, text, _ = run("rollback", "trades", "--output", "json")
    listed = json.loads(text)["snapshots"]
    assert [(int(each["snapshot"]), each["next_offsets"]) for each in listed[:2]] == [
        (number, words) for number, words in zip(snapshots(main)[::-1][:2], ("0:6", "0:3"), strict=True)
    ]


def test_what_will_happen_is_said_before_anybody_is_asked(main: Table) -> None:
    first = snapshots(main)[-2]
    for arguments in (("rollback", "trades", "--to", str(first)), ("rewind", "trades", "--to", "0:4")):
        code, text, error = run(*arguments)
        assert code == 1
        assert f"Main goes back to snapshot {first}" in text
        assert "3 offsets of topic" in text
        assert "miss 2 rows" in text
        assert "1 dead letters go" in text
        assert "this needs the consent of a person" in error
    main.refresh()
    assert RollbackRequest.pending(main.properties) is None


def test_a_request_that_no_job_answers_stays_and_a_second_one_is_refused(main: Table) -> None:
    code, _, error = run("rewind", "trades", "--to", "0:3", "--yes")
    assert (code, "no job has answered" in error) == (1, True)
    main.refresh()
    waiting = RollbackRequest.pending(main.properties)
    assert waiting is not None
    assert (waiting.what, waiting.snapshot) == ("rewind", snapshots(main)[-2])
    assert "waits already, since" in run("rollback", "trades", "--to", str(waiting.snapshot), "--yes")[2]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("rollback", "trades", "--to", "12345678"), "is not in the history"),
        (("rollback", "trades", "--to", "10d"), "does not go back to 10d"),
        (("rewind", "trades", "--to", "0:2"), "--into NAME"),
        (("rewind", "trades", "--to", "soon"), "neither a duration nor a moment"),
        (("rewind", "trades", "--to", "0:2", "--into", "No Name"), "is no name of a table"),
        (("pause", "trades", "--until", "2020-01-01T00:00:00Z"), "is no moment to come"),
        (("pause", "trades", "--reason", "x" * 301), "is longer than"),
    ],
)
def test_what_cannot_be_is_refused_with_a_cure(main: Table, arguments: tuple[str, ...], said: str) -> None:
    code, _, error = run(*arguments)
    assert code == 1
    assert said in error
    assert "Fix: " in error
    main.refresh()
    assert PAUSED not in main.properties


def test_a_backfill_asks_for_a_range_by_offsets_or_moments(main: Table) -> None:
    code, text, error = run("backfill", "trades", "--from", "0:1")
    assert (code, "this needs the consent of a person" in error) == (1, True)
    assert "their rows replaced in one commit" in text
    code, _, error = run("backfill", "trades", "--from", "0:1", "--to", "2026-01-01T00:00:00Z", "--yes")
    assert (code, "no job has answered" in error) == (1, True)
    main.refresh()
    waiting = BackfillRequest.pending(main.properties)
    assert waiting is not None
    assert (waiting.start.offsets, waiting.to.timestamp_ms) == ({0: 1}, 1_767_225_600_000)
    assert "waits already" in run("backfill", "trades", "--from", "0:1", "--yes")[2]


def test_a_place_at_the_end_needs_no_way_back(main: Table) -> None:
    code, text, _ = run("rewind", "trades", "--to", "0:6")
    assert (code, "there is nothing to do" in text) == (0, True)


def test_a_new_table_is_an_entry_of_the_configuration(main: Table) -> None:
    text = run("rewind", "trades", "--to", "1:7,0:2", "--into", "again")[1]
    assert "  again:\n    topic: trades\n    start: {offsets: {0: 2, 1: 7}}" in text
    text = run("rewind", "trades", "--to", "2026-01-01T00:00:00Z", "--into", "again")[1]
    assert "start: {timestamp: 2026-01-01T00:00:00+00:00}" in text


def test_a_pause_holds_though_no_job_has_said_so_and_is_ended(main: Table) -> None:
    code, text, _ = run("pause", "trades", "--reason", "why", "--until", "2999-01-01T00:00:00Z")
    assert (code, "No job runs now" in text) == (0, True)
    main.refresh()
    held = Pause.of(main.properties, datetime.now(UTC))
    assert held is not None
    assert (held.reason, held.until) == ("why", "2999-01-01T00:00:00+00:00")
    with main.transaction() as job:
        job.set_properties({"calve.state": TableState("paused", held.id).to_json()})
    assert json.loads(run("resume", "trades", "--output", "json")[1])["heeded"] is False
    main.refresh()
    assert PAUSED not in main.properties
    assert [each.what for each in Entry.all(main.properties)] == ["pause", "resume"]
    assert "there is nothing to resume" in run("resume", "trades")[1]
