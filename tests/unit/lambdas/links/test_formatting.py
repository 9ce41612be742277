from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from lambdas import formatting

ZONE = "Europe/Vilnius"


def at(text: str, zone: str = ZONE) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone))


@pytest.mark.parametrize(
    ("start", "end", "said"),
    [
        ("2026-11-02", "2026-11-09", "2-8 November 2026"),
        ("2026-10-26", "2026-11-02", "26 October - 1 November 2026"),
        ("2026-12-28", "2027-01-04", "28 December 2026 - 3 January 2027"),
        ("2026-11-02", "2026-11-03", "Monday, 2 November 2026"),
        ("2026-11-01", "2026-12-01", "November 2026"),
        ("2026-12-01", "2027-01-01", "December 2026"),
        ("2026-10-19", "2026-10-26", "19-25 October 2026"),
        ("2026-11-02T06:30", "2026-11-03T00:00", "2 November 2026, 06:30 - 3 November 2026, 00:00"),
    ],
)
def test_a_window_is_said_as_people_say_it(start, end, said):
    assert formatting.ascii_only(formatting.window(at(start), at(end), ZONE)) == said


def test_a_window_is_said_in_the_exports_zone_whatever_zone_it_is_written_in():
    utc = ZoneInfo("UTC")
    said = formatting.window(at("2026-11-02").astimezone(utc), at("2026-11-09").astimezone(utc), ZONE)
    assert formatting.ascii_only(said) == "2-8 November 2026"


def test_a_day_whose_midnight_the_clock_skips_is_a_day():
    start = datetime.fromisoformat("2026-04-23T22:00:00+00:00")
    end = datetime.fromisoformat("2026-04-24T21:00:00+00:00")
    assert formatting.window(start, end, "Africa/Cairo") == "Friday, 24 April 2026"


@pytest.mark.parametrize(
    ("count", "said"),
    [
        (0, "0 bytes"),
        (999, "999 bytes"),
        (1000, "1.0 kB"),
        (1_234_567, "1.2 MB"),
        (999_950, "1.0 MB"),
        (150_000_000, "150 MB"),
        (5_100_000_000_000_000, "5100 TB"),
    ],
)
def test_a_size_is_said_in_decimal_units(count, said):
    assert formatting.size(count) == said


def test_names_rows_and_moments_are_said_in_words():
    assert formatting.title("weekly_trades") == "Weekly trades"
    assert [formatting.rows(n) for n in (0, 1, 12345)] == ["0 rows", "1 row", "12,345 rows"]
    assert (
        formatting.moment(at("2026-11-16T06:00"), ZONE) == "Monday, 16 November 2026, 06:00 (Europe/Vilnius)"
    )
