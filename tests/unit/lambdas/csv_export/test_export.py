"""A run from table to file and manifest: what is written, when nothing is, and when it waits."""

from __future__ import annotations

import hashlib
from datetime import timedelta

import pyarrow as pa
import pytest
from pyiceberg.types import LongType

from calve.config.publishing import Csv, Measure
from tests.unit.lambdas.csv_export.lake import MONDAY, World, at, export, trades

WEEK = "exports/weekly/2026-11-09_2026-11-16/"


def test_a_window_becomes_one_file_and_its_manifest(lake: World) -> None:
    lake.made(trades(at(8, 23), at(9, 0), at(15, 23), at(16, 0)))
    (outcome,) = lake.run(export())
    key = f"{WEEK}1/run1/weekly_2026-11-09_2026-11-16.csv"
    assert lake.rows(key) == [
        ["id", "at", "side"],
        ["1", "2026-11-09T00:00:00+00:00", "BUY"],
        ["2", "2026-11-15T23:00:00+00:00", "SELL"],
    ]
    manifest = lake.manifest(outcome)
    body = lake.bytes(key)
    assert manifest["parts"] == [
        {"key": key, "rows": 2, "size_bytes": len(body), "sha256": hashlib.sha256(body).hexdigest()}
    ]
    assert manifest["window"] == {"from": "2026-11-09T00:00:00+00:00", "to": "2026-11-16T00:00:00+00:00"}
    assert (manifest["rows"], manifest["complete"], manifest["correction"]) == (2, True, False)
    assert not manifest["redefined"]
    assert manifest["ingested_until"] == at(20).isoformat()
    assert [each["type"] for each in manifest["schema"]] == ["long", "timestamptz", "string"]


def test_a_second_run_writes_nothing(lake: World) -> None:
    lake.made(trades(at(10)))
    lake.run(export())
    before = lake.objects()
    (outcome,) = lake.run(export())
    assert outcome.status == "unchanged"
    assert lake.objects() == before


def test_a_rewrite_of_the_table_is_no_correction(lake: World) -> None:
    table = lake.made(trades(at(10), at(11)))
    lake.append(trades(at(12), first=2))
    lake.run(export())
    rows = lake.catalog.load_table("trading.trades").scan().to_arrow()
    table.refresh()
    table.overwrite(rows.sort_by([("id", "descending")]), snapshot_properties={"calve.metrics": "{}"})
    (outcome,) = lake.run(export())
    assert outcome.status == "unchanged"


def test_a_changed_value_is_a_correction_even_where_the_count_is_the_same(lake: World) -> None:
    table = lake.made(trades(at(10), at(11)))
    lake.run(export())
    table.overwrite(trades(at(10), at(12)))
    (outcome,) = lake.run(export())
    assert (outcome.status, outcome.correction) == ("written", True)


def test_late_rows_correct_an_earlier_window_and_leave_its_first_file(lake: World) -> None:
    lake.made(trades(at(10)))
    lake.run(export())
    lake.append(trades(at(11), first=1), complete_until=at(30))
    due, late = lake.run(export(), when=MONDAY + timedelta(weeks=1))
    assert (due.status, due.rows) == ("written", 0)
    assert (late.status, late.correction, late.rows) == ("written", True, 2)
    assert late.manifest == f"{WEEK}2/manifest.json"
    assert len(lake.rows(f"{WEEK}1/run1/weekly_2026-11-09_2026-11-16.csv")) == 2


def test_windows_before_the_first_export_are_not_written_afterwards(lake: World) -> None:
    lake.made(trades(at(3), at(10)))
    assert [outcome.period.name for outcome in lake.run(export())] == ["2026-11-09_2026-11-16"]


def test_a_new_column_is_no_late_row(lake: World) -> None:
    table = lake.made(trades(at(10)))
    lake.run(export())
    with table.update_schema() as update:
        update.add_column("extra", LongType())
    lake.append(trades(at(17), first=1).append_column("extra", pa.array([7])), complete_until=at(30))
    due, late = lake.run(export(), when=MONDAY + timedelta(weeks=1))
    assert lake.rows(lake.manifest(due)["parts"][0]["key"])[0][-1] == "extra"
    assert late.status == "unchanged"


def test_the_same_window_by_other_settings_is_redefined_and_no_correction(lake: World) -> None:
    lake.made(trades(at(10)))
    lake.run(export())
    (outcome,) = lake.run(export(columns=("id",)))
    manifest = lake.manifest(outcome)
    assert (outcome.status, outcome.correction) == ("written", False)
    assert outcome.manifest == f"{WEEK}2/manifest.json"
    assert (manifest["correction"], manifest["redefined"]) == (False, True)


def test_an_earlier_window_of_other_settings_is_left_alone(lake: World) -> None:
    lake.made(trades(at(10)))
    lake.run(export())
    lake.append(trades(at(11), first=1), complete_until=at(30))
    _, late = lake.run(export(columns=("id",)), when=MONDAY + timedelta(weeks=1))
    assert late.status == "redefined"


def test_an_empty_week_is_a_file_with_a_header(lake: World) -> None:
    lake.made(trades(at(1)))
    (outcome,) = lake.run(export())
    assert (outcome.status, outcome.rows, outcome.parts) == ("written", 0, 1)
    assert lake.rows(f"{WEEK}1/run1/weekly_2026-11-09_2026-11-16.csv") == [["id", "at", "side"]]


def test_a_lagging_table_makes_the_run_wait(lake: World) -> None:
    lake.made(trades(at(10)), complete_until=at(15))
    (outcome,) = lake.run(export())
    assert outcome.status == "waiting"
    assert lake.waits == [MONDAY + timedelta(minutes=5)]
    assert lake.objects() == []


def test_when_waiting_is_over_the_file_says_up_to_when_it_is_complete(lake: World) -> None:
    lake.made(trades(at(10)), complete_until=at(15))
    lake.now = MONDAY + timedelta(hours=2)
    (outcome,) = lake.run(export())
    manifest = lake.manifest(outcome)
    assert (manifest["complete"], manifest["ingested_until"]) == (False, at(15).isoformat())


def test_a_missing_table_is_waited_for_and_then_named(lake: World) -> None:
    (outcome,) = lake.run(export())
    assert outcome.status == "waiting"
    lake.now = MONDAY + timedelta(hours=2)
    (outcome,) = lake.run(export())
    assert outcome.failure is not None
    assert outcome.failure.kind == "missing_table"
    assert lake.objects() == []


def test_a_table_of_a_clusters_database_is_found_by_its_name(lake: World) -> None:
    lake.made(trades(at(10)))
    lake.databases = ("another", "trading")
    (outcome,) = lake.run(export(database=""))
    assert (outcome.status, outcome.rows) == ("written", 1)
    manifest = lake.manifest(outcome)
    assert manifest["export"]["database"] == "trading"  # by which a person's deliveries are found
    (again,) = lake.run(export(database=""))
    assert again.status == "unchanged"


def test_tables_of_one_name_in_the_databases_of_two_clusters_are_not_taken_for_one(lake: World) -> None:
    lake.made(trades(at(10)))
    lake.catalog.create_namespace("moved")
    lake.catalog.create_table("moved.trades", trades(at(10)).schema, location=f"{lake.folder.as_uri()}/moved")
    lake.databases = ("trading", "moved")
    (outcome,) = lake.run(export(database=""))
    assert outcome.failure is not None
    assert outcome.failure.kind == "several_tables"
    assert "moved, trading" in outcome.failure.message
    lake.databases, lake.now = (), MONDAY + timedelta(hours=2)
    (outcome,) = lake.run(export(database=""))
    assert outcome.failure is not None
    assert outcome.failure.message == "there is no table trades"


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"columns": ("id", "nosuch")}, "missing_column"),
        ({"time_column": "nosuch"}, "missing_column"),
        ({"time_column": "id"}, "bad_time_column"),
        ({"filter": "nosuch = 1"}, "bad_filter"),
        ({"filter": "id ="}, "bad_filter"),
        ({"measures": (Measure("total", "sum", "side"),)}, "bad_column"),
    ],
)
def test_settings_that_do_not_fit_the_table_are_named(lake: World, changes: dict, kind: str) -> None:
    lake.made(trades(at(10)))
    (outcome,) = lake.run(export(**changes))
    assert outcome.failure is not None
    assert outcome.failure.kind == kind
    assert lake.objects() == []


def test_rows_beyond_the_limit_go_into_numbered_files(lake: World) -> None:
    lake.made(trades(*[at(10)] * 5))
    (outcome,) = lake.run(export(csv=Csv(row_limit=2)))
    parts = lake.manifest(outcome)["parts"]
    assert [part["key"].rpartition("_")[2] for part in parts] == ["part01.csv", "part02.csv", "part03.csv"]
    assert [part["rows"] for part in parts] == [2, 2, 1]
    assert all(lake.rows(part["key"])[0] == ["id", "at", "side"] for part in parts)


def test_rows_at_the_limit_are_one_file_whatever_else_the_table_holds(lake: World) -> None:
    lake.made(trades(at(10), at(10), at(1), at(1)))
    (outcome,) = lake.run(export(csv=Csv(row_limit=2)))
    assert [part["rows"] for part in lake.manifest(outcome)["parts"]] == [2]
    assert f"{WEEK}1/run1/weekly_2026-11-09_2026-11-16.csv" in lake.objects()


def test_compressed_files_of_the_same_rows_have_the_same_bytes(lake: World) -> None:
    lake.made(trades(at(10)))
    first, second = (
        lake.manifest(lake.run(export(name=name, csv=Csv(gzip=True, bom=True)))[0]) for name in ("a", "b")
    )
    assert first["parts"][0]["sha256"] == second["parts"][0]["sha256"]
    assert lake.bytes(first["parts"][0]["key"]).startswith(b"\xef\xbb\xbfid,at,side\r\n")


def test_a_named_window_is_exported_alone(lake: World) -> None:
    lake.made(trades(at(10), at(11)))
    lake.run(export())
    window = {"from": "2026-11-10T12:00:00+02:00", "to": "2026-11-11T00:00:00+00:00"}
    (outcome,) = lake.run(export(), window)
    assert (outcome.rows, outcome.period.name) == (1, "20261110T100000Z_20261111T000000Z")


def test_a_function_without_time_left_gives_up_and_leaves_nothing(lake: World) -> None:
    lake.made(trades(at(10)))
    lake.remaining_s = 30
    (outcome,) = lake.run(export())
    assert outcome.failure is not None
    assert outcome.failure.kind == "out_of_time"
    assert lake.objects() == []
    assert "Uploads" not in lake.s3.list_multipart_uploads(Bucket="lake")


def test_an_aggregation_is_written_in_the_order_of_its_groups(lake: World) -> None:
    lake.made(trades(at(9), at(10), at(11)))
    what = export(group_by=("side",), measures=(Measure("trades", "count"), Measure("total", "sum", "id")))
    (outcome,) = lake.run(what)
    key = lake.manifest(outcome)["parts"][0]["key"]
    assert lake.rows(key) == [["side", "trades", "total"], ["BUY", "1", "1"], ["SELL", "2", "2"]]
    assert [each["type"] for each in lake.manifest(outcome)["schema"]] == ["string", "long", "decimal(38, 0)"]


@pytest.mark.parametrize("call", ["upload_part", "complete_multipart_upload"])
def test_an_upload_that_fails_leaves_nothing(lake: World, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    lake.made(trades(at(10), at(11)))

    def broken(**_):
        raise RuntimeError(call)

    monkeypatch.setattr(lake.s3, call, broken)
    with pytest.raises(RuntimeError, match=call):
        lake.run(export())
    assert lake.objects() == []
    assert "Uploads" not in lake.s3.list_multipart_uploads(Bucket="lake")


def test_nothing_is_visible_while_a_file_is_written(lake: World, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.made(trades(*[at(10)] * 5))
    seen = []
    real = lake.s3.upload_part

    def look(**arguments):
        seen.append(lake.objects())
        return real(**arguments)

    monkeypatch.setattr(lake.s3, "upload_part", look)
    lake.run(export(csv=Csv(row_limit=2)))
    assert seen == [[], [], []]
