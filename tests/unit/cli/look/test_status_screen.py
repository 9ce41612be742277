"""What `calve status` draws, at the widths that terminals have."""

from __future__ import annotations

import io
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from calve.config.maintenance import Due
from calve.outputs.job_status import FormerState
from calve.requests.requests import Entry
from cli.console import duration
from cli.lake import Snapshot
from cli.look.health import TableStatus
from cli.look.status.command import drawn
from cli.look.status.overview import History, Overview
from cli.look.status.screen import plot, short, size

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
ORDERS = TableStatus(
    "main",
    "shop.orders",
    "orders",
    "running",
    rows=12_345_678,
    commit_age_s=14.0,
    lag_records=1_234,
    lag_s=5.0,
    lag_source="kafka",
    lag_as_of=NOW.isoformat(),
    freshness_p50_s=12.0,
    freshness_p95_s=48.0,
    freshness_target_s=60.0,
    files=120,
    bytes=4_000_000_000,
    due=(Due("compact", "so many"),),
)
PEOPLE = replace(
    ORDERS, table="shop.people_of_all_our_many_countries", state="suspended", reason="gone", fix="cure it"
)
BOTH = Overview("shop", NOW, [ORDERS, PEOPLE])


def shown(found: Overview, width: int, height: int | None = None) -> list[str]:
    console = Console(width=width, file=io.StringIO(), record=True, color_system=None)
    console.print(drawn(found, width, height))
    return console.export_text().splitlines()


@pytest.mark.parametrize("width", [80, 100, 140])
def test_the_most_urgent_comes_first_and_nothing_is_cut(width: int) -> None:
    lines = shown(BOTH, width)
    assert max(map(len, lines)) <= width
    (header,) = [n for n, line in enumerate(lines) if line.startswith("table")]
    assert [line.split()[0] for line in lines[header + 1 : header + 3]] == [
        "people_of_all_our_many_countr…",
        "orders",
    ]
    assert any("gone" in line for line in lines)
    assert any("→ cure it" in line for line in lines)
    for name in ("state", "lag", "fresh", "of", "rows", "rejects"):
        assert name in lines[header].split()


def test_a_hundred_columns_have_room_for_every_figure_of_a_table_with_a_short_name() -> None:
    lines = shown(Overview("shop", NOW, [ORDERS]), 100)
    *_, header, line = lines
    names = "table state lag oldest p50 fresh of rows commit rejects files average due"
    assert header.split() == names.split()
    figures = "1,234 5s 12s 48s 1m 12.3M 14s - 120 33.3 MB compact"
    assert line.split() == ["orders", "●", "running", *figures.split()]
    assert "✓ nothing is wrong" in lines


def test_many_tables_fit_the_height_of_a_terminal() -> None:
    many = [replace(ORDERS, table=f"shop.t{n}") for n in range(200)]
    lines = shown(Overview("shop", NOW, [*many, PEOPLE]), 120, 30)
    assert len(lines) <= 30
    assert any(line.startswith("people") for line in lines)
    assert lines[-1].endswith("more, which are less urgent")


def test_where_kafka_is_not_reached_the_screen_says_so_and_how_old_the_report_is() -> None:
    as_of = (NOW - timedelta(minutes=2)).isoformat()
    lines = shown(Overview("shop", NOW, [replace(ORDERS, lag_source="job", lag_as_of=as_of)]), 100)
    assert any(line.startswith("Kafka is not reachable from here") for line in lines)
    assert "5s 2m ago" in lines[-1]


def history(count: int) -> History:
    def one(n: int) -> Snapshot:
        figures = f'{{"lag_s": {n}, "lag_records": 7, "freshness_p95_s": 3.5, "round_ms": 900, "s3_puts": 4, "s3_gets": 2}}'
        ledger = '{"span": 10, "consumed": 9, "gaps": 1, "applied": 8, "dead_lettered": 1, "rejected": {"malformed": 1}}'
        summary = {
            "calve.to": "{}",
            "calve.ledger": ledger,
            "calve.metrics": figures,
            "total-records": str(8 * n),
        }
        at = datetime.now(UTC) - timedelta(minutes=count - n)
        return Snapshot(n, n - 1, summary, at.timestamp(), operation="append")

    states = (
        FormerState("running", "2026-01-02T00:04:05+00:00"),
        FormerState("suspended", "2026-01-01T00:00:00+00:00", "offset_gap"),
    )
    done = Entry("i", "2026-01-02T00:00:00+00:00", "rollback", "back to snapshot 7", by="ann")
    refused = Entry("j", "2026-01-01T00:00:00+00:00", "layout", "day(at)", problem="no column at")
    return History(tuple(one(n) for n in range(count, 0, -1)), states, (done, refused))


def test_one_table_comes_with_its_rounds_its_lag_and_its_states() -> None:
    lines = shown(Overview("shop", NOW, [ORDERS], history=history(40)), 110)
    text = "\n".join(lines)
    assert "oldest record left by each round" in text
    assert "age when visible, 1m promised" in text
    assert sum(" ago " in line and " round " in line for line in lines) == 15
    assert "and 25 older" in text
    (suspended,) = [line for line in lines if "■ suspended" in line]
    assert suspended.split()[-1] == "offset_gap"
    assert "1d" in suspended
    assert any(line.split()[:1] == ["rollback"] and "ann" in line and "snapshot 7" in line for line in lines)
    assert any("the job" in line and "refused: no column at" in line for line in lines)


def test_a_table_that_does_not_exist_yet_has_a_screen() -> None:
    pending = TableStatus("main", "shop.new", "new", "pending", freshness_target_s=60.0)
    assert any(
        "not made yet" in line for line in shown(Overview("shop", NOW, [pending], history=History()), 80)
    )


def test_an_overview_is_a_document_with_keys_that_stay() -> None:
    document = Overview("shop", NOW, [PEOPLE], history=history(2)).document
    assert list(document) == [
        "at",
        "tables",
        "troubles",
        "published",
        "not_kept",
        "exports",
        "problems",
        "history",
    ]
    (table,) = document["tables"]
    first = "job table topic state code reason fix since rows snapshot_id committed_at commit_age_s lag_records lag_s"
    assert list(table)[:14] == first.split()
    assert document["troubles"][0]["fix"] == "cure it"
    assert [each["ledger"]["applied"] for each in document["history"]["snapshots"]] == [8, 8]


@given(st.lists(st.floats(0, 1e9), min_size=1, max_size=300), st.integers(1, 120), st.integers(1, 8))
def test_a_plot_has_its_size_and_shows_what_is_not_nothing(
    values: list[float], width: int, height: int
) -> None:
    lines = plot(values, width=width, height=height, label=duration)
    drawn = [line.partition("┤")[2] for line in lines]
    assert len(lines) == height
    assert {len(each) for each in drawn} == {len(drawn[0])}
    assert len(drawn[0]) <= width
    assert (drawn[-1].strip() != "") == any(values)
    if any(values):
        assert "█" in drawn[0] or height * 8 * max(values) == 0


def test_figures_are_short() -> None:
    assert [short(each) for each in (999_999, 1_000_000, 12_345_678, 1_200_000_000)] == [
        "999,999",
        "1.0M",
        "12.3M",
        "1.2B",
    ]
    assert [size(each) for each in (512, 1_500, 156_000, 2e15)] == ["512 B", "1.5 kB", "156 kB", "2,000.0 TB"]
