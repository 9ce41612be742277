"""`calve forget`: what it says before it asks, what it refuses, and what it asks the job for."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from typer.testing import CliRunner

from calve.config.job import Table as Settings
from calve.config.masking_keys import Key
from calve.config.steps import Mask, Rule
from calve.errors import CalveError, ConfigError
from calve.modes.aggregate import Aggregate
from calve.modes.upsert import Upsert
from calve.requests.forget import Condition, Entry, Request, bound_to, seal_key, to_json
from calve.schema.columns import KAFKA, field, list_of, struct, with_ids
from calve.table.summary import FORGET, FORGET_LEFT, FORGOTTEN
from cli.act import requests
from cli.main import app
from tests.unit.cli.act.test_dead_letters import JOB, NAME
from tests.unit.cli.folder_catalog import FolderCatalog

if TYPE_CHECKING:
    from pathlib import Path

COLUMNS = struct(field("email", "string"), field("tags", list_of("string")), KAFKA)
PLAIN = Settings("trades", "trades", freshness_s=0.0)


@pytest.fixture
def main(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Table:
    """The table; nobody waits longer than a moment."""
    catalog = FolderCatalog(tmp_path)
    made = catalog.make(
        (NAME.database, NAME.table), Schema.model_validate(with_ids(COLUMNS) | {"schema-id": 0})
    )
    monkeypatch.setattr("cli.act.requests.open_catalog", lambda _: catalog)
    monkeypatch.setattr("cli.act.requests.cluster_database", lambda _: None)
    monkeypatch.setattr(requests, "ASK_S", 0.0)
    monkeypatch.setattr(requests, "LONG_PATIENCE_S", 0.0)
    configure(monkeypatch, PLAIN)
    return made


def configure(monkeypatch: pytest.MonkeyPatch, table: Settings, masking: str | None = None) -> None:
    job = replace(JOB, tables=(table,), masking=masking)
    monkeypatch.setattr(requests, "load_jobs", lambda *_, **__: (job,))


def run(*arguments: str) -> tuple[int, str, BaseException | None]:
    result = CliRunner().invoke(app, ["forget", "trades", *arguments])
    return result.exit_code, result.stdout, result.exception


def answering(monkeypatch: pytest.MonkeyPatch, **figures: Any) -> list[Request]:
    """A job that answers, and clears away the request only when the table is looked at once more."""
    seen: list[Request] = []

    def refresh(table: Table) -> Table:
        request = Request.pending(table.properties)
        with table.transaction() as change:
            if request is None:
                change.remove_properties(FORGET_LEFT)
            else:
                seen.append(request)
                entry = Entry(request.id, request.at, "now", **figures)
                change.set_properties({FORGOTTEN: to_json([entry]), FORGET_LEFT: entry.id})
                change.remove_properties(FORGET)
        return table

    monkeypatch.setattr(Table, "refresh", refresh)
    monkeypatch.setattr(requests, "LONG_PATIENCE_S", 60.0)
    return seen


def test_it_says_what_goes_and_what_it_cannot_reach(main: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = answering(monkeypatch, rows=1_200, letters=3, files=2, removed=40, exports=1)
    code, text, error = run("--key", "email=a@b.c", "--yes")
    assert code == 0, error
    for said in (
        "where email matches",
        "the history of these tables",
        "those whose window holds one of the rows",
        "the topic, until its retention",
        "versions of objects in the bucket",
        "rows: 1,200\ndead letters: 3\ndata files rewritten: 2\nfiles deleted: 40\nexports deleted: 1",
    ):
        assert said in text
    assert "a@b.c" not in text
    assert [each.where for each in seen] == [(Condition("email", "a@b.c"),)]


def test_the_answer_is_one_document(main: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    answering(monkeypatch, rows=2)
    code, text, error = run("--key", "email=a", "--yes", "--output", "json")
    assert code == 0, error
    found = json.loads(text)
    assert (found["table"], found["rows"], found["problem"]) == ("trading.trades", 2, None)


def test_a_value_without_a_column_is_the_key_of_the_rows(
    main: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = answering(monkeypatch)
    run("--key", "k=1 and more", "--yes")
    run("--key", "user 1", "--yes")
    configure(monkeypatch, replace(PLAIN, upsert=Upsert(("email",))))
    _, text, _ = run("--key", "a@b.c", "--key", "_kafka.key=1", "--yes")
    assert "stored exports of trading.trades: all" in text
    assert [each.where for each in seen] == [
        (Condition("_kafka.key", "user 1"),),
        (Condition("email", "a@b.c"), Condition("_kafka.key", "1")),
    ]


@pytest.mark.parametrize(
    ("arguments", "settings", "message"),
    [
        (["nobody=1"], PLAIN, "the table has no column nobody"),
        (["tags=1"], PLAIN, "tags is a list"),
        (["email="], PLAIN, "--key has no value"),
        (["1"], replace(PLAIN, upsert=Upsert(("email", "_kafka.key"))), "several columns"),
        (["email=1"], replace(PLAIN, aggregate=Aggregate(("email",), ())), "totals"),
        (
            ["email=1"],
            replace(PLAIN, steps=(Mask(fields={"email": Rule("partial", 4)}),)),
            "email is masked by partial",
        ),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_written(
    main: Table, monkeypatch: pytest.MonkeyPatch, arguments: list[str], settings: Settings, message: str
) -> None:
    configure(monkeypatch, settings)
    _, _, error = run(*(part for each in arguments for part in ("--key", each)), "--yes")
    assert isinstance(error, ConfigError)
    assert message in str(error)
    assert FORGET not in main.refresh().properties


def test_many_persons_of_a_file_are_one_request_to_each_table_that_has_the_column(
    main: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each line is a person once. No value is said."""
    catalog = FolderCatalog(tmp_path)
    wanted = Schema.model_validate(with_ids(COLUMNS) | {"schema-id": 0})
    other = Schema.model_validate(with_ids(struct(field("id", "string"), KAFKA)) | {"schema-id": 0})
    for name, columns in (
        *((each, wanted) for each in ("trades", "users", "totals", "masked")),
        ("others", other),
    ):
        catalog.make((NAME.database, name), columns)
    tables = (
        PLAIN,
        replace(PLAIN, name="users", upsert=Upsert(("email",))),
        replace(PLAIN, name="totals", aggregate=Aggregate(("email",), ())),
        replace(PLAIN, name="masked", steps=(Mask(fields={"email": Rule("drop")}),)),
        replace(PLAIN, name="others"),
        replace(PLAIN, name="unborn"),
    )
    jobs = (replace(JOB, tables=tables),)
    monkeypatch.setattr("cli.act.forget.load_jobs", lambda *_, **__: jobs)
    monkeypatch.setattr("cli.act.forget.open_catalog", lambda _: catalog)
    monkeypatch.setattr("cli.act.requests.open_catalog", lambda _: catalog)
    monkeypatch.setattr("cli.act.forget.cluster_database", lambda _: None)
    seen = answering(monkeypatch, rows=2)
    file = tmp_path / "ids"
    file.write_text("a@b.c\n\nd@e.f\na@b.c\n  g@h.i \n")
    result = CliRunner().invoke(app, ["forget", "--person", "email", "--from-file", str(file), "--yes"])
    assert result.exit_code == 0, result.exception
    wanted_persons = (Condition("email", "a@b.c", ("d@e.f", "g@h.i")),)
    assert [each.where for each in seen] == [wanted_persons, wanted_persons]
    for said in (
        "rows of trading.trades",
        "rows of trading.users",
        "left out: the rows of trading.totals are totals",
        "left out: trading.masked: email is masked by drop",
        "table: trading.trades",
        "table: trading.users",
    ):
        assert said in result.stdout
    assert "a@b.c" not in result.stdout
    assert "trading.others" not in result.stdout


@pytest.mark.parametrize(
    ("arguments", "lines", "message"),
    [
        (["trades"], None, "needs to know whom to forget"),
        (["trades", "--key", "email=1", "--person", "email"], "a", "needs to know whom to forget"),
        (["trades", "--person", "email"], None, "needs to know whom to forget"),
        (["--key", "email=1"], None, "--key needs a table"),
        (
            ["trades", "--person", "email", "--from-file", "gone.txt"],
            None,
            "gone.txt cannot be read: No such",
        ),
        (["trades", "--person", "email"], "\n \n", "names no person"),
        (["trades", "--person", "email"], "\n".join(map(str, range(1_001))), "names 1,001 persons"),
        (["trades", "--person", "nobody"], "a", "no column nobody"),
    ],
)
def test_an_unclear_request_for_many_is_refused(
    main: Table, tmp_path: Path, arguments: list[str], lines: str | None, message: str
) -> None:
    if lines is not None:
        file = tmp_path / "ids"
        file.write_text(lines)
        arguments = [*arguments, "--from-file", str(file)]
    result = CliRunner().invoke(app, ["forget", *arguments, "--yes"])
    assert isinstance(result.exception, ConfigError)
    assert message in str(result.exception)
    assert FORGET not in main.refresh().properties


def test_where_nobody_can_be_asked_nothing_is_written(main: Table) -> None:
    _, text, error = run("--key", "email=a")
    assert "add --yes" in str(error)
    assert "The job will delete" in text
    assert FORGET not in main.refresh().properties


def test_without_a_job_the_request_stays_and_a_second_one_is_refused(main: Table) -> None:
    _, _, error = run("--key", "email=a", "--yes")
    assert isinstance(error, CalveError)
    assert "calve ingest trades" in str(error)
    _, _, error = run("--key", "email=b", "--yes")
    assert "waits already, since" in str(error)
    request = Request.pending(main.refresh().properties)
    assert request is not None
    assert request.where == (Condition("email", "a"),)


def test_metadata_that_is_deleted_while_it_is_read_is_looked_at_again(
    main: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    answering(monkeypatch, rows=2)
    answered, failures = Table.refresh, iter([FileNotFoundError("00001.metadata.json")])

    def refresh(table: Table) -> Table:
        for each in failures:
            raise each
        return answered(table)

    monkeypatch.setattr(Table, "refresh", refresh)
    code, text, error = run("--key", "email=a", "--yes")
    assert code == 0, error
    assert "rows: 2" in text


def test_what_the_job_could_not_do_is_an_error(main: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    answering(monkeypatch, problem="branches or tags keep snapshots")
    code, _, error = run("--key", "email=a", "--yes")
    assert code == 1
    assert "nobody is forgotten in trading.trades: branches or tags keep snapshots" in str(error)


def test_of_a_table_that_masks_the_request_is_sealed(
    main: Table, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    key = Key("k1", 0, bytes(range(32)))
    listed = [{"id": "k1", "from": "2020-01-01T00:00:00Z", "key": base64.b64encode(key.secret).decode()}]
    secret = tmp_path / "keys.json"
    secret.write_text(json.dumps({"keys": listed}))
    masked = replace(PLAIN, steps=(Mask(fields={"email": Rule("hash")}),))
    configure(monkeypatch, masked, masking=f"file:{secret}")
    run("--key", "email=a@b.c", "--yes")
    text = main.refresh().properties[FORGET]
    request = Request.pending({FORGET: text})
    assert request is not None
    assert "a@b.c" not in text
    data = base64.b64decode(request.where[0].value)
    cipher = AESGCM(seal_key(key, request.id))
    assert (request.sealed, cipher.decrypt(data[:12], data[12:], bound_to(request.id, 0))) == ("k1", b"a@b.c")
