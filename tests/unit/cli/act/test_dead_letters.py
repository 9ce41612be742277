"""`calve dead-letters`: what it says of real Iceberg tables, and what it never says."""

from __future__ import annotations

import base64
import json
import stat
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField
from typer.testing import CliRunner

from calve.config.job import Job, Kafka, Lake, Registry
from calve.config.job import Table as TableSettings
from calve.errors import CalveError, ConfigError
from calve.names import TableName
from calve.schema.columns import DEAD_LETTERS, with_ids
from cli import dead_letters as dead_letter
from cli.dead_letters import COLUMNS, Filters, Place, Selection, read, summarize
from cli.main import app
from tests.unit.cli.folder_catalog import FolderCatalog

if TYPE_CHECKING:
    from pathlib import Path

NAME = TableName("trading", "trades")
NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
SECRET = b"\x01hunter2 \xff"
SCHEMA = Schema.model_validate(with_ids(DEAD_LETTERS) | {"schema-id": 0})
JOB = Job(
    "trading",
    "main",
    Kafka("127.0.0.1:1"),
    Registry("http://127.0.0.1:1"),
    Lake("trading", "s3://lake"),
    (TableSettings("trades", "trades"), TableSettings("users", "users")),
)


def rejected(partition: int, offset: int, reason: str = "malformed", **changes: Any) -> dict[str, Any]:
    row = {
        "cluster_id": "cluster",
        "topic_id": "topic-1",
        "topic": "trades",
        "partition": partition,
        "offset": offset,
        "timestamp": datetime(2026, 5, 1, 9, 0, 0, 123000, tzinfo=UTC),
        "timestamp_type": 0,
        "key": b"k\x00",
        "value": SECRET,
        "headers": [{"key": "trace", "value": b"\xff"}, {"key": "trace", "value": None}],
        "schema_id": 7,
        "stage": "decode",
        "reason": reason,
        "message": "why",
        "attempt": 1,
        "round": "r1",
        "rejected_at": NOW - timedelta(hours=offset),
        "redriven": None,
        "sealed": None,
    }
    return row | changes


@pytest.fixture
def catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FolderCatalog:
    made = FolderCatalog(tmp_path)
    made.make(("trading", "trades"), Schema(NestedField(1, "id", LongType())))
    monkeypatch.setattr("cli.act.requests.open_catalog", lambda _: made)
    monkeypatch.setattr("cli.act.requests.cluster_database", lambda _: None)
    monkeypatch.setattr("cli.act.requests.load_jobs", lambda *_, **__: (JOB,))
    return made


def keep(catalog: FolderCatalog, *rows: dict[str, Any]) -> None:
    """Dead letters, each in a file of its own."""
    table = catalog.make((NAME.database, NAME.dead_letters.table), SCHEMA)
    columns = schema_to_pyarrow(SCHEMA, include_field_ids=False)
    for row in rows:
        table.append(pa.Table.from_pylist([row], columns))


def run(*arguments: str) -> tuple[int, str, BaseException | None]:
    result = CliRunner().invoke(app, ["dead-letters", *arguments])
    return result.exit_code, result.stdout, result.exception


def documents(*arguments: str) -> Any:
    code, text, error = run(*arguments, "--output", "json")
    assert code == 0, error
    return json.loads(text)


def test_dead_letters_are_counted_by_reason_and_schema_id_with_their_places(catalog: FolderCatalog) -> None:
    keep(
        catalog,
        rejected(0, 3),
        rejected(0, 9),
        rejected(1, 4),
        rejected(0, 5, "bad_magic", schema_id=None),
        rejected(0, 6, schema_id=8),
    )
    found = documents("trades")
    assert (found["table"], found["dead_letters"]) == ("trading.trades", 5)
    first, *others = found["groups"]
    assert (first["reason"], first["schema_id"], first["dead_letters"]) == ("malformed", 7, 3)
    assert first["first_rejected_at"] == (NOW - timedelta(hours=9)).isoformat()
    assert first["last_rejected_at"] == (NOW - timedelta(hours=3)).isoformat()
    assert first["places"] == [
        {"partition": 0, "first_offset": 3, "last_offset": 9, "dead_letters": 2},
        {"partition": 1, "first_offset": 4, "last_offset": 4, "dead_letters": 1},
    ]
    assert [(each["reason"], each["schema_id"]) for each in others] == [("bad_magic", None), ("malformed", 8)]


def test_the_list_is_the_same_with_and_without_its_name(catalog: FolderCatalog) -> None:
    keep(catalog, rejected(0, 3))
    assert documents("list", "trades") == documents("trades") == documents("--reason", "malformed", "trades")


@pytest.mark.parametrize("output", ["text", "json"])
def test_neither_list_nor_export_prints_a_value(catalog: FolderCatalog, tmp_path: Path, output: str) -> None:
    keep(catalog, rejected(0, 3))
    for arguments in (["trades"], ["export", "trades", str(tmp_path / "out")]):
        code, text, _ = run(*arguments, "--output", output)
        assert code == 0
        assert text
        assert "hunter2" not in text
        assert base64.b64encode(SECRET).decode() not in text


@pytest.mark.parametrize(
    ("options", "offsets"),
    [
        ({"reason": "bad_magic"}, [5]),
        ({"schema_id": 8}, [6]),
        ({"since": "4h30m"}, None),
        ({"until": "5h"}, [6]),
        ({"since": "5h", "until": "4h"}, [5]),
        ({"since": "5h"}, [3, 5]),
        ({"since": "2026-05-01T08:30:00Z"}, [3]),
        ({"since": "2026-05-01T10:30:00+02:00"}, [3]),
        ({"reason": "malformed", "schema_id": 8, "since": "30d"}, [6]),
        ({"schema_id": 2**40}, []),
        ({}, [3, 5, 6]),
    ],
)
def test_filters_select(catalog: FolderCatalog, options: dict[str, Any], offsets: list[int] | None) -> None:
    keep(catalog, rejected(0, 3), rejected(0, 5, "bad_magic"), rejected(0, 6, schema_id=8))
    if offsets is None:
        with pytest.raises(ConfigError, match="neither a duration nor a moment"):
            Filters(**options).selection(NOW)
        return
    table = catalog.load_table((NAME.database, NAME.dead_letters.table))
    selected = Filters(**options).selection(NOW).within(table)
    found = [each for batch in read(table, selected) for each in batch.column("offset").to_pylist()]
    assert sorted(found) == offsets


def test_a_filter_leaves_files_unread_that_hold_nothing_of_it(
    catalog: FolderCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(catalog, rejected(0, 3), rejected(0, 5, "bad_magic"), rejected(0, 6))
    opened: list[Any] = []

    def reading(_: Any, tasks: Any, *__: Any) -> Any:
        opened.append(tasks)
        return iter(())

    monkeypatch.setattr("lambdas.csv_export.scan.read", reading)
    table = catalog.load_table((NAME.database, NAME.dead_letters.table))
    assert list(read(table, Selection(reason="bad_magic").within(table))) == []
    assert [len(tasks) for tasks in opened] == [1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["trades", "--reason", "malform"], "no reason\n  Fix: Did you mean"),
        (["trades", "--since", "2026-05-01T12:00:00"], "has no time zone"),
        (["trades", "--since", "yesterday"], "neither a duration nor a moment"),
        (["show", "trades", "17"], '"17" is no place of a record'),
        (["show", "trades", "-1:4"], "is no place"),
        (["show", "trades", "0:9"], "no dead letter in partition 0 at offset 9"),
        (["users"], "the table trading.users does not exist yet"),
        (["export", "users", "x"], "the table trading.users does not exist yet"),
        (["export", "trades", "/nowhere/x"], "/nowhere/x cannot be written: No such file or directory"),
    ],
)
def test_what_cannot_be_done_is_said(
    catalog: FolderCatalog, tmp_path: Path, arguments: list[str], message: str
) -> None:
    keep(catalog, rejected(0, 3))
    arguments = [str(tmp_path / "x") if each == "x" else each for each in arguments]
    code, _, error = run(*arguments[:1], *(["--"] if "-1:4" in arguments else []), *arguments[1:])
    assert isinstance(error, CalveError), error
    assert message in str(error)
    assert code == 1
    assert not (tmp_path / "x").exists()


def test_a_table_without_dead_letters_is_no_error(catalog: FolderCatalog, tmp_path: Path) -> None:
    assert run("trades") == (0, "trading.trades has no dead letters.\n", None)
    keep(catalog, rejected(0, 3))
    assert documents("trades", "--schema-id", "9")["groups"] == []
    code, text, _ = run("trades", "--schema-id", "9", "--reason", "malformed")
    assert (code, text) == (0, "trading.trades has no dead letters with reason malformed with schema id 9.\n")
    target = tmp_path / "none"
    code, text, _ = run("export", "trades", str(target), "--schema-id", "9")
    assert code == 0
    assert "No file was written" in text
    assert not target.exists()


def test_one_letter_is_shown_with_its_bytes(catalog: FolderCatalog) -> None:
    keep(catalog, rejected(0, 3), rejected(0, 4, key=None, value=b"", headers=None))
    code, text, _ = run("show", "trades", "0:3")
    assert code == 0
    for part in (
        "partition 0 offset 3",
        "malformed",
        "01 68 75 6e 74 65 72 32 20 ff",
        ".hunter2 .",
        "trace",
        "null",
    ):
        assert part in text, part
    _, text, _ = run("show", "trades", "0:4")
    assert "-- key\nnull\n" in text
    assert "empty" in text


def test_of_a_sealed_letter_no_bytes_are_shown_and_an_export_has_them_sealed(
    catalog: FolderCatalog, tmp_path: Path
) -> None:
    keep(catalog, rejected(0, 3, sealed="2026a"))
    _, text, _ = run("show", "trades", "0:3")
    assert "encrypted: by the masking key 2026a" in text
    assert "only the job decrypts them" in text
    assert "68 75 6e" not in text
    assert "trace" not in text
    target = tmp_path / "letters.jsonl"
    run("export", "trades", str(target))
    line = json.loads(target.read_text())
    assert (line["sealed"], base64.b64decode(line["value"])) == ("2026a", SECRET)


def test_a_headers_name_does_not_reach_the_terminal_as_it_is(catalog: FolderCatalog) -> None:
    keep(catalog, rejected(0, 3, headers=[{"key": "[/red]\x1b[2J", "value": b"v"}]))
    code, text, error = run("show", "trades", "0:3")
    assert code == 0, error
    assert r"'[/red]\x1b[2J'" in text
    assert "\x1b" not in text


def test_of_a_long_value_the_beginning_is_shown() -> None:
    shown = dead_letter.preview(b"x" * 1000).splitlines()
    assert len(shown) == dead_letter.PREVIEW_BYTES // dead_letter.ROW_BYTES + 1
    assert shown[-1].startswith("... 744 bytes more")


def test_records_of_several_incarnations_at_one_place_are_all_shown(catalog: FolderCatalog) -> None:
    keep(catalog, rejected(0, 3), rejected(0, 3, topic_id="topic-2"), rejected(1, 3))
    assert [each["topic_id"] for each in documents("show", "trades", "0:3")["dead_letters"]] == [
        "topic-1",
        "topic-2",
    ]
    assert {each["topic_id"] for each in documents("trades")["groups"]} == {"topic-1", "topic-2"}
    assert "topic_id=topic-2" in run("trades")[1]


def test_an_export_holds_all_that_the_record_was(catalog: FolderCatalog, tmp_path: Path) -> None:
    rows = [
        rejected(0, 3),
        rejected(0, 4, key=None, value=None, headers=None),
        rejected(0, 5, key=b"", headers=[]),
    ]
    keep(catalog, *rows)
    target = tmp_path / "letters.jsonl"
    code, text, error = run("export", "trades", str(target))
    assert code == 0, error
    assert text.startswith("3 dead letters of trading.trades")
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    lines = sorted(map(json.loads, target.read_text().splitlines()), key=lambda each: each["offset"])
    for line, row in zip(lines, rows, strict=True):
        bytes_of = {
            name: None if line[name] is None else base64.b64decode(line[name]) for name in ("key", "value")
        }
        assert bytes_of == {name: row[name] for name in ("key", "value")}
        headers = [
            {"key": each["key"], "value": each["value"] and base64.b64decode(each["value"])}
            for each in line["headers"]
        ]
        assert headers == (row["headers"] or [])
        assert line["timestamp_ms"] == round(row["timestamp"].timestamp() * 1000)
        assert line["rejected_at"] == row["rejected_at"].isoformat()
    expected = {each["name"] for each in DEAD_LETTERS["fields"]} - {"timestamp"} | {"timestamp_ms"}
    assert set(lines[0]) == expected


def test_an_export_never_overwrites_and_leaves_nothing_half_written(
    catalog: FolderCatalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(catalog, rejected(0, 3), rejected(0, 4))
    target = tmp_path / "letters.jsonl"
    target.write_text("mine")
    _, _, error = run("export", "trades", str(target))
    assert "exists already" in str(error)
    assert target.read_text() == "mine"
    target.unlink()
    real = dead_letter.document

    def fails(each: dead_letter.DeadLetter) -> dict[str, object]:
        if each["offset"] == 4:
            raise RuntimeError
        return real(each)

    monkeypatch.setattr("cli.dead_letters.document", fails)
    _, _, error = run("export", "trades", str(target))
    assert isinstance(error, RuntimeError)
    assert not target.exists()


def test_a_flood_of_schema_ids_stays_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_letter, "MAX_SCHEMAS", 10)
    rows = [rejected(0, n, "unknown_schema_id", schema_id=n) for n in range(100)]
    columns = schema_to_pyarrow(SCHEMA, include_field_ids=False)
    groups = summarize(pa.Table.from_pylist(rows, columns).select(COLUMNS).to_batches(max_chunksize=7))
    assert len(groups) == 11
    assert (groups[0].other_schemas, groups[0].dead_letters, groups[0].schema_id) == (True, 90, None)
    assert sum(each.dead_letters for each in groups) == 100


def test_a_place_is_written_as_partition_and_offset() -> None:
    assert Place.of(" 3:1042 ") == Place(3, 1042)


def test_a_timestamp_beyond_any_calendar_is_exact() -> None:
    columns = schema_to_pyarrow(SCHEMA, include_field_ids=False)
    place = columns.get_field_index("timestamp")
    year_10000 = 253_402_300_800_005
    moment = pa.array([year_10000 * 1000], pa.int64()).cast(columns.field(place).type)
    table = pa.Table.from_pylist([rejected(0, 6)], columns).set_column(place, columns.field(place), moment)
    (found,) = dead_letter.dead_letters_in(table.to_batches()[0])
    assert found["timestamp_ms"] == year_10000
    assert dead_letter.facts(found)["timestamp"] == f"{year_10000} ms since 1970, set by the producer"
