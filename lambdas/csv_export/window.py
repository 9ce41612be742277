"""The time range of a file: whole local days, weeks (from Monday) or months, in the export's time zone; and export errors.

A window is half-open. It depends on the time for which the run was scheduled, not on the time when it runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Literal
from zoneinfo import ZoneInfo

from calve.config.publishing import Window
from calve.errors import CalveError

Kind = Literal[
    "bad_event",
    "missing_table",
    "several_tables",
    "unreadable_table",
    "missing_column",
    "bad_time_column",
    "bad_column",
    "bad_window",
    "bad_filter",
    "too_many_groups",
    "out_of_time",
]


class ExportFailed(CalveError):
    """`kind`: a stable word for alarms. Recipients see the message; it holds no value of the table."""

    def __init__(self, kind: Kind, message: str, *, fix: str) -> None:
        super().__init__(message, fix=fix)
        self.kind = kind


@dataclass(frozen=True, slots=True)
class Period:
    """[start, end), both in UTC: local times are compared by their clock, and an hour occurs twice in autumn.

    Times of two zones are never equal if one is in that hour (PEP 495); in Havana it begins at midnight.
    """

    start: datetime
    end: datetime
    zone: ZoneInfo

    @property
    def local_start(self) -> datetime:
        return self.start.astimezone(self.zone)

    @property
    def local_end(self) -> datetime:
        return self.end.astimezone(self.zone)

    @property
    def whole_days(self) -> bool:
        bounds = (self.start, self.local_start), (self.end, self.local_end)
        return all(at == _midnight(local.date(), self.zone) for at, local in bounds)

    @property
    def name(self) -> str:
        """`2026-11-09_2026-11-16`: local dates, the last one excluded. Bounds other than midnights are in UTC."""
        if self.whole_days:
            return f"{self.local_start:%Y-%m-%d}_{self.local_end:%Y-%m-%d}"
        return f"{self.start:%Y%m%dT%H%M%SZ}_{self.end:%Y%m%dT%H%M%SZ}"

    def to_json(self) -> dict[str, str]:
        return {"from": self.local_start.isoformat(), "to": self.local_end.isoformat()}


def previous(kind: Window, at: datetime, zone: ZoneInfo, back: int = 0) -> Period:
    """The last whole day, week or month before `at`; `back`: that many windows earlier."""
    today = at.astimezone(zone).date()
    first, last = _dates(kind, today, back)
    return Period(_midnight(first, zone), _midnight(last, zone), zone)


def explicit(bounds: Mapping[str, str], zone: ZoneInfo) -> Period:
    """The window that an operator named: `from` and `to` in ISO 8601, with an offset. Raises ExportFailed: `bad_window`."""
    try:
        start, end = (datetime.fromisoformat(bounds[key]) for key in ("from", "to"))
    except (KeyError, TypeError, ValueError):
        raise _bad_window("has no readable from and to") from None
    if start.tzinfo is None or end.tzinfo is None:
        raise _bad_window("lacks the offset from UTC")
    period = Period(start.astimezone(UTC), end.astimezone(UTC), zone)
    if period.start >= period.end:
        raise _bad_window("does not end after its start")
    if period.start.microsecond or period.end.microsecond:
        raise _bad_window("is not in whole seconds")
    return period


def _dates(kind: Window, today: date, back: int) -> tuple[date, date]:
    match kind:
        case "previous_day":
            end = today - timedelta(days=back)
            return end - timedelta(days=1), end
        case "previous_week":
            end = today - timedelta(days=today.weekday(), weeks=back)
            return end - timedelta(weeks=1), end
        case "previous_month":
            return _month(today, -back - 1), _month(today, -back)


def _month(day: date, offset: int) -> date:
    months = day.year * 12 + day.month - 1 + offset
    return date(months // 12, months % 12 + 1, 1)


def _midnight(day: date, zone: ZoneInfo) -> datetime:
    """The start of a local day: if the clock skips midnight, the time of the skip; if midnight occurs twice, the first."""
    return datetime.combine(day, time(), zone).astimezone(UTC)


def _bad_window(why: str) -> ExportFailed:
    return ExportFailed(
        "bad_window",
        f"the window {why}",
        fix="write it as 2026-11-09T00:00:00+02:00, both for from and to",
    )
