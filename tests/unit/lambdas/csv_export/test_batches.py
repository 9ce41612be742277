"""Our reader gives the rows that PyIceberg's own gives, in memory that PyIceberg's does not keep to."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import date
from pathlib import Path
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.types import LongType, StringType

from lambdas.csv_export import scan as reading
from lambdas.csv_export.scan import SIZE_BYTES, plan, slices
from lambdas.csv_export.window import previous
from tests.unit.lambdas.csv_export.deletes import delete_equal, delete_positions
from tests.unit.lambdas.csv_export.lake import MONDAY, World, at, export, trades

ROOT = Path(__file__).parents[4]
STRUCT = pa.struct(
    [("partition", pa.int32()), ("timestamp", pa.timestamp("us", "UTC")), ("key", pa.binary())]
)


def scan(lake: World, **changes):
    what = export(**changes)
    table = lake.catalog.load_table("trading.trades")
    return plan(
        table, what, previous("previous_week", MONDAY, ZoneInfo(what.time_zone)), what.columns, lambda: 900.0
    )


def rows(planned) -> pa.Table:
    return pa.Table.from_batches(list(planned.batches()))


def test_rows_equal_those_of_pyiceberg_through_the_table_s_history(lake: World) -> None:
    table = lake.made(trades(at(8), at(9), at(10)))
    with table.update_schema() as update:
        update.rename_column("side", "direction")
        update.add_column("extra", LongType())
        update.add_column("note", StringType())
    added = trades(at(11), at(17), first=3).rename_columns(["id", "at", "direction"])
    table.append(
        added.append_column("extra", pa.array([7, None])).append_column("note", pa.array(["x", "y"]))
    )
    table.delete("id = 1")
    planned = scan(lake)
    expected = table.scan(row_filter=planned.row_filter).to_arrow().sort_by("id")
    assert rows(planned).sort_by("id").cast(expected.schema).equals(expected)
    assert expected["id"].to_pylist() == [2, 3]


def kafka_rows() -> pa.Table:
    times = [at(8), at(9), None, at(15, 23), at(16)]
    records = [{"partition": i, "timestamp": when, "key": b"k"} for i, when in enumerate(times)]
    return pa.table({"id": pa.array(range(6)), "_kafka": pa.array([*records, None], STRUCT)})


def test_a_nested_time_column_selects_rows(lake: World) -> None:
    lake.made(kafka_rows())
    assert rows(scan(lake, time_column="_kafka.timestamp"))["id"].to_pylist() == [1, 3]


def test_a_nested_field_is_a_column_and_the_struct_is_left_out_by_default(lake: World) -> None:
    lake.made(kafka_rows())
    planned = scan(lake, time_column="_kafka.timestamp", columns=("_kafka.partition", "id"))
    assert rows(planned).to_pydict() == {"_kafka.partition": [1, 3], "id": [1, 3]}
    assert rows(scan(lake, time_column="_kafka.timestamp")).schema.names == ["id"]


def test_clock_times_and_dates_are_those_of_the_zone(lake: World) -> None:
    clock = pa.array(["2026-11-08T23:59", "2026-11-09T00:00", "2026-11-15T23:59", "2026-11-16T00:00"])
    days = [date(2026, 11, 8), date(2026, 11, 9), date(2026, 11, 15), date(2026, 11, 16)]
    lake.made(pa.table({"clock": clock.cast(pa.timestamp("us")), "day": days}))
    for column in ("clock", "day"):
        assert rows(scan(lake, time_column=column, time_zone="Europe/Vilnius")).num_rows == 2


def test_the_export_s_filter_holds_beside_the_window(lake: World) -> None:
    lake.made(trades(at(9), at(10), at(11), at(20)))
    assert rows(scan(lake, filter="side = 'SELL' and id > 0"))["id"].to_pylist() == [2]


def test_row_groups_outside_the_window_are_not_read(lake: World, tmp_path: Path) -> None:
    lines = trades(*[at(1)] * 10, *[at(10)] * 10)
    table = lake.table(lines)
    pq.write_table(lines, tmp_path / "data.parquet", row_group_size=10)
    table.add_files([str(tmp_path / "data.parquet")])
    assert rows(scan(lake))["id"].to_pylist() == list(range(10, 20))


def test_positions_deleted_on_read_are_left_out(
    lake: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "ROWS", 3)
    lines = trades(*[at(1)] * 10, *[at(10)] * 10)
    table = lake.table(lines)
    pq.write_table(lines, tmp_path / "data.parquet", row_group_size=5)
    table.add_files([str(tmp_path / "data.parquet")])
    lake.append(trades(at(10), at(11), first=20))
    other, file = sorted(
        (task.file.file_path for task in table.refresh().scan().plan_files()),
        key=lambda path: "data.parquet" in path,
    )
    delete_positions(table, file, [0, 10, 14])
    delete_positions(table, file, [15, 19])
    delete_positions(table, other, [1])
    kept = [11, 12, 13, 16, 17, 18, 20]
    assert sorted(rows(scan(lake))["id"].to_pylist()) == kept
    assert sorted(rows(scan(lake, filter="id > 11"))["id"].to_pylist()) == kept[1:]
    assert sorted(table.scan(row_filter=scan(lake).row_filter).to_arrow()["id"].to_pylist()) == kept


def test_rows_added_after_a_delete_of_all_are_there(lake: World) -> None:
    table = lake.made(trades(at(10), at(11)))
    (task,) = table.scan().plan_files()
    delete_positions(table, task.file.file_path, [0, 1])
    assert list(scan(lake).batches()) == []
    lake.append(trades(at(12), first=2))
    assert rows(scan(lake))["id"].to_pylist() == [2]


def test_equality_deletes_are_refused_by_name(lake: World) -> None:
    table = lake.made(trades(at(10), at(11)))
    delete_equal(table, "id", [1])
    (outcome,) = lake.run(export())
    assert outcome.failure is not None
    assert outcome.failure.kind == "unreadable_table"
    assert "equality deletes" in outcome.failure.message
    assert "compact" in str(outcome.failure.fix)
    assert lake.objects() == []


def test_wide_rows_come_in_small_pieces() -> None:
    batch = pa.record_batch({"t": pa.array(["x" * 1_000_000] * 40)})
    sizes = [piece.nbytes for piece in slices(batch)]
    assert sum(piece.num_rows for piece in slices(batch)) == 40
    assert max(sizes) <= SIZE_BYTES


@pytest.mark.full
def test_memory_is_the_same_for_few_rows_and_many(tmp_path: Path) -> None:
    peaks = []
    for count in ("500000", "2000000"):
        _program("make", tmp_path, count)
        peaks.append(json.loads(_program("rows", tmp_path, count))["peak_mb"])
    assert peaks[1] < peaks[0] + 60, peaks


def _program(verb: str, folder: Path, rows: str) -> str:
    command = [sys.executable, "-m", "tests.unit.lambdas.csv_export.memory", verb, str(folder), rows]
    # Other tests of this process may have named an emulator.
    plain = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    done = subprocess.run(
        command, cwd=ROOT, env=plain, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
