"""`calve query`: what it takes for a query, what it sees, and what it writes; on real Iceberg tables in a folder."""

from __future__ import annotations

import io
import math
import time
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO, schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.serializers import ToOutputFile
from pyiceberg.table import Table
from pyiceberg.types import DoubleType, LongType, NestedField, StringType, TimestamptzType
from rich.console import Console as Rich

from calve.config.job import Lake
from calve.errors import CalveError, ConfigError
from cli.console import Console
from cli.look.query.answer import Lookup, Statement, When, answered
from cli.look.query.command import Format, csv_lines, objects, shown, text, write
from tests.unit.cli.folder_catalog import FolderCatalog

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "seen", TimestamptzType(), required=False),
    NestedField(3, "score", DoubleType(), required=False),
    NestedField(4, "side", StringType(), required=False),
)
EARLY = datetime(1969, 12, 31, 22, 45, tzinfo=UTC)
ROWS = [
    {"id": n, "seen": EARLY + timedelta(minutes=30 * n), "score": score, "side": "SELL"}
    for n, score in enumerate([math.nan, 0.1, None, -1.5])
]


class World:
    """A database with two tables, each with two snapshots, whose metadata are files, too."""

    def __init__(self, folder: Path) -> None:
        self.catalog = FolderCatalog(folder)
        self.lookup = Lookup(self.catalog, "trading", ["trades", "users"])
        self.trades = self.catalog.make(("trading", "trades"), SCHEMA)
        self.letters = self.catalog.make(("trading", "trades__dead_letters"), SCHEMA)
        for table in (self.trades, self.letters):
            for rows in (ROWS[:2], ROWS[2:]):
                table.append(pa.Table.from_pylist(rows, schema_to_pyarrow(SCHEMA, include_field_ids=False)))
            _written(table)

    def ask(self, sql: str, at: When | None = None) -> list[tuple[Any, ...]]:
        statement = Statement(sql)
        tables = self.lookup.opened(statement, at)
        with answered(
            statement, tables, Lake("trading", "", endpoint="http://127.0.0.1:1"), "trading"
        ) as answer:
            return list(answer.rows())


def _written(table: Table) -> None:
    table.metadata_location = f"{table.location()}/metadata/v1.metadata.json"
    ToOutputFile.table_metadata(table.metadata, PyArrowFileIO().new_output(table.metadata_location))


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(tmp_path_factory.mktemp("lake"))


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("select * from Trades t join trading.users using (id)", {("trades", None), ("trading.users", None)}),
        ("from trades", {("trades", None)}),
        ("describe trades;", {("trades", None)}),
        ("select 1 -- from trades", set()),
        ("select * from trades at (version => 7) where id in (from users)", {("trades", 7), ("users", None)}),
        ("from a at (timestamp => '2026-01-01')", {("a", datetime(2026, 1, 1, tzinfo=UTC))}),
        ("from a at (timestamp => timestamp '2026-01-01' - interval 1 day)", {("a", datetime(2025, 12, 31, tzinfo=UTC))}),
        ("from a x at (timestamp => '2026-01-01 00:00:00+02')", {("a", datetime(2025, 12, 31, 22, tzinfo=UTC))}),
    ],
)  # fmt: skip
def test_the_tables_of_a_query_are_those_it_names(sql: str, expected: set[Any]) -> None:
    assert {(str(each), each.when) for each in Statement(sql).tables} == expected


@pytest.mark.parametrize(
    ("sql", "told"),
    [
        ("delete from trades", "only queries are run"),
        ("create table x as from trades", "only queries are run"),
        ("copy (from trades) to 'x.csv'", "only queries are run"),
        ("attach 'x.db'", "only queries are run"),
        ("set memory_limit = '1GB'", "only queries are run"),
        ("select 1; select 2", "more than one query"),
        ("selec 1", 'syntax error at or near "selec"'),
        ("show tables", "it does not list them"),
        ("from a.b.c", '"a.b.c" has three parts'),
        ("from a at (version => 'x')", r"`at \(version => ...\)` cannot be used"),
        ("from a at (timestamp => (select max(x) from b))", r"`at \(timestamp => ...\)` cannot be used"),
    ],
)
def test_what_is_no_query_is_refused(sql: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        Statement(sql)


def test_a_query_reads_tables_by_name_and_by_database(world: World) -> None:
    assert world.ask("select count(*), min(id), max(id) from trades") == [(4, 0, 3)]
    assert world.ask(
        "select t.id from trading.trades t join trades__dead_letters using (id) order by all"
    ) == [(n,) for n in range(4)]


def test_a_name_that_the_query_defines_may_be_that_of_a_table(world: World) -> None:
    assert world.ask("with trades as (from trades where id = 1) select id, side from trades") == [(1, "SELL")]
    assert world.ask("with mine as (select 5 as x) from mine") == [(5,)]


@pytest.mark.parametrize("condition", ["isnan(score)", "score = 'nan'::double", "score > 0", "id % 2 = 1"])
def test_no_row_is_missed_by_what_files_say_of_their_values(world: World, condition: str) -> None:
    """DuckDB's Iceberg extension leaves files out wrongly, see `cli.look.query.answer`: each row is judged by itself instead."""
    [(counted,)] = world.ask(f"select count_if({condition}) from trades")
    assert counted > 0
    assert world.ask(f"select count(*) from trades where {condition}") == [(counted,)]
    joined = f"select count(*) from trades join (select distinct id from trades where {condition}) using (id)"
    assert world.ask(joined) == [(counted,)]


def test_a_table_is_read_as_of_a_snapshot_or_a_moment(world: World) -> None:
    first, second = world.trades.snapshots()
    both = "select count(*) from trades"
    assert world.ask(f"{both} at (version => {first.snapshot_id})") == [(2,)]
    both_at_once = (
        f"(select max(trades.id) from trades at (version => {first.snapshot_id})), max(id) from trades"
    )
    assert world.ask(f"select {both_at_once}") == [(1, 3)]
    moment = datetime.fromtimestamp(first.timestamp_ms / 1000, UTC)
    assert world.ask(f"{both} at (timestamp => '{moment.isoformat()}')") == [(2,)]
    assert world.ask(both, moment) == [(2,)]
    assert world.ask(f"{both} at (version => {second.snapshot_id})", moment) == [(4,)]
    with pytest.raises(CalveError, match=r"trading\.trades has no snapshot 7") as caught:
        world.ask(f"{both} at (version => 7)")
    assert caught.value.fix == "calve tables trades"
    with pytest.raises(CalveError, match="has no snapshot as of 2020-01-01 00:00:00"):
        world.ask(both, datetime(2020, 1, 1, tzinfo=UTC))


@pytest.mark.parametrize(
    ("table", "told", "fix"),
    [
        ("tardes", 'the database trading has no table "tardes"', 'Did you mean "trades"?'),
        ("users", "the table trading.users does not exist yet", "the job makes it: calve ingest"),
        ("users__dead_letters", "no record of users was ever rejected", None),
        ("elsewhere.x", 'there is no database "elsewhere" with tables', "calve tables"),
    ],
)
def test_a_table_that_is_not_there_is_told_with_a_cure(
    world: World, table: str, told: str, fix: str | None
) -> None:
    with pytest.raises(CalveError, match=told) as caught:
        world.ask(f"from {table}")
    assert caught.value.fix == fix


@pytest.mark.parametrize(
    ("sql", "told"), [("select sid from trades", '"side"'), ("select lowr(side) from trades", '"lower"')]
)
def test_duckdb_guesses_what_was_meant(world: World, sql: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        world.ask(sql)


def test_a_query_reads_nothing_but_the_tables_it_names(world: World, tmp_path: Path) -> None:
    (tmp_path / "secret.csv").write_text("a\n1\n")
    other = world.letters.location()
    data = next(Path(other).glob("data/**/*.parquet"))
    for source in (
        f"read_csv('{tmp_path}/secret.csv')",
        f"read_text('{tmp_path}/*')",
        f"glob('{tmp_path}/*')",
        f"read_parquet('{data}')",
        f"iceberg_scan('{world.letters.metadata_location}')",
        "read_text('http://127.0.0.1:1/')",
    ):
        with pytest.raises(ConfigError, match="no files, no addresses"):
            world.ask(f"select * from trades, {source}")
    with pytest.raises(ConfigError, match="has no table"):
        world.ask(f"from '{tmp_path}/secret.csv'")
    world_of_python = [1]
    with pytest.raises(ConfigError, match='has no table "world_of_python"'):
        world.ask("from world_of_python")
    assert world_of_python == [1]


def test_values_are_shown_with_all_their_digits(world: World) -> None:
    [row] = world.ask(
        "select 1.10::decimal(9, 2), {'a': [0.1::decimal(38, 20)]}, map([date '2020-01-01'], [1]), '\\x00k'::blob,"
        " timestamptz '0001-01-01 00:00:00+00', 170141183460469231731687303715884105727, null, true, 0.1"
    )
    assert row == (
        "1.10",
        {"a": ["0.10000000000000000000"]},
        {"2020-01-01": 1},
        "\\x00k",
        "0001-01-01 00:00:00+00",
        2**127 - 1,
        None,
        True,
        "0.1",
    )


def test_csv_tells_null_from_an_empty_text() -> None:
    rows: list[tuple[Any, ...]] = [
        (1, None, "", 'a "b", c'),
        (-0.5, True, {"x": [None, math.nan]}, "two\nlines"),
    ]
    assert list(csv_lines(("n", "a", "b", "c d"), rows)) == [
        "n,a,b,c d",
        '1,,"","a ""b"", c"',
        '-0.5,true,"{""x"": [null, ""NaN""]}","two\nlines"',
    ]
    assert list(csv_lines(("n",), [(None,), ("",)])) == ["n", '""', '""']


def test_json_says_what_it_has_no_number_for_and_loses_no_column() -> None:
    assert objects(("a", "b"), [(math.inf, [-math.inf, 1])]) == [{"a": "Infinity", "b": ["-Infinity", 1]}]
    assert text({"ž": 1}) == '{"ž": 1}'
    with pytest.raises(ConfigError, match='several columns are named "a"'):
        objects(("a", "b", "a"), [])


WIDE = (
    "select 7 as id, timestamptz '2026-01-01 00:00:00+00' as seen, true as ok, repeat('x', 90) as note,"
    " {'offset': 1} as _kafka"
)


def drawn(world: World, sql: str, hidden: tuple[str, ...] = ("_kafka",), width: int = 80) -> str:
    console = Console()
    console._out = Rich(file=io.StringIO(), force_terminal=True, width=width, color_system=None)
    statement = Statement(sql)
    lake = Lake("trading", "", endpoint="http://127.0.0.1:1")
    with answered(statement, world.lookup.opened(statement, None), lake, "trading") as answer:
        write(console, Format.text, answer, None, hidden)
    return str(console._out.file.getvalue())  # type: ignore[attr-defined]


def test_rows_that_are_too_wide_are_blocks_of_names_and_values(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "Europe/Vilnius")
    time.tzset()
    try:
        lines = drawn(world, WIDE).splitlines()
    finally:
        monkeypatch.undo()
        time.tzset()
    told = [line.rstrip() for line in lines]
    assert told[:5] == ["row 1", "id   7", "seen 2026-01-01T02:00:00+02:00", "ok   true", f"note {'x' * 75}"]
    assert "offset" not in " ".join(told)
    assert '_kafka {"offset": 1}' in drawn(world, WIDE, hidden=())
    assert "row 1" not in drawn(world, WIDE, width=200)
    assert drawn(world, "select 7 as id, true as ok").split() == ["id", "ok", "7", "true"]
    assert drawn(world, "select timestamp '2026-01-01 00:00:00.5' as at").split() == [
        "at",
        "2026-01-01T00:00:00.500000",
    ]


def test_what_programs_read_has_all_columns_as_they_are(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    lake = Lake("trading", "", endpoint="http://127.0.0.1:1")
    for form in (Format.csv, Format.text):
        with answered(Statement(WIDE), {}, lake, "trading") as answer:
            write(Console(), form, answer, None, ("_kafka",))
    out = capsys.readouterr().out
    assert out.count("x" * 90) == 2
    assert out.startswith("id,seen,ok,note,_kafka\n7,2026-01-01 ")
    assert "_kafka={" in out


def test_values_of_python_are_shown_as_people_read_them() -> None:
    found = {"at": datetime(2026, 1, 1), "raw": b"\x01", "n": [Decimal("1.50"), None, True]}  # noqa: DTZ001 local
    assert shown(found) == '{"at": "2026-01-01T00:00:00", "raw": "01", "n": ["1.50", null, true]}'
    assert (shown(True), shown(None), shown(b"\xff"), shown(math.nan)) == ("true", None, "ff", "NaN")


def test_an_event_says_lists_and_truths_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    Console().event(
        "table.engine", reasons=["its mode is deduplicate", "it has the step lookup"], settled=True
    )
    told = "table.engine  reasons=its mode is deduplicate; it has the step lookup  settled=true\n"
    assert capsys.readouterr().err == told
