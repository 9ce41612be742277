"""Windows tile the time line in every zone, and follow from the scheduled time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo, available_timezones

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lambdas.csv_export.window import ExportFailed, explicit, previous

VILNIUS = ZoneInfo("Europe/Vilnius")
KINDS = st.sampled_from(["previous_day", "previous_week", "previous_month"])
ZONES = st.sampled_from(sorted(available_timezones())).map(ZoneInfo)
FIRST, LAST = datetime.fromisoformat("2012-03-01"), datetime.fromisoformat("2037-12-31")
MOMENTS = st.datetimes(FIRST, LAST, timezones=st.just(UTC))


@given(KINDS, ZONES, MOMENTS, st.integers(2, 14))
def test_consecutive_windows_neither_overlap_nor_leave_a_gap(kind, zone, when, many) -> None:
    windows = [previous(kind, when, zone, back) for back in range(many)]
    assert windows[0].end <= when
    for later, earlier in pairwise(windows):
        assert earlier.end == later.start
        assert earlier.start < earlier.end


@given(KINDS, ZONES, MOMENTS)
def test_the_run_of_the_next_window_begins_where_this_one_ends(kind, zone, when) -> None:
    window = previous(kind, when, zone)
    after = previous(kind, window.end + (when - window.end), zone)
    assert after == window
    assert previous(kind, window.end, zone) == window
    assert previous(kind, window.start, zone).end == window.start


@given(KINDS, ZONES, MOMENTS)
def test_windows_begin_with_a_local_day(kind, zone, when) -> None:
    window = previous(kind, when, zone)
    before = window.start - timedelta(seconds=1)
    assert before.astimezone(zone).date() < window.local_start.date()
    assert window.whole_days
    if kind == "previous_week":
        assert window.local_start.weekday() == 0
    if kind == "previous_month":
        assert window.local_start.day == window.local_end.day == 1


@pytest.mark.parametrize(
    ("monday", "hours"),
    [("2026-03-30T06:00", 167), ("2026-10-26T06:00", 169), ("2026-11-16T06:00", 168)],
)
def test_a_week_is_as_long_as_its_clocks_make_it(monday: str, hours: int) -> None:
    window = previous("previous_week", datetime.fromisoformat(monday).replace(tzinfo=VILNIUS), VILNIUS)
    assert window.end - window.start == timedelta(hours=hours)


def test_a_late_run_writes_the_window_that_was_scheduled() -> None:
    window = previous("previous_week", datetime(2026, 11, 16, 6, tzinfo=VILNIUS), VILNIUS)
    assert window.name == "2026-11-09_2026-11-16"
    assert window.to_json() == {"from": "2026-11-09T00:00:00+02:00", "to": "2026-11-16T00:00:00+02:00"}


def test_the_hour_that_comes_twice_has_two_windows() -> None:
    bounds = {"from": "2026-10-25T03:30:00+03:00", "to": "2026-10-25T03:30:00+02:00"}
    window = explicit(bounds, VILNIUS)
    assert window.end - window.start == timedelta(hours=1)
    assert window.name == "20261025T003000Z_20261025T013000Z"


@pytest.mark.parametrize(
    "bounds",
    [
        {},
        {"from": "2026-11-09", "to": "2026-11-16"},
        {"from": "monday", "to": "sunday"},
        {"from": "2026-11-09T00:00:00Z", "to": "2026-11-09T00:00:00Z"},
        {"from": "2026-11-09T00:00:00Z", "to": "2026-11-09T00:00:00.5Z"},
    ],
)
def test_a_window_that_cannot_be_is_refused(bounds: dict[str, str]) -> None:
    with pytest.raises(ExportFailed) as refused:
        explicit(bounds, VILNIUS)
    assert refused.value.kind == "bad_window"


def test_a_midnight_that_comes_twice_is_a_whole_day_all_the_same() -> None:
    havana = ZoneInfo("America/Havana")
    window = previous("previous_day", datetime(2036, 11, 3, tzinfo=UTC), havana)
    assert window.end == datetime(2036, 11, 2, 4, tzinfo=UTC)
    assert window.name == "2036-11-01_2036-11-02"
