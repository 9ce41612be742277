"""Times as ISO 8601 text in a zone, a column at a time. The text is that of Python's `isoformat`.

Arrow's own zone arithmetic reads a time-zone database that the functions' host does not promise; `zoneinfo` brings one along.
"""

from __future__ import annotations

from datetime import MAXYEAR, MINYEAR, UTC, datetime, timedelta
from functools import lru_cache
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.compute as pc

PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
STEP = timedelta(days=7)


def iso(array: Any, zone: ZoneInfo) -> Any:
    """Text of a timestamp column: with the zone's offset if the column is of instants, bare if it is of clock times."""
    unit = array.type.unit
    if array.type.tz is None:
        return clock_text(array)
    ticks = array.cast(pa.int64())
    years = pc.unique(pc.drop_null(pc.year(ticks.cast(pa.timestamp(unit))))).to_pylist()
    if not years:
        return pa.nulls(len(array), pa.string())
    scale = PER_SECOND[unit]
    pieces = _pieces(zone, years)
    shift, suffix = pa.scalar(pieces[0][1] * scale), pa.scalar(_offset_text(pieces[0][1]))
    for begins, offset in pieces[1:]:
        later = pc.greater_equal(ticks, begins * scale)
        shift = pc.if_else(later, offset * scale, shift)
        suffix = pc.if_else(later, _offset_text(offset), suffix)
    local = pc.add(ticks, shift).cast(pa.timestamp(unit))
    return pc.binary_join_element_wise(clock_text(local), suffix, "")


def clock_text(array: Any) -> Any:
    """`2026-11-09T06:00:00`, with a fraction where there is one."""
    text = pc.replace_substring(pc.cast(array, pa.string()), " ", "T", max_replacements=1)
    return without_zeros(text)


def without_zeros(text: Any) -> Any:
    return pc.replace_substring_regex(text, r"\.0+$", "")


def _pieces(zone: ZoneInfo, years: list[int]) -> list[tuple[int, int]]:
    """(from when on, in seconds since 1970; offset in seconds), for the years that occur: one date may be of the year 9999."""
    pieces: list[tuple[int, int]] = []
    for year in sorted({min(max(year, MINYEAR), MAXYEAR) for year in years}):
        start = datetime(year, 1, 1, tzinfo=UTC)
        for piece in ((int(start.timestamp()), _offset(zone, start)), *_changes(zone.key, year)):
            if not pieces or pieces[-1][1] != piece[1]:
                pieces.append(piece)
    return pieces


@lru_cache(maxsize=512)
def _changes(key: str, year: int) -> tuple[tuple[int, int], ...]:
    """Every change of a zone's offset within a year of UTC, with the offset from then on."""
    zone = ZoneInfo(key)
    before = datetime(year, 1, 1, tzinfo=UTC)
    end = datetime(year, 12, 31, 23, 59, 59, tzinfo=UTC)
    found = []
    while before < end:
        after = before + STEP if before < end - STEP else end
        if _offset(zone, before) != _offset(zone, after):
            change = _first_change(zone, before, after)
            found.append((int(change.timestamp()), _offset(zone, change)))
            before = change
        else:
            before = after
    return tuple(found)


def _first_change(zone: ZoneInfo, before: datetime, after: datetime) -> datetime:
    """The first second in (before, after] with another offset than at `before`."""
    old = _offset(zone, before)
    while after - before > timedelta(seconds=1):
        middle = before + timedelta(seconds=(after - before) // timedelta(seconds=2))
        if _offset(zone, middle) == old:
            before = middle
        else:
            after = middle
    return after


def _offset(zone: ZoneInfo, at: datetime) -> int:
    try:
        local = at.astimezone(zone)
    except OverflowError:
        return 0
    return int((local.utcoffset() or timedelta()).total_seconds())


def _offset_text(seconds: int) -> str:
    sign, rest = ("-", -seconds) if seconds < 0 else ("+", seconds)
    text = f"{sign}{rest // 3600:02}:{rest // 60 % 60:02}"
    return f"{text}:{rest % 60:02}" if rest % 60 else text
