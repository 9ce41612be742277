"""Formats names, windows, sizes and times for people, in mails and on the download page."""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta
from zoneinfo import ZoneInfo

DASH = "\N{EN DASH}"
UNITS = ("bytes", "kB", "MB", "GB", "TB")


def title(export: str) -> str:
    """`weekly_trades` -> `Weekly trades`."""
    words = export.replace("_", " ").replace("-", " ").strip()
    return words[:1].upper() + words[1:]


def window(start: datetime, end: datetime, time_zone: str) -> str:
    """A half-open window: `2-8 November 2026` (with an en dash) if it consists of whole days."""
    zone = ZoneInfo(time_zone)
    start, end = start.astimezone(zone), end.astimezone(zone)
    if not (_begins_a_day(start) and _begins_a_day(end)):
        return f"{start:%-d %B %Y, %H:%M} {DASH} {end:%-d %B %Y, %H:%M}"
    last = end - timedelta(days=1)
    if start.date() == last.date():
        return f"{start:%A, %-d %B %Y}"
    if (start.year, start.month) == (last.year, last.month):
        return f"{start:%B %Y}" if start.day == end.day == 1 else f"{start.day}{DASH}{last:%-d %B %Y}"
    year = "" if start.year == last.year else " %Y"
    return f"{start:%-d %B{year}} {DASH} {last:%-d %B %Y}"


def _begins_a_day(at: datetime) -> bool:
    """Whether a local day begins here, also if the clock skips its midnight."""
    midnight = datetime.combine(at.date(), time(), at.tzinfo)
    return midnight.astimezone(UTC) == at.astimezone(UTC)


def clock(when: datetime | float, time_zone: str) -> str:
    """`Monday, 16 November 2026, 06:00`, for use beside the zone."""
    zone = ZoneInfo(time_zone)
    local = when.astimezone(zone) if isinstance(when, datetime) else datetime.fromtimestamp(when, zone)
    return f"{local:%A, %-d %B %Y, %H:%M}"


def moment(when: datetime | float, time_zone: str) -> str:
    """`Monday, 16 November 2026, 06:00 (Europe/Vilnius)`."""
    return f"{clock(when, time_zone)} ({time_zone})"


def rows(count: int) -> str:
    return "1 row" if count == 1 else f"{count:,} rows"


def size(count: int) -> str:
    """`950 bytes`, `1.2 MB`: decimal units, as in most file managers."""
    value = float(count)
    for unit in UNITS:
        if value < 999.5 or unit == UNITS[-1]:
            break
        value /= 1000
    return f"{value:.0f} {unit}" if unit == "bytes" or value >= 99.95 else f"{value:.1f} {unit}"


def ascii_only(text: str) -> str:
    """For a mail's subject in SNS, which allows only ASCII."""
    return text.replace(DASH, "-").encode("ascii", "replace").decode()
